"""Tiles at the server: from the request to the packed bytes, of every level, p95; cold (nothing decoded yet) and warm.

The trace has 1.5 million slices on 92 tracks; a tile is asked for as the page asks: a few units of four depths each. The
reference is one pass over the stored slices with the window as filter: what a tile costs without tiles.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from bench import generator
from profiles import ingest
from profiles.ingest.trace import Trace
from profiles.store import columns as store_columns
from profiles.store import timeline as timeline_store
from profiles.store import trace as store
from profiles.store.objects import objects_delete
from profiles.timeline import selectors as timeline_selectors

BENCH_PROFILE = 2_000_000_001
Place = tuple[int, int, list[timeline_store.Unit]]
SLICES, TILES, BUDGET_MS, BUDGET_KB = 1_500_000, 200, 50.0, 100.0
BAND, UNITS = 4, 2                   # depths of a unit, units of a request where every bin is full


def run() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="ridgepoint-bench-") as folder:
        file = Path(folder) / "trace.json.gz"
        generator.write(file, slices=SLICES)
        trace = ingest.read(file)
    if not isinstance(trace, Trace):
        raise TypeError("the bench's trace reads as counters")
    store.prepare(trace).write(BENCH_PROFILE)
    try:
        return _rows()
    finally:
        objects_delete(BENCH_PROFILE)


def _rows() -> list[dict[str, Any]]:
    found = timeline_store.timeline(BENCH_PROFILE)
    slices = found.slices.rows
    asked = _asked(found)
    sizes: list[int] = []
    _tile(asked[0], True, [])                            # imports and the interpreter's own first time
    cold = [_timed(partial(_tile, place, True, sizes)) for place in asked[:TILES // 4]]
    warm = [_timed(partial(_tile, place, False, sizes)) for place in asked]
    reference_ms = _p95([_timed(partial(_filtered, place)) for place in asked[:20]])
    what, largest_kb = f"tile of {slices:,} slices, p95 of", max(sizes) / 1e3
    return [
        {"what": f"{what} {len(times)}, {label}", "measured": f"{_p95(times):.1f} ms",
         "reference": f"filtering all slices {reference_ms:.1f} ms", "ratio": _p95(times) / reference_ms,
         "budget": f"< {BUDGET_MS:g} ms", "ok": _p95(times) < BUDGET_MS}
        for label, times in (("cold cache", cold), ("warm cache", warm))
    ] + [{"what": f"largest of {len(sizes)} tiles", "measured": f"{largest_kb:.0f} kB", "reference": "", "ratio": None,
          "budget": f"≤ {BUDGET_KB:g} kB", "ok": largest_kb <= BUDGET_KB}]


def _asked(found: timeline_store.Timeline) -> list[Place]:
    """Tiles as someone zooming in sees them: every level, anywhere in the trace, anywhere down the tracks."""
    rng = np.random.default_rng(0)
    units = [(track["id"], first, first + BAND - 1) for track in found.tracks if track["slices"]
             for first in range(0, track["depths"], BAND)]
    out = []
    for _ in range(TILES):
        level = int(rng.integers(0, found.top + 1))
        last = found.document["end_ns"] >> (2 * level + 10)
        begin = int(rng.integers(0, len(units) - UNITS))
        out.append((level, int(rng.integers(0, last + 1)), units[begin:begin + UNITS]))
    return out


def _tile(place: Place, cold: bool, sizes: list[int]) -> None:
    found = timeline_store.timeline(BENCH_PROFILE)
    if cold:
        store_columns.cache.clear()
    sizes.append(len(timeline_selectors.tile_gzip(found, *place)))


def _filtered(place: Place) -> None:
    level, index, _ = place
    begin, end = index << (2 * level + 10), (index + 1) << (2 * level + 10)
    table = pq.read_table(store.local_path(store.key(BENCH_PROFILE, "slices.parquet")))
    start, dur = table["start_ns"].to_numpy(), table["dur_ns"].to_numpy()
    np.flatnonzero((start < end) & (start + dur > begin))


def _timed(call: Callable[[], None]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e3


def _p95(values: list[float]) -> float:
    return float(np.percentile(values, 95))

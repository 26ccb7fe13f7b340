"""Tiles at the server: from the request to the packed bytes, of every level, p95; cold (nothing decoded yet) and warm.

The trace is a recording repeated to 200,000 records. The reference is one pass over the stored slices with the window
as filter: what a tile costs without tiles.
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

from bench.traces import repeated
from profiles import ingest, store, timeline_selectors, timeline_store
from profiles.objects import objects_delete
from profiles.trace import Trace

BENCH_PROFILE = 2_000_000_001
COPIES, TILES, BUDGET_MS = 18, 200, 50.0


def run() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="ridgepoint-bench-") as folder:
        file = Path(folder) / "trace.json"
        repeated(COPIES, file)
        trace = ingest.read(file)
    if not isinstance(trace, Trace):
        raise TypeError("the bench's trace reads as counters")
    store.write_trace(BENCH_PROFILE, trace)
    try:
        return _rows(trace)
    finally:
        objects_delete(BENCH_PROFILE)


def _rows(trace: Trace) -> list[dict[str, Any]]:
    found = timeline_store.timeline(BENCH_PROFILE)
    asked = _asked(found)
    sizes: list[int] = []
    _tile(asked[0], True, [])                            # imports and the interpreter's own first time
    cold = [_timed(partial(_tile, place, True, sizes)) for place in asked[:TILES // 4]]
    warm = [_timed(partial(_tile, place, False, sizes)) for place in asked]
    reference_ms = _p95([_timed(partial(_filtered, place)) for place in asked[:20]])
    what = f"tile of {trace.slices.num_rows:,} slices, p95 of"
    return [
        {"what": f"{what} {len(times)}, {label}", "measured": f"{_p95(times):.1f} ms",
         "reference": f"filtering all slices {reference_ms:.1f} ms", "ratio": _p95(times) / reference_ms,
         "budget": f"< {BUDGET_MS:g} ms", "ok": _p95(times) < BUDGET_MS}
        for label, times in (("cold cache", cold), ("warm cache", warm))
    ] + [{"what": "bytes of a tile with all tracks, p95", "measured": f"{_p95([float(s) for s in sizes]) / 1e3:.0f} kB",
          "reference": "", "ratio": None, "budget": "", "ok": None}]


def _asked(found: timeline_store.Timeline) -> list[tuple[int, int]]:
    """Tiles (level, index) as someone zooming in sees them: every level, anywhere in the trace."""
    rng = np.random.default_rng(0)
    out = []
    for _ in range(TILES):
        level = int(rng.integers(0, found.top + 1))
        last = found.document["end_ns"] >> (2 * level + 10)
        out.append((level, int(rng.integers(0, last + 1))))
    return out


def _tile(place: tuple[int, int], cold: bool, sizes: list[int]) -> None:
    if cold:
        timeline_store.forget()
    found = timeline_store.timeline(BENCH_PROFILE)
    sizes.append(len(timeline_selectors.tile_gzip(found, *place, timeline_selectors.every_track(found))))


def _filtered(place: tuple[int, int]) -> None:
    level, index = place
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

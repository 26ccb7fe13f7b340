"""Every analysis of a profile of 1.6 million slices from its stored columns: alone, with nothing of it in memory, and as the
worker makes them after an ingest, one after the other over one frame, whose columns and relations are read once for all.

The reference is reading the stored columns whole, without doing anything with them.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bench import generator
from profiles import ingest
from profiles.analysis.trace.breakdown import breakdown
from profiles.ingest.trace import Trace
from profiles.models import Profile
from profiles.store import frame as store_frame
from profiles.store import trace as store
from profiles.store.objects import objects_delete
from profiles.topics.table import TOPICS, Topic

BENCH_PROFILE = 2_000_000_002
SLICES, RUNS, BUDGET_S = 1_600_000, 3, 1.0
SHARED = ("start_ns", "dur_ns", "name", "category", "track", "depth", "instant", "correlation", "external_id")
RELATIONS = ("end_ns", "wall", "work", "kernels", "call", "parent", "operator")


def run() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="ridgepoint-bench-") as folder:
        file = Path(folder) / "trace.json.gz"
        generator.write(file, slices=SLICES)
        trace = ingest.read(file)
    if not isinstance(trace, Trace):
        raise TypeError("the bench's trace reads as counters")
    store.prepare(trace).write(BENCH_PROFILE)
    profile = Profile(pk=BENCH_PROFILE, metadata=trace.metadata, summary=breakdown(trace).as_json())
    try:
        return _rows(profile)
    finally:
        store_frame.forget()
        objects_delete(BENCH_PROFILE)


def _rows(profile: Profile) -> list[dict[str, Any]]:
    reference_s = min(_timed_read() for _ in range(RUNS))
    rows = []
    for topic in TOPICS:
        alone_s = min(_alone(profile, topic) for _ in range(RUNS))
        rows.append(_row(f"{topic.title}, alone", alone_s, reference_s, None))
    together = [min(times) for times in zip(*(_together(profile) for _ in range(RUNS)), strict=True)]
    rows.append(_row("columns, parents, calls and operators, once for all", together[0], reference_s, BUDGET_S))
    for topic, seconds in zip(TOPICS, together[1:], strict=True):
        rows.append(_row(f"{topic.title}, frame shared", seconds, reference_s, BUDGET_S))
    return rows


def _row(what: str, seconds: float, reference_s: float, budget_s: float | None) -> dict[str, Any]:
    return {"what": f"analysis of {SLICES / 1e6:g} M slices: {what}", "measured": f"{seconds:.2f} s",
            "reference": f"reading the columns {reference_s:.2f} s", "ratio": seconds / reference_s,
            "budget": f"< {budget_s:g} s" if budget_s else "", "ok": seconds < budget_s if budget_s else None}


def _timed_read() -> float:
    began_s = time.perf_counter()
    for name in ("slices.parquet", "arguments.parquet"):
        pq.read_table(store.local_path(store.key(BENCH_PROFILE, name)))
    return time.perf_counter() - began_s


def _alone(profile: Profile, topic: Topic) -> float:
    store_frame.forget()
    began_s = time.perf_counter()
    topic.compute(store_frame.frame_read(profile))
    return time.perf_counter() - began_s


def _together(profile: Profile) -> list[float]:
    """What all of them read, then each."""
    store_frame.forget()
    began_s = time.perf_counter()
    frame = store_frame.frame_read(profile)
    for column in SHARED:
        frame[column]
    for relation in RELATIONS:
        getattr(frame, relation)
    times = [time.perf_counter() - began_s]
    for topic in TOPICS:
        began_s = time.perf_counter()
        topic.compute(frame)
        times.append(time.perf_counter() - began_s)
    return times

"""Counters that a trace implies: against counting by hand, and as tracks of the stored timeline."""

import json

import numpy as np
import pytest

from profiles import ingest
from profiles.analysis.core.intervals import Stairs, bandwidth, queue_depth, stairs
from profiles.analysis.core.kernels import numbers
from profiles.ingest.trace import GPU_WORK, Category
from profiles.store import derived as store_derived
from profiles.store import timeline as timeline_store
from profiles.store import trace as store
from profiles.timeline.selectors import whole
from tests.builders import trace as drawn
from tests.profiles.ingest.corpus import H200


def mean_between(steps: Stairs, start_ns: int, end_ns: int) -> float:
    """Return the time-weighted mean of a staircase in a window.

    It is 0 before its first step.
    """
    time_ns, value = steps
    edges = np.concatenate(([start_ns], time_ns[(time_ns > start_ns) & (time_ns < end_ns)], [end_ns]))
    at = np.searchsorted(time_ns, edges[:-1], side="right") - 1
    held = np.where(at >= 0, value[np.maximum(at, 0)], 0.0) if value.size else np.zeros(edges.size - 1)
    return float((held * np.diff(edges)).sum() / max(end_ns - start_ns, 1))


def test_stairs_have_one_step_per_moment():
    time_ns, value = stairs(np.array([5, 1, 5, 9, 9]), np.array([1.0, 1.0, -1.0, 2.0, -3.0]))
    assert (time_ns.tolist(), value.tolist()) == ([1, 9], [1.0, 0.0])
    assert stairs(np.empty(0, np.int64), np.empty(0))[0].size == 0


def test_queue_depth_and_bandwidth():
    time_ns, value = queue_depth(np.array([0, 10, 20]), np.array([15, 30, 18]))      # the last ends before its call: no time
    assert (time_ns.tolist(), value.tolist()) == ([0, 10, 15, 30], [1, 2, 1, 0])
    time_ns, value = bandwidth(np.array([0, 5, 7]), np.array([10, 10, 0]), np.array([100.0, 50.0, 9.0]))
    assert time_ns.tolist() == [0, 5, 10, 15] and value.tolist() == [10e9, 15e9, 5e9, 0]
    assert mean_between((time_ns, value), 0, 15) == pytest.approx(150 / 15e-9)
    assert mean_between((np.empty(0, np.int64), np.empty(0)), 0, 10) == 0


def test_derived_counters_are_tracks_of_the_timeline():
    store.prepare(drawn("""
        p / main: cudaLaunchKernel 0-2 corr=1 | cudaLaunchKernel 5-6 corr=2 | cudaMemcpyAsync 10-12 corr=3
        GPU 0 / stream 7: gemm 20-40 corr=1 | gemm 45-50 corr=2 | Memcpy HtoD@memcpy 60-62 corr=3 bytes=4000""")).write(401)
    assert store_derived.derive(401) > 0
    found = timeline_store.timeline(401)
    counters = {track["unit"]: track for track in found.tracks if track.get("derived")}
    assert set(counters) == {"launches", "B/s"} and all("derived" in track["name"] for track in counters.values())
    assert all(track["group"] == "GPU 0" for track in counters.values()) and counters["launches"]["greatest"] == 3
    rows = found.tile(found.top, 0, whole([counters["launches"]["id"]]))
    assert (rows.time_ns.tolist(), rows.value.tolist()) == (
        [0, 5_000, 10_000, 40_000, 50_000, 62_000], [1, 2, 3, 2, 1, 0])
    rows = found.tile(found.top, 0, whole([counters["B/s"]["id"]]))
    assert rows.value.tolist() == [pytest.approx(2e9), 0] and rows.time_ns.tolist() == [60_000, 62_000]


def test_a_recording_waits_as_long_as_its_launches_say():
    trace = ingest.read(H200 / "kineto_train.json.gz")
    store.prepare(trace).write(402)
    store_derived.derive(402)
    found = timeline_store.timeline(402)
    track = next(track for track in found.tracks if track.get("derived") and track["unit"] == "launches")
    steps = [np.concatenate(parts) for parts in zip(*(
        (rows.time_ns, rows.value) for i in range((found.document["end_ns"] >> 20) + 1)
        for rows in [found.tile(5, i, whole([track["id"]]))]), strict=True)]
    order = np.argsort(steps[0], kind="stable")
    start, dur, category = (numbers(trace.slices, name) for name in ("start_ns", "dur_ns", "category"))
    correlation = np.array([-1 if each is None else each for each in trace.slices["correlation"].to_pylist()])
    calls = {c: s for c, s, k in zip(correlation.tolist(), start.tolist(), category.tolist(), strict=True)
             if k == Category.RUNTIME and c >= 0}
    gpu = np.isin(category, [int(c) for c in GPU_WORK]) & np.isin(correlation, list(calls))
    waited = sum(max(s + d - calls[c], 0) for s, d, c in zip(*(x[gpu].tolist() for x in (start, dur, correlation)), strict=True))
    end = int(found.document["end_ns"])
    assert mean_between((steps[0][order], steps[1][order]), 0, end) == pytest.approx(waited / end, rel=0.02)


def test_long_counters_have_coarse_forms(monkeypatch):
    monkeypatch.setattr(store_derived, "LONG", 64)
    values = [(i * 37) % 101 for i in range(3000)]
    store.prepare(drawn("GPU 0 / stream 7: k 0-3000\nGPU 0 / power: counter " + " ".join(
        f"{i}={v}" for i, v in enumerate(values)))).write(403)
    store_derived.derive(403)
    found = timeline_store.timeline(403)
    places = json.loads(store.local_path(store.key(403, "derived.json")).read_text())["places"]
    assert len(places) > 1 and all(place["level"] for place in places)
    power = next(track["id"] for track in found.tracks if track["kind"] == "counter")
    for level in range(found.top + 1):
        span = 1 << (2 * level + 10)
        for index in range(min(found.document["end_ns"] // span + 1, 8)):
            rows = found.tile(level, index, whole([power]))
            mine = [v for i, v in enumerate(values) if index * span <= i * 1000 < (index + 1) * span]
            inside = rows.value[rows.time_ns >= index * span]
            assert (inside.min(), inside.max()) == (min(mine), max(mine)) if mine else not inside.size


def test_a_host_of_many_cores_starts_no_thread_a_core() -> None:
    """Four a core are DuckDB's default: their stacks alone took an ingest's memory on a host of 64."""
    import duckdb

    with duckdb.connect(config={**store_derived.DUCKDB_THREADS}) as connection:
        names = ("threads", "async_threads")
        settings = connection.execute(f"select name, value from duckdb_settings() where name in {names}").fetchall()
    assert dict(settings) == dict.fromkeys(names, "2")

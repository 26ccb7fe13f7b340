"""Counters of a stored timeline: what a tile draws is what is stored, at every zoom and wherever row groups end."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from profiles.ingest.trace import Trace
from profiles.models import Profile
from profiles.store import trace as store
from profiles.store.columns import Columns
from profiles.store.derived import derive as derive_counters
from profiles.store.timeline import Timeline, _between, timeline
from tests.builders import trace
from tests.profiles.ingest.corpus import mostly_deep

GROUPS = (1, 2, 3, 7, 16, 1000)             # rows of a row group: smaller and larger than a counter


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("seed", mostly_deep(range(6), "0"))
def test_every_window_of_a_counter_reads_its_own_samples(group: int, seed: int, tmp_path):
    """Counters of any length one behind the other, so that a row group holds the end of one and the begin of the next."""
    chance = np.random.default_rng(seed)
    times = [np.sort(chance.integers(0, 300, int(count))) for count in chance.integers(1, 40, 5)]
    values = [chance.integers(0, 9, each.size).astype(float) for each in times]
    pq.write_table(pa.table({"time_ns": np.concatenate(times), "value": np.concatenate(values)}), tmp_path / "samples.parquet",
                   row_group_size=group)
    table, first = Columns(tmp_path / "samples.parquet", 0), 0
    for time_ns, value in zip(times, values, strict=True):
        for begin in range(-5, 310, 3):
            for span in (1, 10, 100, 400):
                read_ns, read = _between(table, first, first + time_ns.size, begin, begin + span)
                before = max(int(np.searchsorted(time_ns, begin)) - 1, 0)           # the one that holds when the window begins
                end = int(np.searchsorted(time_ns, begin + span))
                assert read_ns.tolist() == time_ns[before:end].tolist() and read.tolist() == value[before:end].tolist()
        first += time_ns.size


def stored(found: Trace) -> Timeline:
    profile = Profile.objects.create(name="p", status="ready", kind="trace", file_name="f", upload_key="k")
    store.prepare(found).write(profile.pk)
    derive_counters(profile.pk)
    return timeline(profile.pk)


@pytest.mark.django_db
def test_every_tile_of_every_counter_draws_what_is_stored(monkeypatch):
    """Own counters and derived ones, long and short, in tiles of every level: the extremes of every bin, and what held before."""
    for module in ("profiles.store.trace", "profiles.store.derived"):
        monkeypatch.setattr(f"{module}.ROW_GROUP", 64)
    monkeypatch.setattr("profiles.store.derived.LONG", 128)
    chance = np.random.default_rng(1)
    lines = ["python (1) / main: " + " | ".join(f"cudaLaunchKernel {at}-{at + 2} corr={at}" for at in range(0, 3000, 10)),
             "GPU 0 / stream 7: " + " | ".join(f"gemm {at + 3}-{at + 7} corr={at}" for at in range(0, 3000, 10))]
    for name, count in (("memory", 500), ("power", 3), ("clock", 130)):
        times = np.sort(chance.choice(3000, count, replace=False))
        lines.append(f"GPU 0 / {name}: counter " + " ".join(f"{at}={chance.integers(1, 99)}" for at in times.tolist()))
    opened = stored(trace("\n".join(lines)))
    counters = [track["id"] for track in opened.tracks if track["kind"] == "counter"]
    assert len(counters) == 4 and len(opened.counters.derived) == 1
    for track in counters:
        whole_ns, whole, _ = opened.counters.tile(0, int(opened.document["end_ns"]) + 1, 0, [track])
        assert whole_ns.size == opened.tracks[track]["samples"]
        for level in range(opened.top + 1):
            span = 1 << (2 * level + 10)
            for begin in range(0, int(opened.document["end_ns"]) + 1, span):
                time_ns, value, _ = opened.counters.tile(begin, begin + span, level, [track])
                assert_same(time_ns, value, whole_ns, whole, begin, begin + span, level)


def assert_same(time_ns, value, whole_ns, whole, begin: int, end: int, level: int) -> None:
    inside = (whole_ns >= begin) & (whole_ns < end)
    bins, drawn = whole_ns[inside] >> (2 * level), time_ns[time_ns >= begin] >> (2 * level)
    assert np.array_equal(np.unique(bins), np.unique(drawn))
    for each in np.unique(bins).tolist():
        here, there = whole[inside][bins == each], value[time_ns >= begin][drawn == each]
        assert (here.min(), here.max(), here[-1]) == (there.min(), there.max(), there[-1])
    before = whole[whole_ns < begin]
    if before.size:
        assert time_ns[0] < begin and value[time_ns < begin][-1] == before[-1]

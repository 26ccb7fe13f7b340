"""Traces of one job's ranks in one profile."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from profiles.analysis.core.kernels import kernel_table
from profiles.analysis.trace import merge as merging
from profiles.analysis.trace.breakdown import breakdown
from profiles.analysis.trace.merge import merge
from profiles.ingest import read
from profiles.ingest.core import build, spool
from tests.builders import trace
from tests.launches import launch_calls

H200 = Path(__file__).parents[3] / "data" / "h200"
LANES = """
python (1) / main:   cudaLaunchKernel 0-2 corr=1
GPU 0 / stream 7:    gemm 10-20 corr=1
"""


def test_ranks_keep_their_tracks_gpus_and_correlation():
    both = merge([("a.json", trace(LANES, rank=0, base_ns=1000)), ("b.json", trace(LANES, rank=1, base_ns=6000))])
    assert [track.group for track in both.tracks] == [
        "rank 0: python (1)", "rank 0: GPU 0", "rank 1: python (1)", "rank 1: GPU 0"]
    assert [device.index for device in both.devices] == [0, 1]
    found = both.slices.to_pylist()
    assert [row["start_ns"] for row in found] == [0, 5_000, 10_000, 15_000]       # one clock: rank 1 began 5 µs later
    assert both.base_ns == 1000 and both.metadata["alignment"]["rule"] == "base time"
    assert both.integrity.notes == [both.metadata["alignment"]["sentence"]]
    calls = launch_calls(both)
    assert [int(call) for call in calls] == [-1, -1, 0, 1]                        # correlation 1 of each is its own
    assert [device.launches for device in breakdown(both).devices] == [1, 1]
    assert both.integrity.records_read == 4


def test_without_a_common_clock_it_says_so():
    both = merge([("a.json", trace(LANES, base_ns=1000)), ("b.json", trace(LANES))])
    assert both.base_ns is None and "not aligned" in both.integrity.notes[0]
    assert [row["start_ns"] for row in both.slices.to_pylist()] == [0, 0, 10_000, 10_000]
    assert both.tracks[0].group == "0: a.json: python (1)"


def test_recorded_ranks_add_up():
    ranks = [read(H200 / f"ddp_even_rank{rank}.json.gz") for rank in (0, 1)]
    both = merge([(f"rank{rank}", each) for rank, each in enumerate(ranks)])
    assert sum(row.total_ns for row in kernel_table(both)) == sum(
        row.total_ns for each in ranks for row in kernel_table(each))
    found = breakdown(both).devices
    assert [device.busy_ns for device in found] == [breakdown(each).devices[0].busy_ns for each in ranks]
    assert all(device.compute_ns + device.communication_ns + device.memory_ns + device.idle_ns == device.wall_ns
               for device in found)
    assert both.slices.num_rows == sum(each.slices.num_rows for each in ranks)
    assert both.slices["start_ns"].to_pylist()[0] == pytest.approx(0, abs=0)


def test_gpus_that_worked_are_numbered_over_the_ranks():
    both = merge([(f"rank{rank}", read(H200 / f"ddp_even_rank{rank}.json.gz")) for rank in (0, 1)])
    assert [(device.index, device.name) for device in both.devices] == [(0, "NVIDIA H200"), (1, "NVIDIA H200")]
    assert {track.device for track in both.tracks if track.kind == "stream"} == {0, 1}
    assert both.metadata["devices"] == ["rank 0 · GPU 0 of its host", "rank 1 · GPU 1 of its host"]


@pytest.mark.slow
def test_ranks_that_go_over_the_disk_are_the_same(monkeypatch):
    paths = [H200 / f"ddp_even_rank{rank}.json.gz" for rank in (0, 1)]
    whole = merge([(path.name, read(path)) for path in paths])
    monkeypatch.setattr(spool, "RUN_ROWS", 900)
    monkeypatch.setattr(spool, "WINDOW_ROWS", 300)
    monkeypatch.setattr(build, "IN_MEMORY_ROWS", 0)
    monkeypatch.setattr(merging, "_IN_MEMORY_ROWS", 0)
    streamed = merge([(path.name, read(path)) for path in paths])
    windows = list(streamed.windows())
    assert len(windows) > 5
    assert all(one.next_ns <= other.columns["start_ns"][0] for one, other in pairwise(windows))
    assert streamed.parts.end_ns == whole.parts.end_ns and streamed.parts.devices == whole.parts.devices
    order = [("start_ns", "ascending"), ("track", "ascending"), ("depth", "ascending")]
    one, other = (each.slices.set_column(2, "name", each.slices["name"].cast("string")).drop_columns("detail").sort_by(order)
                  for each in (streamed, whole))
    assert one.equals(other)
    assert breakdown(streamed) == breakdown(whole)

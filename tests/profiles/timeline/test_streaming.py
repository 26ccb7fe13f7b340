"""A trace that goes over the disk in small runs and windows is the trace that is held whole, to the last column."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from profiles import ingest
from profiles.analysis.compare.comparison import launches_of_trace
from profiles.analysis.core.kernels import kernel_table
from profiles.analysis.trace import findings
from profiles.analysis.trace.breakdown import breakdown, remark
from profiles.ingest.chrome import parallel
from profiles.ingest.core import build, pieces, spool
from profiles.ingest.core.spool import Numbers
from profiles.ingest.scratch import Spool
from profiles.ingest.trace import TraceError
from tests.profiles.ingest.chrome.test_kineto import record, written
from tests.profiles.ingest.corpus import CORPUS, H200, mostly_deep

FILES = mostly_deep([
    CORPUS / "kineto/hta_nccl_data_a100_rank0of2.json.gz",
    CORPUS / "kineto/kineto_tbplugin_resnet50_v100_1623143089861.pt.trace.json.gz",
    CORPUS / "kineto/hta_mi250_minitoy_rocm62.json.gz",
    H200 / "kineto_train.json.gz", H200 / "kineto_layer_stack.json.gz", H200 / "ddp_even_rank0.json.gz",
], "hta_mi250_minitoy_rocm62.json.gz", "kineto_train.json.gz", "kineto_layer_stack.json.gz")


@pytest.fixture
def small(monkeypatch):
    """Runs of 500 rows, windows of 300."""
    def turn(runs: int = 500, windows: int = 300) -> None:
        monkeypatch.setattr(spool, "RUN_ROWS", runs)
        monkeypatch.setattr(spool, "WINDOW_ROWS", windows)
        monkeypatch.setattr(build, "_PART_ROWS", 100)
        monkeypatch.setattr(build, "IN_MEMORY_ROWS", 0)
    return turn


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_same_trace(path, small):
    whole = ingest.read(path)
    small()
    streamed = ingest.read(path)
    windows = list(streamed.windows())
    assert len(windows) > 1 or whole.slices.num_rows < 400
    assert all(one.next_ns <= other.columns["start_ns"][0] for one, other in itertools.pairwise(windows))
    assert streamed.slices.equals(whole.slices)
    assert streamed.samples.equals(whole.samples) and streamed.flows.equals(whole.flows)
    assert streamed.tracks == whole.tracks and streamed.base_ns == whole.base_ns
    assert streamed.integrity == whole.integrity
    assert streamed.parts.end_ns == whole.parts.end_ns


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_same_said_of_it(path, small):
    whole = ingest.read(path)
    small(windows=77)
    streamed = ingest.read(path)
    said = []
    for trace in (whole, streamed):
        remark(trace)
        kernels, time = kernel_table(trace), breakdown(trace)
        said.append((kernels, time, findings.find(trace, kernels, time), launches_of_trace(trace), trace.integrity))
    assert said[0] == said[1]


def rows_of(trace):
    """Everything but the depths, which depend on the order of slices that begin at one moment."""
    names = [name for name in trace.slices.column_names if name != "depth"]
    return sorted(tuple(map(str, row)) for row in zip(*(trace.slices[name].to_pylist() for name in names), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("path", [*FILES, *(CORPUS / "broken" / f"hta_event_sync_{kind}.json" for kind in ("truncated", "bom"))],
                         ids=lambda path: path.name)
def test_the_same_trace_from_several_processes(path, monkeypatch):
    whole = ingest.read(path)
    monkeypatch.setattr(parallel, "LEAST_BYTES", 0)
    monkeypatch.setattr(pieces, "CHUNK_BYTES", 20_000)
    parted = ingest.read(path)
    assert parted.slices.equals(whole.slices) and parted.samples.equals(whole.samples) and parted.flows.equals(whole.flows)
    assert parted.tracks == whole.tracks and parted.metadata == whole.metadata and parted.base_ns == whole.base_ns
    assert parted.integrity == whole.integrity


@pytest.mark.process
def test_damage_in_the_middle_is_read_here(tmp_path, monkeypatch):
    good = [json.dumps(record(ts=i, name=f"k{i % 50}", tid=i % 9)) for i in range(3000)]
    good[1500] = '{"ph":"X","name":"C:\\temp\\x","pid":0,"tid":7,"ts":1,"dur":-nan,"args":{"a":inf,,}}'
    path = written(tmp_path, text='{"schemaVersion":1,"traceEvents":[' + ",\n".join(good) + '],"traceName":"x"}')
    whole = ingest.read(path)
    monkeypatch.setattr(parallel, "LEAST_BYTES", 0)
    monkeypatch.setattr(pieces, "CHUNK_BYTES", 20_000)
    parted = ingest.read(path)
    assert rows_of(parted) == rows_of(whole) and parted.metadata == whole.metadata
    assert parted.integrity.records_kept == whole.integrity.records_kept == 3000


@pytest.mark.slow
def test_a_process_that_dies_costs_nothing_but_time(monkeypatch):
    path = H200 / "kineto_train.json.gz"
    whole = ingest.read(path)
    monkeypatch.setattr(parallel, "LEAST_BYTES", 0)
    monkeypatch.setattr(pieces, "CHUNK_BYTES", 50_000)
    taken = parallel._Worker.apply

    def dying(self, *arguments):
        self._process.kill()
        return taken(self, *arguments)

    monkeypatch.setattr(parallel._Worker, "apply", dying)
    assert ingest.read(path).slices.equals(whole.slices)


@pytest.mark.parametrize("odd", [
    [record(ts=0)], [record(ts=-4611686018427387)], [record(ts=4000000000000000, dur=4000000000000000)], [record(ts=1e300)],
    [record(ts=0, name=f"z{i}") for i in range(900)], [record(ts=-4e15, name=f"far{i}") for i in range(700)],
])
def test_times_that_no_trace_has(odd, tmp_path, small):
    good = [record(ts=1695835535123456 + i // 3, tid=i % 5, dur=2 + i % 7) for i in range(2000)]
    path = written(tmp_path, *good[:1000], *odd, *good[1000:])
    whole = ingest.read(path)
    small()
    streamed = ingest.read(path)
    assert rows_of(streamed) == rows_of(whole)
    assert streamed.integrity.repaired.keys() >= whole.integrity.repaired.keys() - {spool.OVERLAPPING}
    assert streamed.base_ns == whole.base_ns


def test_all_at_one_moment_goes_in_several_windows(tmp_path, small):
    path = written(tmp_path, *[record(ts=5, dur=3, name=f"k{i}") for i in range(5000)])
    small()
    trace = ingest.read(path)
    windows = [len(window) for window in trace.windows()]
    assert sum(windows) == 5000 and max(windows) <= 4 * 300
    assert sorted(trace.slices["depth"].to_pylist()) == list(range(5000))


def test_a_set_of_ids():
    ids, other = Numbers(), np.arange(0, 10**9, 999_983)
    ids.add(other)
    ids.add(np.array([-5, 2**62, 7, 7], np.int64))
    assert ids.hold(np.array([7, 8, -5, 2**62, 999_983, 999_984], np.int64)).tolist() == [True, False, True, True, True, False]


def test_a_full_disk_is_said(monkeypatch, tmp_path, small):
    small()

    def full(self, view):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Spool, "_write", full)
    with pytest.raises(TraceError, match="No space left on device"):
        ingest.read(written(tmp_path, *json.loads(json.dumps([record(ts=i) for i in range(1000)]))))

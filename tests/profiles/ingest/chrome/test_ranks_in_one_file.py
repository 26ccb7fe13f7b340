"""Files into which a tool joined several ranks: each rank's kernels belong to its own calls and run on GPUs of its own."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from profiles.analysis.core.frame import frame_of
from profiles.analysis.core.shapes import shapes_of
from profiles.analysis.trace.breakdown import breakdown, remark
from profiles.analysis.trace.critical.topic import critical_result
from profiles.analysis.trace.launching.calls import why_no_calls
from profiles.analysis.trace.launching.topic import launches_result
from profiles.analysis.trace.operators.topic import operators_result
from profiles.ingest import read
from profiles.ingest.chrome.rank_owners import label_of
from profiles.ingest.trace import Trace
from tests.builders import trace as build
from tests.profiles.ingest.corpus import mostly_deep

DATA = Path(__file__).parents[3] / "data"
RANKS = {name: [DATA / f"{name}_rank{rank}.json.gz" for rank in (0, 1)] for name in ("causes/straggler_data", "h200/ddp_even")}


def _operators(trace: Trace) -> Counter[tuple[str, str, str]]:
    """Kernel time by (rank, operator, kernel)."""
    frame = frame_of(trace)
    times: Counter[tuple[str, str, str]] = Counter()
    for row in frame.kernels.tolist():
        operator = int(frame.operator[row])
        times[frame.rank_of_track[int(frame["track"][row])], frame.text(operator) if operator >= 0 else "",
              frame.text(row)] += int(frame["dur_ns"][row])
    return times


def _wrong_ranks(trace: Trace) -> int:
    """Kernels whose launch call lies on a thread of another rank."""
    frame = frame_of(trace)
    rank, track, call = frame.rank_of_track, frame["track"], frame.call
    return sum(call[row] >= 0 and rank[track[row]] != rank[track[call[row]]] for row in frame.kernels.tolist())


def _file(path: Path, events: list[dict[str, Any]], **keys: Any) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events, **keys}))
    return path


def _rank(name: str, pid: Any, gpu: Any, tid: int = 7, late_us: int = 0, count: int = 6, device: int = 0,
          first: int = 1000) -> list[dict[str, Any]]:
    """`count` launches, each in an operator of its own name, one every 100 µs; the kernel runs 20 µs after its call for 50 µs."""
    out: list[dict[str, Any]] = []
    for n in range(count):
        at, ids = 100 * (n + 1) + late_us, {"External id": n + 1}
        out += [
            {"ph": "X", "cat": "cpu_op", "name": f"aten::{name}", "pid": pid, "tid": 1, "ts": at, "dur": 15, "args": ids},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": pid, "tid": 1, "ts": at + 5, "dur": 5,
             "args": {"correlation": first + n, **ids}},
            {"ph": "X", "cat": "kernel", "name": name, "pid": gpu, "tid": tid, "ts": at + 25, "dur": 50,
             "args": {"device": device, "stream": tid, "correlation": first + n, **ids}}]
    return out


def _named(pid: Any, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": {"name": name}}


def test_a_prefix_before_the_process_makes_ranks():
    trace = read(DATA / "cases" / "merged.json")
    assert [device.index for device in trace.devices] == [0, 1]
    assert [(each.index, each.busy_ns) for each in breakdown(trace).devices] == [(0, 500_000), (1, 500_000)]
    assert {(shape.kernel, shape.operator, shape.total_ns) for shape in shapes_of(frame_of(trace))} == {
        ("kernel_r0", "aten::mm_r0", 500_000), ("kernel_r1", "aten::mm_r1", 500_000)}
    assert list(trace.metadata["ranks"]) == ["TP00-DP00-PP00-EP00", "TP01-DP00-PP00-EP00"]
    assert trace.metadata["devices"] == ["TP00-DP00-PP00-EP00 · GPU 0", "TP01-DP00-PP00-EP00 · GPU 0"]
    assert [track.group for track in trace.tracks] == [f"{rank}: {group}" for rank in trace.metadata["ranks"]
                                                       for group in ("python (100)", "GPU 0")]
    assert any("holds 2 ranks" in note for note in trace.integrity.notes)


# how tools that join files write processes and GPU lanes: (rank, pid, pid of the GPU lane) -> what is written, names of processes
WAYS: dict[str, Any] = {
    "brackets": lambda rank, pid, gpu: (f"[TP0{rank}-DP00] {pid}", f"[TP0{rank}-DP00] {gpu}", None),
    "rank before a number": lambda rank, pid, gpu: (f"rank{rank}-{pid}", f"rank{rank}-{gpu}", None),
    "any prefix": lambda rank, pid, gpu: (f"node{rank}:{pid}", f"node{rank}:{gpu}", None),
    "names of processes": lambda rank, pid, gpu: (rank * 1000 + 100, rank * 1000 + 500, f"Rank {rank}: python"),
    "names of threads' processes, numbers repeat": lambda rank, pid, gpu: (rank * 1000 + 100, rank, None),
}


@pytest.mark.parametrize("job", mostly_deep(RANKS, "straggler_data"))
@pytest.mark.parametrize("way", WAYS)
def test_recorded_ranks_in_one_file_are_what_they_are_apart(way: str, job: str, tmp_path: Path):
    """Every kernel, by rank and operator, is as in the two files."""
    events, expected, names = [], Counter[tuple[str, str]](), dict[Any, str | None]()
    for rank, path in enumerate(RANKS[job]):
        document = json.loads(gzip.decompress(path.read_bytes()))
        for each in document["traceEvents"]:
            if isinstance(each.get("pid"), int) and each["pid"] >= 0:
                lane = each.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "cuda_sync")
                host, gpu, name = WAYS[way](rank, each["pid"], (each.get("args") or {}).get("device", each["pid"]))
                if each["ph"] == "M":
                    continue
                each["pid"] = gpu if lane else host
                names[each["pid"]] = name
                if lane and "args" in each:
                    each["args"] = {**each["args"], "device": 0}
            events.append(each)
        for (_, operator, kernel), ns in _operators(read(path)).items():
            expected[operator, kernel] += ns
    events += [_named(pid, name) for pid, name in names.items() if name]
    trace = read(_file(tmp_path / "joined.json", events))
    got = Counter[tuple[str, str]]()
    for (rank_label, operator, kernel), ns in _operators(trace).items():
        assert rank_label
        got[operator, kernel] += ns
    assert got == expected
    assert _wrong_ranks(trace) == 0
    assert [each.busy_ns for each in breakdown(trace).devices] == [breakdown(read(path)).devices[0].busy_ns for path in RANKS[job]]


def test_ids_that_repeat_make_ranks_of_processes_on_one_lane(tmp_path: Path):
    """Both ranks call their GPU 0 and its stream 7: nothing but the calls tells their kernels apart."""
    trace = read(_file(tmp_path / "a.json", _rank("mm", 100, 0) + _rank("add", 200, 0, late_us=3)))
    assert [(each.index, each.launches, each.busy_ns) for each in breakdown(trace).devices] == [(0, 6, 300_000), (1, 6, 300_000)]
    assert {(shape.kernel, shape.operator, shape.launches) for shape in shapes_of(frame_of(trace))} == {
        ("mm", "aten::mm", 6), ("add", "aten::add", 6)}
    assert list(trace.metadata["ranks"]) == ["process 100", "process 200"]
    assert not trace.integrity.repaired                 # nothing overlaps on a stream of its own


def test_a_lane_belongs_to_the_process_that_alone_has_some_of_its_ids(tmp_path: Path):
    """Rank 0's kernels wait so long that by time alone they would go to rank 1."""
    slow = _rank("mm", 100, 0, count=9)
    for each in slow:
        each["ts"] += 40 if each["cat"] == "kernel" else 0
    trace = read(_file(tmp_path / "a.json", slow + _rank("add", 200, 1, late_us=3)))
    assert {(shape.kernel, shape.operator, shape.launches) for shape in shapes_of(frame_of(trace))} == {
        ("mm", "aten::mm", 9), ("add", "aten::add", 6)}


def test_processes_with_ids_of_their_own_are_one_trace(tmp_path: Path):
    trace = read(_file(tmp_path / "a.json", _rank("mm", 100, 0) + _rank("add", 200, 0, late_us=60, first=5000)))
    assert "ranks" not in trace.metadata and [device.index for device in trace.devices] == [0]
    assert {shape.operator for shape in shapes_of(frame_of(trace))} == {"aten::mm", "aten::add"}


def test_one_rank_with_a_prefix_is_one_trace(tmp_path: Path):
    trace = read(_file(tmp_path / "a.json", _rank("mm", "[TP00] 100", "[TP00] 0")))
    assert "ranks" not in trace.metadata and [device.index for device in trace.devices] == [0]


def test_each_rank_keeps_its_devices(tmp_path: Path):
    events = [each for rank in (0, 1) for device in (0, 1) for each in
              _rank(f"k{rank}{device}", f"[r{rank}] 100", f"[r{rank}] {device}", device=device, first=1000 + 100 * device)]
    trace = read(_file(tmp_path / "a.json", events))
    assert trace.metadata["devices"] == ["r0 · GPU 0", "r0 · GPU 1", "r1 · GPU 0", "r1 · GPU 1"]
    assert [each.launches for each in breakdown(trace).devices] == [6, 6, 6, 6]


def test_a_correlation_of_0_is_none_and_that_is_said():
    trace = read(DATA / "cases" / "corr0.json")
    frame = frame_of(trace)
    assert (frame.call[frame.kernels] < 0).all() and (frame.operator[frame.kernels] < 0).all()
    assert trace.slices.filter(pc.equal(trace.slices["correlation"], 0)).num_rows == 0
    remark(trace)
    assert trace.integrity.remarks["GPU work without a correlation id"] == 10
    for result in (launches_result(frame), critical_result(frame), operators_result(frame)):
        assert not result.applies and "without a correlation id (0 is none), beside 10 runtime calls with one" in result.answer


@pytest.mark.parametrize(("lanes", "words"), [
    ("GPU 0 / stream 7: k 0-10 corr=1", "holds no runtime calls"),
    ("p (1) / main: cudaLaunchKernel 0-5\nGPU 0 / stream 7: k 6-10 corr=1", "1 runtime call without correlation ids"),
    ("p (1) / main: cudaLaunchKernel 0-5 corr=7\nGPU 0 / stream 7: k 6-10 corr=1 | j 11-12", "1 piece of its GPU work without"),
    ("p (1) / main: cudaLaunchKernel 0-5 corr=7\nGPU 0 / stream 7: k 6-10 corr=1", "among those of 1 runtime call"),
])
def test_why_no_call_is_known(lanes: str, words: str):
    assert words in why_no_calls(frame_of(build(lanes)))


@pytest.mark.parametrize(("pid", "title", "label"), [
    ("[TP00-DP00-PP00-EP00] 83", "python", "TP00-DP00-PP00-EP00"),
    ("[node1] [rank3] 83", "", "node1 rank3"), ("[rank3] 83", "", "rank 3"), ("rank0-83", "", "rank 0"),
    ("83", "Rank 12: python", "rank 12"), ("83", "python", ""), ("0", "", ""), ("Spans", "", ""),
    ("83", "frank 3", ""), ("83", "python (global rank 7)", "rank 7")])
def test_what_a_process_says_of_its_rank(pid: str, title: str, label: str):
    assert label_of(pid, title) == label

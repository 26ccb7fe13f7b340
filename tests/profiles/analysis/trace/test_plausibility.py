"""What cannot be in a trace, or is not all there: found, counted and timed, and kept out of findings."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from profiles import ingest
from profiles.analysis.core.frame import frame_of
from profiles.analysis.core.result import Finding
from profiles.analysis.trace.account.result import causes_result
from profiles.analysis.trace.launching.topic import launches_result
from profiles.analysis.trace.merge import merge
from profiles.analysis.trace.plausibility.kinds import KINDS, examine
from profiles.analysis.trace.plausibility.withhold import (
    GAIN,
    affected,
    doubt_text,
    doubtful_kernels,
    rests_of,
    withhold,
    withhold_result,
)
from profiles.ingest.core import pieces
from profiles.ingest.trace import Doubt, Trace
from profiles.ingest.xplane import xprof

DATA = Path(__file__).parents[3] / "data"
CASES = DATA / "cases"
Records = list[dict[str, Any]]


def examined(content: bytes | Path, tmp_path: Path | None = None) -> Trace:
    path = content if isinstance(content, Path) else Path(str(tmp_path)) / "t.json"
    if isinstance(content, bytes):
        path.write_bytes(content)
    trace = ingest.read(path)
    assert isinstance(trace, Trace)
    examine(trace)
    return trace


def doubts(trace: Trace) -> dict[str, Doubt]:
    return {doubt.kind: doubt for doubt in trace.integrity.plausibility}


def stored(trace: Trace) -> list[dict[str, Any]]:
    return [asdict(doubt) for doubt in trace.integrity.plausibility]


def call(number: int, ts: float, dur: float = 5.0, name: str = "cudaLaunchKernel", tid: int = 100) -> dict[str, Any]:
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 100, "tid": tid, "ts": ts, "dur": dur,
            "args": {"correlation": number} if number else {}}


def kernel(number: int, ts: float, dur: float = 50.0, name: str = "k", stream: int = 7) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": dur,
            "args": {"device": 0, "stream": stream, "correlation": number}}


def document(records: Records, base_ns: int = 1_740_000_000_000_000_000) -> bytes:
    return json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": base_ns, "traceEvents": records, "traceName": "t.json"}).encode()


def launches(count: int, lost: Sequence[int] = (), **fields: Any) -> Records:
    """Calls every 100 µs from 50 µs on, each kernel 15 µs after its own; those `lost` have none."""
    calls = [call(at + 1, 100.0 * at + 50, **fields) for at in range(count)]
    return calls + [kernel(at + 1, 100.0 * at + 65) for at in range(count) if at not in lost]


# ---- launch calls without GPU work ----

def test_launches_whose_first_records_the_profiler_lost():
    [doubt] = examined(CASES / "first20_missing.json").integrity.plausibility
    assert (doubt.kind, doubt.count, doubt.of, doubt.touches) == ("launch_without_work", 20, 50, True)
    assert (doubt.first_ns, doubt.last_ns) == (5_000, 1_905_000)
    assert doubt.sentence.startswith("40 % of the launches have no GPU record (20 of 50): shares of GPU time")


def test_launches_and_no_kernel_at_all():
    trace = examined(CASES / "no_kernels.json")
    [doubt] = trace.integrity.plausibility
    assert (doubt.count, doubt.of, doubt.first_ns, doubt.last_ns) == (50, 50, 5_000, 4_905_000)
    assert "50 launch calls and no GPU record of them" in doubt.sentence
    answer = launches_result(frame_of(trace)).answer
    assert "50 launch calls and no GPU kernels" in answer and "nothing was launched" not in answer


@pytest.mark.parametrize("lost", [range(30, 50), range(10, 20), [49], range(0, 50, 2)], ids=["last", "middle", "one", "half"])
def test_launches_lost_anywhere(lost: Sequence[int], tmp_path: Path):
    doubt = doubts(examined(document(launches(50, lost)), tmp_path))["launch_without_work"]
    assert (doubt.count, doubt.of, doubt.touches) == (len(lost), 50, True)
    assert (doubt.first_ns, doubt.last_ns) == (100_000 * min(lost), 100_000 * max(lost))


def test_a_launch_in_a_hundred_and_fifty_is_in_the_report_and_touches_nothing(tmp_path: Path):
    doubt = doubts(examined(document(launches(150, [3])), tmp_path))["launch_without_work"]
    assert (doubt.count, doubt.touches) == (1, False) and doubt_text([asdict(doubt)]) == ""


@pytest.mark.parametrize("records", [
    launches(10),
    # a graph is captured: its kernels are recorded, not launched, from autograd's thread too
    [*launches(10), call(90, 1000, name="cudaStreamBeginCapture"), call(91, 1010), call(92, 1020, tid=101),
     call(93, 1030, name="cudaStreamEndCapture")],
    # the driver's call within the runtime's: the kernel has the id of one of them
    [record for at in range(10) for record in (
        call(2 * at + 1, 100.0 * at, 8), call(2 * at + 2, 100.0 * at + 2, 3, "cuLaunchKernel"),
        kernel(2 * at + 1, 100.0 * at + 15))],
    # kernels that state no id may be those of the calls
    [*(call(at + 1, 100.0 * at) for at in range(10)), *(kernel(0, 100.0 * at + 15) for at in range(10))],
    # the recording ended while the GPU was busy with what was launched before
    [*(call(at + 1, 10.0 * at) for at in range(50)), *(kernel(at + 1, 15 + 50.0 * at) for at in range(30))],
    # a graph's kernels have the id of its launch, or, of some versions of ROCm, their own
    [call(1, 50, name="cudaGraphLaunch"), kernel(1, 65), kernel(1, 115)],
    [call(1, 50, name="hipGraphLaunch"), kernel(8, 65), kernel(9, 115)],
], ids=["whole", "captured", "driver", "no ids", "cut while busy", "graph", "graph of other ids"])
def test_calls_whose_work_need_not_be_there(records: Records, tmp_path: Path):
    assert not doubts(examined(document(records), tmp_path))


def test_the_host_that_waits_on_shows_that_work_was_lost(tmp_path: Path):
    records = [*(call(at + 1, 10.0 * at) for at in range(50)), *(kernel(at + 1, 15 + 50.0 * at) for at in range(30)),
               call(99, 500, 4_000, "cudaDeviceSynchronize")]
    assert doubts(examined(document(records), tmp_path))["launch_without_work"].count == 20


@pytest.mark.parametrize("kept", [(), (1, 2)])
def test_launches_of_graphs_without_work(kept: Sequence[int], tmp_path: Path):
    records = [*(call(at, 1_000.0 * at, name="cudaGraphLaunch") for at in range(1, 6)),
               *(kernel(at, 1_000.0 * at + 10) for at in kept)]
    doubt = doubts(examined(document(records), tmp_path))["launch_without_work"]
    assert (doubt.count, doubt.of) == (5 - len(kept), 5)


def test_calls_without_ids_and_no_kernel(tmp_path: Path):
    assert doubts(examined(document([call(0, 100.0 * at) for at in range(50)]), tmp_path))["launch_without_work"].count == 50


# ---- work before its call ----

@pytest.mark.parametrize(("early_us", "count"), [(40.0, 20), (0.9, 0)])
def test_work_that_begins_before_its_call(early_us: float, count: int, tmp_path: Path):
    records = [record for at in range(20)
               for record in (call(at + 1, 100.0 * at + 50), kernel(at + 1, 100.0 * at + 50 - early_us, 9))]
    found = doubts(examined(document(records), tmp_path))
    if not count:
        assert not found
        return
    doubt = found["work_before_call"]
    assert (doubt.count, doubt.of, doubt.ns) == (20, 20, 40_000) and "the clocks of host and GPU disagree" in doubt.sentence
    assert affected([asdict(doubt)]) == {"calls"}


# ---- kernels that cannot be ----

def test_a_kernel_that_covers_others_of_its_stream():
    [doubt] = examined(CASES / "overflow.json").integrity.plausibility
    assert (doubt.kind, doubt.count, doubt.of, doubt.by) == ("kernel_inside_kernel", 14, 20, 1)
    assert (doubt.first_ns, doubt.last_ns) == (520_000, 1_920_000) and doubt.of_ns is not None and doubt.ns == 1_600_000_000
    assert doubt.of_ns - doubt.ns == 950_000 and "without it 950 µs" in doubt.sentence
    assert doubtful_kernels([asdict(doubt)]) == {"Cijk_Ailk_1"}


@pytest.mark.parametrize(("inner", "name", "stream", "count"), [
    (3, "cudaLaunchKernel", 7, 3), (1, "cudaLaunchKernel", 7, 1), (1, "cudaLaunchKernel", 8, 0),
    (2, "cudaLaunchKernelExC", 7, 0), (3, "cudaLaunchKernelExC", 7, 3), (5, "cudaGraphLaunch", 7, 0)])
def test_which_kernels_may_run_within_another(inner: int, name: str, stream: int, count: int, tmp_path: Path):
    records = [call(1, 0), kernel(1, 20, 900, "outer")]
    for at in range(inner):
        records += [call(2 + at, 10 + at, 0.5, name), kernel(2 + at, 100 + 100.0 * at, 20, stream=stream)]
    found = doubts(examined(document(records), tmp_path))
    assert (found["kernel_inside_kernel"].count if found else 0) == count


def test_records_that_are_there_twice(tmp_path: Path):
    records = launches(20)
    found = doubts(examined(document([*records, *records[25:30]]), tmp_path))
    assert set(found) == {"duplicates"}
    doubt = found["duplicates"]
    assert (doubt.count, doubt.of, doubt.first_ns, doubt.last_ns, doubt.ns) == (5, 25, 515_000, 915_000, 250_000)


# ---- more, or less, than one file ----

def test_a_second_document_is_told_and_not_read():
    trace = examined(CASES / "two_docs_concatenated.json")
    [doubt] = trace.integrity.plausibility
    assert (doubt.kind, doubt.count, doubt.first_ns, doubt.last_ns) == ("second_document", 3, 0, 20_000)
    integrity = trace.integrity
    assert (integrity.records_read, integrity.records_kept, sum(integrity.not_kept.values())) == (6, 3, 3)
    assert sum(integrity.kinds.values()) == 6 and not integrity.notes and not integrity.truncated_at
    assert doubt.touches and not affected(stored(trace))          # what is said of the first trace holds


ONE, OTHER = document(launches(4)), document(launches(40), 1_740_000_000_000_000_000 + 2_000_000)
ARRAY = json.dumps(launches(5)).encode()


@pytest.mark.parametrize(("content", "kind", "count"), [
    (ONE + b"\n" + OTHER, "second_document", 80), (ONE + OTHER + ARRAY, "second_document", 90),
    (ARRAY + b"\n" + ARRAY, "second_document", 10), (gzip.compress(ONE) + gzip.compress(OTHER), "second_document", 80),
    (ONE + OTHER[-700:], "rest_of_another_file", OTHER[-700:].count(b'"ph"')),
    (ONE + b'{"ph": "X"' + OTHER.split(b'{"ph": "X"')[-1], "rest_of_another_file", 1),
], ids=["two", "three", "arrays", "gzip members", "rest", "rest from a record"])
@pytest.mark.parametrize("chunk", [300, 1 << 20])
def test_what_lies_behind_the_end(content: bytes, kind: str, count: int, chunk: int, tmp_path: Path,
                                  monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pieces, "CHUNK_BYTES", chunk)               # patterns on the seams of what is read
    trace = examined(content, tmp_path)
    doubt, integrity = doubts(trace)[kind], trace.integrity
    assert doubt.count == count == sum(integrity.not_kept.values())
    assert integrity.records_read == integrity.records_kept + count
    assert doubt.touches == (kind == "second_document")
    if content.startswith(ONE + b"\n"):
        assert (doubt.first_ns, doubt.last_ns) == (2_000_000, 5_915_000)         # on the first one's clock


@pytest.mark.parametrize("content", [ONE, ONE + b"\n\n", ONE + b"\0" * 5_000, ONE + b"}", ARRAY, ONE + b"Done.\n"])
def test_nothing_behind_the_end(content: bytes, tmp_path: Path):
    trace = examined(content, tmp_path)
    assert not doubts(trace) and trace.integrity.records_read == trace.integrity.records_kept
    assert [note for note in trace.integrity.notes if "6 bytes that are no records" in note] == trace.integrity.notes


def test_the_limit_of_an_exporter(monkeypatch: pytest.MonkeyPatch):
    path = DATA / "recorded" / "jax_trace.json.gz"
    whole = examined(path)
    assert not doubts(whole)
    monkeypatch.setattr(xprof, "CAP", whole.integrity.records_read - whole.integrity.kinds["ph M"])
    doubt = doubts(examined(path))["cap"]
    assert doubt.count == xprof.CAP and doubt.touches and doubt.first_ns == 0
    assert "the most that its exporter writes" in doubt.sentence
    monkeypatch.setattr(xprof, "CAP", xprof.CAP + 1)
    assert not doubts(examined(path))


def test_an_export_without_a_table_of_kernels(tmp_path: Path):
    path = tmp_path / "t.sqlite"
    path.write_bytes(gzip.decompress((DATA / "corpus" / "nsys" / "nsysai_healthy_minimal.sqlite.gz").read_bytes()))
    assert not doubts(examined(path))
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
    trace = examined(path)
    doubt = doubts(trace)["no_kernel_table"]
    assert doubt.count == 400 and doubt.touches and doubt.first_ns is not None
    assert doubt_text(stored(trace)).startswith("400 launch calls, and the export has no table of kernels")
    assert doubt_text(stored(trace)).count("launch call") == 1          # said once


def test_doubts_of_ranks_move_with_their_clocks(tmp_path: Path):
    paths = [tmp_path / "rank0.json", tmp_path / "rank1.json"]
    for path, text in zip(paths, (ONE, OTHER + ONE), strict=True):
        path.write_bytes(text)
    both = merge([(path.name, ingest.read(path)) for path in paths])
    examine(both)
    doubt = doubts(both)["second_document"]
    assert (doubt.first_ns, doubt.last_ns) == (0, 315_000)              # on the common clock


# ---- what rests on it ----

def finding(rule: str) -> Finding:
    return Finding(rule, "high", rule, "", {}, worth_ns=1.0)


@pytest.mark.parametrize(("doubt", "left"), [
    ({"kind": "launch_without_work"}, ["memory_grows"]),
    ({"kind": "kernel_inside_kernel"}, ["memory_grows", "queue_full"]),
    ({"kind": "duplicates"}, ["memory_grows", "slow_calls"]),
    ({"kind": "work_before_call"}, ["memory_grows", "top_kernel", "cause_compute", "tensor_cores_dtype", "slow_calls"]),
    ({"kind": "second_document"}, None), ({"kind": "launch_without_work", "touches": False}, None),
    ({"kind": "of a later version"}, None)])
def test_findings_that_rest_on_what_is_in_doubt_are_withheld(doubt: dict[str, Any], left: list[str] | None):
    rules = ["memory_grows", "top_kernel", "graphs", "queue_full", "cause_compute", "cause_host_launch", "tensor_cores_dtype",
             "slow_calls", "of a new rule"]
    rows = [{"touches": True, "sentence": "Something cannot be", **doubt}]
    assert [each.rule for each in withhold([finding(rule) for rule in rules], rows)] == (rules if left is None else left)


def test_what_nobody_listed_rests_on_everything():
    everything = {what for kind in KINDS.values() for what in kind.affects}
    assert rests_of("of a new rule") == rests_of("cause_of_a_new_kind") == everything


@pytest.mark.parametrize("compute", [causes_result, launches_result])
def test_an_analysis_says_the_doubt_and_no_gain(compute: Callable[[Any], Any]):
    trace = examined(CASES / "first20_missing.json")
    topic = {causes_result: "causes", launches_result: "launches"}[compute]
    whole = compute(frame_of(trace))
    result = withhold_result(topic, whole, stored(trace))
    assert whole.findings and not result.findings
    assert result.answer.startswith("40 % of the launches have no GPU record") and "win" not in result.answer
    if topic == "causes":
        assert result.numbers["lead"] is None and all(row["recoverable_ns"] is None for row in result.numbers["groups"])
        for table in result.tables:
            at = [column.name for column in table.columns].index(GAIN)
            assert all(row[at] is None for row in table.rows)
    assert withhold_result(topic, whole, []) == whole                   # of a profile that was stored before


# ---- what is whole ----

@pytest.mark.parametrize(("path", "kind"), [
    ("h200/kineto_train.json.gz", ""), ("recorded/launch_graph.json.gz", ""), ("recorded/torch_graph_stack_memory.json.gz", ""),
    ("recorded/jax_trace.json.gz", ""), ("h200/nsys/node.sqlite.gz", ""), ("h200/nsys/graph.sqlite.gz", ""),
    ("h200/nsys/node_cuda_api_trace.csv", ""), ("corpus/kineto/hta_mi250_minitoy_rocm62.json.gz", ""),
    ("corpus/kineto/hta_alexnet_a100_critical_path.json.gz", ""), ("corpus/nsys/nsysai_h100_2gpu.sqlite.gz", ""),
    ("corpus/kineto/hta_cupti_range_profiler_a100.json.gz", "launch_without_work"),
])
def test_recordings_that_are_whole_are_not_doubted(path: str, kind: str):
    """One of them is not: the range profiler of CUPTI records no kernels."""
    assert [doubt.kind for doubt in examined(DATA / path).integrity.plausibility] == ([kind] if kind else [])

"""Collectives: matched between ranks, their bandwidth, who waits for whom and why: drawn traces with exact answers, and
recordings whose straggler was put there."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiles import ingest
from profiles.analysis.core.frame import Frame, frame_of
from profiles.analysis.core.result import Result
from profiles.analysis.trace.communication.collectives import bus_factor, collectives_of, operation
from profiles.analysis.trace.communication.meetings import meetings_of
from profiles.analysis.trace.communication.result import communication_result
from profiles.analysis.trace.merge import merge
from profiles.ingest.trace import SLICES, Category, Trace, Track
from tests.builders import trace
from tests.profiles.ingest.corpus import CORPUS, DATA, H200

RANKS, CAUSES = DATA / "ranks", DATA / "causes"


def said(**arguments: Any) -> str:
    """Arguments as a lane can hold them: without a space."""
    text = json.dumps({key.replace("_", " "): value for key, value in arguments.items()}, separators=(",", ":"))
    return "detail=" + text.replace(" ", "\\u0020")


ALL_REDUCE = said(Collective_name="allreduce", Group_size=2, dtype="Float", Process_Group_Name="0")


def of_ranks(*texts: str, bases: tuple[int, ...] = ()) -> Frame:
    return frame_of(merge([(f"rank{i}.json", trace(text, rank=i, base_ns=bases[i] if bases else 0))
                           for i, text in enumerate(texts)]))


def recorded(*paths: Path) -> Frame:
    traces = []
    for path in paths:
        found = ingest.read(path)
        assert isinstance(found, Trace)
        traces.append((path.name, found))
    return frame_of(merge(traces) if len(traces) > 1 else traces[0][1])


def table(result: Result, title: str) -> list[dict[str, Any]]:
    found = next(each for each in result.tables if each.title == title)
    return [dict(zip([column.name for column in found.columns], row, strict=True)) for row in found.rows]


REDUCE = f"bytes=1000000 {ALL_REDUCE}"
TWO = (f"""
    python (1) / main:   cudaLaunchKernel 5-8 corr=1 | DataLoader 62-88 | cudaLaunchKernel 88-90 corr=2
    GPU 0 / stream 7:    gemm 10-20
    GPU 0 / stream 9:    ncclAllReduce 20-60 corr=1 {REDUCE} | ncclAllReduce 92-100 corr=2 {REDUCE}
    """, f"""
    python (1) / main:   cudaLaunchKernel 5-8 corr=1 | cudaLaunchKernel 60-65 corr=2
    GPU 0 / stream 7:    gemm 10-50 | relu 70-80
    GPU 0 / stream 9:    ncclAllReduce 50-60 corr=1 {REDUCE} | ncclAllReduce 70-100 corr=2 {REDUCE}
    """)


def test_two_ranks_wait_for_each_other_for_two_reasons() -> None:
    """Rank 1 computes 30 µs longer; then rank 0 loads data while rank 1 has 10 µs of its own to do."""
    result = communication_result(of_ranks(*TWO))
    numbers = result.numbers
    assert (numbers["launches"], numbers["meetings"], numbers["unmatched"], numbers["complete"]) == (4, 2, 0, 2)
    rank_0, rank_1 = numbers["ranks"]
    assert (rank_0["wait_ns"], rank_0["still_ns"], rank_0["kernel_ns"], rank_0["late"]) == (30_000, 30_000, 48_000, 1)
    assert (rank_1["wait_ns"], rank_1["still_ns"], rank_1["kernel_ns"], rank_1["late"]) == (22_000, 12_000, 40_000, 1)
    first, second = numbers["late"]
    assert (first["label"], first["cost_ns"], first["waited_ns"], first["cause"]) == ("rank 1", 30_000, 30_000, "computing")
    assert first["causes_ns"]["computing"] == 30_000 and sum(first["causes_ns"].values()) == 30_000
    assert first["kernels"] == [("gemm", 30_000), ("relu", 10_000)]
    assert (second["label"], second["cost_ns"], second["cause"]) == ("rank 0", 12_000, "host_late")
    assert second["causes_ns"] == {"computing": 0, "behind": 0, "copying": 0, "communicating": 0, "host_late": 20_000,
                                   "queued": 2_000, "unknown": 0}
    assert second["host"][0] == ("DataLoader", 18_000)                       # of 70-90 it lies in 70-88
    assert numbers["pairs"] == {"labels": ["rank 0", "rank 1"], "wait_ns": [[0, 30_000], [22_000, 0]],
                                "still_ns": [[0, 30_000], [12_000, 0]], "collectives": [[0, 1], [1, 0]]}
    by_size = table(result, "Collectives by size")
    assert len(by_size) == 1 and by_size[0]["Measured as"] == "transfer" and by_size[0]["One takes"] == 9_000       # 10 and 8
    assert by_size[0]["Algorithm bandwidth"] == pytest.approx(1e6 / 9e-6) == by_size[0]["Bus bandwidth"]
    assert by_size[0]["Best bus bandwidth"] == pytest.approx(1e6 / 8e-6)
    assert "Rank 1 comes last in 1 of 2 collectives: rank 0 stood still for it 30.0 µs" in result.answer
    assert "because it computed more than the others: `gemm` takes 30.0 µs more there" in result.answer
    assert [(row["Waiting"], row["For"], row["Standing still"]) for row in table(result, "Who waits for whom")] == [
        ("rank 0", "rank 1", 30_000), ("rank 1", "rank 0", 12_000)]
    assert {found.numbers["rank"] for found in result.findings if found.rule == "straggler"} == set()      # each was last as often


def test_shifted_clocks_change_no_wait() -> None:
    """Rank 1's file begins 3 µs later, so all its times are 3 µs less, and it says so."""
    def later(us: re.Match[str]) -> str:
        return str(int(us[0]) - 3)

    earlier = re.sub(r"(?<= )\d+(?=-)|(?<=-)\d+(?= )", later, TWO[1])
    numbers = communication_result(of_ranks(TWO[0], earlier, bases=(7_000_000_000, 7_000_003_000))).numbers
    assert [each["wait_ns"] for each in numbers["ranks"]] == [30_000, 22_000] and numbers["clock"] == "base time"


def lanes(starts: list[float], end_after: float, size: int = 4096) -> str:
    work = " | ".join(f"ncclAllReduce {start}-{end} bytes={size} {ALL_REDUCE}"
                      for start, end in zip(starts, (i * 100 + end_after for i in range(len(starts))), strict=True))
    return f"GPU 0 / stream 9: {work}"


def test_the_last_of_three_is_found_and_only_what_all_stand_still_counts() -> None:
    """Ranks come at 10, 30 and 60 of every 100 µs: the others wait 50 and 30, all stand still 30."""
    named = said(Collective_name="allreduce", Group_size=3, dtype="Float", Process_Group_Name="0")
    texts = [lanes([i * 100 + begin for i in range(6)], 70).replace(ALL_REDUCE, named) for begin in (10, 30, 60)]
    numbers = communication_result(of_ranks(*texts)).numbers
    assert numbers["meetings"] == 6 and numbers["complete"] == 6
    late, = numbers["late"]
    assert (late["label"], late["meetings"], late["waited_ns"], late["cost_ns"]) == ("rank 2", 6, 6 * 80_000, 6 * 30_000)
    assert late["cause"] == "unknown"                                       # no launch call, no compute: nothing is invented
    assert numbers["sizes"][0]["one_ns"] == 10_000 and numbers["sizes"][0]["ranks"] == 3
    assert numbers["sizes"][0]["bus_bytes_s"] == pytest.approx(4096 / 10e-6 * 2 * 2 / 3)


def test_a_recording_that_begins_later_is_matched_by_time() -> None:
    """Rank 1's recording lacks the first three of eight collectives of one size."""
    starts = [i * 100 + 10.0 for i in range(8)]
    whole, cut = lanes(starts, 70), " | ".join(lanes([each + 20 for each in starts], 70).split(" | ")[3:])
    frame = of_ranks(whole, f"GPU 0 / stream 9: {cut}")
    found = collectives_of(frame)
    met = meetings_of(found)
    assert met.present.tolist() == [2] * 5 and np.count_nonzero(met.of < 0) == 3
    assert met.transfer_ns.tolist() == [40_000] * 5 and met.skew_ns.tolist() == [20_000] * 5


def test_different_collectives_are_not_matched() -> None:
    other = said(Collective_name="allgather", Group_size=2, dtype="Float", Process_Group_Name="1")
    frame = of_ranks(lanes([10, 110], 70), lanes([10, 110], 70).replace(ALL_REDUCE, other))
    result = communication_result(frame)
    assert result.numbers["meetings"] == 0 and result.numbers["unmatched"] == 4
    assert "No collective could be matched" in result.answer
    assert {row["Measured as"] for row in table(result, "Collectives by size")} == {"whole kernel, waiting included"}


def test_the_wait_until_all_recordings_have_begun_is_left_out_and_said() -> None:
    """990 µs in the first collective, 40 µs in each of the three after it."""
    def of(begins: list[int]) -> str:
        return "GPU 0 / stream 9: " + " | ".join(f"ncclAllReduce {begin}-{end} {ALL_REDUCE}" for begin, end in zip(
            begins, (1000, 1150, 1250, 1350), strict=True))

    result = communication_result(of_ranks(of([0, 1100, 1200, 1300]), of([990, 1140, 1240, 1340])))
    assert (result.numbers["meetings"], result.numbers["start_wait_ns"]) == (3, 990_000)
    assert result.numbers["late"][0]["waited_ns"] == 120_000 and result.numbers["ranks"][0]["wait_ns"] == 120_000
    assert "a first wait of 990 µs, until all had begun, left out" in result.answer
    assert "The first collective is left out" in next(each for each in result.tables if each.title == "Who waits for whom").note


@pytest.mark.parametrize(("name", "expected", "factor"), [
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all-reduce", 2 * 7 / 8),
    ("_allgather_base", "all-gather", 7 / 8), ("ncclKernel_ReduceScatter_RING_LL_Sum_half", "reduce-scatter", 7 / 8),
    ("all_to_allv", "all-to-all", 7 / 8), ("broadcast", "broadcast", 1), ("ncclDevKernel_Reduce_Sum_f32", "reduce", 1),
    ("ncclDevKernel_SendRecv", "send/recv", 1), ("cross_device_reduce_1stage", "all-reduce", 2 * 7 / 8),
    ("all-reduce.7", "all-reduce", 2 * 7 / 8), ("gather", "gather", 7 / 8), ("something", "other", None),
    ("barrier", "barrier", None)])
def test_operations_and_factors_of_nccl_tests(name: str, expected: str, factor: float | None) -> None:
    """Factors for 8 ranks as nccl-tests' doc/PERFORMANCE.md lists them."""
    assert operation(name.split("(")[0]) == expected
    assert bus_factor(expected, 8) == (pytest.approx(factor) if factor else None) and bus_factor(expected, None) is None


@pytest.mark.parametrize(("folder", "name", "late", "cause", "named", "least_ms"), [
    (RANKS, "straggler_compute", "rank 1", "computing", "nvjet", 2.5), (RANKS, "straggler_host", "rank 1", "host_late",
                                                                       "load the batch", 16),
    (CAUSES, "straggler_compute", "rank 1", "computing", "gemm_f32f32", 45), (CAUSES, "straggler_data", "rank 0", "host_late",
                                                                              "dataloader", 40)])
def test_a_straggler_that_was_put_there_is_named_with_its_cause(folder: Path, name: str, late: str, cause: str, named: str,
                                                                least_ms: float) -> None:
    result = communication_result(recorded(folder / f"{name}_rank0.json.gz", folder / f"{name}_rank1.json.gz"))
    found = next(each for each in result.findings if each.rule == "straggler")
    assert (found.numbers["rank"], found.numbers["cause"], found.severity) == (late, cause, "high")
    assert (found.kernel is not None and named in found.kernel) == (cause == "computing")
    assert named in (found.numbers["kernels"] if cause == "computing" else found.numbers["host"])[0][0]
    assert found.worth_ns is not None and found.worth_ns > least_ms * 1e6
    times = found.numbers["meetings"]
    assert result.answer.startswith(f"{late.capitalize()} comes last in {times} of {times} collectives")
    for each in result.numbers["ranks"]:                        # transfer + waiting is the kernels, on every rank
        assert 0 <= each["still_ns"] <= each["wait_ns"] <= each["matched_ns"] == each["kernel_ns"]


@pytest.mark.parametrize(("name", "cause", "named"), [
    ("straggler_compute", "computing", "nvjet"), ("straggler_host", "host_late", "load the batch")])
def test_of_four_ranks_the_one_that_was_made_late_is_named(name: str, cause: str, named: str) -> None:
    result = communication_result(recorded(*(RANKS / "four" / f"{name}_rank{rank}.json.gz" for rank in range(4))))
    found = next(each for each in result.findings if each.rule == "straggler")
    assert (found.numbers["rank"], found.numbers["cause"], found.severity) == ("rank 2", cause, "high")
    assert named in (found.numbers["kernels"] if cause == "computing" else found.numbers["host"])[0][0]


@pytest.mark.parametrize("files", [
    (RANKS / "straggler_even_rank0.json.gz", RANKS / "straggler_even_rank1.json.gz"),
    (H200 / "ddp_even_rank0.json.gz", H200 / "ddp_even_rank1.json.gz")])
def test_ranks_that_do_the_same_have_no_straggler(files: tuple[Path, Path]) -> None:
    """DDP's rank 1 begins later and never catches up: said as that, not as slower."""
    result = communication_result(recorded(*files))
    assert not [each for each in result.findings if each.rule == "straggler" and each.severity != "info"]
    assert all(each["cause"] == "behind" for each in result.numbers["late"] if each["cost_ns"] > 0)


def test_bandwidths_are_those_of_cuda_events_around_the_calls() -> None:
    """The program's own times hold some 40 µs of launching: large messages agree within 7 %, none is slower here."""
    result = communication_result(recorded(RANKS / "collectives_rank0.json.gz", RANKS / "collectives_rank1.json.gz"))
    rows = {(row["Collective"].replace("-", "").replace("/", ""), row["Message"]): row
            for row in table(result, "Collectives by size")}
    truth = json.loads((RANKS / "collectives_truth_rank0.json").read_text())["runs"]
    assert len(truth) == 21
    for run in truth:
        row = rows[run["collective"], run["bytes"]]
        own = {"allreduce": 1.0, "allgather": 0.5, "reducescatter": 0.5, "alltoall": 0.5}.get(run["collective"], 1.0)     # 2 ranks
        assert row["Ranks"] == 2 and row["Launches"] == 10 and row["Measured as"] == "transfer"
        assert row["Algorithm bandwidth"] == pytest.approx(run["bytes"] / row["One takes"] * 1e9)
        assert row["Bus bandwidth"] == pytest.approx(own * row["Algorithm bandwidth"])
        assert row["One takes"] < run["median_ns"] < row["One takes"] + 60_000, run
        if run["bytes"] == 1 << 28 and run["collective"] != "alltoall":
            assert row["Algorithm bandwidth"] == pytest.approx(run["bytes"] / run["median_ns"] * 1e9, rel=0.08), run


def test_overlap_is_that_of_holistic_trace_analysis() -> None:
    truth = json.loads((DATA / "hta_truth.json").read_text())["files"]
    seen = 0
    for name, said_there in truth.items():
        path = next((folder / name for folder in (CORPUS / "kineto", H200) if (folder / name).exists()), None)
        if path is not None and said_there.get("overlap_pct"):
            rank, = communication_result(recorded(path)).numbers["ranks"]
            assert rank["hidden_pct"] == pytest.approx(said_there["overlap_pct"], abs=0.01), name         # it prints two digits
            seen += 1
    assert seen == 5


def test_one_rank_alone_says_that_it_cannot_know_who_waits() -> None:
    result = communication_result(recorded(CORPUS / "kineto" / "hta_nccl_data_a100_rank0of2.json.gz"))
    assert result.applies and "upload them together" in result.answer and "or more: waiting is in it" in result.answer
    assert all(row["Waiting"] is None and row["Measured as"].startswith("whole kernel")
               for row in table(result, "Collectives by size"))
    assert [each.title for each in result.tables] == ["Collectives of each rank", "Collectives by size"]


def test_a_cpu_backend_is_not_passed_over() -> None:
    result = communication_result(recorded(CORPUS / "kineto" / "hta_cpu_only_gloo_rank34of300.json.gz"))
    assert result.applies and result.numbers["on_host"] and "rank 34" in result.answer
    assert result.numbers["ranks"][0]["busy_ns"] <= result.numbers["wall_ns"]


def test_hostile_numbers_of_gpus_groups_and_sizes_stay_bounded() -> None:
    """20,000 launches, each of a GPU, a group, a size and a name of its own, then all on two GPUs: bounded rows, small document."""
    n = 20_000
    numbers = np.arange(n)
    said_of_each = [json.dumps({"Collective name": "allreduce", "Group size": 2**40, "Process Group Name": f"g{i}",
                                "dtype": "x" * 99}) for i in range(n)]
    for device in (numbers, numbers % 2):
        columns = {name: np.zeros(n, np.int64) for name in SLICES.names} | {
            "start_ns": numbers * 10, "dur_ns": np.full(n, 15), "device": device, "bytes": numbers + 1, "detail": numbers,
            "category": np.full(n, int(Category.COMMUNICATION)), "instant": np.zeros(n, np.bool_), "id": numbers}
        frame = Frame(n, ["nccl"], said_of_each, [Track("stream", "stream 7", "GPU 0")], [], columns.__getitem__)
        began = time.monotonic()
        result = communication_result(frame)
        assert time.monotonic() - began < 20
        assert len(json.dumps(result.numbers)) < 500_000 and all(len(each.rows) <= 300 for each in result.tables)
        assert result.tables[0].rows[0][1] in (1, n // 2) and result.numbers["left_out"] == (n - 256 if device is numbers else 0)


def test_ranks_of_two_kinds_of_groups_meet_within_their_own() -> None:
    """Four ranks: tensor parallel pairs (0, 1) and (2, 3), data parallel pairs (0, 2) and (1, 3), in one order on all."""
    def of(rank: int) -> str:
        def group(name: str, members: str) -> str:
            return said(Collective_name="allreduce", Group_size=2, dtype="Float", Process_Group_Name=name,
                        Process_Group_Ranks=members)

        tensor = group("tp0" if rank < 2 else "tp1", "[0,1]" if rank < 2 else "[2,3]")
        data = group(f"dp{rank % 2}", f"[{rank % 2},{rank % 2 + 2}]")
        begin = 10 * rank
        return "GPU 0 / stream 9: " + " | ".join(
            f"ncclAllReduce {step * 200 + begin}-{step * 200 + 50} {tensor} | "
            f"ncclAllReduce {step * 200 + 60 + begin}-{step * 200 + 120} {data}" for step in range(3))

    result = communication_result(of_ranks(*map(of, range(4))))
    assert (result.numbers["meetings"], result.numbers["complete"], result.numbers["unmatched"]) == (12, 12, 0)
    assert result.numbers["pairs"]["collectives"] == [[0, 3, 3, 0], [0, 0, 0, 3], [0, 0, 0, 3], [0, 0, 0, 0]]
    assert result.numbers["pairs"]["wait_ns"] == [[0, 30_000, 60_000, 0], [0, 0, 0, 60_000], [0, 0, 0, 30_000], [0, 0, 0, 0]]

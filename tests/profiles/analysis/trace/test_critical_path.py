"""The critical path: paths of drawn traces found exactly; parts add up; GPU time on it as Holistic Trace Analysis has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from profiles import ingest
from profiles.analysis.core.frame import Frame, frame_of
from profiles.analysis.trace.critical.topic import critical_result, links_of, paths
from profiles.analysis.trace.critical.waits import syncs
from profiles.analysis.trace.critical.walk import KINDS, MOST, path_segments
from profiles.analysis.trace.launching.order import order_of
from profiles.analysis.trace.merge import merge
from profiles.ingest.trace import Trace
from tests.builders import trace
from tests.profiles.analysis.trace.test_communication import ALL_REDUCE, of_ranks, recorded
from tests.profiles.ingest.corpus import CORPUS, DATA, H200

L = "cudaLaunchKernel"
# host slower than the GPU: every kernel waits for its launch, only the last and the synchronisation stand on the GPU
HOST_BOUND = f"""
python (1) / main: aten::a 0-20 | {L} 10-16 corr=1 | aten::b 20-40 | {L} 30-36 corr=2 | cudaDeviceSynchronize 42-60
GPU 0 / stream 7:  ka 18-24 corr=1 | kb 38-55 corr=2
"""
# GPU slower than the host: three launches at once, then a wait
GPU_BOUND = f"""
python (1) / main: {L} 0-4 corr=1 | {L} 4-8 corr=2 | {L} 8-12 corr=3 | cudaStreamSynchronize 12-70
GPU 0 / stream 7:  k1 6-26 corr=1 | k2 28-48 corr=2 | k3 49-67 corr=3
"""
# a copy on a stream of its own lets the kernel start: an event that Kineto recorded
RECORD = "Stream Wait Event@sync 12-31 corr=4 detail=" + '{"wait_on_stream":20,"wait_on_cuda_event_record_corr_id":2}'
EVENT = f"""
python (1) / main: cudaMemcpyAsync 0-3 corr=1 | cudaEventRecord 3-4 corr=2 | {L} 4-6 corr=3 | cudaStreamWaitEvent 6-7 corr=4 \
| {L} 7-9 corr=5 | cudaDeviceSynchronize 9-60
GPU 0 / stream 7:  k1 8-12 corr=3 | {RECORD} | k2 32-55 corr=5
GPU 0 / stream 20: Memcpy HtoD 4-30 corr=1
"""


def summed(frame: Frame, key: str = "whole") -> dict[str, float]:
    """µs by kind of one path; what is zero is left out."""
    row = next(row for row in critical_result(frame).numbers["paths"] if row["key"] == key)
    return {kind.key: row[f"{kind.key}_ns"] / 1000 for kind in KINDS if row[f"{kind.key}_ns"]}


def segments(frame: Frame, key: str = "whole") -> list[tuple[str, float, float]]:
    """(track, from µs, to µs) of a path, in order of time."""
    path = next(each.path for each in paths(frame) if each.key == key)
    return [(frame.tracks[track].name if track >= 0 else "", lo / 1000, hi / 1000)
            for track, lo, hi in zip(path.track.tolist(), path.from_ns.tolist(), path.to_ns.tolist(), strict=True)]


def test_a_host_that_is_too_slow_is_the_path():
    frame = frame_of(trace(HOST_BOUND))
    assert segments(frame) == [("main", 0, 36), ("stream 7", 36, 38), ("stream 7", 38, 55), ("main", 55, 60)]
    # 0-36: operators but for the two launch calls of 6 each; the kernel ka is not on it
    assert summed(frame) == {"compute": 17, "operator": 24, "runtime": 12, "launch": 2, "returning": 5}
    kernels = next(table for table in critical_result(frame).tables if table.title == "Kernels on the path")
    assert [(row[0], row[3]) for row in kernels.rows] == [("kb", 17_000), ("ka", 0)]
    assert critical_result(frame).numbers["off_path_ns"] == 6_000
    only_host = frame_of(trace(f"python (1) / main: {L} 0-4 corr=1 | aten::x 4-50\nGPU 0 / stream 7: k 6-16 corr=1"))
    assert "100 % of the GPU's time is hidden" in critical_result(only_host).answer


def test_a_gpu_that_is_too_slow_is_the_path():
    frame = frame_of(trace(GPU_BOUND))
    assert summed(frame) == {"compute": 58, "runtime": 4, "launch": 2, "between": 3, "returning": 3}
    assert "`k1` alone" in critical_result(frame).answer


def test_a_kernel_waits_for_the_event_of_another_stream():
    frame = frame_of(trace(EVENT))
    assert [name for name, *_ in segments(frame)] == ["main", "stream 20", "stream 20", "stream 7", "stream 7", "main"]
    assert summed(frame) == {"memory": 26, "compute": 23, "runtime": 3, "launch": 1, "dependency": 2, "returning": 5}
    assert critical_result(frame).numbers["inferred"] == 0


def test_events_of_a_later_rank_are_its_own():
    """The record that a wait names by its correlation id is in the wait's own process."""
    frame = frame_of(merge([(f"{rank}.json", trace(EVENT, rank=rank, base_ns=100_000 * rank)) for rank in (0, 1)]))
    order = order_of(frame)
    found = syncs(order)
    known = found.source >= 0
    rank = np.array(frame.rank_of_track)[frame["track"]]
    assert rank[found.rows[known]].tolist() == rank[order.rows[found.source[known]]].tolist() == ["rank 0", "rank 1"]


def test_an_event_that_the_file_does_not_hold_is_inferred_and_said():
    """The same without the record: k2 starts 2 µs behind the copy, long after its own stream and its launch."""
    lines = [line.replace("Memcpy HtoD 4-30", "Memcpy HtoD 4-28") for line in EVENT.splitlines()]
    text = "\n".join(" | ".join(part for part in line.split(" | ") if "@sync" not in part) for line in lines)
    frame = frame_of(trace(text))
    assert summed(frame)["dependency"] == 4 and summed(frame)["memory"] == 24
    assert critical_result(frame).numbers["inferred"] == 1


def test_a_stream_is_waited_for_wherever_the_file_draws_the_wait():
    """Kineto of 2026 moves `Stream Sync` to a lane of stream + 1,000,000; Nsight Systems to a track of waits."""
    frame = frame_of(trace(f"""
    python (1) / main: {L} 0-2 corr=1 | {L} 2-4 corr=2 | cudaStreamSynchronize 4-32 corr=3 | aten::x 32-40
    GPU 0 / stream 7:  a 4-30 corr=1
    GPU 0 / stream 8:  b 5-31.5 corr=2
    GPU 0 / stream 1000007: Stream Sync@sync 4-31 corr=3
    """))
    assert [name for name, *_ in segments(frame)] == ["main", "stream 7", "stream 7", "main", "main"]


def test_processes_that_name_no_rank_have_a_path_each():
    frame = frame_of(trace(f"""
    python (1) / main: {L} 0-2 corr=1 | cudaDeviceSynchronize 2-24
    python (2) / main: {L} 0-2 corr=2 | cudaDeviceSynchronize 2-64
    GPU 0 / stream 7:  a 4-20 corr=1
    GPU 1 / stream 7:  b 4-60 corr=2
    """))
    assert [(each.rank, each.path.end_ns) for each in paths(frame)] == [("python (1)", 24_000), ("python (2)", 64_000)]
    assert summed(frame)["compute"] == 16 and summed(frame, "whole-1")["compute"] == 56


def test_a_backward_thread_takes_over_and_hands_back():
    frame = frame_of(trace("""
    python (1) / main:     aten::f 0-100 | cudaLaunchKernel 90-98 corr=1 | aten::o 700-760 | cudaLaunchKernel 750-758 corr=3
    python (1) / autograd: aten::b 160-660 | cudaLaunchKernel 650-658 corr=2
    GPU 0 / stream 7:      kf 99-110 corr=1 | kb 662-670 corr=2 | ko 762-800 corr=3
    """))
    assert segments(frame) == [("main", 0, 100), ("autograd", 100, 160), ("autograd", 160, 660), ("main", 660, 700),
                               ("main", 700, 758),
                               ("stream 7", 758, 762), ("stream 7", 762, 800)]
    assert summed(frame)["handed"] == 100


def test_a_graph_node_waits_for_the_branch_that_ended_last():
    frame = frame_of(trace("""
    python (1) / main: cudaGraphLaunch 0-10 corr=1 | cudaDeviceSynchronize 10-80
    GPU 0 / stream 7:  a 12-20 corr=1 | join 52-70 corr=1
    GPU 0 / stream 8:  b 21-50 corr=1
    """))
    assert segments(frame) == [("main", 0, 10), ("stream 7", 10, 12), ("stream 7", 12, 20), ("stream 8", 20, 21),
                               ("stream 8", 21, 50),
                               ("stream 7", 50, 52), ("stream 7", 52, 70), ("main", 70, 80)]


def test_a_blocking_copy_waits_for_what_its_stream_did_before():
    frame = frame_of(trace("""
    python (1) / main: cudaLaunchKernel 0-4 corr=1 | cudaMemcpyAsync 4-40 corr=2 | aten::x 40-50
    GPU 0 / stream 7:  k 6-30 corr=1 | Memcpy DtoH 31-38 corr=2
    """))
    assert summed(frame) == {"compute": 24, "memory": 7, "runtime": 4, "launch": 2, "between": 1, "returning": 2, "operator": 10}


def test_the_path_of_a_step_ends_with_the_last_work_it_launched():
    frame = frame_of(trace("""
    python (1) / main: ProfilerStep#0 0-10 | cudaLaunchKernel 2-6 corr=1 | ProfilerStep#1 10-20 | cudaLaunchKernel 12-16 corr=2
    GPU 0 / stream 7:  k0 8-40 corr=1 | k1 42-50 corr=2
    """))
    found = {each.label: each.path for each in paths(frame)}
    assert {label: (path.start_ns, path.end_ns) for label, path in found.items()} == {
        "whole run": (2_000, 50_000), "ProfilerStep#0": (0, 40_000), "ProfilerStep#1": (10_000, 50_000)}
    assert summed(frame, "step-0") == {"compute": 32, "runtime": 4, "outside": 2, "launch": 2}


@pytest.mark.parametrize("path", [
    H200 / "kineto_train.json.gz", H200 / "kineto_layer.json.gz", H200 / "ddp_even_rank0.json.gz",
                                  CORPUS / "nsys" / "nways_jacobi_gh200_gpu_metrics_40ms.sqlite.gz",
    CORPUS / "nsys" / "nsysai_h100_2gpu.sqlite.gz", DATA / "recorded" / "torch_graph_stack_memory.json.gz",
    CORPUS / "kineto" / "vllm_mi300_decode_full_graph_execution.json.gz",
                                  CORPUS / "kineto" / "hta_alexnet_a100_critical_path.json.gz",
    CORPUS / "kineto" / "hta_mi250_minitoy_rocm62.json.gz"], ids=lambda path: path.name)
def test_every_ns_of_a_recorded_path_belongs_to_one_part(path: Any):
    found = ingest.read(path)
    assert isinstance(found, Trace)
    frame = frame_of(found)
    for row in critical_result(frame).numbers["paths"]:
        assert sum(row[f"{kind.key}_ns"] for kind in KINDS) == row["length_ns"] == row["end_ns"] - row["start_ns"]
    for each in paths(frame):
        covered = each.path.from_ns[0]
        for lo, hi in zip(each.path.from_ns.tolist(), each.path.to_ns.tolist(), strict=True):
            assert lo == covered and hi > lo
            covered = hi
        assert covered == each.path.end_ns
    # what is on the path of GPU work, and on no other link: within the work itself
    order, links = order_of(frame), links_of(frame)
    assert (links.time <= order.start_ns).all() and (links.source < order.rows.size).all()


# Holistic Trace Analysis 0.5.0, critical_path_analysis(rank=0, annotation="ProfilerStep", instance_id=…), of its breakdown the µs
# "gpu_compute_bound" and "gpu_kernel_kernel_overhead". Its CPU part leaves out the time between operators, ours does not.
HTA = {"step-0": (1508.540, 42.33676953125541), "step-1": (1506.716, 44.672085937498196)}


@pytest.mark.parametrize("key", HTA)
def test_gpu_work_and_gaps_on_a_steps_path_are_those_of_hta(key: str):
    found = ingest.read(H200 / "kineto_train.json.gz")
    assert isinstance(found, Trace)
    ours = summed(frame_of(found), key)
    gpu_us, between_us = HTA[key]
    assert ours["compute"] + ours["memory"] == pytest.approx(gpu_us, rel=1e-3)
    assert ours["between"] == pytest.approx(between_us, rel=1e-3)


# rank 1 computes 100 µs more before the collective: rank 0 waits in it from 40 to 140
EARLY = f"""
python (1) / main: {L} 0-4 corr=1 | {L} 4-8 corr=2 | cudaDeviceSynchronize 8-165
GPU 0 / stream 7:  short 6-38 corr=1 | ncclAllReduce 40-160 corr=2 {ALL_REDUCE}
"""
LATE = f"""
python (1) / main: {L} 0-4 corr=1 | {L} 4-8 corr=2 | cudaDeviceSynchronize 8-162
GPU 0 / stream 7:  long 6-138 corr=1 | ncclAllReduce 140-160 corr=2 {ALL_REDUCE}
"""


def test_the_path_of_a_job_goes_on_to_the_rank_that_came_last():
    frame = of_ranks(EARLY, LATE)
    whole = next(each.path for each in paths(frame) if each.label == "whole job")
    label = [frame.rank_of_track[track] for track in whole.track.tolist()]
    assert [(rank, lo, hi) for rank, lo, hi in zip(label, whole.from_ns.tolist(), whole.to_ns.tolist(), strict=True)] == [
        ("rank 1", 0, 4_000), ("rank 1", 4_000, 6_000), ("rank 1", 6_000, 138_000), ("rank 1", 138_000, 140_000),
        ("rank 0", 140_000, 160_000), ("rank 0", 160_000, 165_000)]
    assert summed(frame) == {"compute": 132, "communication": 20, "runtime": 4, "launch": 2, "between": 2, "returning": 5}
    # each rank for itself: rank 0 sees its collective only
    assert summed(frame, "whole-1")["communication"] == 120
    ranks = next(table for table in critical_result(frame).tables if table.title == "Ranks on the path")
    assert [row[:2] for row in ranks.rows] == [["rank 1", 140_000], ["rank 0", 25_000]]
    assert "on rank 1" in critical_result(frame).answer


@pytest.mark.parametrize(("cause", "rank"), [("straggler_compute", "rank 1"), ("straggler_data", "rank 0")])
def test_the_path_of_a_recorded_job_names_the_straggler(cause: str, rank: str):
    """tests/data/causes: rank 1 computes four more products before each step; rank 0 sleeps 8 ms before each."""
    frame = recorded(*(DATA / "causes" / f"{cause}_rank{number}.json.gz" for number in range(2)))
    result = critical_result(frame)
    table = next(table for table in result.tables if table.title == "Ranks on the path")
    assert table.rows[0][0] == rank and table.rows[0][2] > 75
    for row in result.numbers["paths"]:
        assert sum(row[f"{kind.key}_ns"] for kind in KINDS) == row["length_ns"]
    assert f"on {rank}" in result.answer


def test_a_trace_without_launch_calls_says_so():
    only_gpu = frame_of(trace("GPU 0 / stream 7: k 0-10"))
    found = critical_result(only_gpu)
    assert not found.applies and "runtime" in found.answer and paths(only_gpu) == []
    assert not critical_result(frame_of(trace("python (1) / main: aten::x 0-5"))).applies


def test_contradictory_times_end():
    """Work that starts before its call, of no length, at one moment, on streams that wait for each other."""
    frame = frame_of(trace("""
    python (1) / main: cudaLaunchKernel 50-60 corr=1 | cudaLaunchKernel 60-70 corr=2 | cudaDeviceSynchronize 70-71
    GPU 0 / stream 7:  a 5-5 corr=1 | b 5-5 corr=2 | c 5-5
    GPU 0 / stream 8:  d 5-5 | e 5-70.5
    """))
    row = critical_result(frame).numbers["paths"][0]
    assert sum(row[f"{kind.key}_ns"] for kind in KINDS) == row["length_ns"]


def test_what_the_timeline_draws_is_the_path_and_stays_small():
    frame = frame_of(trace(GPU_BOUND))
    path = paths(frame)[0].path
    exact = path_segments(frame, path, 0, 100_000)
    assert exact["exact"] and [segment[4] for segment in exact["segments"]] == [
        "host", "launch latency", "GPU", "between kernels", "GPU", "between kernels", "GPU", "return from wait"]
    assert sum(segment[3] - segment[2] for segment in exact["segments"]) == path.end_ns - path.start_ns
    calls = " | ".join(f"cudaLaunchKernel {i * 4}-{i * 4 + 2} corr={i}" for i in range(1, MOST + 50))
    work = " | ".join(f"k {i * 4 + 3}-{i * 4 + 4} corr={i}" for i in range(1, MOST + 50))
    waits = " | ".join(f"cudaStreamSynchronize {i * 4 + 2}-{i * 4 + 4}" for i in range(1, MOST + 50))
    many = frame_of(trace(f"python (1) / main: {calls} | {waits}\nGPU 0 / stream 7: {work}"))
    coarse = path_segments(many, paths(many)[0].path, 0, 40_000_000)
    assert not coarse["exact"] and len(coarse["segments"]) <= 2 * 1500 + 2

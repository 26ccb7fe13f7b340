"""How work reaches the GPU: parts of each delay, queues, short kernels, graphs, slow calls, copies and serial kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from profiles import ingest
from profiles.analysis.core.frame import Frame, frame_of
from profiles.analysis.core.intervals import queue_depth
from profiles.analysis.core.result import Result
from profiles.analysis.trace.launching.calls import graphs, in_graph, is_wait, runtime_calls, short_kernels
from profiles.analysis.trace.launching.order import FULL, NEVER, order_of, queue_points, queues
from profiles.analysis.trace.launching.overlap import copies, serial_runs
from profiles.analysis.trace.launching.topic import launches_result
from profiles.ingest.trace import Device, Trace
from tests.builders import trace
from tests.profiles.ingest.corpus import CORPUS, DATA, H200

L = "cudaLaunchKernel"


def recorded(path: Any) -> Frame:
    found = ingest.read(path)
    assert isinstance(found, Trace)
    return frame_of(found)


def rows(result: Result, title: str) -> list[list[Any]]:
    return next((table.rows for table in result.tables if table.title == title), [])


def test_a_delay_is_the_call_the_queue_and_the_rest():
    order = order_of(frame_of(trace(f"""
    python (1) / main: {L} 0-4 corr=1 | {L} 4-8 corr=2 | {L} 60-66 corr=3 | {L} 80-90 corr=4
    GPU 0 / stream 7:  a 5-25 corr=1 | b 27-40 corr=2 | c 69-75 corr=3 | d 86-95 corr=4
    """)))
    assert order.delay_ns.tolist() == [5_000, 23_000, 9_000, 6_000]
    assert order.in_call_ns.tolist() == [4_000, 4_000, 6_000, 6_000]        # d starts before its call returned
    assert order.queued_ns.tolist() == [0, 17_000, 0, 0]                    # b waits for a until 25
    assert order.ready_ns.tolist() == [1_000, 2_000, 3_000, 0]
    assert order.gap_ns.tolist() == [0, 2_000, 29_000, 11_000]
    assert order.late_ns.tolist() == [0, 0, 26_000, 11_000]                 # of c's gap: 40 to 66
    assert order.free_ns[0] == NEVER and order.before.tolist() == [-1, 0, 1, 2]


@pytest.mark.parametrize("path", [H200 / "kineto_train.json.gz", CORPUS / "kineto" / "hta_nccl_data_a100_rank0of2.json.gz",
                                  DATA / "recorded" / "torch_graph_stack_memory.json.gz"], ids=lambda path: path.name)
def test_the_parts_of_recorded_delays_add_up(path: Any):
    order = order_of(recorded(path))
    assert (order.in_call_ns + order.queued_ns + order.ready_ns == order.delay_ns).all()
    assert min(order.in_call_ns.min(), order.queued_ns.min(), order.ready_ns.min(), order.gap_ns.min()) >= 0
    assert (order.late_ns <= order.gap_ns).all()


def test_a_queue_counts_launches_that_have_not_started():
    found = queues(order_of(frame_of(trace(f"""
    python (1) / main: {L} 0-1 corr=1 | {L} 1-2 corr=2 | {L} 2-3 corr=3 | cudaGraphLaunch 3-4 corr=4
    GPU 0 / stream 7:  a 2-10 corr=1 | b 10-20 corr=2 | g1 20-25 corr=4 | g2 25-30 corr=4
    GPU 0 / stream 8:  c 6-9 corr=3
    """))), limit=2)
    first = found[0]
    assert (first.launches, first.most, first.window_ns) == (3, 2, 20_000)
    # stream 7: 1 in 0-1, 2 in 1-2, 1 in 2-3, 2 in 3-10 (the graph is one entry), 1 in 10-20
    assert first.blocked_ns == 8_000 and first.empty_ns == 0
    assert first.mean == pytest.approx((1 + 2 + 1 + 14 + 10) / 20)
    assert queue_points(first, 0, 20_000, bins=4)["depth"] == [2, 2, 1, 1]
    assert (found[1].launches, found[1].most, found[1].window_ns) == (1, 1, 4_000)


def test_a_full_queue_is_found_where_it_was_made():
    """3,000 launches behind a sleep: the driver lets 1,022 wait, then one call blocks for 86.6 ms."""
    frame = recorded(DATA / "recorded" / "launch_queue_full.json.gz")
    result = launches_result(frame)
    assert result.numbers["queue_most"] == FULL
    blocked_ns = int(frame["dur_ns"][runtime_calls(frame).outliers[0]])
    assert result.numbers["queue_blocked_ns"] == pytest.approx(blocked_ns, rel=0.01) and blocked_ns > 80_000_000
    assert "queue was full" in result.answer and {"queue_full", "slow_calls"} <= {found.rule for found in result.findings}
    # the same depth by another way: every launch until its work starts, as the timeline's counter has it until its end
    order = order_of(frame)
    assert queue_depth(order.call_start_ns, order.start_ns)[1].max() == FULL
    assert launches_result(recorded(H200 / "kineto_train.json.gz")).numbers["queue_blocked_ns"] == 0


def test_a_graph_wins_back_the_gaps_before_late_launches_only():
    work = order_of(frame_of(trace(f"""
    python (1) / main: {L} 0-10 corr=1 | {L} 20-30 corr=2 | {L} 40-50 corr=3 | cudaDeviceSynchronize 55-60 \
| {L} 70-80 corr=4 | {L} 500-510 corr=5
    GPU 0 / stream 7:  a 9-14 corr=1 | b 29-34 corr=2 | c 49-58 corr=3 | d 79-99 corr=4 | e 509-512 corr=5
    """)))
    found = short_kernels(work)
    assert found.is_short.tolist() == [True, True, True, False, True]
    # b and c: from the end of the one before to their start; d: the host waited in between; e: a gap of more than 200 µs
    assert found.won_ns.tolist() == [0, 15_000, 15_000, 0, 0] and found.kept_gap_ns is None


def test_what_a_graph_keeps_is_measured_on_queued_kernels():
    calls = " | ".join(f"{L} {i}-{i + 0.5} corr={i}" for i in range(30))
    kernels = " | ".join(f"k {40 + i * 10}-{48 + i * 10} corr={i}" for i in range(30))
    assert short_kernels(order_of(frame_of(trace(f"python (1) / main: {calls}\nGPU 0 / stream 7: {kernels}")))).kept_gap_ns == 2_000


def test_a_host_that_is_too_slow_is_told_with_the_graph_that_would_help():
    result = launches_result(recorded(DATA / "recorded" / "launch_host_bound.json.gz"))
    assert result.answer.startswith("The host hardly keeps up: 100 %") and result.numbers["short_kernels"] == 400
    won = next(found for found in result.findings if found.rule == "graphs")
    assert won.severity == "high" and won.numbers["graph_won_launches"] == 399


def test_nodes_of_a_graph_are_its_kernels():
    frame = recorded(DATA / "recorded" / "launch_graph.json.gz")
    found, = graphs(order_of(frame))
    assert (found.replays, found.node_count, len(found.nodes)) == (5, 4, 4)
    kernels = frame.kernels[in_graph(order_of(frame))[np.searchsorted(frame.work, frame.kernels)]]
    assert found.work_ns == int(frame["dur_ns"][kernels].sum()) == sum(node.total_ns for node in found.nodes) and kernels.size == 20
    assert found.busy_ns < found.work_ns            # two branches side by side
    for node in found.nodes:
        assert node.count == 5
    table = rows(launches_result(frame), "Nodes of the graphs")
    assert [row[1] for row in table] == [1, 2, 3, 4] and sum(row[7] for row in table) == pytest.approx(100)


def test_one_launch_of_forty_nodes_in_a_recording():
    found, = graphs(order_of(recorded(DATA / "recorded" / "torch_graph_stack_memory.json.gz")))
    assert (found.replays, found.node_count) == (2, 40)


def test_a_call_that_took_far_longer_than_its_name_is_an_outlier_unless_it_waits():
    quick = " | ".join(f"{L} {i * 10}-{i * 10 + 5} corr={i}" for i in range(1, 21))
    frame = frame_of(trace(f"""
    python (1) / main: {quick} | {L} 300-400 corr=21 | cudaMalloc 410-480 | cudaMalloc 480-481 | cudaMalloc 482-483 \
| cudaStreamSynchronize 500-900 | cudaMemcpyAsync 900-1000 corr=22 | cudaMemcpyAsync 1000-1004 corr=23
    GPU 0 / stream 7:  k 420-450 corr=21 | Memcpy DtoH 905-990 corr=22 | Memcpy HtoD 1010-1020 corr=23
    """))
    found = runtime_calls(frame)
    assert [(frame.text(row), ns) for row, ns in zip(found.outliers.tolist(), found.excess_ns.tolist(), strict=True)] == [
        (L, 95_000), ("cudaMalloc", 69_000)]
    table = rows(launches_result(frame), "Slow calls")
    assert [(row[0], row[1], row[3]) for row in table] == [(L, 100_000, 100_000), ("cudaMalloc", 70_000, 40_000)]
    assert {frame.text(row) for row in np.flatnonzero(is_wait(frame)).tolist()} == {"cudaStreamSynchronize"}


def test_exposed_copies_say_why():
    order = order_of(frame_of(trace("""
    GPU 0 / stream 7:  k 10-50 | Memcpy HtoD (Pageable -> Device) 50-60 bytes=100 | Memcpy DtoH (Device -> Pinned) 60-65
    GPU 0 / stream 20: Memcpy HtoD (Pinned -> Device) 0-30 bytes=300 | Memcpy HtoD (Pinned -> Device) 30-40 bytes=50
    """)))
    names = order.frame.names
    found = [(names[each.name], each.count, each.total_ns, each.exposed_ns, each.moved_bytes, each.why.split(":")[0])
             for each in copies(order)]
    assert found == [
        ("Memcpy HtoD (Pinned -> Device)", 2, 40_000, 10_000, 350,
         "nothing else was queued at that time, or a kernel waited for the copy"),
        ("Memcpy HtoD (Pageable -> Device)", 1, 10_000, 10_000, 100, "pageable memory"),
        ("Memcpy DtoH (Device -> Pinned)", 1, 5_000, 5_000, None, "on a stream that also runs kernels")]


@pytest.mark.parametrize(("path", "rule"), [("causes/serial_copies.json.gz", "copies_exposed"),
                                            ("causes/serial_kernels.json.gz", "serial_kernels")])
def test_planted_causes_are_found_and_not_where_there_are_none(path: str, rule: str):
    assert rule in {found.rule for found in launches_result(recorded(DATA / path)).findings}
    assert rule not in {found.rule for found in launches_result(recorded(H200 / "kineto_layer.json.gz")).findings}


def test_small_kernels_of_one_stream_could_share_the_gpu():
    gpu = [Device(0, "NVIDIA H200", sm_count=132)]
    small = " | ".join(f"gemm {i * 10}-{i * 10 + 8} grid=33x1x1" for i in range(8))
    alone = " | ".join(f"gemm {i * 10}-{i * 10 + 8} grid=500x1x1" for i in range(20, 28))
    order = order_of(frame_of(trace(f"GPU 0 / stream 7: {small} | {alone}", devices=gpu)))
    found, = serial_runs(order)
    # 8 × 8 µs at a quarter of the SMs: together two times 8 µs
    assert (found.runs, found.launches, found.total_ns, found.saved_ns, found.blocks) == (1, 8, 64_000, 48_000, 33)
    between = small.replace(" | gemm 40", " | Memset 38.5-39 | gemm 40")
    assert [run.launches for run in serial_runs(order_of(frame_of(trace(f"GPU 0 / stream 7: {between}", devices=gpu))))] == [8]
    assert serial_runs(order_of(frame_of(trace(f"GPU 0 / stream 7: {small}")))) == []       # how many SMs is not known


def test_traces_without_kernels_or_calls_say_what_is_missing():
    assert "Record" in launches_result(frame_of(trace("python (1) / main: aten::x 0-5"))).answer
    only_gpu = launches_result(frame_of(trace("GPU 0 / stream 7: k 0-10")))
    assert not only_gpu.applies and "correlation" in only_gpu.answer


# Holistic Trace Analysis 0.5.0 with HTA_DISABLE_NS_ROUNDING=1: launches, sum and median of get_cuda_kernel_launch_stats'
# launch_delay (µs), and the largest queue_length. It leaves out calls of the driver API (cuLaunchKernelEx), and so does the
# comparison.
HTA = {"h200/kineto_train.json.gz": (772, 45_015.6024921875, 2.335568359375, 16),
       "recorded/launch_queue_full.json.gz": (3001, 96_899_043.5785547, 2.2212578125, 1022),
       "h200/ddp_even_rank0.json.gz": (2710, 5_176_582.383824219, 1_592.6162265625, None)}


@pytest.mark.parametrize("path", HTA)
def test_delays_and_queues_are_those_of_hta(path: str):
    frame = recorded(DATA / path)
    order = order_of(frame)
    calls = np.array([frame.text(call) if call >= 0 else "" for call in order.call.tolist()])
    delay_us = (order.queued_ns + order.ready_ns)[np.isin(calls, ["cudaLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync"])] / 1000
    launches, total_us, median_us, most = HTA[path]
    assert delay_us.size == launches and delay_us.sum() == pytest.approx(total_us, rel=1e-5)
    assert np.median(delay_us) == pytest.approx(median_us, rel=1e-3)
    assert most is None or queues(order)[0].most == most

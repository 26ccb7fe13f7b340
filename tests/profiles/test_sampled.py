"""Sampled GPU metrics, kernels under 20 µs, CPU time of operators, calculated occupancy: drawn traces and real files."""

from __future__ import annotations

import numpy as np
import pytest

from profiles import ingest
from profiles.analysis.core import gpus
from profiles.analysis.core.digest import digest_of
from profiles.analysis.core.frame import frame_of
from profiles.analysis.core.kernels import kernel_table
from profiles.analysis.kernel.occupancy import occupancy
from profiles.analysis.trace import findings
from profiles.analysis.trace.breakdown import breakdown
from profiles.analysis.trace.findings import calculated_occupancy
from profiles.analysis.trace.launching.order import order_of
from profiles.analysis.trace.launching.topic import STEADY_NS, brief_finding, brief_kernels
from profiles.analysis.trace.operators.grouping import owned_work
from profiles.analysis.trace.operators.topic import self_time_table
from profiles.analysis.trace.sampled.topic import sampled_gpus, sampled_result
from profiles.ingest.trace import Category
from tests.builders import trace
from tests.profiles.ingest.corpus import DATA

METRICS = DATA / "corpus/nsys/nways_jacobi_gh200_gpu_metrics_40ms.sqlite.gz"


def test_what_samples_say_of_a_gpu_and_its_kernels():
    """Against the file's own samples: those that begin and end within one launch, counted by hand."""
    frame = frame_of(ingest.read(METRICS))
    gpu, = sampled_gpus(frame)
    assert gpu.period_ns == pytest.approx(50_000, rel=0.01) and gpu.metrics["sm_active"].mean_pct > 98
    assert gpu.metrics["sm_active"].idle_pct is None or gpu.metrics["sm_active"].idle_pct < 5
    track = next(number for number, each in enumerate(frame.tracks) if each.name == "DRAM Read Bandwidth")
    time, value = frame.samples.of(track)
    long = [row for row in frame.kernels.tolist() if frame["dur_ns"][row] > 1_000_000]
    inside = [value[at] for row in long for at in range(time.size - 1)
              if frame["start_ns"][row] <= time[at] and time[at + 1] <= frame.end_ns[row]]
    jacobi = int(frame["name"][long[0]])
    mean, sampled_ns = gpu.metrics["dram_read"].by_kernel[jacobi]
    assert mean == pytest.approx(np.mean(inside), abs=0.01) and sampled_ns == pytest.approx(len(inside) * 50_000, rel=0.01)
    short = next(each for each in gpu.kernels if each.name != jacobi)
    assert short.dense == 0 and short.name not in gpu.metrics["dram_read"].by_kernel       # 6 µs: unknown, not 0
    result = sampled_result(frame)
    rows = {row[0].partition("(")[0]: row for row in result.tables[1].rows}
    assert rows["initialize_boundaries"][4] is None and "too short for the sampling period" in rows["initialize_boundaries"][-1]
    assert rows["jacobi_kernel"][8] == pytest.approx(26, abs=0.1) and "one sample every 50.0 µs" in result.answer
    assert not sampled_result(frame_of(ingest.read(DATA / "h200/kineto_layer.json.gz"))).applies


def test_kernels_under_20_us_are_told_from_longer_ones():
    long = " | ".join(f"long {at}-{at + 40}" for at in range(0, 400, 100))
    drawn = trace(f"GPU 0 / stream 7: {long} | " + " | ".join(f"tiny {1000 + 10 * at}-{1004 + 10 * at}" for at in range(60)))
    order = order_of(frame_of(drawn))
    brief = brief_kernels(order)
    assert (brief.launches, brief.total_ns, brief.kernel_ns) == (60, 240_000, 400_000) and brief.floor_ns == 1_500
    found = brief_finding(order, brief, 1_600_000, 1)
    assert found.rule == "unsteady_kernels" and found.kernel == "tiny"
    assert found.worth_ns == 59 * 1_500 and "estimate" in found.title
    assert found.numbers["limit_ns"] == STEADY_NS
    few = order_of(frame_of(trace("GPU 0 / stream 7: tiny 0-4 | tiny 10-14 | long 20-90")))
    assert brief_kernels(few).floor_ns is None and brief_finding(few, brief_kernels(few), 90_000, 1) is None


def test_self_time_of_operators():
    frame = frame_of(trace("""
python / main: aten::linear 0-50 ext=1 | aten::addmm 10-40 ext=2 | cudaLaunchKernel 20-25 corr=1 | aten::linear 60-70 ext=3
GPU 0 / stream 7: gemm 30-90 corr=1 ext=2
"""))
    table = self_time_table(owned_work(frame))
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["aten::linear"] == [2, 30_000, 50.0, 15_000.0, 60_000, 0]
    assert rows["aten::addmm"] == [1, 30_000, 50.0, 30_000.0, 30_000, 60_000]
    real = frame_of(ingest.read(DATA / "h200/kineto_train.json.gz"))
    table, rows = self_time_table(owned_work(real)), real.of(Category.CPU_OP)
    outermost = rows[real.enclosing(real.parent[rows], Category.CPU_OP) < 0]
    assert sum(row[2] for row in table.rows) == real["dur_ns"][outermost].sum()           # self times tile the outermost operators
    assert all(row[2] <= row[5] for row in table.rows)


def test_occupancy_is_calculated_where_the_trace_states_none():
    read = ingest.read(DATA / "h200/kineto_train.json.gz")
    known = calculated_occupancy(digest_of(read))
    stated = {row.name: row.occupancy_pct for row in kernel_table(read)}
    assert known and all(not stated[name] for name in known)                              # Kineto's 0 is no estimate
    work, gpu = digest_of(read).work, gpus.lookup("NVIDIA H200")
    name = next(iter(known))
    at = int(np.flatnonzero(np.array(digest_of(read).names)[work["name"]] == name)[0])
    fits = occupancy(gpu.limits, int(work["block_x"][at] * work["block_y"][at] * work["block_z"][at]),
                     int(work["registers_per_thread"][at]), int(work["smem_bytes"][at]))
    assert 0 < known[name] <= fits.theoretical_pct
    said = [each for each in findings.find(read, kernel_table(read), breakdown(read)) if each.rule == "low_occupancy"]
    assert all(("calculated" in each.title) == (each.numbers["occupancy_source"] == "calculated") for each in said)

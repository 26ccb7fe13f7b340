"""Findings: each rule on a trace that can be seen, and the whole on a real training trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiles.analysis.core.kernels import kernel_table
from profiles.analysis.core.result import Finding
from profiles.analysis.trace import findings
from profiles.analysis.trace.breakdown import breakdown
from profiles.analysis.trace.findings import RULES
from profiles.analysis.trace.host import Host
from profiles.ingest import read
from profiles.ingest.trace import Trace
from tests.builders import trace

H200 = Path(__file__).parents[3] / "data" / "h200"


def find(made: Trace) -> dict[str, Finding]:
    return {each.rule: each for each in findings.find(made, kernel_table(made), breakdown(made))}


STEP = "ProfilerStep#0@annotation 0-100"
WAIT, LATE = "cudaStreamSynchronize 31-49", "cudaLaunchKernel 85-88 corr=2"
LATE_HOST = f"""
python (1) / main:   {STEP} | cudaLaunchKernel 8-10 corr=1 | aten::item 30-50 | {WAIT} | aten::mm 60-90 | {LATE}
GPU 0 / stream 7:    gemm 12-40 corr=1 | gemm 90-100 corr=2
"""


def test_idle_gpu_with_a_late_host_names_the_wait():
    found = find(trace(LATE_HOST))["gpu_idle"]
    # wall 0-100, busy 28 + 10; the gap 40-90 is starved until the call returned at 88
    assert found.numbers["idle_ns"] == 62_000
    assert found.numbers["host_late_ns"] == 48_000
    assert found.numbers["sync_callers"] == {"aten::item": 1}
    assert found.severity == "high"
    assert "host-bound" in found.title and "`aten::item`, once per step" in found.title
    assert "loss.item()" in found.advice


def test_idle_of_a_file_without_launch_calls_has_no_known_cause():
    found = find(trace("""
        python (1) / main:   aten::mm 0-100
        GPU 0 / stream 7:    gemm 12-20 | gemm 90-100
    """))["gpu_idle"]
    assert "unknown" in found.advice and "launched in time" not in found.advice


def test_what_the_host_did_adds_up_to_the_starved_time():
    made = trace(LATE_HOST)
    host = Host(made)
    gaps = host.gaps(0, 0, 100_000)
    activity = host.activity(gaps)
    parts = (activity.synchronising_ns, activity.runtime_ns, activity.operator_ns, activity.outside_ns,
             activity.profiler_ns)
    assert sum(parts) == activity.starved_ns == 48_000
    assert activity.synchronising_ns == 9_000           # 40-49
    assert activity.runtime_ns == 3_000                 # 85-88
    assert activity.operator_ns == 1_000 + 25_000       # 49-50 of aten::item, 60-85 of aten::mm
    assert activity.outside_ns == 10_000                # 50-60, in the step but in no operator
    assert activity.names == {"aten::mm": 28_000, "aten::item": 10_000}


def test_idle_after_a_wait_is_the_worth_of_the_wait():
    found = find(trace(LATE_HOST))["host_syncs"]
    assert found.worth_ns == 48_000 and found.numbers["sync_waited_ns"] == 18_000


def test_work_that_was_queued_in_time_is_not_the_hosts_fault():
    found = find(trace("""
    python (1) / main:   cudaLaunchKernel 0-2 corr=1 | cudaLaunchKernel 3-5 corr=2
    GPU 0 / stream 7:    gemm 6-20 corr=1 | gemm 60-100 corr=2
    """))["gpu_idle"]
    assert found.numbers["host_late_ns"] == 0 and "host-bound" not in found.title


def test_a_busy_gpu_has_no_idle_finding():
    assert "gpu_idle" not in find(trace("""
    python (1) / main:   cudaLaunchKernel 0-2 corr=1 | cudaLaunchKernel 3-5 corr=2
    GPU 0 / stream 7:    gemm 6-50 corr=1 | gemm 52-100 corr=2
    """))


def test_pageable_copies():
    found = find(trace("""
    GPU 0 / stream 7:    gemm 0-50 corr=1
    GPU 0 / stream 9:    ncclDevKernel_AllReduce 40-80 corr=2 | Memcpy HtoD (Pageable -> Device) 80-100 bytes=4000000
    """))
    assert found["pageable_copies"].numbers["copied_bytes"] == 4_000_000


def test_copies_of_two_gpus_at_once_save_the_time_of_one():
    found = find(trace("""
    GPU 0 / stream 7:    gemm 0-50 corr=1 | Memcpy HtoD (Pageable -> Device) 50-90 bytes=4000000
    GPU 0 / stream 9:    Memcpy DtoH (Device -> Pageable) 50-90 bytes=4000000
    GPU 1 / stream 7:    gemm 0-60 corr=2 | Memcpy HtoD (Pageable -> Device) 60-90 bytes=4000000
    """))
    copies = found["pageable_copies"]
    assert copies.numbers["time_ns"] == 110_000 and copies.worth_ns == 35_000       # the mean of 40 and 30 µs


def test_the_kernel_that_owns_the_time():
    kernels = " | ".join(f"tiny {10 * i + 7}-{10 * i + 9} corr={i}" for i in range(30))
    found = find(trace(f"GPU 0 / stream 7: {kernels}"))
    assert found["top_kernel"].numbers["share_pct"] == 100 and found["top_kernel"].kernel == "tiny"


def test_occupancy_of_zero_is_not_computed_not_low():
    lanes = "GPU 0 / stream 7:    gemm 0-50 occ={} | other 50-100 occ=80"
    assert "low_occupancy" in find(trace(lanes.format(12)))
    assert "low_occupancy" not in find(trace(lanes.format(0)))


def test_an_empty_trace_and_one_without_gpu_have_no_findings():
    assert find(trace("python (1) / main:   aten::mm 0-100")) == {}


def test_thresholds_are_data():
    assert all(rule.limits and all(isinstance(limit, int | float) for limit in rule.limits.values()) for rule in RULES)
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_training_trace_is_host_bound_and_says_so():
    made = read(H200 / "kineto_train.json.gz")
    first = findings.find(made, kernel_table(made), breakdown(made))[0]
    assert first.rule == "gpu_idle" and first.severity == "high"
    assert first.numbers["idle_pct"] == pytest.approx(70.87, abs=0.01)      # "about two thirds of the time"
    assert first.numbers["sync_callers"]["aten::item"] == 4                 # loss.item() every step, 4 steps
    assert "`aten::item`, once per step" in first.title
    # the same cause from the other side: breakdown's own attribution of the idle time
    assert first.numbers["host_late_ns"] == breakdown(made).devices[0].idle_causes["host_late_ns"]

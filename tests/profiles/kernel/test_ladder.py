"""Ladders of kernels whose steps were timed: the first advice about each names what the next step mends, and how much is won.

Recorded on an H200 by tests/gpu/ladder (`teaching`) and from public kernels (`sgemm`, siboehm/SGEMM_CUDA, MIT); what was won is
measured by CUDA events without a profiler.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import cache
from types import SimpleNamespace

import pytest

from profiles.analysis.kernel import counters, findings_counters, findings_source, rules
from profiles.analysis.kernel.advising import units
from profiles.analysis.kernel.advising.advice import ADVICE, Advice, advise, why_left_out
from profiles.analysis.kernel.advising.causes import cause as cause_called
from profiles.analysis.kernel.advising.causes import cause_of_nvidia
from profiles.analysis.kernel.advising.gains import Ours
from profiles.analysis.kernel.facts import LaunchFacts
from profiles.counters.selectors import rule_rows
from profiles.ingest.trace import CounterLaunch, Device, Report
from tests.gpu.ladder.shorten import read, report_of
from tests.profiles.ingest.corpus import DATA
from tests.profiles.kernel import reports

HIDING = {"occupancy", "barriers", "small_grid", "imbalance"}

# kernel -> (what its next step mends; None: the last step, no fault is left, µs of each by CUDA events)
SGEMM = {
    "sgemm_naive": ("uncoalesced", 275_600), "sgemm_global_mem_coalesce": ("operands", 21_980),
    "sgemm_shared_mem_block": ("operands", 15_100), "sgemm1DBlocktiling": ("operands", 8_100),
    "sgemm2DBlocktiling": ("bank_conflicts", 5_320), "sgemmVectorize": ("bank_conflicts", 4_380),
    "sgemmAutotuned": ("bank_conflicts", 4_420), "sgemmWarptiling": (None, 3_790),
}
TEACHING = {
    "reduce_divergent": "work_a_thread", "reduce_strided": "bank_conflicts", "reduce_sequential": "work_a_thread",
    "reduce_two_loads": "barriers", "reduce_shuffles": "work_a_thread", "reduce_many_loads": "narrow", "reduce_vectorized": None,
    "transpose_naive": "uncoalesced", "transpose_tile": "bank_conflicts", "transpose_padded": "bandwidth", "transpose_wide": None,
    "softmax_thread_a_row": "uncoalesced", "softmax_block_a_row": "barriers", "softmax_shuffles": "reread",
    "softmax_registers": None,
    "layernorm_thread_a_row": "uncoalesced", "layernorm_block_a_row": "barriers", "layernorm_shuffles": "reread",
    "layernorm_registers": None,
}
# karpathy/llm.c: kernel -> (what its authors' next step mends, that step). Of trimat they mend the reuse first and the layout then;
# the advice names the layout first and the reuse second.
PUBLIC = {
    "encoder_forward_kernel1": ("uncoalesced", "encoder_forward_kernel2"),
    "encoder_forward_kernel2": ("narrow", "encoder_forward_kernel3"),
    "gelu_forward_kernel1": ("narrow", "gelu_forward_kernel2"), "residual_forward_kernel1": ("narrow", "residual_forward_kernel2"),
    "layernorm_forward_kernel1": ("uncoalesced", "layernorm_forward_kernel3"),
    "layernorm_forward_kernel5": ("narrow", "layernorm_forward_kernel6"),
    "matmul_backward_bias_kernel1": ("uncoalesced", "matmul_backward_bias_kernel4"),
    "matmul_backward_bias_kernel3": ("uncoalesced", "matmul_backward_bias_kernel4"),
    "matmul_backward_bias_kernel4": ("narrow", "matmul_backward_bias_kernel7"),
    "trimul_global<&matmul_tri_naive>": ("operands", "trimul_global<&matmul_tri_registers>"),
    "trimul_global<&matmul_tri_registers>": ("uncoalesced", "trimul_global<&matmul_tri3>"),
    "trimul_global<&matmul_tri3>": ("operands", "trimul_global<&matmul_tri4>"),
}
# Their next step wins 2 and 3 %, the one after it 11 and 4: the barriers are not what these wait for, and the advice says so.
WON_NEXT_TO_NOTHING = {"softmax_block_a_row", "layernorm_block_a_row"}


def advice_about(report: Report) -> tuple[LaunchFacts, list[Advice]]:
    launches = [counters.launch_facts(each) for each in report.launches]
    whole = counters.combine_launches(launches)
    assert whole is not None
    total_ns = sum(each.duration_ns or 0.0 for each in launches)
    ours = [Ours(each.rule, each.title, each.advice, None if "nvidia_estimate_pct" in each.numbers else each.worth_ns,
                 findings_source.most_pct(each.rule, each.numbers))
            for each in (*findings_counters.find(report), *findings_source.find(report))]
    nvidia = rules.merge_launch_rules([(facts.duration_ns, [asdict(rule) for rule in launch.rules])
                                       for facts, launch in zip(launches, report.launches, strict=True)])
    return whole, advise(whole, total_ns, ours, nvidia, launches)


@cache
def ladder(name: str) -> list[tuple[Report, float | None]]:
    return read(DATA / f"ladder/{name}.json.xz")


def kernel_of(report: Report) -> str:
    return report.launches[0].kernel.split("(")[0].split("<")[0].removeprefix("void ")


def steps(name: str) -> Iterator[tuple[str, LaunchFacts, list[Advice], float | None]]:
    for report, us in ladder(name):
        yield kernel_of(report), *advice_about(report), us


@pytest.fixture(scope="module")
def sgemm():
    return {kernel: (facts, listed) for kernel, facts, listed, _ in steps("sgemm")}


@pytest.fixture(scope="module")
def teaching():
    return {kernel: (facts, listed, us) for kernel, facts, listed, us in steps("teaching")}


def test_a_products_first_advice_is_what_its_next_step_mends(sgemm):
    assert list(sgemm) == list(SGEMM)
    first = {kernel: listed[0] for kernel, (_, listed) in sgemm.items()}
    assert {kernel: first[kernel].cause for kernel, (mend, _) in SGEMM.items() if mend} == {
        kernel: mend for kernel, (mend, _) in SGEMM.items() if mend}
    assert "one word" in first["sgemm2DBlocktiling"].title and "scattered" in first["sgemmVectorize"].title
    assert "both dimensions" in first["sgemm1DBlocktiling"].fix and "shared memory once" in first["sgemm_global_mem_coalesce"].fix
    for kernel, (_, listed) in sgemm.items():
        causes = [each.cause for each in listed]
        assert "occupancy" not in causes, kernel                    # register tiles: the next step has half as much and is faster
        assert causes[-1] == "idle_tensor" and listed[-1].kind == "algorithm", kernel


def test_what_a_step_wins_is_at_most_what_was_foretold(sgemm):
    """The conflicts of one kind of load, 22, 18 and 16 %: won 18, 13 and 14. A tile in registers is mended by several steps."""
    times = [us for _, us in SGEMM.values()]
    won = {kernel: 100 * (1 - times[at + 1] / times[at]) for at, kernel in enumerate(list(SGEMM)[:-1])}
    won["sgemmVectorize"] = 100 * (1 - times[-1] / SGEMM["sgemmVectorize"][1])     # what follows it tries other tile sizes alone
    for kernel in ("sgemm2DBlocktiling", "sgemmVectorize", "sgemmAutotuned"):
        foretold = sgemm[kernel][1][0].gain_pct
        assert won[kernel] <= foretold <= 1.5 * won[kernel], kernel
    for kernel in ("sgemm_global_mem_coalesce", "sgemm_shared_mem_block", "sgemm1DBlocktiling"):
        facts, listed = sgemm[kernel]
        foretold = 100 * listed[0].gain_most_ns / facts.duration_ns
        assert won[kernel] <= foretold <= 100 * (1 - times[-1] / SGEMM[kernel][1]) + 3, kernel


def test_teaching_ladders_first_advice_is_what_the_next_step_mends(teaching):
    assert list(teaching) == list(TEACHING)
    wrong = {kernel for kernel, mend in TEACHING.items() if mend and teaching[kernel][1][0].cause != mend}
    assert wrong == WON_NEXT_TO_NOTHING
    for kernel in wrong:
        assert teaching[kernel][1][0].cause == "reread"
    for kernel in (kernel for kernel, mend in TEACHING.items() if mend is None):
        assert teaching[kernel][1][0].cause == "bandwidth", kernel
    assert "in flight" in teaching["transpose_padded"][1][0].fix and "idle" in teaching["reduce_sequential"][1][0].title


@pytest.fixture(scope="module")
def public():
    return {report.launches[0].kernel.split("(")[0].removeprefix("void "): (*advice_about(report), us)
            for report, us in ladder("llm_c")}


def test_public_ladders_first_advice_is_what_their_authors_mend_next(public):
    """Steps of karpathy/llm.c, recorded when the rules stood: 8 of 12 at first, and what the four others lacked was mended."""
    first = {kernel: public[kernel][1][0].cause for kernel in PUBLIC}
    naive = "trimul_global<&matmul_tri_naive>"
    assert {kernel for kernel, (mend, _) in PUBLIC.items() if first[kernel] != mend} == {naive}
    assert [each.cause for each in public[naive][1][:2]] == ["uncoalesced", "operands"]
    assert "shared memory" in public["trimul_global<&matmul_tri3>"][1][0].fix
    for kernel, (_, after) in PUBLIC.items():
        facts, listed, us = public[kernel]
        won_pct = 100 * (1 - public[after][2] / us)
        said = next(each for each in listed if each.cause == PUBLIC[kernel][0])
        most_pct = 100 * max(said.gain_most_ns or 0, said.gain_ns or 0) / facts.duration_ns
        # a row a thread becomes a row a warp: the number of threads that load grows as well, which no unit's use tells
        more = 20 if kernel == "layernorm_forward_kernel1" else 2
        assert 3 <= won_pct <= most_pct + more, (kernel, won_pct, most_pct)


def test_a_rule_of_nvidias_wins_no_more_than_the_advice_of_its_cause(public):
    """One number in both lists of a kernel's page: "46 % global" of one unit is 9 % of the kernel."""
    capped = 0
    for report, _ in ladder("llm_c"):
        facts, listed = advice_about(report)
        known = {each.cause: max(each.gain_ns or 0.0, each.gain_most_ns or 0.0) for each in listed}
        launch = SimpleNamespace(duration_ns=facts.duration_ns, rules=[asdict(rule) for rule in report.launches[0].rules])
        rows = rule_rows([launch], facts.duration_ns, [facts])
        assert rows == sorted(rows, key=lambda row: bool(row["left_out"]))
        for row in rows:
            found = cause_of_nvidia(row["identifier"], row["title"])
            if row["capped"] and not row["left_out"] and found is not None:
                capped += 1
                assert row["worth_ns"] <= known[found.key] * (1 + 1e-6), (report.launches[0].kernel, row["title"])
    assert capped >= 3


def test_what_lies_apart_is_brought_together_before_it_is_widened(public):
    """A row a thread: a wide load reads more of each row, and 31 of 32 sectors stay where they are."""
    for kernel in ("encoder_forward_kernel1", "layernorm_forward_kernel1"):
        facts, listed, _ = public[kernel]
        assert units.waits_for_sectors(facts) and "narrow" not in [each.cause for each in listed], kernel


def test_bytes_moved_stand_beside_the_least_of_the_operator(teaching, sgemm):
    assert "1.2 times the least: 537 MB" in teaching["transpose_naive"][1][1].evidence[0]
    said = next(each for each in sgemm["sgemm_naive"][1] if each.cause == "bandwidth")
    assert "43 times the least: 201 MB" in said.evidence[0]         # 3 × 4096² × 4 bytes


def test_no_store_of_four_bytes_a_block_is_a_fault(teaching):
    """NVIDIA: 7/8 of the sectors of its stores are not used; of all sectors that is 2.7 %."""
    facts, listed, _ = teaching["reduce_sequential"]
    assert "uncoalesced" not in [each.cause for each in listed]
    assert any(rule.identifier == "MemoryCacheAccessPattern" for report, _ in ladder("teaching")
               for rule in report.launches[0].rules if report.launches[0].kernel.startswith("reduce_sequential"))
    assert facts.signals["sector_excess_pct"] < 3


def test_what_hides_waiting_is_no_advice_at_a_roof(teaching, sgemm):
    for kernel, (facts, listed, *_) in {**teaching, **sgemm}.items():
        if units.saturated(facts):
            assert not HIDING & {each.cause for each in listed}, kernel
        assert all(100 * each.gain_most_ns / facts.duration_ns >= 3 for each in listed
                   if each.kind == "fault" and each.gain_most_ns is not None), kernel


def test_what_is_known_at_most_is_not_called_missing(teaching, sgemm):
    known = [each for _, listed, *_ in (*teaching.values(), *sgemm.values()) for each in listed
             if each.gain_ns is None and each.gain_most_ns is not None]
    assert len(known) >= 20
    assert not [each for each in known if "not in the report" in each.no_gain or "estimate" in each.no_gain]


def test_nvidias_rules_are_filtered_as_the_advice_is(teaching, sgemm):
    """No rule stands as advice whose cause the kernel's own advice leaves out; each that is left out says why."""
    reasons = []
    for report, _ in (*ladder("teaching"), *ladder("sgemm")):
        launches = [counters.launch_facts(each) for each in report.launches]
        whole, listed = {**teaching, **sgemm}[kernel_of(report)][:2]
        total_ns = sum(each.duration_ns or 0.0 for each in launches)
        nvidia = rules.merge_launch_rules([(facts.duration_ns, [asdict(rule) for rule in launch.rules])
                                           for facts, launch in zip(launches, report.launches, strict=True)])
        for rule, reason in zip(nvidia, why_left_out(nvidia, whole, total_ns, launches), strict=True):
            found = cause_of_nvidia(rule["identifier"], rule["title"])
            if not reason and rule["severity"] in ADVICE and found is not None:
                assert found.key in {each.cause for each in listed}, (report.launches[0].kernel, rule["title"])
            if found is not None and found.hides_latency and units.saturated(whole):
                assert "of the peak" in reason, (report.launches[0].kernel, rule["title"])
            reasons.append(reason)
    assert len([each for each in reasons if each]) >= 10
    assert any("of the peak" in each for each in reasons) and any("less than 3 %" in each for each in reasons)


def test_a_finding_at_a_line_wins_what_the_advice_wins(sgemm):
    """One number on the kernel's page and in the profile's report: NVIDIA's estimate, at most what the fault adds to its unit."""
    seen = 0
    for report, _ in ladder("sgemm"):
        kernel = kernel_of(report)
        gains = {f"source.{each.cause}": each.gain_ns for each in sgemm[kernel][1] if each.gain_source.startswith("NVIDIA")}
        for found in findings_source.find(report):
            if "nvidia_estimate_pct" in found.numbers and found.rule in gains:
                seen += "here at most" in found.title
                assert found.worth_ns == pytest.approx(gains[found.rule], rel=1e-6), (kernel, found.title)
    assert seen >= 2


HEALTHY = ("h200/full.ncu-rep.zst", "captured/matmul_full.ncu-rep.gz")


@pytest.mark.slow
@pytest.mark.parametrize("name", HEALTHY)
def test_kernels_at_their_roof_have_no_fault(name):
    """cuBLAS, PyTorch's element-wise kernels and a tuned product, at 85 % and more of DRAM or a pipe."""
    report, seen = reports.read(name), 0
    for launch in report.launches:
        if units.at_roof(counters.combine_launches([counters.launch_facts(launch)])):
            _, listed = advice_about(replace(report, launches=[launch]))
            seen += 1
            assert listed[0].kind == "limit" and not [each.cause for each in listed if each.kind == "fault"], launch.kernel
    assert seen >= 1


def test_vendors_kernels_at_their_roof_have_no_fault():
    """cuBLAS, PyTorch and Inductor with a unit at 85 % and more. At first three were told a fault: spills of a product in
    TF32, halves of sectors that the L1 had (a cast), atomics of a kernel that only fills."""
    told = {}
    for report, _ in ladder("healthy"):
        whole, listed = advice_about(report)
        assert units.saturated(whole) is not None
        told[report.launches[0].kernel] = listed
    assert len(told) == 13
    faults = {kernel: [each.cause for each in listed if each.kind == "fault"] for kernel, listed in told.items()}
    found = {kernel: causes for kernel, causes in faults.items() if causes}
    assert len(found) == 1 and all("layer_norm" in kernel and causes == ["reread"] for kernel, causes in found.items())
    of_norm = told[next(iter(found))][0]                # it reads its rows twice, DRAM is at 75 %
    assert (of_norm.gain_ns, of_norm.cause) == (None, "reread")
    assert all(listed[0].kind == "limit" for kernel, listed in told.items() if kernel not in found)


def _single(**metrics: float | str) -> list[Advice]:
    launch = CounterLaunch(0, "gemm_kernel", Device(0, "NVIDIA H200", "9.0"), None, None, None, None, dict(metrics))
    facts = counters.launch_facts(launch)
    return advise(facts, 0.0, [], [])


def test_metrics_collected_singly_give_what_they_allow():
    conflicts = _single(**{"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": 1234.0})
    assert [each.cause for each in conflicts] == ["bank_conflicts"] and "1,234 bank conflicts" in conflicts[0].evidence[0]
    tensor = _single(**{"sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active": 8.0})
    assert [each.title for each in tensor] == ["Tensor cores are little used"] and "8.0 %" in tensor[0].evidence[0]
    assert not _single(**{"sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active": 60.0})
    few = _single(**{"launch__grid_size": 20.0})
    assert [each.cause for each in few] == ["small_grid"] and "20 blocks on 132 SMs" in few[0].evidence[0]
    assert not _single(**{"launch__grid_size": 5_000.0})
    lanes = _single(**{"smsp__thread_inst_executed_per_inst_executed.ratio": 6.3})
    assert [each.cause for each in lanes] == ["divergence"] and "6.3 of 32 threads" in lanes[0].evidence[0]
    dram = _single(**{"dram__throughput.avg.pct_of_peak_sustained_elapsed": 92.0})
    assert [each.cause for each in dram] == ["bandwidth"]
    sectors = _single(**{"l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 1e6,
                         "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio": 4.0})
    assert [each.cause for each in sectors] == ["uncoalesced"] and "88 %" in sectors[0].evidence[0]


def test_the_worst_launch_speaks_not_the_mean():
    """A good launch and one whose tile conflicts: the second is named, with its own numbers and its share of the time."""
    both = [report.launches[0] for report, _ in ladder("teaching")
            if report.launches[0].kernel.startswith(("transpose_tile", "transpose_padded"))]
    launches = [replace(each, index=at, kernel="transpose", grid=(256 - at, 256, 1)) for at, each in enumerate(both)]
    whole, listed = advice_about(report_of(launches))
    first = listed[0]
    assert first.cause == "bank_conflicts" and "launch 0" in " ".join(first.evidence)
    assert any("86 %" in line for line in first.evidence)              # of its own passes, not of both launches'
    assert whole.duration_ns is not None and first.gain_most_ns <= whole.duration_ns
    alone = advice_about(report_of(launches[:1]))[1][0]
    assert first.gain_most_ns == pytest.approx(alone.gain_most_ns, rel=0.05)


def test_wait_needs_no_action_and_memory_throttle_is_lg_throttle():
    metrics = {"smsp__warp_issue_stalled_wait_per_warp_active.pct": 70.0,
               "smsp__warp_issue_stalled_memory_throttle_per_warp_active.pct": 30.0}
    found = counters.stalls.stalls(metrics)
    assert {each.reason: each.share_pct for each in found} == {"wait": 70.0, "lg_throttle": 30.0}
    both = {**metrics, "smsp__warp_issue_stalled_lg_throttle_per_warp_active.pct": 5.0}
    for order in (both, dict(reversed(both.items()))):                   # one state, whichever name comes first
        assert {each.reason: each.share_pct for each in counters.stalls.stalls(order)}["lg_throttle"] == 35.0
    assert counters.stalls.explain("memory_throttle").title == "LG throttle"
    assert counters.stalls.explain("wait").fix.startswith("No action")
    assert (symptom := cause_called("latency")) is not None and not any("Wait" in word for _, word in symptom.nvidia)

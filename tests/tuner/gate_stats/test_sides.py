"""Bad input: a clear verdict with the reason, never a guess."""

from dataclasses import replace

import numpy as np
import pytest

from tests.tuner.gate_stats.gate_runs import BASE, SAME, drawn, kernel
from tuner.gate.stats.runs import KernelRuns, Run
from tuner.gate.stats.suite import judge


def one(baseline, candidate):
    return judge([baseline], [candidate]).kernels[0]


def spoil(whole, at, value):
    """The kernel with one sample of run `at` replaced."""
    runs = list(whole.runs)
    us = runs[at].us.copy()
    us[3] = value
    runs[at] = replace(runs[at], us=us)
    return replace(whole, runs=runs)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -4.0, 0.0, 1e300, 1e-300])
def test_a_run_with_samples_that_are_no_times_is_set_aside_and_forbids_a_pass(value):
    for found in (one(kernel(BASE), spoil(kernel(SAME), 2, value)), one(spoil(kernel(BASE), 2, value), kernel(SAME))):
        assert found.verdict == "AMBIGUOUS" and "1 of 25 samples are no times" in found.reason
        assert len(found.excluded) == 1 and found.candidate_runs + found.baseline_runs == 14


def test_a_slowdown_that_the_other_runs_prove_stands():
    assert one(kernel(BASE), spoil(kernel([x * 1.2 for x in SAME]), 0, np.nan)).verdict == "SLOWER"


def test_a_side_without_a_usable_run_has_no_data():
    nothing = replace(kernel(SAME), runs=[Run(str(at), np.full(9, np.nan)) for at in range(5)])
    assert one(kernel(BASE), nothing).verdict == "NO DATA" and "none of the candidate's 5 runs" in one(kernel(BASE), nothing).reason
    assert one(kernel(BASE), replace(kernel(SAME), runs=[Run("1", np.empty(0))])).verdict == "NO DATA"


def test_a_missing_baseline_and_a_kernel_that_vanished_have_no_data():
    assert "baseline has no runs" in judge([], [kernel(SAME)]).kernels[0].reason
    assert "candidate has no runs" in judge([kernel(BASE)], []).kernels[0].reason
    assert judge([kernel(BASE)], [replace(kernel(SAME), runs=[])]).verdict == "NO DATA"


@pytest.mark.parametrize("what", ["gpu", "environment"])
def test_mixed_gpus_and_environments_have_no_data(what):
    here, there = {what: "NVIDIA H200"}, {what: "NVIDIA A100"}
    assert one(kernel(BASE, **here), kernel(SAME, **here)).verdict == "PASS"
    for baseline, candidate in ((here, there), (here, {}), ({}, there)):
        found = one(kernel(BASE, **baseline), kernel(SAME, **candidate))
        assert found.verdict == "NO DATA" and found.reason.startswith("the ")
        assert ("differs" if baseline and candidate else "do not say") in found.reason
    both = kernel(SAME, **here)
    both = replace(both, runs=[*both.runs[:3], *kernel(SAME, **there).runs[3:]])
    found = one(kernel(BASE, **here), both)
    assert found.verdict == "NO DATA" and "more than one" in found.reason and "A100" in found.reason and "H200" in found.reason


def test_a_run_that_comes_twice_is_no_second_witness():
    twice = kernel(SAME)
    twice = replace(twice, runs=[*twice.runs, *twice.runs])
    found = one(kernel(BASE), twice)
    assert found.candidate_runs == 5 and "counted once" in found.excluded[0]


def test_very_many_runs_are_bounded():
    values = np.random.default_rng(1).normal(100, 1, 2100)
    many = KernelRuns("k", {"N": 1}, None, "", [Run(str(at), np.array([value])) for at, value in enumerate(values)])
    found = one(many, kernel(SAME))
    assert found.baseline_runs == 1000 and "last 1,000 of 2,100" in found.excluded[0]


def test_constant_samples():
    flat = [10.0] * 10
    assert one(kernel(flat, samples=1), kernel(flat[:5], samples=1)).verdict == "PASS"
    assert one(kernel(flat, samples=1), kernel([10.8] * 5, samples=1)).verdict == "SLOWER"
    for times in (3.0, 4.0):                    # the only step that is seen is longer than the time itself
        found = one(kernel(flat, samples=1), kernel([10.0 * times] * 5, samples=1))
        assert found.verdict == "SLOWER" and found.p50.ratio == times <= found.p50.high <= 3 * times
        assert one(kernel([10.0 * times] * 10, samples=1), kernel(flat[:5], samples=1)).verdict == "FASTER"


@pytest.mark.parametrize(("level", "within", "verdict"), [
    (6.6, 0.0, "AMBIGUOUS"), (6.6, 0.03, "AMBIGUOUS"),     # 1.024 µs of 6.6: up to 18 % stay unseen
    (41.0, 0.02, "PASS"), (205.0, 0.02, "PASS"),           # of 41: 2.5 %
])
def test_a_coarse_timer_cannot_rule_out_what_it_cannot_see(level, within, verdict):
    def kernel_of(runs, seed, at):
        random = np.random.default_rng(seed)
        us = at * (1 + 0.003 * random.standard_normal((runs, 1))) * (1 + within * np.abs(random.standard_normal((runs, 40))))
        return KernelRuns("k", {"us": at}, None, "", [Run(str(n), np.round(each / 1.024) * 1.024) for n, each in enumerate(us)])

    baseline, candidate = ([kernel_of(runs, seed, level), kernel_of(runs, seed, 100.0)] for runs, seed in ((10, 1), (5, 2)))
    found = next(each for each in judge(baseline, candidate).kernels if each.shape["us"] == level)
    assert found.verdict == verdict
    assert verdict == "PASS" or ("the timer counts in steps" in found.reason and found.p50.high > 1.15)


def test_a_candidate_that_is_only_noisier_is_not_blamed():
    """Five wide runs all lie above a quiet baseline once in 32 comparisons: the rank test alone calls that SLOWER."""
    wide = [100.7, 106.0, 101.2, 109.0, 103.0]
    found = one(kernel(BASE), kernel(wide))
    assert found.verdict == "AMBIGUOUS" and "only be noisier" in found.reason and found.p50.p_value < 0.01 and found.more_runs > 5
    assert one(kernel(BASE), kernel([value * 1.4 for value in wide])).verdict == "SLOWER", "far above what it varies by"
    lone = [value * 1.08 for value in SAME[:4]] + [190.0]
    assert one(kernel(BASE), kernel(lone)).verdict == "SLOWER", "one bad run makes no build noisy"


# clocks


def clocked(medians, mhz):
    return kernel(medians, clocks=mhz if isinstance(mhz, list) else [mhz] * len(medians))


def test_the_same_cycles_at_a_lower_clock_are_not_the_builds_fault():
    found = one(clocked(BASE, 1980.0), clocked([x / 0.88 for x in SAME], 1980 * 0.88))
    assert found.verdict == "AMBIGUOUS" and "same cycles, 12 % lower clock" in found.reason and found.more_runs
    assert found.clocks["cycles_ratio"] == pytest.approx(1, abs=0.01)


def test_more_cycles_are_slower_whatever_the_clock():
    assert one(clocked(BASE, 1980.0), clocked([x * 1.3 for x in SAME], 1980 * 0.92)).verdict == "SLOWER"


def test_a_slowdown_hidden_by_a_higher_clock_does_not_pass():
    found = one(clocked(BASE, 1700.0), clocked(SAME, 1700 * 1.14))
    assert found.verdict == "AMBIGUOUS" and "14 % higher clock" in found.reason
    assert one(clocked(BASE, 1700.0), clocked(SAME, 1700 * 1.04)).verdict == "PASS", "time does not follow the clock everywhere"


def test_runs_whose_clock_jumped_are_set_aside():
    clocks = [1980.0, 1980.0, 1980.0, 1200.0, 1200.0]
    found = one(clocked(BASE, 1980.0), clocked([*SAME[:3], 160.0, 161.0], clocks))
    assert found.verdict == "AMBIGUOUS" and "1,200 MHz jumped away" in found.reason and found.candidate_runs == 3


def test_clocks_that_vary_as_they_always_do_change_nothing():
    """The recorded clocks of identical code go from 1,785 to 1,980 MHz."""
    for seed in range(15):
        for each in judge(*drawn(seed), calibrated=False).kernels:
            assert not each.clocks["says"] or each.verdict == "PASS"


def test_clocks_that_not_every_run_knows_are_not_used():
    partly = clocked([x * 1.2 for x in SAME], [1500.0] * 4 + [None])
    found = one(clocked(BASE, 1980.0), partly)
    assert found.verdict == "SLOWER" and found.clocks == {}

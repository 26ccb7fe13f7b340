"""Are the runs enough, and what are they worth? Before anything is run, and from history."""

import math
from dataclasses import asdict

import numpy as np
import pytest

from tests.tuner.gate_stats.gate_runs import kernel, recorded, some
from tuner.gate.stats.calibration import calibrate
from tuner.gate.stats.plan import further_runs, plan_runs
from tuner.gate.stats.rule import Rule
from tuner.gate.stats.runs import KernelRuns, Run
from tuner.gate.stats.suite import judge


@pytest.mark.parametrize(("kernels", "baseline", "candidate", "enough"), [
    (13, 10, 5, True), (13, 5, 5, False), (1, 5, 5, True), (1, 4, 4, False), (1, 3, 3, False),
    (30, 10, 5, True), (31, 10, 5, False), (13, 0, 5, False), (0, 10, 5, True), (500, 20, 10, True),
])
def test_enough_is_one_in_the_number_of_choices(kernels, baseline, candidate, enough):
    found = plan_runs(kernels, baseline, candidate)
    assert found.enough == enough
    assert found.smallest_p == pytest.approx(1 / math.comb(baseline + candidate, candidate) if baseline and candidate else 1)
    assert ("too few" in found.says) != enough


def test_the_numbers_it_asks_for_are_the_smallest_that_do():
    for kernels in (1, 13, 60):
        found = plan_runs(kernels, 10, 2)
        assert plan_runs(kernels, 10, found.needed_candidate).enough
        assert not plan_runs(kernels, 10, found.needed_candidate - 1).enough
        assert plan_runs(kernels, found.needed_each, found.needed_each).enough
        assert not plan_runs(kernels, found.needed_each - 1, found.needed_each - 1).enough
        assert str(found.needed_candidate) in found.says
    assert plan_runs(13, 1, 5).needed_candidate is None, "against one baseline run no number of candidate runs would do"
    assert plan_runs(13, 5, 10, Rule(alpha=0.05)).enough


def test_what_the_plan_says_is_what_the_gate_does():
    for b, c in ((10, 5), (5, 5), (8, 6)):
        baseline = [kernel(np.linspace(99, 101, b), op=f"k{at}") for at in range(13)]
        candidate = [kernel(np.linspace(119, 121, c), op=f"k{at}") if at == 4 else kernel(np.linspace(99.1, 100.9, c), op=f"k{at}")
                     for at in range(13)]
        assert (judge(baseline, candidate).verdict == "SLOWER") == plan_runs(13, b, c).enough


def test_noisier_kernels_ask_for_more():
    assert further_runs(0.002, 1, Rule()) == plan_runs(1, 0, 0).needed_each
    assert further_runs(0.03, 1, Rule()) > further_runs(0.015, 1, Rule()) >= 5
    assert further_runs(5, 1, Rule()) == 60


def two_speeds(random, runs, factor=1.0):
    """A kernel half of whose processes are 8 % slower, as some are by where their memory lies."""
    return kernel(100 * factor * (1 + 0.08 * (random.random(runs) < 0.5)) * np.exp(0.002 * random.standard_normal(runs)))


def test_the_runs_that_are_asked_for_decide():
    asked, decided = [], 0
    for seed in range(12):
        random = np.random.default_rng(seed)
        first = judge([two_speeds(random, 10)], [two_speeds(random, 5, 1.05)], calibrated=False, family=13).kernels[0]
        if first.verdict == "AMBIGUOUS":
            again = [two_speeds(random, first.more_runs)], [two_speeds(random, first.more_runs, 1.05)]
            decided += judge(*again, calibrated=False).verdict != "AMBIGUOUS"
            asked.append(first.more_runs)
    assert len(asked) > 8 and decided >= 0.8 * len(asked)


def test_a_kernel_with_a_target_of_its_own_asks_for_the_runs_that_this_one_needs():
    random = np.random.default_rng(4)
    runs = [[kernel(100 * np.exp(0.05 * random.standard_normal(number)), key="k", samples=1)] for number in (10, 5)]
    rules = [Rule(), Rule(target=0.06, floor=0.01)]
    alone = [judge(*runs, rule, calibrated=False).kernels[0].more_runs for rule in rules]
    assert alone[0] > alone[1] > 0
    assert [judge(*runs, rules={"k": rule}, calibrated=False).kernels[0].more_runs for rule in rules] == alone


def test_a_p95_that_is_undecided_asks_for_its_own_runs():
    """Its noise, not the p50's: what the p50 alone needs would leave it as it was."""
    random = np.random.default_rng(3)

    def tailed(runs):
        late = np.where(random.random((runs, 40)) < 0.05, random.exponential(1.0, (runs, 40)), 0)
        us = 100 * np.exp(0.003 * random.standard_normal((runs, 1))) * (1 + 0.01 * random.standard_normal((runs, 40)) + late)
        return KernelRuns("k", {}, None, "", [Run(str(at), each) for at, each in enumerate(us)])

    found = [judge([tailed(10)], [tailed(5)], calibrated=False).kernels[0] for _ in range(12)]
    unsure = [each for each in found if each.p95.verdict == "AMBIGUOUS" and each.p50.verdict == "PASS"]
    assert unsure and all(each.more_runs > further_runs(0.003, 1, Rule()) for each in unsure)


def test_calibration_of_recorded_kernels():
    found = calibrate(recorded(), draws=300)
    assert len(found) == 13
    for each in found:
        assert each.runs == 24 and each.slower == 0 and each.ambiguous <= 0.01
        assert 0.0005 < each.cv < 0.01 and 0.03 < each.detectable < 0.06
    assert asdict(found[0])["says"].startswith("24 runs of identical code vary by")


def test_the_detectable_slowdown_is_the_one_that_the_gate_detects():
    noisy = calibrate(recorded("timing_runs_small"), kernels=1, draws=400)
    for each, whole in list(zip(noisy, recorded("timing_runs_small"), strict=True))[:4]:
        called = []
        for seed in range(40):
            order = np.random.default_rng(seed).permutation(24)
            sides = [some(whole, order[:10])], [some(whole, order[10:15], 1 + each.detectable)]
            called.append(judge(*sides, calibrated=False).kernels[0].p50.verdict == "SLOWER")
        assert np.mean(called) >= 0.85


def test_too_few_runs_calibrate_nothing():
    found = calibrate([some(recorded()[0], range(4))])[0]
    assert found.slower is None and found.detectable is None and "5 or more" in found.says
    assert calibrate([some(recorded()[0], range(8))], draws=100)[0].slower == 0, "drawn with repetition"
    assert calibrate([some(recorded()[0], range(24))], baseline_runs=3, candidate_runs=2, draws=50)[0].detectable is None

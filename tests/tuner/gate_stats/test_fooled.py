"""What fools a comparison of two files: a timer's steps, a machine that drifts, too few runs for a rank test."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.gate_around import build, coarse_timer, drifting, five_and_five, slowed
from tuner.gate.stats.noise import two_speeds_p
from tuner.gate.stats.plan import plan_runs
from tuner.gate.stats.rule import Verdict
from tuner.gate.stats.runs import KernelRuns, Run
from tuner.gate.stats.sessions import find_machine_drift
from tuner.gate.stats.sides import make_side, timer_step
from tuner.gate.stats.suite import judge

Runs = list[list[float]]


def kernel(runs: Runs) -> list[KernelRuns]:
    return [KernelRuns("k", {}, None, "k", [Run(str(at), np.array(us)) for at, us in enumerate(runs)])]


def test_a_step_of_the_timer_is_no_slowdown() -> None:
    without, ours, _ = coarse_timer(1.006)(20)
    assert (without >= 15, ours) == (True, 0)
    assert coarse_timer(1.3)(10)[1] == 10, "two steps and more are"
    one = judge(kernel([[6.144] * 25] * 10), kernel([[7.168] * 25] * 5), calibrated=False).kernels[0]
    assert one.verdict == Verdict.AMBIGUOUS and "make up 14 %" in one.reason
    assert one.p50 is not None and one.p50.low == pytest.approx(1) and one.p50.high > 1.3
    back = judge(kernel([[7.168] * 25] * 10), kernel([[6.144] * 25] * 5), calibrated=False).kernels[0]
    assert back.verdict != Verdict.FASTER, "nor is it a gain"


@pytest.mark.parametrize(("runs", "step"), [
    ([[7.168, 9.216]], 1.024), ([[6.144, 8.192]], 2.048), ([[6.144, 6.1439999, 7.168]], 1.024), ([[5.0, 5.0]], 0.0)])
def test_the_step_divides_what_is_read(runs: Runs, step: float) -> None:
    assert timer_step(make_side(kernel(runs))) == pytest.approx(step, rel=1e-4)


def test_a_machine_that_drifts_blames_no_build() -> None:
    for kernels in (1, 4):
        without, ours, _ = drifting(0.12, kernels)(12)
        assert (without, ours) == (12, 0)
    assert drifting(0.06, 4, 1.12)(8)[1] == 8, "what is slower beyond the drift is told"
    random = np.random.default_rng(3)
    base, candidate = build(random, np.ones(4), runs=10), build(random, np.ones(4))
    sides = [[replace(each, runs=[replace(run, us=run.us * (1 + 0.008 * (at + first))) for at, run in enumerate(each.runs)])
              for each in side] for side, first in ((base, 0), (candidate, 10))]
    found = judge(*sides, calibrated=False, one_after_other=True)
    assert found.verdict == Verdict.AMBIGUOUS and "the machine drifted by +1" in found.kernels[0].reason
    assert "in turn" in found.kernels[0].reason and found.kernels[0].more_runs
    assert judge(*sides, calibrated=False).verdict == Verdict.SLOWER, "runs in turn have the drift on both sides"


def test_runs_without_a_trend_drift_nowhere() -> None:
    random = np.random.default_rng(4)
    seen = [find_machine_drift(*([40 * np.exp(0.005 * random.standard_normal(runs)) for _ in range(5)] for runs in (10, 5)))
            for _ in range(100)]
    assert sum(each is not None for each in seen) < 20 and all(abs(each.shift) < 0.02 for each in seen if each)
    assert find_machine_drift([np.ones(3)], [np.ones(3)]) is None and find_machine_drift([], []) is None
    assert find_machine_drift([np.ones(10)], [np.ones(5)]) is None


def test_five_runs_of_four_kernels_decide() -> None:
    without, ours, _ = five_and_five(1.06)(12)
    assert (without, ours) == (0, 12)
    assert two_speeds_p(5, 5) == 2.0 ** -10 and two_speeds_p(0, 5) == 1.0
    assert "completely apart" in plan_runs(4, 5, 5).says and "25 % or more apart" in plan_runs(13, 5, 5).says
    random = np.random.default_rng(1)
    many = judge(build(random, np.ones(13)), build(random, slowed(13, 2, 1.06)), calibrated=False)
    assert many.verdict == Verdict.AMBIGUOUS, "two speeds would do that once in 80 suites of so many kernels"

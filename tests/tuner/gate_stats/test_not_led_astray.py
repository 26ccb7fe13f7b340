"""What ordinary CI does to a gate: slips of units, launches of two speeds, sessions that differ, gains that are given back."""

import numpy as np
import pytest

from tests.tuner.gate_stats.gate_runs import BASE, SAME, kernel
from tuner.gate.stats.metrics import is_unit_slip, two_speeds
from tuner.gate.stats.rule import Rule
from tuner.gate.stats.runs import EarlierLevel, KernelRuns, Run
from tuner.gate.stats.sessions import Sessions, estimate_sessions
from tuner.gate.stats.sides import make_side
from tuner.gate.stats.suite import judge


def scaled(values, factor):
    return [value * factor for value in values]


def one(baseline, candidate, rule=None, **more):
    return judge([baseline], [candidate], rule, **more).kernels[0]


# ---- units ----

@pytest.mark.parametrize(("factor", "verdict", "says"), [
    (1e-3, "AMBIGUOUS", "not believed: units? (1000 times faster)"),        # ms sent as µs
    (1e3, "AMBIGUOUS", "not believed: units? (1000 times slower)"), (0.7e-3, "AMBIGUOUS", "not believed: units?"),
    (1 / 6, "AMBIGUOUS", "not believed: 6 times faster"), (6, "SLOWER", "not believed: 6 times slower"),
    (1 / 4.5, "FASTER", "−77.8 %"), (2, "SLOWER", "+100 %")])
def test_a_change_beyond_belief_is_no_gain(factor, verdict, says):
    found = one(kernel(scaled(BASE, 10)), kernel(scaled(SAME, 10 * factor)))
    assert found.verdict == verdict and says in found.reason
    assert found.believed == (1 / 5 <= factor <= 5)
    wide = one(kernel(scaled(BASE, 10)), kernel(scaled(SAME, 10 * factor)), Rule(believable=1e5))
    assert wide.verdict == ("FASTER" if factor < 1 else "SLOWER") and wide.believed


@pytest.mark.parametrize(("slipped", "verdict", "says"), [
    ([1e-3], "AMBIGUOUS", "run 4: its p50 is about 1000 times shorter than the others': units?"),
    ([1e3], "AMBIGUOUS", "times longer than the others': units?"), ([1e-3, 1e-3], "AMBIGUOUS", "run 3: its p50"),
    ([1e-3] * 3, "AMBIGUOUS", "not believed: units?"), ([1.0], "PASS", "5 % slower is ruled out")])
def test_a_slip_of_units_in_one_process_is_no_run_of_the_build(slipped, verdict, says):
    candidate = scaled(SAME[:5], 10)
    candidate[5 - len(slipped):] = [us * factor for us, factor in zip(candidate[5 - len(slipped):], slipped, strict=True)]
    found = one(kernel(scaled(BASE, 10)), kernel(candidate))
    told = " ".join([found.reason, *found.excluded])
    assert found.verdict == verdict and says in told
    others = judge([kernel(scaled(BASE, 10)), kernel(BASE, op="b", key="b")], [kernel(candidate), kernel(SAME, op="b", key="b")])
    assert {each.key: each.verdict for each in others.kernels}["b"] == "PASS", "a slip in one kernel is that kernel's"
    slower = candidate[:5 - len(slipped)]
    if len(slower) == 4:
        beside = one(kernel(scaled(BASE, 10)), kernel([*scaled(slower, 1.5), candidate[-1]]))
        assert beside.verdict == "SLOWER", "the other runs prove it"


def test_powers_of_a_thousand_are_units():
    assert all(map(is_unit_slip, (1e3, 1e-3, 1e6, 1e-9, 1900, 600)))
    assert not any(map(is_unit_slip, (1.0, 2.0, 6.0, 0.1, 30.0, 100.0)))


def test_samples_shorter_than_any_launch_are_refused():
    side = make_side([kernel(scaled(SAME, 1e-4))])                           # 0.01 µs
    assert not side.runs and "shorter than any launch (the first: 0.0099" in side.damaged[0] and "units?" in side.damaged[0]
    assert make_side([kernel([0.6, 0.61])]).runs


# ---- launches of two speeds ----

def mixed(slow_share, runs=10, samples=100, seed=0):
    """Launches of 40 µs, a share of which takes 76 µs: at 10 % the p95 is a slow one already."""
    random = np.random.default_rng(seed)
    slow = round(slow_share * samples)
    return KernelRuns("k", {"N": 1}, None, "", [
        Run(str(at), random.permutation(np.r_[np.full(samples - slow, 40.0), np.full(slow, 76.0)]) * (
            1 + 0.004 * random.standard_normal(samples))) for at in range(runs)])


def test_more_slow_launches_are_slower_in_all_though_p50_and_p95_stay():
    found = one(mixed(0.1), mixed(0.4, seed=1))
    assert found.verdict == "SLOWER" and found.reason.startswith("mean (GPU time a launch) +2")
    assert "10 % are slow in the baseline, 40 % in the candidate" in found.reason
    assert found.p50.verdict == found.p95.verdict == "PASS"
    expected = (0.6 * 40 + 0.4 * 76) / (0.9 * 40 + 0.1 * 76)
    assert found.mean.ratio == pytest.approx(expected, rel=0.02)
    assert one(mixed(0.1), mixed(0.1, seed=1)).verdict == "PASS"


def test_two_speeds_are_told_from_one():
    random = np.random.default_rng(1)
    found = two_speeds(np.r_[random.normal(40, 0.4, 90), random.normal(68, 0.7, 10)])
    assert found and found.slow_share == pytest.approx(0.1) and (found.fast_us, found.slow_us) == pytest.approx((40, 68), rel=0.01)
    assert two_speeds(random.normal(40, 2, 500)) is None and two_speeds(random.uniform(30, 60, 500)) is None
    assert two_speeds(np.full(100, 7.0)) is None and two_speeds(random.lognormal(3, 0.3, 500)) is None


# ---- large effects, and gains that are given back ----

def suite(kernels, slow, factor, runs, seed):
    random = np.random.default_rng(seed)
    return [kernel(40 * (factor if at == slow else 1) * np.exp(0.005 * random.standard_normal(runs)), op=f"k{at}", key=f"k{at}")
            for at in range(kernels)]


def test_a_doubled_kernel_of_sixty_is_called_with_five_runs():
    for seed in range(3):
        found = judge(suite(60, None, 1, 10, seed), suite(60, seed, 2.0, 5, 90 + seed), calibrated=False)
        assert [each.key for each in found.kernels if each.verdict == "SLOWER"] == [f"k{seed}"]
        halved = judge(suite(60, None, 1, 10, seed), suite(60, seed, 0.5, 5, 90 + seed), calibrated=False)
        assert [each.key for each in halved.kernels if each.verdict == "FASTER"] == [f"k{seed}"]
    clear = judge(suite(60, None, 1, 10, 1), suite(60, 1, 1.15, 5, 2), calibrated=False).kernels[0]
    assert (clear.key, clear.verdict) == ("k1", "SLOWER"), "completely apart: of two speeds once in 14,000 kernels"
    small = judge(suite(60, None, 1, 5, 1), suite(60, 1, 1.15, 5, 2), calibrated=False).kernels[0]
    assert small.verdict == "AMBIGUOUS" and "25 % or more" in small.reason, "what so few runs can prove is said"


def test_a_gain_that_is_given_back_is_slower_and_says_so():
    fast, back = suite(15, 3, 0.9, 5, 1), suite(15, None, 1, 5, 2)
    before = {each.key: EarlierLevel("c", each.runs) for each in suite(15, None, 1, 10, 3)}
    found = judge(fast, back, calibrated=False, earlier=before).kernels[0]
    assert (found.key, found.verdict, found.back_at) == ("k3", "SLOWER", "c") and "back at the speed of build c" in found.reason
    alone = judge(fast, back, calibrated=False).kernels[0]
    assert alone.verdict == "AMBIGUOUS", "5 against 5 runs of 15 kernels prove nothing by ranks"
    still = judge(fast, suite(15, 3, 0.9, 5, 4), calibrated=False, earlier=before)
    assert still.verdict == "PASS"


# ---- sessions ----

def test_the_spread_of_sessions_is_estimated_from_history():
    random = np.random.default_rng(0)
    def history(sd):
        days = np.exp(sd * random.standard_normal(40))
        return {f"k{at}": [40 * day * np.exp(0.005 * random.standard_normal(5)) for day in days] for at in range(6)}
    assert estimate_sessions(history(0.015)).sd == pytest.approx(0.015, rel=0.35)
    assert estimate_sessions(history(0.0)).sd < 0.003
    assert estimate_sessions({"k": [[1.0, 1.01]] * 2}, 3) == Sessions(baseline=3), "two sessions say nothing"


def test_a_session_that_is_slower_as_a_whole_blames_no_kernel():
    base, candidate = suite(8, None, 1, 10, 1), suite(8, 2, 1.035, 10, 2)
    slower_day = [kernel([float(np.median(run.us)) * 1.02 for run in each.runs], op=each.op, key=each.key) for each in candidate]
    assert judge(base, slower_day, calibrated=False).kernels[0].verdict == "SLOWER"
    found = judge(base, slower_day, calibrated=False, sessions=Sessions()).kernels[0]
    assert found.verdict == "AMBIGUOUS" and "all kernels together are +2" in found.reason
    one_of_many = judge(base, suite(8, 2, 1.08, 10, 3), calibrated=False, sessions=Sessions())
    assert [each.key for each in one_of_many.kernels if each.verdict == "SLOWER"] == ["k2"], "by the others the day is the same"


def test_few_kernels_without_history_need_more_than_sessions_differ_by():
    close = one(kernel(BASE), kernel(scaled(SAME, 1.06)), sessions=Sessions())
    assert close.verdict == "AMBIGUOUS" and "sessions differ" in close.reason and "measure both in turn" in close.reason
    assert one(kernel(BASE), kernel(scaled(SAME, 1.08)), sessions=Sessions()).verdict == "SLOWER"
    known = Sessions(0.003, 9, 2)
    assert one(kernel(BASE), kernel(scaled(SAME, 1.06)), sessions=known).verdict == "SLOWER"
    assert one(kernel(BASE), kernel(scaled(SAME, 0.95)), sessions=Sessions()).verdict == "PASS", "no day begins a new level"

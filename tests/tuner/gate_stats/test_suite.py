"""Verdicts: recorded draws, known answers, and suites of many kernels."""

import json
import re
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.scale import DEEP
from tests.tuner.gate_stats.gate_runs import BASE, SAME, drawn, kernel, recorded, some
from tuner.gate.stats.plan import plan_runs
from tuner.gate.stats.results import suite_json
from tuner.gate.stats.rule import Rule, Verdict
from tuner.gate.stats.runs import KernelRuns, Run
from tuner.gate.stats.suite import judge

DRAWS = 40 if DEEP else 24


def one(baseline, candidate, rule=None, **more):
    return judge([baseline], [candidate], rule, **more).kernels[0]


def slower(factor, values=SAME):
    return kernel([value * factor for value in values])


@pytest.mark.slow
def test_recorded_identical_suites_pass():
    assert Counter(judge(*drawn(seed), calibrated=False).verdict for seed in range(DRAWS)) == {"PASS": DRAWS}


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.05, *(pytest.param(each, marks=pytest.mark.deep_only) for each in (1.08, 1.10))])
def test_recorded_slowdowns_are_called_and_nobody_else_is_blamed(factor):
    called = 0
    for seed in range(26):
        found = judge(*drawn(seed, slower={seed % 13: factor}), calibrated=False)
        bad = [each for each in found.kernels if each.verdict == Verdict.SLOWER]
        assert all(each.config == recorded()[seed % 13].config for each in bad)
        called += len(bad)
    assert called >= {1.05: 23, 1.08: 26, 1.10: 26}[factor]


@pytest.mark.slow
def test_recorded_small_kernels():
    """5 to 22 µs, runs 0.4 to 3.2 % apart: no false SLOWER, few AMBIGUOUS, +10 % nearly always called."""
    said = Counter(judge(*drawn(seed, name="timing_runs_small"), calibrated=False).verdict for seed in range(DRAWS))
    assert said["SLOWER"] == 0 and said["AMBIGUOUS"] <= 0.3 * DRAWS
    hits = [judge(*drawn(seed, slower={seed % 16: 1.10}, name="timing_runs_small"), calibrated=False).verdict
            for seed in range(32 if DEEP else 16)]                  # each kernel once
    assert Counter(hits)["SLOWER"] >= 7 / 8 * len(hits)


@pytest.mark.parametrize(("before", "after", "expected"), [
    (0, 1, {"PASS"}), (9, 10, {"PASS"}),               # 0.4 and 0.1 % apart: equal
    (9, 12, {"SLOWER"}), (12, 9, {"FASTER"}),          # 10 % apart
    (8, 7, {"SLOWER"}), (7, 8, {"FASTER"}),            # 7.8 %
    (3, 2, {"PASS"}),                                  # 2.8 %: surely slower, surely below the target
])
def test_recorded_configurations_are_told_apart_or_equal(before, after, expected):
    kernels = recorded()
    for seed in range(10):
        order = np.random.default_rng(seed).permutation(24)
        found = one(some(kernels[before], order[:10]), some(kernels[after], order[10:15]))
        assert found.verdict in expected
        if (before, after) == (3, 2):
            assert found.change == "slower" and "surely slower" in found.reason and found.p50.low > 1.01


@pytest.mark.slow
def test_a_verdict_and_its_interval_never_contradict_each_other():
    for seed in range(30 if DEEP else 16):
        suite = drawn(seed, slower={seed % 16: 1 + (seed % 7) / 50}, name="timing_runs_small")
        for each in judge(*suite, calibrated=False).kernels:
            low, high = each.p50.low, each.p50.high
            assert low <= each.p50.ratio <= high
            if each.p50.verdict == "SLOWER":
                assert low > 1 and each.p50.ratio > 1.02 and high >= 1.05
            elif each.p50.verdict == "PASS":
                assert high < 1.05
            elif each.p50.verdict == "AMBIGUOUS":
                assert high >= 1.05
            else:
                assert high < 1


def test_what_a_verdict_says_is_what_its_numbers_are():
    """Nothing is rounded onto a limit that it lies beside, and no p that is small enough is said to be too large."""
    quiet = np.linspace(0.9995, 1.0005, 10)
    passed = one(kernel(100 * quiet), kernel(100 * 1.0493 * quiet[2:7]))
    assert passed.verdict == "PASS" and passed.p50.high < 1.05 and f"to +{(passed.p50.high - 1) * 100:.2f} %" in passed.reason
    tied = one(kernel([50, 52, 49, 49, 50, 52, 50, 49, 48, 48], samples=1), kernel([53, 53, 52, 50, 53], samples=1))
    assert tied.verdict == "AMBIGUOUS" and tied.p50.p_value < 0.01 and tied.p50.low == 1
    assert "took the same time" in tied.reason and "is needed" not in tied.reason


def test_intervals_hold_the_true_ratio():
    """Candidates scaled by 1.03: the interval has it at least as often as it says."""
    said, held = [], 0
    for seed in range(15):
        for each in judge(*drawn(seed, slower=dict.fromkeys(range(13), 1.03)), calibrated=False).kernels:
            said.append(each.p50.confidence)
            held += each.p50.low <= 1.03 <= each.p50.high
    assert held / len(said) >= np.mean(said) - 3 * (np.mean(said) * (1 - np.mean(said)) / len(said)) ** 0.5 - 0.01


def test_a_slowdown_of_every_kernel_is_called_for_every_kernel():
    """Holm: each kernel that is called leaves more of the risk to the others."""
    found = judge(*drawn(3, slower=dict.fromkeys(range(13), 1.07)), calibrated=False)
    assert [each.verdict for each in found.kernels] == ["SLOWER"] * 13


def test_one_outlier_run_decides_nothing():
    assert one(kernel(BASE), kernel([*SAME[:4], 130.0])).verdict == Verdict.PASS
    assert one(kernel([*BASE[:9], 70.0]), kernel(SAME)).verdict == Verdict.PASS


def test_floor_and_target():
    assert one(kernel(BASE), slower(1.015)).verdict == Verdict.PASS                  # sure, below the floor
    sure = one(kernel(BASE), slower(1.03))
    assert sure.verdict == Verdict.PASS and "surely slower" in sure.reason and "5 %" in sure.reason
    assert one(kernel(BASE), slower(1.03), Rule(target=0.03)).verdict == Verdict.SLOWER
    assert one(kernel(BASE), slower(1.08)).verdict == Verdict.SLOWER
    assert one(kernel(BASE), slower(0.97)).verdict == Verdict.FASTER
    assert one(kernel(BASE), slower(0.99)).verdict == Verdict.PASS


def test_a_tail_that_grows_alone_is_slower_too():
    def with_tail(medians, factor):
        runs = [Run(str(at), np.r_[np.full(90, median), np.full(10, median * factor)]) for at, median in enumerate(medians)]
        return KernelRuns("k", {"N": 1}, None, "", runs)

    found = one(with_tail(BASE, 1.1), with_tail(SAME, 1.4))
    assert found.verdict == Verdict.SLOWER and found.reason.startswith("p95 ")
    assert found.p50.verdict == Verdict.PASS and found.p95.ratio == pytest.approx(1.4 / 1.1, rel=0.01)
    assert one(with_tail(BASE, 1.1), with_tail(SAME, 1.12)).verdict == Verdict.PASS


# p95 of a 6 µs softmax on an H200, µs, run by run (tests/gpu/test_gate_on_gpu.py, first recording): the host is late now and then
LATE = [21.19, 22.63, 25.05, 14.71, 15.49, 8.5, 6.82, 6.82, 30.73, 6.47, 20.9, 6.82, 29.62, 22.89, 7.84]


def tailed(p95s, factor=1.0):
    """6.5 µs a run, with these p95."""
    runs = [Run(str(at), np.r_[np.full(90, 6.5 * factor + at / 1000), np.full(10, p95)]) for at, p95 in enumerate(p95s)]
    return KernelRuns("k", {"N": 1}, None, "", runs)


def test_a_p95_that_no_number_of_runs_decides_is_left_out():
    found = one(tailed(LATE[:10]), tailed(LATE[10:]))
    assert found.verdict == Verdict.PASS and "p95 is too noisy to be judged: from 6.509 to 30.73 µs" in found.reason
    assert found.p95.verdict == Verdict.NO_DATA
    assert one(tailed(LATE[:10]), tailed(LATE[10:], 1.1)).verdict == Verdict.SLOWER, "by its p50"
    quiet = [7.0, 7.05, 7.1, 6.95, 7.02, 7.08, 21.0, 6.98, 7.03, 7.06]
    assert one(tailed(quiet), tailed(LATE[10:])).verdict == Verdict.AMBIGUOUS, "the candidate's tail alone became noisy"
    assert one(tailed(quiet), tailed([x * 4 for x in quiet[:5]])).verdict == Verdict.SLOWER


def test_few_samples_have_no_p95():
    assert one(kernel(BASE, samples=19), kernel(SAME, samples=19)).p95 is None


@pytest.mark.parametrize(("b", "c"), [(1, 1), (10, 1), (1, 5), (2, 2)])
def test_too_few_runs_are_ambiguous_and_say_how_many_would_do(b, c):
    found = one(kernel(BASE[:b]), slower(1.2, SAME[:c]))
    assert found.verdict == Verdict.AMBIGUOUS and found.more_runs >= plan_runs(1, 0, 0).needed_each
    assert "run" in found.reason
    same = one(kernel(BASE[:b]), kernel(SAME[:c]))
    assert same.verdict == Verdict.AMBIGUOUS, "few runs prove no equality either"


def test_more_runs_decide_what_was_ambiguous():
    noisy = np.random.default_rng(5).normal(100, 4, 60)
    first = one(kernel(noisy[:10]), kernel(noisy[10:15] * 1.05))
    assert first.verdict == Verdict.AMBIGUOUS and first.more_runs > 5
    n = first.more_runs
    assert one(kernel(noisy[:n]), kernel(noisy[n:2 * n] * 1.08)).verdict == Verdict.SLOWER


def test_a_suite_too_large_for_its_runs_says_so():
    baseline = [kernel(BASE[:5], op=f"k{at}") for at in range(40)]
    candidate = [kernel([value * (1.2 if at == 7 else 1) for value in SAME], op=f"k{at}") for at in range(40)]
    found = judge(baseline, candidate)
    assert found.verdict == Verdict.AMBIGUOUS and not found.plan["enough"]
    assert found.kernels[0].op == "k7" and "too few for 40 kernels" in found.kernels[0].reason
    enough = judge(baseline[5:10], candidate[5:10])
    assert enough.verdict == Verdict.SLOWER
    wide = [kernel(BASE, op=f"k{at}") for at in range(40)]
    assert judge(wide, candidate).verdict == Verdict.SLOWER, "completely apart: of two speeds once in 14,000 kernels"


def test_twenty_kernels_leave_the_whole_level_to_the_p50():
    baseline = [kernel(BASE, op=f"k{at}") for at in range(20)]
    candidate = [kernel([value * (1.2 if at == 7 else 1) for value in SAME], op=f"k{at}") for at in range(20)]
    found = judge(baseline, candidate)
    assert found.verdict == Verdict.SLOWER and found.plan["enough"] and not found.plan["enough_p95"]


def test_the_family_counts_kernels_that_are_not_judged_here():
    assert judge([kernel(BASE)], [slower(1.2)], family=200).verdict == Verdict.AMBIGUOUS


def test_a_suite_is_its_worst_kernel_and_the_worst_stands_first():
    baseline = [kernel(BASE, op=name) for name in "abcd"] + [kernel(BASE, op="gone")]
    candidate = [kernel(SAME, op="a"), kernel([x * 1.1 for x in SAME], op="b"), kernel([x * 0.9 for x in SAME], op="c"),
                 kernel([x * 1.2 for x in SAME], op="d")]
    found = judge(baseline, candidate)
    assert [(each.op, str(each.verdict)) for each in found.kernels] == [
        ("d", "SLOWER"), ("b", "SLOWER"), ("gone", "NO DATA"), ("c", "FASTER"), ("a", "PASS")]
    assert found.verdict == "SLOWER" and "2 of 5 kernels" in found.reason
    assert judge([], []).verdict == Verdict.NO_DATA


def test_kernels_are_paired_by_problem_or_by_configuration():
    def of(config, medians, shape=1):
        return KernelRuns("k", {"N": shape}, config, "", kernel(medians).runs)

    found = judge([of({"B": 1}, BASE)], [of({"B": 2}, SAME)])
    assert len(found.kernels) == 1 and found.kernels[0].config == {"B": 2} and found.kernels[0].baseline_config == {"B": 1}
    found = judge([of({"B": 1}, BASE), of({"B": 2}, BASE)], [of({"B": 2}, SAME)])
    assert sorted(str(each.verdict) for each in found.kernels) == ["NO DATA", "PASS"]
    # one problem is compared across configurations, the other within
    found = judge([of({"B": 1}, BASE), of({"B": 1}, BASE, 2), of({"B": 2}, BASE, 2)],
                  [of({"B": 9}, SAME), of({"B": 1}, SAME, 2), of({"B": 2}, SAME, 2)])
    assert [each.verdict for each in found.kernels] == ["PASS"] * 3


def test_rules_and_limits_of_single_kernels():
    baseline = [kernel(BASE, op=name, key=name, facts={"registers": 64}) for name in "ab"]
    candidate = [kernel([x * 1.06 for x in SAME], op=name, key=name, facts={"registers": 96}) for name in "ab"]
    found = judge(baseline, candidate, rules={"b": Rule(target=0.2, floor=0.1)},
                  metrics_of={"b": {"registers": {"max_increase": 0.25}}})
    by_key = {each.key: each for each in found.kernels}
    assert by_key["a"].verdict == "SLOWER" and by_key["a"].metrics[0]["reason"] == "no limit is set on it"
    assert by_key["b"].verdict == "SLOWER" and by_key["b"].p50.verdict == "PASS" and "registers 64 → 96" in by_key["b"].reason


def test_the_document_is_json_with_the_names_of_the_issue():
    found = json.loads(json.dumps(suite_json(judge(*drawn(1))), allow_nan=False))
    assert found["verdict"] == "PASS" and found["alpha"] == 0.01 and len(found["kernels"]) == 13
    first = found["kernels"][0]
    assert {"op", "shape", "config", "verdict", "ratio_p50", "ci", "ratio_p95", "reason"} <= set(first)
    assert first["ci"][0] <= first["ratio_p50"] <= first["ci"][1]
    lonely = suite_json(judge([kernel(BASE[:1])], [kernel(SAME[:1])]))["kernels"][0]
    assert lonely["ci"] is None and lonely["ratio_p50"] is not None and "interval" not in lonely["reason"]


def test_calibration_beside_a_verdict():
    each = one(kernel(BASE), kernel(SAME))
    assert 0.03 < each.detectable < 0.06 and each.false_alarms == 0
    sides = [kernel(np.random.default_rng(seed).normal(100, 3, runs)) for seed, runs in ((2, 10), (3, 5))]
    noisy, backwards = one(*sides), one(*(replace(side, runs=side.runs[::-1]) for side in sides))
    assert noisy.detectable > each.detectable
    assert (backwards.verdict, backwards.p50, backwards.detectable) == (noisy.verdict, noisy.p50, noisy.detectable)
    assert one(kernel(BASE[:3]), kernel(SAME)).detectable is None


def test_same_runs_on_both_sides_pass():
    assert judge(recorded(), recorded(), calibrated=False).verdict == Verdict.PASS
    assert replace(Rule(), alpha=0.02).alpha == 0.02


def test_a_key_that_two_problems_share_mixes_no_runs():
    (one,), (other,) = [kernel(BASE, op="a", key="k")], [kernel([each * 3 for each in BASE], op="b", key="k")]
    slow = kernel([each * 3.3 for each in SAME], op="b", key="k")
    found = judge([one, other], [kernel(SAME, op="a", key="k"), slow])
    assert [(each.op, each.verdict) for each in found.kernels] == [("b", Verdict.SLOWER), ("a", Verdict.PASS)]
    assert found.kernels[0].baseline_runs == len(BASE)


def test_the_documents_state_the_rules_defaults() -> None:
    docs = Path(__file__).resolve().parents[3] / "docs"
    stated = tomllib.loads(re.search(r"^\[rule\].*?(?=^\[)", (docs / "suites.md").read_text(), re.MULTILINE | re.DOTALL)[0])["rule"]
    assert stated and stated == {name: getattr(Rule(), name) for name in stated}
    rule, page = Rule(), (docs / "gate.md").read_text()
    assert f"the target ({rule.target:.0%} of the p50, {rule.target_p95:.0%} of the p95)".replace("%", " %") in page
    assert f"the floor ({rule.floor:.0%}; {rule.floor_p95:.0%} of the p95)".replace("%", " %") in page

"""Bisect plans: few rounds, the right build, and words for what stops them."""

import random

import numpy as np
import pytest

from tests.public_timing import medians_us
from tuner.gate.stats.changes import bisect_plan, classify_build, rounds_needed

BUILDS = [f"b{number:02}" for number in range(33)]


@pytest.mark.parametrize(("at_once", "most"), [(1, 5), (3, 3), (8, 2)])
def test_every_culprit_is_found_in_as_many_rounds_as_were_promised(at_once, most):
    for culprit in range(1, 33):
        known, promised = {BUILDS[0]: "good", BUILDS[32]: "bad"}, []
        while (plan := bisect_plan(BUILDS, known, at_once=at_once)).measure:
            promised.append(plan.rounds)
            assert len(plan.measure) <= at_once and not set(plan.measure) & set(known)
            known |= {build: "bad" if BUILDS.index(build) >= culprit else "good" for build in plan.measure}
        assert plan.bad == BUILDS[culprit] and plan.good == BUILDS[culprit - 1] and plan.suspects == [plan.bad]
        assert plan.says.startswith(f"Found: {BUILDS[culprit]}")
        assert len(promised) <= promised[0] if promised else True
        assert len(promised) <= most


def test_builds_that_cannot_be_measured_are_gone_round():
    known = {"b00": "good", "b32": "bad", "b16": "skip"}
    plan = bisect_plan(BUILDS, known)
    assert plan.measure in (["b15"], ["b17"])
    stuck = bisect_plan(BUILDS[:4], {"b00": "good", "b03": "bad", "b01": "skip", "b02": "unclear"})
    assert stuck.measure == [] and stuck.suspects == ["b01", "b02", "b03"]
    assert "b01 cannot be measured" in stuck.says and "b02 lies at neither speed" in stuck.says


def test_it_looks_at_the_newest_change_and_tells_of_older_ones():
    known = {"b00": "good", "b05": "bad", "b10": "good", "b20": "bad"}
    plan = bisect_plan(BUILDS, known)
    assert (plan.good, plan.bad, plan.conflicts) == ("b10", "b20", ["b05"])


def test_what_is_missing_is_said():
    assert "nothing to look for" in bisect_plan(BUILDS, {"b00": "good"}).says
    assert bisect_plan(BUILDS, {"b10": "bad"}).measure == ["b00"]
    assert "oldest build here" in bisect_plan(BUILDS, {"b00": "bad"}).says
    assert bisect_plan([], {}).measure == []


def test_rounds_are_those_of_a_search_by_halves_or_thirds():
    assert [rounds_needed(free, 1) for free in (0, 1, 2, 3, 7, 8)] == [0, 1, 2, 2, 3, 4]
    assert [rounds_needed(free, 2) for free in (2, 8, 9)] == [1, 2, 3]


def test_a_build_is_told_good_from_bad_by_its_runs():
    rng = np.random.default_rng(0)
    for times in medians_us().values():
        good, bad = rng.choice(times, 10), rng.choice(times, 10) * 1.02
        assert classify_build(rng.choice(times, 5), good, bad) == "good"
        assert classify_build(rng.choice(times, 5) * 1.02, good, bad) == "bad"
        assert classify_build(rng.choice(times, 5) * 1.01, good, bad) == "unclear"       # a third speed
        assert classify_build(rng.choice(times, 5) * 1.06, good, bad) == "unclear"       # far beyond: another change as well
    assert classify_build([], [1.0], [2.0]) == classify_build([1.0], [1.0], [1.0]) == "unclear"


def test_noise_and_luck_never_make_it_go_in_circles():
    random.seed(3)
    for _ in range(300):
        known = {build: random.choice(["good", "bad", "skip", "unclear"]) for build in random.sample(BUILDS, random.randint(0, 33))}
        plan = bisect_plan(BUILDS, known, at_once=random.randint(1, 4))
        assert not set(plan.measure) & set(known) and plan.says

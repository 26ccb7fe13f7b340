"""Are the runs enough for so many kernels? Asked before anything is run.

A rank test cannot say more than 1 in the number of ways to choose the candidate's runs among all. Holm's first step asks
the surest kernel of the suite for alpha / kernels. Where the runs reach half of that, p50 and p95 are both tested (looking
at two numbers at worst doubles a p); where they reach it just so, p50 takes all of it and a p95 alone stays undecided.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

from tuner.gate.stats.distributions import ROUNDING, smallest_p
from tuner.gate.stats.noise import FEWEST_SPREAD, LARGE, two_speeds_p
from tuner.gate.stats.rule import Rule

MOST_RUNS = 200
MOST_FURTHER = 60
PRACTICAL_RUNS = 30         # of each build; a p95 that needs more is not worth them
METRICS = 2                 # p50 and p95


@dataclass(frozen=True)
class Plan:
    enough: bool                        # for the p50
    enough_p95: bool                    # … and for a p95 that grows alone
    smallest_p: float                   # that these runs can reach for one kernel
    needed_p: float                     # what the suite's correction asks of it
    needed_candidate: int | None        # fresh runs of the candidate, the baseline as it is; None: no number would do
    needed_baseline: int | None         # runs of the baseline, the candidate as it is
    needed_each: int                    # of both, the same number
    says: str


def plan_runs(kernels: int, baseline_runs: int, candidate_runs: int, rule: Rule | None = None) -> Plan:
    """Return whether a suite of so many kernels can call one of them SLOWER, and with how many runs."""
    return _plan(max(1, kernels), max(0, baseline_runs), max(0, candidate_runs), rule or Rule())


@lru_cache(maxsize=256)
def _plan(kernels: int, baseline_runs: int, candidate_runs: int, rule: Rule) -> Plan:
    needed = rule.alpha / kernels
    at_most = needed * (1 + ROUNDING)

    def reached(candidate: int, baseline: int) -> float:
        return smallest_p(candidate, baseline)

    def fewest(enough: list[bool]) -> int | None:
        return next((runs for runs, is_enough in enumerate(enough, 1) if is_enough), None)

    side_runs = fewest([reached(runs, runs) <= at_most for runs in range(1, MOST_RUNS + 1)]) or MOST_RUNS
    candidate = fewest([reached(runs, baseline_runs) <= at_most for runs in range(1, MOST_RUNS + 1)])
    baseline = fewest([reached(candidate_runs, runs) <= at_most for runs in range(1, MOST_RUNS + 1)])
    has = reached(candidate_runs, baseline_runs)
    enough = has <= at_most
    says = _says(kernels, baseline_runs, candidate_runs, enough, candidate, side_runs, rule)
    return Plan(enough, METRICS * has <= at_most, has, needed, candidate, baseline, side_runs, says)


def _says(kernels: int, baseline: int, candidate: int, enough: bool, needed: int | None, each: int, rule: Rule) -> str:
    suite = "1 kernel" if kernels == 1 else f"{kernels:,} kernels"
    have = f"{candidate} against {baseline} runs"
    if enough:
        which = "the kernel" if kernels == 1 else f"any of {suite}"
        return f"{have} are enough to call {which} SLOWER at {rule.alpha * 100:g} % risk of a false alarm."
    instead = [f"{needed} candidate runs against these {baseline}"] if needed and needed <= MOST_FURTHER else []
    instead.append(f"{each} runs of each build")
    says = f"{have} are too few for {suite} at {rule.alpha * 100:g} % risk of a false alarm: {' or '.join(instead)} would do."
    if min(candidate, baseline) < 3 or candidate + baseline < FEWEST_SPREAD:
        return says
    if two_speeds_p(candidate, baseline) <= rule.alpha / kernels:
        return f"{says} As they are, runs that are completely apart, by far more than they differ among themselves, are called."
    return f"{says} As they are, only runs that lie {(LARGE - 1) * 100:.0f} % or more apart are called."


def further_runs(noise: float, kernels: int, rule: Rule) -> int:
    """Return how many fresh runs of each build should decide `kernels` kernels in a re-run.

    `noise`: standard deviation of run medians as a fraction. A normal approximation: a slowdown of the target is to be
    significant in 95 % of re-runs, which also puts the estimate of an equal build below the floor as often.
    """
    z = NormalDist().inv_cdf(1 - rule.alpha / max(1, kernels)) + NormalDist().inv_cdf(0.95)
    by_noise: int = math.ceil(2 * (z * noise / rule.target) ** 2)
    return min(MOST_FURTHER, max(by_noise, plan_runs(kernels, 0, 0, rule).needed_each))

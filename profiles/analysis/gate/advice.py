"""How many fresh runs of each build a re-run needs: tried out on the noise that was seen, before anybody measures.

The runs' residuals are drawn anew as re-runs of n against n, and judged as the re-run will be (`resample`): with a slowdown of the
target nearly all must end SLOWER, without one nearly all must PASS. The first n of a ladder that does both is the answer. What a
normal approximation says (`plan.further`) is too little where runs have two speeds, or where it is the p95 that is undecided.
How often the runs that are asked for then decide stands in docs/gate-bench.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from profiles.analysis.gate.calibration import passes, slower
from profiles.analysis.gate.exact import smallest_p
from profiles.analysis.gate.plan import METRICS, MOST_FURTHER, PRACTICAL_RUNS, further
from profiles.analysis.gate.resample import ratios, residuals
from profiles.analysis.gate.results import KernelVerdict
from profiles.analysis.gate.rule import Rule, Verdict
from profiles.analysis.gate.sides import Side

Floats = NDArray[np.float64]

DECIDED = 0.9               # of the tried re-runs, with and without the slowdown
FEWEST_RUNS = 6             # of both builds, that say how runs are spread; with fewer the approximation is as good
MOST_TRIED = 30             # kernels, the noisiest: a re-run takes the most that any of its kernels asks for
MOST_FOR_P95 = PRACTICAL_RUNS
LADDER = 1.35               # each step to the next number of runs
DRAWS = 100


@dataclass(frozen=True)
class Asks:
    """An AMBIGUOUS kernel, both its sides, and the rule that it is judged by."""

    verdict: KernelVerdict
    baseline: Side
    candidate: Side
    rule: Rule


def asking(unsure: Sequence[Asks]) -> list[KernelVerdict]:
    """Each with `more_runs`; all of them are judged together in one re-run."""
    spreads = [float(np.std(residuals(each.baseline.p50, each.candidate.p50))) for each in unsure]
    by_formula = [further(spread, len(unsure), each.rule) for spread, each in zip(spreads, unsure, strict=True)]
    tried = sorted(range(len(unsure)), key=lambda at: -_width(unsure[at]))[:MOST_TRIED]
    return [replace(each.verdict, more_runs=max(least, _tried(each, len(unsure))) if at in tried else least)
            for at, (each, least) in enumerate(zip(unsure, by_formula, strict=True))]


def _width(each: Asks) -> float:
    """Of the wider interval: how much there is to find out."""
    return max((one.high - one.low for one in (each.verdict.p50, each.verdict.p95) if one), default=0.0)


def _tried(each: Asks, kernels: int) -> int:
    if len(each.baseline.p50) + len(each.candidate.p50) < FEWEST_RUNS:
        return 0
    rule, level = each.rule, each.rule.alpha / kernels
    both = each.baseline.p95 is not None and each.candidate.p95 is not None
    runs = next((n for n in range(2, MOST_FURTHER) if smallest_p(n, n) <= level / (METRICS if both else 1)), MOST_FURTHER)
    needed = _decides(residuals(each.baseline.p50, each.candidate.p50), runs, level, rule.floor, rule.target, rule)
    if both and each.verdict.p95 and each.verdict.p95.verdict == Verdict.AMBIGUOUS:
        assert each.baseline.p95 is not None and each.candidate.p95 is not None
        needed = _decides(residuals(each.baseline.p95, each.candidate.p95), needed, level / METRICS, rule.floor_p95,
                          rule.target_p95, rule, MOST_FOR_P95)
    return needed


def _decides(logs: Floats, runs: int, level: float, floor: float, target: float, rule: Rule, most: int = MOST_FURTHER) -> int:
    """The first number of runs from `runs` on that decides, `most` where none does."""
    first = runs
    while runs < most:
        same = ratios(logs, runs, runs, DRAWS)
        called = slower(same * (1 + target), runs, runs, level, floor, target)
        if min(called.mean(), passes(same, runs, runs, floor, target, rule.beta).mean()) >= DECIDED:
            break
        runs = max(runs + 1, round(runs * LADDER))
    return runs if runs < most else max(most, first)


"""One number of one kernel (its p50, its p95, its cycles) between two builds: PASS, SLOWER, FASTER or AMBIGUOUS.

Two risks, kept apart. Calling identical builds SLOWER: `rule.alpha` for the whole suite, so `level` (Holm's share of it)
for this kernel; the interval's low end has it. Passing a build that is slower by the target: `rule.beta` for each kernel;
the interval's high end has it. One interval so carries both decisions:

    SLOWER     significant at `level`, estimate above the floor, high end at the target or beyond
    PASS       high end below the target: a slowdown of the target is ruled out
    FASTER     significant the other way, estimate below the floor
    AMBIGUOUS  neither: the target is not ruled out, and no slowdown is proven

A slowdown that is proven passes only where its size is just as surely below the target: its high end has the risk `level` too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profiles.analysis.gate.exact import ROUNDING
from profiles.analysis.gate.ratio import Bounds, bounds
from profiles.analysis.gate.results import Interval
from profiles.analysis.gate.rule import Verdict
from profiles.analysis.gate.sentences import change, interval, percent, probability

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Levels:
    """What a p may be at most, this kernel's turn in Holm's order: to be SLOWER, to be FASTER."""

    slower: float
    faster: float


@dataclass(frozen=True)
class Decision:
    verdict: Verdict
    says: str
    bounds: Bounds
    p_slower: float

    @property
    def interval(self) -> Interval:
        return Interval(self.bounds.ratio, self.bounds.low, self.bounds.high, self.p_slower, self.bounds.confidence, self.verdict)


def decide(candidate: Floats, baseline: Floats, p_slower: float, p_faster: float, levels: Levels, *,
           floor: float, target: float, beta: float) -> Decision:
    """`candidate`, `baseline`: a number a run; p values corrected for looking at several numbers of the kernel."""
    significant = p_slower <= levels.slower * (1 + ROUNDING)
    found = bounds(candidate, baseline, levels.slower, levels.slower if significant else beta)
    moved = change(found, float(np.median(baseline)), float(np.median(candidate)))
    # Both: where runs tie, the p counts them exactly and the interval with more care. Neither may contradict the other.
    slower = significant and found.low > 1 and found.ratio > 1 + floor
    limit = f"{target * 100:g} %"
    if slower and found.high >= 1 + target:
        return Decision(Verdict.SLOWER, f"{moved}, {probability(p_slower)}", found, p_slower)
    if slower:
        return Decision(Verdict.PASS, f"surely slower, {moved}, but by less than the {limit} that the gate stops", found, p_slower)
    if p_faster <= levels.faster * (1 + ROUNDING) and found.ratio < 1 - floor and found.high < 1:
        return Decision(Verdict.FASTER, f"{moved}, {probability(p_faster)}", found, p_slower)
    if found.high_kept and found.high < 1 + target:
        says = f"{percent(found.ratio)} (interval {interval(found.low, found.high)}): {limit} slower is ruled out"
        return Decision(Verdict.PASS, says, found, p_slower)
    return Decision(Verdict.AMBIGUOUS, f"{moved}: neither equal nor {limit} slower can be ruled out", found, p_slower)

"""One number of one kernel (its p50, its p95, its cycles) between two builds: PASS, SLOWER, FASTER or AMBIGUOUS.

Two risks, kept apart. Calling identical builds SLOWER: `rule.alpha` for the whole suite, so `level` (Holm's share of it)
for this kernel; the interval's low end has it. Passing a build that is slower by the target: `rule.beta` for each kernel;
the interval's high end has it. One interval so carries both decisions:

    SLOWER     significant at `level`, estimate above the floor, high end at the target or beyond
    PASS       high end below the target: a slowdown of the target is ruled out
    FASTER     significant the other way, estimate below the floor
    AMBIGUOUS  neither: the target is not ruled out, and no slowdown is proven

A slowdown that is proven passes only where its size is just as surely below the target: its high end has the risk `level` too,
unless it is no larger than the floor.

Where few runs of a noisy kernel reach no exact bound below the target and yet nothing above the floor is seen, its own
noise says what that is worth: resampled comparisons of the kernel with itself give the estimate's spread, and the high end
is then the estimate over its lower quantile at twice `beta`. On suites of 16 recorded kernels of 5 to 22 µs, 5 against 10 runs,
43 % were AMBIGUOUS without it and 15 % are with it; how many slowdowns of the target pass stands in docs/gate-bench.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tuner.gate.stats.noise import resampled_ratios, residuals
from tuner.gate.stats.rank_test import ROUNDING, Bounds, ratio_bounds
from tuner.gate.stats.results import Interval, change_text, interval_text, p_text, percent_text
from tuner.gate.stats.rule import Verdict
from tuner.gate.stats.sides import TimerSteps

Floats = NDArray[np.float64]

FEWEST_EACH, FEWEST_RUNS = 3, 8         # of a side, in all: fewer say nothing of a kernel's noise
MOST_RUNS = 120                         # in all; with more the exact bound is as near
LENIENCE = 2.0                          # times beta, for the bound by the kernel's own noise
NO_STEPS = TimerSteps()


@dataclass(frozen=True)
class Limits:
    """Fractions, as in `Rule`; of the number that is judged."""

    floor: float
    target: float
    beta: float


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
    change: str                         # "slower", "faster": surely different at all, whatever the target; "none"; "unknown"

    @property
    def interval(self) -> Interval:
        return Interval(self.bounds.ratio, self.bounds.low, self.bounds.high, self.p_slower, self.bounds.confidence, self.verdict)


def decide(candidate: Floats, baseline: Floats, p_slower: float, p_faster: float, levels: Levels, limits: Limits,
           steps: TimerSteps = NO_STEPS) -> Decision:
    """Return the decision on one number of one kernel between two builds.

    `candidate`, `baseline`: a number a run; p values corrected for looking at several numbers of the kernel.

    `steps`: what a coarse timer may hide or make up (`sides.hidden_by_timer`), however well the runs agree.
    """
    slower = p_slower <= levels.slower * (1 + ROUNDING)
    found = ratio_bounds(candidate, baseline, levels.slower, levels.slower if slower else limits.beta)
    exact = found
    if found.ratio <= 1 + limits.floor and not _is_ruled_out(found, limits):
        found = _tighten_by_noise(found, candidate, baseline, limits)
    lenient = found is not exact
    # Where runs tie, the p counts them exactly and the interval with more care: neither may contradict the other.
    seen, read = _is_ruled_out(found, limits), found
    found = replace(found, low=min(found.low, found.ratio * (1 - steps.below)),
                    high=max(found.high, found.ratio * (1 + steps.above)))
    slower = slower and found.low > 1 + ROUNDING
    faster = p_faster <= levels.faster * (1 + ROUNDING) and found.high < 1 - ROUNDING
    lines = (1 - limits.floor, 1.0, 1 + limits.floor, 1 + limits.target) if slower or faster else (1 + limits.target,)
    moved = change_text(found, float(np.median(baseline)), float(np.median(candidate)), *lines)
    limit = f"{limits.target * 100:g} %"
    if slower and found.ratio > 1 + limits.floor and found.high >= 1 + limits.target:
        return Decision(Verdict.SLOWER, f"{moved}, {p_text(p_slower)}", found, p_slower, "slower")
    if faster and found.ratio < 1 - limits.floor:
        return Decision(Verdict.FASTER, f"{moved}, {p_text(p_faster)}", found, p_slower, "faster")
    surely = "slower" if slower else "faster" if faster else "none"
    if _is_ruled_out(found, limits):
        how = f"unlikely by what its runs differ by (at {LENIENCE * limits.beta * 100:.0f} % risk)" if lenient else "ruled out"
        says = f"surely slower, {moved}, but by less than the {limit} that the gate stops" if slower else \
            f"{percent_text(found.ratio)} (interval {interval_text(found.low, found.high, *lines)}): {limit} slower is {how}"
        return Decision(Verdict.PASS, says, found, p_slower, surely)
    made_up = read.low > 1 + ROUNDING >= found.low and read.ratio > 1 + limits.floor
    why = _why_made_up(steps) if made_up else _why_hidden(steps, limit) if seen else \
        _why_unsure(slower, found, p_slower, levels, limits)
    return Decision(Verdict.AMBIGUOUS, f"{moved}: {why}", found, p_slower, surely if slower or faster else "unknown")


def _why_hidden(steps: TimerSteps, limit: str) -> str:
    return (f"the timer counts in steps that can hide {steps.above * 100:.2g} %, so {limit} slower cannot be ruled out, by any "
            "number of runs: time several launches as one sample")


def _why_made_up(steps: TimerSteps) -> str:
    return (f"the timer counts in steps that can make up {steps.below * 100:.2g} % where next to nothing changed, by any number of "
            "runs: time several launches as one sample")


def _why_unsure(slower: bool, found: Bounds, p_slower: float, levels: Levels, limits: Limits) -> str:
    limit = f"{limits.target * 100:g} %"
    if slower:
        return f"surely slower, but whether by {limit} cannot be told"
    if found.ratio <= 1 + limits.floor:
        return f"the runs differ too far to rule {limit} slower out" if found.high_kept else \
            f"so few runs cannot rule {limit} slower out"
    if p_slower <= levels.slower * (1 + ROUNDING):
        return f"it looks slower ({p_text(p_slower)}), but so many runs of both took the same time that the interval holds 0 %"
    digits = 2 if f"{p_slower:.2g}" != f"{levels.slower:.2g}" else 4
    needed = f" (p = {p_slower:.{digits}g}, {levels.slower:.{digits}g} is needed)" if p_slower < 1 else ""
    return f"it looks slower, but so few runs do not prove it{needed}"


def _is_ruled_out(found: Bounds, limits: Limits) -> bool:
    return found.high_kept and found.high < 1 + limits.target


def _tighten_by_noise(found: Bounds, candidate: Floats, baseline: Floats, limits: Limits) -> Bounds:
    """The high end from resampled comparisons of the kernel with itself, where they put it lower."""
    runs = len(candidate) + len(baseline)
    if min(len(candidate), len(baseline)) < FEWEST_EACH or not FEWEST_RUNS <= runs <= MOST_RUNS:
        return found
    estimates = np.median(resampled_ratios(residuals(candidate, baseline), len(candidate), len(baseline)), axis=1)
    high = found.ratio / float(np.quantile(estimates, LENIENCE * limits.beta))
    if high >= found.high:
        return found
    return replace(found, high=high, high_kept=True, confidence=max(0.0, found.low_confidence - LENIENCE * limits.beta))

"""Drift: a kernel that got slower over many builds, none of which was slow enough for a gate. Compared with a pinned baseline.

The builds next to the pinned one against the newest ones. Told only where the newest are surely slower by more than `floor`: the
exact rank test on fresh runs and Student's t on builds' medians must both reject that the ratio is `floor` or less, and the rise
must be no single step. With no drift the true ratio is 1, so that the test's own risk is the chance that noise makes up the floor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.gate.stats.distributions import t_tail
from tuner.gate.stats.rank_test import rank_sum_p

ENDS = 5                    # builds on each side: one build alone may have had a bad session
LEAST_BUILDS = 2 * ENDS
MOST_RUNS = 40              # of a side
ALPHA = 1e-3                # of each look at one series
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Drift:
    """Newest builds against the pinned ones; ratios of times, 1.03 is 3 % slower."""

    ratio: float
    low: float              # lower end: by so much at least, with the risk ALPHA
    high: float
    p_value: float
    before_us: float
    after_us: float
    per_build: float        # trend: 0.001 is 0.1 % a build


def find_drift(series: Sequence[Sequence[float]], floor: float, alpha: float = ALPHA) -> Drift | None:
    """Return the drift of a series of run medians (µs) of builds, the pinned ones first; None where there is none.

    Builds without runs are left out by the caller.
    """
    if len(series) < LEAST_BUILDS:
        return None
    if _log_medians(series[-ENDS:]).mean() - _log_medians(series[:ENDS]).mean() <= math.log1p(floor):
        return None                             # most looks end here
    medians = _log_medians(series)
    old, new = _runs(series[:ENDS]), _runs(series[-ENDS:])
    p = max(rank_sum_p(new - math.log1p(floor), old), _builds_p(medians[:ENDS], medians[-ENDS:], floor))
    if p > alpha or _is_one_step(medians):
        return None
    shift, error = float(np.median(new[:, None] - old[None, :])), _standard_error(medians[:ENDS], medians[-ENDS:])
    slope = float(np.polyfit(np.arange(len(medians)), medians, 1)[0])
    return Drift(math.exp(shift), math.exp(shift - 2 * error), math.exp(shift + 2 * error), p, float(np.exp(np.median(old))),
                 float(np.exp(np.median(new))), math.expm1(slope))


def _log_medians(builds: Sequence[Sequence[float]]) -> Floats:
    medians: Floats = np.log(np.array([np.median(build) for build in builds], dtype=np.float64))
    return medians


def _runs(builds: Sequence[Sequence[float]]) -> Floats:
    each = max(1, MOST_RUNS // len(builds))
    times: Floats = np.log(np.array([us for build in builds for us in build[:each]], dtype=np.float64))
    return times


def _standard_error(a: Floats, b: Floats) -> float:
    return math.sqrt((a.var(ddof=1) + b.var(ddof=1)) / len(a))


def _builds_p(a: Floats, b: Floats, floor: float) -> float:
    """One-sided p of Student's t on builds' medians: runs of one build share a session."""
    error = max(_standard_error(a, b), 1e-9)
    return float(t_tail((b.mean() - a.mean() - math.log1p(floor)) / error, 2 * ENDS - 2))


def _is_one_step(medians: Floats) -> bool:
    """Whether one step explains the medians better than a line does: then one build did it, and the series tells of it."""
    places = np.arange(len(medians))
    line = medians - np.polyval(np.polyfit(places, medians, 1), places)
    total, count = float(((medians - medians.mean()) ** 2).sum()), len(medians)
    ends = np.arange(1, count)
    sums = np.cumsum(medians - medians.mean())[:-1]
    step = total - float((sums ** 2 * count / (ends * (count - ends))).max())
    return step < float((line ** 2).sum())

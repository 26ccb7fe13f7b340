"""The published score of a search method on recorded spaces: 0 is random search, 1 the optimum found at once.

Willemsen et al., "A Methodology for Comparing Auto-Tuning Optimization Algorithms", Future Generation Computer Systems
159 (2024), and its program (AutoTuningAssociation/autotuning_methodology 1.1, MIT): equations as there, written anew.
Its program draws the mean curve from a bagged regression; here it is the isotonic regression that the bags hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator
from sklearn.isotonic import IsotonicRegression

CUTOFF = 0.95             # the budget ends where random search has come this share of the way from median to optimum …
CUTOFF_START = 0.01       # … and counts from here
SAMPLES = 1000            # times at which curves are compared

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Distribution:
    """What a whole space holds.

    ascending    (N,) ms of the configurations that run, fastest first
    trial_s      mean seconds that one evaluation costs, failures counted in
    """

    ascending: Floats
    trial_s: float

    @classmethod
    def of(cls, ms: Floats, cost_s: Floats) -> Distribution:
        """From each configuration's ms (NaN where it failed) and what trying it cost in seconds."""
        failed = np.isnan(ms)
        if failed.all():
            raise ValueError("no configuration of this space runs")
        trial_s = float(np.mean(cost_s[~failed]))
        if failed.any():
            trial_s += float(failed.mean() * np.mean(cost_s[failed]))
        if not trial_s > 0:
            raise ValueError("the recording does not say what a trial cost")
        return cls(np.sort(ms[~failed]), trial_s)

    @property
    def best(self) -> float:
        return float(self.ascending[0])

    def trials_to(self, share: float) -> int:
        """Evaluations after which random search is expected `share` of the way from the median to the optimum (eq. 6)."""
        descending, n = self.ascending[::-1], len(self.ascending)
        median = float(np.median(self.ascending))
        target = self.best + (median - self.best) * (1 - share)
        place = int(np.argmax(descending <= target))
        if descending[place] == self.best and place > 0:
            place -= 1                    # as the program does where the target is the optimum itself
        return math.ceil(place / (n + 1 - place))

    def random(self, trials: NDArray[np.int64]) -> Floats:
        """Expected best of that many draws without replacement, smoothed: index M(N + 1)/(M + 1) of the worst-first order."""
        n, descending = len(self.ascending), self.ascending[::-1]
        places = np.minimum(n - 1, np.round(trials * (n + 1) / (trials + 1)).astype(int))
        drawn = descending[places]
        x, first = np.unique(trials, return_index=True)
        if len(x) < 2 or len(trials) <= 2:
            return drawn.astype(float)
        even = np.linspace(trials[0], trials[-1], len(trials))
        return np.asarray(PchipInterpolator(x, drawn[first])(even), dtype=float)

    def times(self) -> Floats:
        """(SAMPLES,) seconds from the start of the budget to its end."""
        first, last = self.trials_to(CUTOFF_START), self.trials_to(CUTOFF)
        if last - first < 2:              # the program's margin for spaces that random search solves at once
            last = max(last, first) + 2
        return np.linspace(first * self.trial_s, last * self.trial_s, SAMPLES)


@dataclass(frozen=True)
class Run:
    """One search.

    time_s    (T,) seconds at the end of each evaluation, the search's own time included
    ms        (T,) what it measured, NaN for failures
    search_s  CPU seconds of the search itself, contained in time_s
    """

    time_s: Floats
    ms: Floats
    search_s: float = 0.0

    @property
    def best(self) -> Floats:
        """(T,) fastest so far; NaN until something ran."""
        filled = np.where(np.isnan(self.ms), np.inf, self.ms)
        lowest = np.minimum.accumulate(filled)
        return np.where(np.isinf(lowest), np.nan, lowest)


def curve(runs: Sequence[Run], distribution: Distribution, times: Floats) -> Floats:
    """(SAMPLES,) ms of the mean best configuration over time: ranks in the space, regressed by an isotonic function of time."""
    at, ranks = [], []
    for run in runs:
        known = ~np.isnan(run.best)
        at.append(run.time_s[known])
        ranks.append(np.searchsorted(distribution.ascending, run.best[known]))
        if known.any() and run.time_s[-1] < times[-1]:      # ended early: what it found stands
            at.append(np.array([times[-1]]))
            ranks.append(ranks[-1][-1:])
    x, y = np.concatenate(at), np.concatenate(ranks)
    if not len(x):
        return np.full(len(times), distribution.ascending[-1])
    fitted = IsotonicRegression(increasing=False, out_of_bounds="clip").fit(x, y).predict(times)
    places = np.clip(np.round(fitted).astype(int), 0, len(distribution.ascending) - 1)
    return np.asarray(distribution.ascending[places], dtype=float)


def standardised(runs: Sequence[Run], distribution: Distribution) -> Floats:
    """(SAMPLES,) share of the way from what random search has at that time to the optimum; negative where it is behind."""
    times = distribution.times()
    trials = np.round(np.maximum(times / distribution.trial_s, 1)).astype(np.int64)
    random = distribution.random(trials)
    reached = curve(runs, distribution, times)
    gap = random - distribution.best
    usable = gap > 0
    return np.where(usable, (random - reached) / np.where(usable, gap, 1.0), 0.0)


def score(runs: Sequence[Run], distribution: Distribution) -> float:
    """Mean of the standardised curve over the budget."""
    return float(np.mean(standardised(runs, distribution)))


def trials_to_within(runs: Sequence[Run], best_ms: float, share: float = 0.05) -> list[int | None]:
    """For each run the number of evaluations until one is within `share` of the optimum; None where it never was."""
    found = []
    for run in runs:
        hit = np.flatnonzero(run.ms <= best_ms * (1 + share))
        found.append(int(hit[0]) + 1 if len(hit) else None)
    return found


def random_trials_to_within(ms: Floats, share: float = 0.05) -> float:
    """Expected draws without replacement until one of the good ones: (N + 1)/(K + 1), failures among the N."""
    good = int(np.sum(ms <= np.nanmin(ms) * (1 + share)))
    return (len(ms) + 1) / (good + 1)

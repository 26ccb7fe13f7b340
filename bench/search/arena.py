"""Recorded spaces that search methods compete on; a method sees only what it asked for."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator
from scipy.optimize import isotonic_regression

from profiles.base.words import pairs_text
from tuner.tuning.measure.landscape import Landscape
from tuner.tuning.measure.replay import recorded_cost_s
from tuner.tuning.search import recorded_searches
from tuner.tuning.search.strategies import STRATEGIES
from tuner.tuning.search.strategies.prior_knowledge import PriorKnowledge
from tuner.tuning.space import Space
from tuner.tuning.trial import Config, Measured, Outcome, Trial, config_key

# The published score of a search method on recorded spaces: 0 is random search, 1 the optimum found at once.
#
# Willemsen et al., "A Methodology for Comparing Auto-Tuning Optimization Algorithms", Future Generation Computer Systems
# 159 (2024), and its program (AutoTuningAssociation/autotuning_methodology 1.1, MIT): equations as there, written anew.
# Its program draws the mean curve from a bagged regression; here it is the isotonic regression that the bags hold.

CUTOFF = 0.95             # the budget ends where random search has come this share of the way from median to optimum …
CUTOFF_START = 0.01       # … and counts from here
SAMPLES = 1000            # times at which curves are compared

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Distribution:
    """The distribution of times over a whole space.

    ascending    (N,) ms of the configurations that run, fastest first
    trial_s      mean seconds that one evaluation costs, failures counted in
    """

    ascending: Floats
    trial_s: float

    @classmethod
    def of(cls, ms: Floats, cost_s: Floats) -> Distribution:
        """Build it from ms (NaN where a configuration failed) and the seconds each took to try."""
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
        """Return the evaluations after which random search expects `share` of the way to the optimum (eq. 6)."""
        descending, n = self.ascending[::-1], len(self.ascending)
        median = float(np.median(self.ascending))
        target = self.best + (median - self.best) * (1 - share)
        place = int(np.argmax(descending <= target))
        if descending[place] == self.best and place > 0:
            place -= 1                    # as the program does where the target is the optimum itself
        return math.ceil(place / (n + 1 - place))

    def random(self, trials: NDArray[np.int64]) -> Floats:
        """Return the expected best of so many draws without replacement, smoothed: index M(N + 1)/(M + 1)."""
        n, descending = len(self.ascending), self.ascending[::-1]
        places = np.minimum(n - 1, np.round(trials * (n + 1) / (trials + 1)).astype(int))
        drawn = descending[places]
        x, first = np.unique(trials, return_index=True)
        if len(x) < 2 or len(trials) <= 2:
            return np.asarray(drawn, dtype=float)
        even = np.linspace(trials[0], trials[-1], len(trials))
        return np.asarray(PchipInterpolator(x, drawn[first])(even), dtype=float)

    def times(self) -> Floats:
        """Return seconds from the start of the budget to its end, shape (SAMPLES,)."""
        first, last = self.trials_to(CUTOFF_START), self.trials_to(CUTOFF)
        if last - first < 2:              # the program's margin for spaces that random search solves at once
            last = max(last, first) + 2
        return np.linspace(first * self.trial_s, last * self.trial_s, SAMPLES)


@dataclass(frozen=True)
class Run:
    """The evaluations of one search.

    time_s    (T,) seconds at the end of each evaluation, the search's own time included
    ms        (T,) what it measured, NaN for failures
    search_s  CPU seconds of the search itself, contained in time_s
    """

    time_s: Floats
    ms: Floats
    search_s: float = 0.0

    @property
    def best(self) -> Floats:
        """Return the fastest so far, NaN until something ran, shape (T,)."""
        filled = np.where(np.isnan(self.ms), np.inf, self.ms)
        lowest = np.minimum.accumulate(filled)
        return np.where(np.isinf(lowest), np.nan, lowest)


def mean_curve(runs: Sequence[Run], distribution: Distribution, times: Floats) -> Floats:
    """Return ms of the mean best configuration over time, by isotonic regression of ranks, (SAMPLES,)."""
    at, ranks = [], []
    for run in runs:
        known = ~np.isnan(run.best)
        at.append(run.time_s[known])
        ranks.append(np.searchsorted(distribution.ascending, run.best[known]))
        if known.any() and run.time_s[-1] < times[-1]:      # ended early: what it found stands
            at.append(np.array([times[-1]]))
            ranks.append(ranks[-1][-1:])
    x, y = np.concatenate(at), np.concatenate(ranks).astype(float)
    if not len(x):
        return np.full(len(times), distribution.ascending[-1])
    fitted = fit_falling(x, y, times)
    places = np.clip(np.round(fitted).astype(int), 0, len(distribution.ascending) - 1)
    return np.asarray(distribution.ascending[places], dtype=float)


def fit_falling(x: Floats, y: Floats, at: Floats) -> Floats:
    """Return a falling step function fitted to (x, y) by least squares, at `at`."""
    places, group, weights = np.unique(x, return_inverse=True, return_counts=True)
    means = np.bincount(group, y) / weights
    return np.asarray(np.interp(at, places, isotonic_regression(means, weights=weights, increasing=False).x), dtype=float)


def standardised_curve(runs: Sequence[Run], distribution: Distribution) -> Floats:
    """Return the share of the way from random search to the optimum over time, shape (SAMPLES,)."""
    times = distribution.times()
    trials = np.round(np.maximum(times / distribution.trial_s, 1)).astype(np.int64)
    random = distribution.random(trials)
    reached = mean_curve(runs, distribution, times)
    gap = random - distribution.best
    usable = gap > 0
    return np.where(usable, (random - reached) / np.where(usable, gap, 1.0), 0.0)


def score(runs: Sequence[Run], distribution: Distribution) -> float:
    """Return the mean of the standardised curve over the budget."""
    return float(np.mean(standardised_curve(runs, distribution)))


def trials_to_within(runs: Sequence[Run], best_ms: float, share: float = 0.05) -> list[int | None]:
    """Return, per run, the evaluations until one is within `share` of the optimum; None where never."""
    counts = []
    for run in runs:
        hit = np.flatnonzero(run.ms <= best_ms * (1 + share))
        counts.append(int(hit[0]) + 1 if len(hit) else None)
    return counts


def random_trials_to_within(ms: Floats, share: float = 0.05) -> float:
    """Return the expected draws without replacement until a good one: (N + 1)/(K + 1)."""
    good = int(np.sum(ms <= np.nanmin(ms) * (1 + share)))
    return (len(ms) + 1) / (good + 1)


@dataclass(frozen=True)
class Arena:
    """One shape of one recorded space.

    known        what a search may know before its first trial: names, shape and device, no other shape's trials
    ms, cost_s   (N,) by row of the space: what was minimised (NaN: it failed), seconds that trying it took
    """

    name: str
    space: Space
    known: PriorKnowledge
    outcomes: Sequence[Outcome]
    ms: Floats
    cost_s: Floats

    @classmethod
    def of(cls, landscape: Landscape, shape_index: int = 0) -> Arena:
        """Return the arena of one shape of a landscape."""
        recorded, space = landscape.at(shape_index), landscape.space(shape_index)
        outcomes = [_score_outcome(recorded.outcomes[config_key(config)][1]) for config in space.configs()]
        ms = np.array([outcome.median_ms if isinstance(outcome, Measured) else np.nan for outcome in outcomes])
        cost_s = np.array([float(outcome.facts.get("cost_s") or recorded_cost_s(outcome)) for outcome in outcomes])
        known = recorded_searches.recorded_knowledge(landscape, shape_index)
        return cls(_arena_name(landscape, shape_index), space, known, outcomes, ms, cost_s)

    @property
    def distribution(self) -> Distribution:
        return Distribution.of(self.ms, self.cost_s)

    @property
    def end_s(self) -> float:
        """Return a time just after the budget's end, so that curves reach it, in s."""
        return float(self.distribution.times()[-1]) * 1.1


def arenas(path: Path) -> Iterator[Arena]:
    """Yield an arena for every shape of a landscape file."""
    landscape = Landscape.load(path)
    for index in range(len(landscape.shapes)):
        yield Arena.of(landscape, index)


def _score_outcome(outcome: Outcome) -> Outcome:
    """Return the outcome by the objective of the file's own tool, where it names one."""
    objective = outcome.facts.get("objective_ms")
    if isinstance(outcome, Measured) and objective:
        return Measured(float(objective), outcome.min_ms, outcome.p90_ms, outcome.n, outcome.facts)
    return outcome


def _arena_name(landscape: Landscape, shape_index: int) -> str:
    shape = landscape.at(shape_index).shape
    text = pairs_text(shape)
    return f"{landscape.stem.removesuffix('_T4')} {text}".strip()


class Clock:
    """Adds up the cost of evaluations and the CPU seconds of the search between them.

    trials     evaluations after which it is over; None: at the end of the arena's budget in time
    until_ms   over as soon as something this fast was found
    """

    def __init__(self, arena: Arena, trials: int | None = None, until_ms: float | None = None) -> None:
        self.arena, self._trials, self._until_ms = arena, trials, until_ms
        self._end_s = arena.end_s if trials is None else float("inf")
        self._at, self._mark, self._found = 0.0, time.thread_time(), False
        self.search_s = 0.0
        self.time_s: list[float] = []
        self.ms: list[float] = []

    @property
    def is_over(self) -> bool:
        """Return whether the search has to end."""
        return self._found or self.spent >= 1

    @property
    def spent(self) -> float:
        """Return the share of the budget spent."""
        return len(self.ms) / self._trials if self._trials is not None else self._at / self._end_s

    def evaluate(self, row: int) -> float:
        """Return the ms of a row; NaN when it fails."""
        taken = time.thread_time() - self._mark
        ms = float(self.arena.ms[row])
        self.search_s += taken
        self._at += taken + float(self.arena.cost_s[row])
        self.time_s.append(self._at)
        self.ms.append(ms)
        self._found = self._found or (self._until_ms is not None and ms <= self._until_ms)
        self._mark = time.thread_time()
        return ms

    def run(self) -> Run:
        return Run(np.array(self.time_s), np.array(self.ms), self.search_s)


Player = Callable[[Arena, int, Clock], None]


def play(arena: Arena, player: Player, seed: int, *, trials: int | None = None, until_ms: float | None = None) -> Run:
    """Run one search until its clock is over."""
    clock = Clock(arena, trials, until_ms)
    player(arena, seed, clock)
    return clock.run()


def strategy_player(strategy: str) -> Player:
    """Return a player for a method of STRATEGIES; the default configuration goes first, as in jobs."""

    def search(arena: Arena, seed: int, clock: Clock) -> None:
        method = STRATEGIES[strategy].make(arena.space, np.random.default_rng(seed), arena.known)
        if arena.known.default is not None:
            method.tell([_play_trial(arena, clock, arena.known.default)])
        while not clock.is_over and (asked := method.ask(1)):
            method.tell([_play_trial(arena, clock, asked[0])])

    return search


def _play_trial(arena: Arena, clock: Clock, config: Config) -> Trial:
    row = arena.space.row(config)
    if row is None:
        raise ValueError(f"{config_key(config)} is not in the space of {arena.name}")
    clock.evaluate(row)
    return Trial(len(clock.ms) - 1, config, arena.outcomes[row])

"""Recorded spaces that search methods compete on; a method sees only what it asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tuner.scores.methodology import Distribution, Floats, Run
from tuner.tuning.measure.landscape import Landscape
from tuner.tuning.measure.replay import recorded_cost_s
from tuner.tuning.search import other_devices
from tuner.tuning.search.strategies import STRATEGIES
from tuner.tuning.search.strategies.prior_knowledge import PriorKnowledge
from tuner.tuning.space import Space
from tuner.tuning.trial import Config, Measured, Outcome, Trial, config_key


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
        known = other_devices.recorded_knowledge(landscape, shape_index)
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
    text = " ".join(f"{name}={value}" for name, value in shape.items())
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

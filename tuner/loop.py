"""The search loop: one generator of trials.

The caller stores each trial; stopping is not taking the next one, resuming is telling the history.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.bench.runner import Incumbent, Runner
from tuner.finalists import Finalist, best, finish, raced
from tuner.line import line_of
from tuner.space import Space
from tuner.strategies import STRATEGIES, Known, Strategy, tell_facts
from tuner.trial import Config, Measured, Trial, config_key

PLATEAU_GAIN = 0.01        # a best that is faster by less is no gain
INCUMBENT_SAMPLES = 200    # of its samples, as many travel to the child


@dataclass(frozen=True)
class Budget:
    """How much may be spent over all attempts of a job. None: no limit.

    trials   compiled or run
    seconds  of job time
    plateau  trials in a row that bring no gain
    """

    trials: int | None = None
    seconds: float | None = None
    plateau: int | None = None

    def left(self, trials: int, seconds: float, without_gain: int = 0) -> int | None:
        """Trials that may still start; None without a limit."""
        if self.seconds is not None and seconds >= self.seconds:
            return 0
        if self.plateau is not None and without_gain >= self.plateau:
            return 0
        return None if self.trials is None else max(0, self.trials - trials)


class Progress:
    """What was tried, the best of it, and for how many trials nothing better came."""

    def __init__(self) -> None:
        self.tried: set[str] = set()
        self.best: Trial | None = None
        self.without_gain = 0
        self._here: Trial | None = None              # the best that was measured in this session
        self._last_gain_ms: float | None = None      # the best when the plateau began: small gains add up to one

    def add(self, trial: Trial, here: bool = True) -> None:
        """`here`: measured on this GPU, in this session."""
        self.tried.add(config_key(trial.config))
        self.best = _faster(self.best, trial)
        if here:
            self._here = _faster(self._here, trial)
        fastest_ms = self.best.median_ms if self.best is not None else None
        if fastest_ms is None:
            return
        self.without_gain += 1
        if self._last_gain_ms is None or fastest_ms < self._last_gain_ms * (1 - PLATEAU_GAIN):
            self._last_gain_ms, self.without_gain = fastest_ms, 0

    def incumbent(self) -> Incumbent | None:
        """What a new configuration races against: the best of here, or one from elsewhere that is clearly faster."""
        here, best_of_all = _incumbent(self._here), _incumbent(self.best)
        elsewhere = best_of_all.elsewhere() if best_of_all else None
        return min((one for one in (here, elsewhere) if one), key=lambda one: one.median_ms, default=None)


def _faster(one: Trial | None, other: Trial) -> Trial | None:
    return best([trial for trial in (one, other) if trial is not None])


def _incumbent(trial: Trial | None) -> Incumbent | None:
    if trial is None or not isinstance(trial.outcome, Measured):
        return None
    return Incumbent(trial.outcome.median_ms, tuple((trial.outcome.facts.get("samples_ms") or ())[:INCUMBENT_SAMPLES]))


def never() -> bool:
    return False


def nobody() -> Sequence[Trial]:
    return ()


def tune(space: Space, strategy: str | Strategy, runner: Runner, budget: Budget, seed: int, history: Sequence[Trial] = (),
         should_stop: Callable[[], bool] = never, *, first: Sequence[Config] = (), known: Known | None = None,
         others: Callable[[], Sequence[Trial]] = nobody, elapsed_s: float = 0.0,
         clock: Callable[[], float] = time.monotonic) -> Iterator[Trial]:
    """Trials as they are known, until the budget is spent, `should_stop()` or nothing is left to try.

    strategy   a name of STRATEGIES, or one that was made already
    runner     open; its caller closes it. Up to `runner.ahead` configurations compile while one is measured
    history    trials of earlier attempts: told to the strategy, counted in the budget, never measured again
    first      configurations tried before the strategy is asked
    known      what is known of other shapes, GPUs and operators, for a strategy that is named
    others     trials that other workers of the same job finished since the last call: counted, told, never yielded
    elapsed_s  job time of earlier attempts
    """
    search = STRATEGIES[strategy].make(space, np.random.default_rng(seed), known) if isinstance(strategy, str) else strategy
    search.tell(history)
    progress = Progress()
    for trial in history:
        progress.add(trial, here=False)
    number = max((trial.number for trial in history), default=-1) + 1
    started = clock() - elapsed_s
    waiting = deque(config for config in first if config in space)
    line = line_of(runner, lambda found: tell_facts(search, found))
    try:
        while not should_stop():
            if news := list(others()):
                search.tell(news)
                for trial in news:
                    progress.add(trial, here=False)
            left = budget.left(len(progress.tried), clock() - started, progress.without_gain)
            if left == 0 and (progress.tried or not line):      # seconds may pass before the first is known: it is waited for
                return
            room = runner.ahead - len(line)
            line.put(_next(waiting, search.ask, progress.tried | line.keys,
                           room if left is None else min(room, left - len(line))))
            if not line:
                return
            for config, outcome in line.take(progress.incumbent()):
                trial = Trial(number, config, outcome, clock() - started)
                number += 1
                progress.add(trial)
                search.tell([trial])
                yield trial
            if line.stopped:
                return
    finally:
        line.clear()


def _next(waiting: deque[Config], ask: Callable[[int], list[Config]], tried: set[str], n: int) -> list[Config]:
    """Up to `n` configurations that nobody tried: first those that wait, then the strategy's."""
    fresh: dict[str, Config] = {}
    while waiting and len(fresh) < n:
        config = waiting.popleft()
        if config_key(config) not in tried:
            fresh[config_key(config)] = config
    while len(fresh) < n and (asked := ask(n - len(fresh))):
        fresh |= {key: config for config in asked if (key := config_key(config)) not in tried}
    return list(fresh.values())


__all__ = ["Budget", "Finalist", "Progress", "best", "finish", "never", "nobody", "raced", "tune"]

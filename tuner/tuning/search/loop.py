"""The search loop: a generator of trials.

The caller stores each trial; stopping is not taking the next one, resuming is telling the history.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.tuning.measure.runner import Incumbent, Runner
from tuner.tuning.search.finalists import best_trial
from tuner.tuning.search.pipeline import make_pipeline
from tuner.tuning.search.strategies import STRATEGIES, Strategy, tell_facts
from tuner.tuning.search.strategies.prior_knowledge import PriorKnowledge
from tuner.tuning.space import Space
from tuner.tuning.trial import Config, Measured, Outcome, Trial, config_key

PLATEAU_GAIN = 0.01        # a best that is faster by less is no gain
INCUMBENT_SAMPLES = 200    # of its samples, as many travel to the child


@dataclass(frozen=True)
class Budget:
    """Limits over all attempts of a job; None is no limit.

    trials   compiled or run
    seconds  of job time
    plateau  trials in a row that bring no gain
    good_ms  a best this fast is good enough: the share of the ceiling that was asked for
    """

    trials: int | None = None
    seconds: float | None = None
    plateau: int | None = None
    good_ms: float | None = None

    def trials_left(self, trials: int, seconds: float, without_gain: int = 0, best_ms: float | None = None) -> int | None:
        """Return how many trials may still start; None without a limit."""
        if self.good_ms is not None and best_ms is not None and best_ms <= self.good_ms:
            return 0
        if self.seconds is not None and seconds >= self.seconds:
            return 0
        if self.plateau is not None and without_gain >= self.plateau:
            return 0
        return None if self.trials is None else max(0, self.trials - trials)


class Progress:
    """Tried configurations, the best trial, and how many trials ago it last improved."""

    def __init__(self) -> None:
        self.tried: set[str] = set()
        self.best: Trial | None = None
        self.without_gain = 0
        self._here: Trial | None = None              # the best that was measured in this session
        self._last_gain_ms: float | None = None      # the best when the plateau began: small gains add up to one

    def add(self, trial: Trial, here: bool = True) -> None:
        """Count a trial. `here`: it was measured on this GPU in this session."""
        self.tried.add(config_key(trial.config))
        self.best = _faster_trial(self.best, trial)
        if here:
            self._here = _faster_trial(self._here, trial)
        fastest_ms = self.best_ms
        if fastest_ms is None:
            return
        self.without_gain += 1
        if self._last_gain_ms is None or fastest_ms < self._last_gain_ms * (1 - PLATEAU_GAIN):
            self._last_gain_ms, self.without_gain = fastest_ms, 0

    @property
    def best_ms(self) -> float | None:
        """Return the median of the best trial in ms; None before one was measured."""
        return self.best.median_ms if self.best is not None else None

    def incumbent(self) -> Incumbent | None:
        """Return what a new configuration races against: the best here, or a clearly faster one elsewhere."""
        here, best_of_all = _make_incumbent(self._here), _make_incumbent(self.best)
        elsewhere = best_of_all.for_other_card() if best_of_all else None
        return min((incumbent for incumbent in (here, elsewhere) if incumbent), key=lambda one: one.median_ms, default=None)


def _faster_trial(one: Trial | None, other: Trial) -> Trial | None:
    return best_trial([trial for trial in (one, other) if trial is not None])


def _make_incumbent(trial: Trial | None) -> Incumbent | None:
    if trial is None or not isinstance(trial.outcome, Measured):
        return None
    return Incumbent(trial.outcome.median_ms, tuple((trial.outcome.facts.get("samples_ms") or ())[:INCUMBENT_SAMPLES]))


def never() -> bool:
    return False


def no_trials() -> Sequence[Trial]:
    return ()


def believe(outcome: Outcome) -> Outcome:
    """Return the outcome as it was measured."""
    return outcome


def tune(space: Space, strategy: str | Strategy, runner: Runner, budget: Budget, seed: int, history: Sequence[Trial] = (),
         should_stop: Callable[[], bool] = never, *, first: Sequence[Config] = (), known: PriorKnowledge | None = None,
         others: Callable[[], Sequence[Trial]] = no_trials, elapsed_s: float = 0.0,
         judge: Callable[[Outcome], Outcome] = believe, clock: Callable[[], float] = time.monotonic) -> Iterator[Trial]:
    """Yield trials as they become known, until the budget ends, `should_stop()` or the space is empty.

    strategy   a name of STRATEGIES, or one that was made already
    runner     open; its caller closes it. Up to `runner.ahead` configurations compile while one is measured; at a budget's end
               more than it has left, where the GPU has nothing to do: those that are ready first count
    history    trials of earlier attempts: told to the strategy, counted in the budget, never measured again
    first      configurations tried before the strategy is asked
    known      what is known of other shapes, GPUs and operators, for a strategy that is named
    others     trials that other workers of the same job finished since the last call: counted, told, never yielded
    elapsed_s  job time of earlier attempts
    judge      of each outcome makes what is believed of it: a time that cannot be is rejected before anything learns from it
    """
    search = STRATEGIES[strategy].make(space, np.random.default_rng(seed), known) if isinstance(strategy, str) else strategy
    search.tell(history)
    progress = Progress()
    for trial in history:
        progress.add(trial, here=False)
    number = max((trial.number for trial in history), default=-1) + 1
    started = clock() - elapsed_s
    waiting = deque(config for config in first if config in space)
    pipeline = make_pipeline(runner, lambda facts: tell_facts(search, facts))
    try:
        while not should_stop():
            if news := list(others()):
                search.tell(news)
                for trial in news:
                    progress.add(trial, here=False)
            left = budget.trials_left(len(progress.tried), clock() - started, progress.without_gain, progress.best_ms)
            if left == 0 and (progress.tried or not pipeline):      # seconds may pass before the first is known: it is waited for
                return
            room = runner.ahead - len(pipeline)
            is_bound = left is not None and not (pipeline.is_starved and progress.tried)
            pipeline.put(_next_configs(waiting, search.ask, progress.tried | pipeline.keys,
                                       min(room, left - len(pipeline)) if left is not None and is_bound else room))
            if not pipeline:
                return
            for config, outcome in pipeline.take(progress.incumbent()):
                trial = Trial(number, config, judge(outcome), clock() - started)
                number += 1
                progress.add(trial)
                search.tell([trial])
                yield trial
                if budget.trials is not None and len(progress.tried) >= budget.trials:
                    break                                   # what else was asked for, while the GPU had nothing to do, is dropped
            if pipeline.stopped:
                return
    finally:
        pipeline.clear()


def _next_configs(waiting: deque[Config], ask: Callable[[int], list[Config]], tried: set[str], n: int) -> list[Config]:
    """Return up to `n` untried configurations: those that wait first, then the strategy's."""
    fresh: dict[str, Config] = {}
    while waiting and len(fresh) < n:
        config = waiting.popleft()
        if config_key(config) not in tried:
            fresh[config_key(config)] = config
    while len(fresh) < n and (configs := ask(n - len(fresh))):
        fresh |= {key: config for config in configs if (key := config_key(config)) not in tried}
    return list(fresh.values())


"""The search loop: one generator of trials.

The caller stores each trial; stopping is not taking the next one, resuming is telling the history.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.bench.runner import Runner
from tuner.space import Space
from tuner.strategies import STRATEGIES
from tuner.trial import Config, Measured, Outcome, Trial, config_key

FINALISTS = 4              # fastest trials measured again beside the default configuration
FINALIST_WITHIN = 1.10     # … and not slower than the best by more than this
TIE_WITHIN = 1.01          # medians closer than this are reported as a tie


@dataclass(frozen=True)
class Budget:
    """How much may be spent over all attempts of a job: trials compiled or run, seconds of job time. None: no limit."""

    trials: int | None = None
    seconds: float | None = None

    def left(self, trials: int, seconds: float) -> int | None:
        """Trials that may still start; None without a limit."""
        if self.seconds is not None and seconds >= self.seconds:
            return 0
        return None if self.trials is None else max(0, self.trials - trials)


def never() -> bool:
    return False


def tune(space: Space, strategy: str, runner: Runner, budget: Budget, seed: int, history: Sequence[Trial] = (),
         should_stop: Callable[[], bool] = never, *, first: Sequence[Config] = (), elapsed_s: float = 0.0,
         batch: int = 1, clock: Callable[[], float] = time.monotonic) -> Iterator[Trial]:
    """Trials as they are known, until the budget is spent, `should_stop()` or nothing is left to try.

    runner     open; its caller closes it
    history    trials of earlier attempts: told to the strategy, counted in the budget, never measured again
    first      configurations tried before the strategy is asked: the operator's default, winners of other shapes
    elapsed_s  job time of earlier attempts
    batch      configurations given to the runner at once (a GPU child compiles them ahead)
    """
    search = STRATEGIES[strategy].make(space, np.random.default_rng(seed))
    search.tell(history)
    known = {config_key(trial.config) for trial in history}
    number = max((trial.number for trial in history), default=-1) + 1
    started = clock() - elapsed_s
    waiting = deque(config for config in first if config in space)
    while not should_stop():
        left = budget.left(len(known), clock() - started)
        configs = _next(waiting, search.ask, known, batch if left is None else min(batch, left))
        if not configs:
            return
        for config, outcome in runner.measure(configs):
            trial = Trial(number, config, outcome, clock() - started)
            number += 1
            known.add(config_key(config))
            search.tell([trial])
            yield trial
        if any(config_key(config) not in known for config in configs):
            return                                # the runner was told to stop


def _next(waiting: deque[Config], ask: Callable[[int], list[Config]], known: set[str], n: int) -> list[Config]:
    """Up to `n` configurations that are not known: first those that wait, then the strategy's."""
    while waiting and n > 0:
        config = waiting.popleft()
        if config_key(config) not in known:
            return [config]
    while n > 0 and (asked := ask(n)):
        fresh = [config for config in asked if config_key(config) not in known]
        if fresh:
            return fresh
    return []


@dataclass(frozen=True)
class Finalist:
    """One configuration measured again, interleaved with the others in one session."""

    config: Config
    outcome: Outcome
    tie: bool = False          # not told apart from the winner

    @property
    def median_ms(self) -> float | None:
        return self.outcome.median_ms if isinstance(self.outcome, Measured) else None


def best(trials: Sequence[Trial]) -> Trial | None:
    """The fastest measured trial; the first asked of equals."""
    measured = [trial for trial in trials if trial.median_ms is not None]
    return min(measured, key=lambda trial: (trial.median_ms, trial.number), default=None)


def finish(runner: Runner, trials: Sequence[Trial], default: Config | None = None) -> list[Finalist]:
    """The fastest trials and the default configuration, measured again in turn; fastest first.

    Empty when nothing was measured.
    """
    winner = best(trials)
    if winner is None or winner.median_ms is None:
        return []
    limit = winner.median_ms * FINALIST_WITHIN
    near = [t for t in trials if t.median_ms is not None and t.median_ms <= limit]
    configs = [trial.config for trial in sorted(near, key=lambda t: (t.median_ms, t.number))[:FINALISTS]]
    tried = {config_key(trial.config) for trial in trials if trial.median_ms is not None}
    chosen = {config_key(config) for config in configs}
    if default is not None and config_key(default) in tried - chosen:
        configs.append(default)
    again = [Finalist(config, outcome) for config, outcome in runner.finalists(configs)]
    again.sort(key=lambda finalist: finalist.median_ms if finalist.median_ms is not None else float("inf"))
    fastest = again[0].median_ms if again else None
    if fastest is None:
        return again
    limit = fastest * TIE_WITHIN
    return [Finalist(f.config, f.outcome, f.median_ms is not None and f.median_ms <= limit) for f in again]

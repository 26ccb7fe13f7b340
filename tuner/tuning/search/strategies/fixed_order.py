"""Search methods whose order is fixed beforehand: all in order, shuffled, or a given list."""
from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from tuner.tuning.search.strategies.prior_knowledge import PriorKnowledge
from tuner.tuning.space import Space
from tuner.tuning.trial import Config, Trial, config_key


class ExhaustiveSearch:
    """Every valid configuration, in the order of the space."""
    def __init__(self, space: Space, rng: np.random.Generator, prior: PriorKnowledge) -> None:
        self._space = space
        self._order = self._make_order(rng)
        self._seen = np.zeros(len(space), dtype=bool)
        self._next = 0

    def _make_order(self, rng: np.random.Generator) -> list[int]:
        return list(range(len(self._space)))

    def ask(self, n: int) -> list[Config]:
        configs: list[Config] = []
        while len(configs) < n and self._next < len(self._order):
            row = self._order[self._next]
            self._next += 1
            if not self._seen[row]:
                self._seen[row] = True
                configs.append(self._space.config(row))
        return configs

    def tell(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            row = self._space.row(trial.config)
            if row is not None:
                self._seen[row] = True


class RandomSearch(ExhaustiveSearch):
    """Every valid configuration in random order, without replacement: the baseline of all methods."""

    def _make_order(self, rng: np.random.Generator) -> list[int]:
        return [int(row) for row in rng.permutation(len(self._space))]


class ListedConfigs:
    """The given configurations in their order; those that the space lacks are left out."""

    def __init__(self, space: Space, configs: Sequence[Config]) -> None:
        self._waiting = deque(config for config in configs if config in space)
        self._known: set[str] = set()

    def ask(self, n: int) -> list[Config]:
        configs: list[Config] = []
        while self._waiting and len(configs) < n:
            config = self._waiting.popleft()
            key = config_key(config)
            if key not in self._known:
                self._known.add(key)
                configs.append(config)
        return configs

    def tell(self, trials: Sequence[Trial]) -> None:
        self._known |= {config_key(trial.config) for trial in trials}

"""Every valid configuration, in the order of the space."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuner.space import Space
from tuner.strategies.known import Known
from tuner.trial import Config, Trial


class Exhaustive:
    def __init__(self, space: Space, rng: np.random.Generator, known: Known) -> None:
        self._space = space
        self._order = self._ordered(rng)
        self._seen = np.zeros(len(space), dtype=bool)
        self._next = 0

    def _ordered(self, rng: np.random.Generator) -> list[int]:
        return list(range(len(self._space)))

    def ask(self, n: int) -> list[Config]:
        asked: list[Config] = []
        while len(asked) < n and self._next < len(self._order):
            row = self._order[self._next]
            self._next += 1
            if not self._seen[row]:
                self._seen[row] = True
                asked.append(self._space.config(row))
        return asked

    def tell(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            row = self._space.row(trial.config)
            if row is not None:
                self._seen[row] = True

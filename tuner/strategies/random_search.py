"""Uniform over the valid configurations, without replacement: the baseline that all others must beat."""

from __future__ import annotations

import numpy as np

from tuner.strategies.exhaustive import Exhaustive


class RandomSearch(Exhaustive):
    """The exhaustive walk over a shuffled space: a resumed search goes on where the interrupted one would have."""

    def _ordered(self, rng: np.random.Generator) -> list[int]:
        return [int(row) for row in rng.permutation(len(self._space))]

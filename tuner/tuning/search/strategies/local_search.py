"""Best-first local search: spread starts, then untried neighbours of the fastest configurations.

Plain hill climbing stops at its first local optimum. Here every measured configuration stays a candidate, fastest
first: when the neighbourhood of the best is exhausted the next best is expanded, and every few trials a far-away
configuration is tried. All choices come from one random ranking drawn at the start and from the trials told: a resumed
search goes on exactly as the interrupted one would have.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tuner.tuning.search.strategies.prior_knowledge import PriorKnowledge
from tuner.tuning.space import Space
from tuner.tuning.trial import Config, Trial

STARTS = 4              # spread configurations before the first walk
EXPLORE_EVERY = 8       # one trial in so many goes to where nothing was tried
SPREAD_SAMPLE = 256     # candidates that compete to be the most distant


class LocalSearch:
    """Spread starts, then neighbours of the fastest configurations."""
    def __init__(self, space: Space, rng: np.random.Generator, prior: PriorKnowledge) -> None:
        self._space = space
        self._encoding = space.encoding()
        self._order = rng.permutation(len(space))             # breaks every tie
        self._rank: NDArray[np.int64] = np.argsort(self._order)
        self._seen = np.zeros(len(space), dtype=bool)         # asked or told
        self._distance = np.full(len(space), np.inf)          # to the nearest one seen
        self._fastest: list[tuple[float, int]] = []           # heap of (ms, row) whose neighbours may be untried
        self._count = 0

    def ask(self, n: int) -> list[Config]:
        configs: list[Config] = []
        while len(configs) < n and self._count < len(self._space):
            row = self._next()
            self._mark_seen(row)
            configs.append(self._space.config(row))
        return configs

    def tell(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            row = self._space.row(trial.config)
            if row is None:
                continue
            if not self._seen[row]:
                self._mark_seen(row)
            if trial.median_ms is not None:
                heapq.heappush(self._fastest, (trial.median_ms, row))

    def _mark_seen(self, row: int) -> None:
        self._seen[row] = True
        self._count += 1
        if self._encoding.shape[1]:
            steps = np.abs(self._encoding - self._encoding[row]).sum(axis=1)
            np.minimum(self._distance, steps, out=self._distance)

    def _next(self) -> int:
        if self._count >= STARTS and self._count % EXPLORE_EVERY:
            row = self._untried_neighbour()
            if row is not None:
                return row
        return self._farthest_row()

    def _untried_neighbour(self) -> int | None:
        """Return the first untried neighbour, by rank, of the fastest configuration that has one."""
        while self._fastest:
            untried = [row for row in self._space.neighbours(self._fastest[0][1]) if not self._seen[row]]
            if untried:
                return min(untried, key=lambda row: self._rank[row])
            heapq.heappop(self._fastest)
        return None

    def _farthest_row(self) -> int:
        """Return, of the first untried rows in rank, the one farthest from every row seen."""
        untried = self._order[~self._seen[self._order]][:SPREAD_SAMPLE]
        if math.isinf(self._distance[untried[0]]):
            return int(untried[0])
        return int(untried[int(np.argmax(self._distance[untried]))])

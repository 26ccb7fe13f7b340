"""Evolution: children of the fastest configurations, each parameter from either parent, now and then one step further.

A steady state: every trial may become a parent at once. Parents are drawn by tournament among the fastest. Each child's
random numbers come from the seed and its number, so a resumed search goes on as the interrupted one would have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tuner.space import Space
from tuner.strategies.known import Known
from tuner.strategies.ledger import Ledger
from tuner.trial import Config, Trial

STARTS = 12               # random configurations before the first child
PARENTS = 16              # the fastest that may have children
TOURNAMENT = 3            # the best of so many drawn becomes a parent
CROSSED = 0.5             # share of children with two parents; the others are a parent's neighbour
MUTATED = 0.3             # share of crossed children that take a step as well
ATTEMPTS = 20             # children that are tried before a random configuration comes instead


class Breeder:
    """Proposes untried rows near the fastest ones of a ledger."""

    def __init__(self, ledger: Ledger, rng: np.random.Generator) -> None:
        self._ledger, self._space = ledger, ledger.space
        self._seed = int(rng.integers(2**32))
        self._order = rng.permutation(len(ledger.space))

    def child(self) -> int:
        rng = np.random.default_rng([self._seed, self._ledger.count])
        parents = self._ledger.fastest(PARENTS)
        for _ in range(ATTEMPTS if parents else 0):
            row = self._bred(parents, rng)
            if row is not None and not self._ledger.seen[row]:
                return row
        return self.stranger()

    def stranger(self) -> int:
        """The first untried row of a random order."""
        return int(self._order[np.argmin(self._ledger.seen[self._order])])

    def neighbour(self) -> int:
        """An untried neighbour of the fastest row that still has one."""
        for parent in self._ledger.fastest(PARENTS):
            untried = [row for row in self._space.neighbours(parent) if not self._ledger.seen[row]]
            if untried:
                rng = np.random.default_rng([self._seed, self._ledger.count])
                return int(rng.choice(untried))
        return self.stranger()

    def _bred(self, parents: list[int], rng: np.random.Generator) -> int | None:
        first = self._drawn(parents, rng)
        if rng.random() >= CROSSED or len(parents) < 2:
            return self._stepped(first, rng)
        second = self._drawn(parents, rng)
        rows = self._space.rows
        mixed = np.where(rng.random(rows.shape[1]) < 0.5, rows[first], rows[second])
        row = self._space.row_of(mixed)
        if row is None:
            return None
        return self._stepped(row, rng) if rng.random() < MUTATED or self._ledger.seen[row] else row

    def _drawn(self, parents: list[int], rng: np.random.Generator) -> int:
        return parents[int(rng.integers(len(parents), size=TOURNAMENT).min())]

    def _stepped(self, row: int, rng: np.random.Generator) -> int | None:
        near = self._space.neighbours(row)
        return int(rng.choice(near)) if near else None


class Evolutionary:
    def __init__(self, space: Space, rng: np.random.Generator, known: Known) -> None:
        self._ledger = Ledger(space)
        self._breeder = Breeder(self._ledger, rng)

    def ask(self, n: int) -> list[Config]:
        asked: list[Config] = []
        while len(asked) < n and not self._ledger.full:
            row = self._breeder.child() if self._ledger.count >= STARTS else self._breeder.stranger()
            asked.append(self._ledger.take(row))
        return asked

    def tell(self, trials: Sequence[Trial]) -> None:
        self._ledger.tell(trials)

    def facts(self, found: Mapping[str, Mapping[str, Any]]) -> None:
        self._ledger.facts(found)

"""Evolution: children of the fastest configurations, each parameter from either parent, now and then one step further.

A steady state: every trial may become a parent at once. Parents are drawn by tournament among the fastest. Each child's
random numbers come from the seed and its number, so a resumed search goes on as the interrupted one would have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tuner.tuning.search.strategies.ledger import Ledger
from tuner.tuning.search.strategies.prior_knowledge import PriorKnowledge
from tuner.tuning.space import Space
from tuner.tuning.trial import Config, Trial

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

    def breed_child(self) -> int:
        """Return an untried child of the fastest rows; a random row where none is found."""
        rng = np.random.default_rng([self._seed, self._ledger.count])
        parents = self._ledger.fastest(PARENTS)
        for _ in range(ATTEMPTS if parents else 0):
            row = self._breed(parents, rng)
            if row is not None and not self._ledger.seen[row]:
                return row
        return self.pick_stranger()

    def pick_stranger(self) -> int:
        """Return the first untried row of a random order."""
        return int(self._order[np.argmin(self._ledger.seen[self._order])])

    def pick_neighbour(self) -> int:
        """Return an untried neighbour of the fastest row that still has one."""
        for parent in self._ledger.fastest(PARENTS):
            untried = [row for row in self._space.neighbours(parent) if not self._ledger.seen[row]]
            if untried:
                rng = np.random.default_rng([self._seed, self._ledger.count])
                return int(rng.choice(untried))
        return self.pick_stranger()

    def _breed(self, parents: list[int], rng: np.random.Generator) -> int | None:
        first = self._draw_parent(parents, rng)
        if rng.random() >= CROSSED or len(parents) < 2:
            return self._take_step(first, rng)
        second = self._draw_parent(parents, rng)
        rows = self._space.rows
        mixed = np.where(rng.random(rows.shape[1]) < 0.5, rows[first], rows[second])
        row = self._space.row_of(mixed)
        if row is None:
            return None
        return self._take_step(row, rng) if rng.random() < MUTATED or self._ledger.seen[row] else row

    def _draw_parent(self, parents: list[int], rng: np.random.Generator) -> int:
        return parents[int(rng.integers(len(parents), size=TOURNAMENT).min())]

    def _take_step(self, row: int, rng: np.random.Generator) -> int | None:
        near = self._space.neighbours(row)
        return int(rng.choice(near)) if near else None


class EvolutionarySearch:
    """Random starts, then children of the fastest configurations."""
    def __init__(self, space: Space, rng: np.random.Generator, prior: PriorKnowledge) -> None:
        self._ledger = Ledger(space)
        self._breeder = Breeder(self._ledger, rng)

    def ask(self, n: int) -> list[Config]:
        configs: list[Config] = []
        while len(configs) < n and not self._ledger.is_full:
            row = self._breeder.breed_child() if self._ledger.count >= STARTS else self._breeder.pick_stranger()
            configs.append(self._ledger.take(row))
        return configs

    def tell(self, trials: Sequence[Trial]) -> None:
        self._ledger.tell(trials)

    def tell_facts(self, facts: Mapping[str, Mapping[str, Any]]) -> None:
        self._ledger.tell_facts(facts)

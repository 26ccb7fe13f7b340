"""The default search: known good starts, then a model that proposes, beside evolution that explores.

Where the same operator was tuned elsewhere there are two models. The warm one starts from what was learned there; the
cold one has never heard of it, only of how far rules of thumb held for other operators. Winners of other GPUs can trap a
search that starts from them alone (99 % of the best from one card, 5 % from another), so the cold arm and evolution keep
their share of the trials whatever the warm arm finds, and the model whose expectations the trials bear out gets more.
A third model, open to surprises, never fits its hyperparameters: a fit on few trials can rule out the better half of a
space for hundreds of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tuner.space import Space
from tuner.strategies.evolution import Breeder
from tuner.strategies.known import Known
from tuner.strategies.ledger import Ledger
from tuner.strategies.model import Proposer
from tuner.strategies.prior import guess
from tuner.strategies.sizes import Sizes, columns
from tuner.strategies.transfer import learned, pasts, winners
from tuner.strategies.trust import trust
from tuner.trial import Config, Trial

COLD = ("cold", "cold", "open", "neighbour")                                     # who proposes, trial after trial
WARM = ("warm", "winner", "warm", "cold", "better", "neighbour", "open", "worse")
LATE = ("better", "child", "neighbour", "child")      # after MODEL_TRIALS: a model of many trials costs more and adds less
MODEL_TRIALS = 300
WINNERS = 4               # of other shapes, GPUs and toolkits that are tried as they are


class Composed:
    def __init__(self, space: Space, rng: np.random.Generator, known: Known) -> None:
        sizes = Sizes(space)
        weights = trust(known)
        x, guessed, found = columns(space, sizes), guess(space, known, sizes, weights), pasts(space, known)
        self._ledger = Ledger(space)
        self._breeder = Breeder(self._ledger, rng)
        self._cold = Proposer(self._ledger, x, guessed, rng)
        self._open = Proposer(self._ledger, x, guess(space, known, sizes), rng, fits=False)
        self._warm = Proposer(self._ledger, x, learned(space, known, guessed, found, weights), rng) if found else self._cold
        self._winners = deque(row for config in winners(space, found)[:WINNERS] if (row := space.row(config)) is not None)
        self._default = space.row(known.default) if known.default is not None else None
        self._cycle = WARM if found else COLD

    def ask(self, n: int) -> list[Config]:
        asked: list[Config] = []
        while len(asked) < n and not self._ledger.full:
            asked.append(self._ledger.take(self._next()))
        return asked

    def tell(self, trials: Sequence[Trial]) -> None:
        self._ledger.tell(trials)

    def facts(self, found: Mapping[str, Mapping[str, Any]]) -> None:
        self._ledger.facts(found)

    def _next(self) -> int:
        if self._default is not None and not self._ledger.seen[self._default]:
            return self._default
        count = self._ledger.count
        cycle = self._cycle if count < MODEL_TRIALS else LATE
        return self._of(cycle[count % len(cycle)])

    def _of(self, arm: str) -> int:
        if arm == "winner":
            untried = next((row for row in self._winners if not self._ledger.seen[row]), None)
            return self._warm.row() if untried is None else untried
        if arm == "warm":
            return self._warm.row()
        if arm == "cold":
            return self._cold.row()
        if arm == "open":
            return self._open.row()
        if arm in ("better", "worse"):
            warm_is_better = self._warm.surprise() <= self._cold.surprise()
            return (self._warm if warm_is_better == (arm == "better") else self._cold).row()
        return self._breeder.neighbour() if arm == "neighbour" else self._breeder.child()

"""The default search: known good starts, models that propose, and evolution that explores.

Where the same operator was tuned elsewhere there are two models. The warm one starts from what was learned there; the
cold one has never heard of it, only of how far rules of thumb held for other operators. Winners of other GPUs can trap a
search that starts from them alone (99 % of the best from one card, 5 % from another), so the cold arm and evolution keep
their share of the trials whatever the warm arm finds, and the model whose expectations the trials bear out gets more.
A third model, open to surprises, never fits its hyperparameters: a fit on few trials can rule out the better half of a
space for hundreds of them.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.tuning.search.strategies.evolution import Breeder
from tuner.tuning.search.strategies.ledger import Ledger, slowness_of
from tuner.tuning.search.strategies.model import Proposer
from tuner.tuning.search.strategies.prior import guess_slowness, rule_terms
from tuner.tuning.search.strategies.prior_knowledge import PastSearch, PriorKnowledge
from tuner.tuning.search.strategies.sizes import Sizes, model_columns
from tuner.tuning.search.strategies.transfer import correct_guess, past_winners, related_searches, similarity
from tuner.tuning.space import Space
from tuner.tuning.trial import Config, Trial, config_key

# ---- weights of the guess's rules ----
# Weights of the guess's rules, by ridge regression on stored trials of other operators.
# Every past counts alike, however many trials it has. Few pasts leave the weights where the rules of thumb put them.

Array = NDArray[np.float64]

PULL = 0.3                # towards 1, in units of the variance that a rule explains
MOST = 3.0                # no rule counts more, and none turns round
FEW = 8                   # trials below which a past says nothing about rules
MOST_TRIALS = 5_000       # of one past


def rule_weights(known: PriorKnowledge) -> dict[str, float]:
    """Return rule -> weight around 1; empty where other operators have no trials."""
    seen = [_observations(past, known) for past in known.past if past.operator != known.operator]
    blocks = [block for block in seen if block is not None]
    names = list(dict.fromkeys(name for made, _ in blocks for name in made))
    if not names:
        return {}
    square, moment = PULL * np.eye(len(names)), np.zeros(len(names))
    for made, slowness in blocks:
        x = np.stack([made[name] - made[name].mean() if name in made else np.zeros(len(slowness)) for name in names], axis=1)
        square += x.T @ x / len(slowness)
        moment += x.T @ (slowness - slowness.mean() - x.sum(axis=1)) / len(slowness)
    weights = np.clip(1 + np.linalg.solve(square, moment), 0, MOST)
    return dict(zip(names, weights.tolist(), strict=True))


def _observations(past: PastSearch, known: PriorKnowledge) -> tuple[Mapping[str, Array], Array] | None:
    """Return the rules' terms at a past search's configurations and their slowness; None without any."""
    by_key = {config_key(trial.config): trial for trial in past.trials[:MOST_TRIALS]}
    trials = list(by_key.values())
    configs: Sequence[Config] = [trial.config for trial in trials]
    if sum(trial.median_ms is not None for trial in trials) < FEW or any(c.keys() != configs[0].keys() for c in configs):
        return None
    space = Space.listed(configs)
    about = dataclasses.replace(known, operator=past.operator, shape=past.shape, dtype=past.dtype, gpu=past.gpu or known.gpu,
                                flops=past.flops, bytes=past.bytes)
    made = rule_terms(space, about, Sizes(space))
    return (made, slowness_of(trials)) if made else None


# ---- the default search ----

COLD = ("cold", "cold", "open", "neighbour")                                     # who proposes, trial after trial
WARM = ("warm", "winner", "warm", "cold", "better", "neighbour", "open", "worse")
FAR = (*COLD, *COLD, "winner", "warm")                # no past is of a similar shape: first as if there were none
LATE = ("better", "child", "neighbour", "child")      # after MODEL_TRIALS: a model of many trials costs more and adds less
MODEL_TRIALS = 300
NEAR = 0.35               # similarity from which a past goes before the guess: shapes some four doublings apart
WINNERS = 4               # of other shapes, GPUs and toolkits that are tried as they are


class ComposedSearch:
    """Takes turns between models, winners of other searches and evolution."""
    def __init__(self, space: Space, rng: np.random.Generator, known: PriorKnowledge) -> None:
        sizes = Sizes(space)
        weights = rule_weights(known)
        x, guessed = model_columns(space, sizes), guess_slowness(space, known, sizes, weights)
        past = related_searches(space, known)
        self._ledger = Ledger(space)
        self._breeder = Breeder(self._ledger, rng)
        self._cold = Proposer(self._ledger, x, guessed, rng)
        self._open = Proposer(self._ledger, x, guess_slowness(space, known, sizes), rng, fits=False)
        self._warm = Proposer(self._ledger, x, correct_guess(space, known, guessed, past, weights), rng) if past else self._cold
        self._winners = deque(row for config in past_winners(space, past)[:WINNERS] if (row := space.row(config)) is not None)
        self._default = space.row(known.default) if known.default is not None else None
        self._cycle = COLD if not past else WARM if similarity(past[0], known) >= NEAR else FAR

    def ask(self, n: int) -> list[Config]:
        asked: list[Config] = []
        while len(asked) < n and not self._ledger.is_full:
            asked.append(self._ledger.take(self._next_row()))
        return asked

    def tell(self, trials: Sequence[Trial]) -> None:
        self._ledger.tell(trials)

    def tell_facts(self, facts: Mapping[str, Mapping[str, Any]]) -> None:
        self._ledger.tell_facts(facts)

    def _next_row(self) -> int:
        if self._default is not None and not self._ledger.seen[self._default]:
            return self._default
        count = self._ledger.count
        cycle = self._cycle if count < MODEL_TRIALS else LATE
        return self._propose(cycle[count % len(cycle)])

    def _propose(self, arm: str) -> int:
        """Return the row that the named proposer asks for."""
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
        return self._breeder.pick_neighbour() if arm == "neighbour" else self._breeder.breed_child()

"""Weights of the guess's rules, by ridge regression on stored trials of other operators.

Every past counts alike, however many trials it has. Few pasts leave the weights where the rules of thumb put them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tuner.tuning.search.strategies.ledger import slowness_of
from tuner.tuning.search.strategies.prior import rule_terms
from tuner.tuning.search.strategies.prior_knowledge import PastSearch, PriorKnowledge
from tuner.tuning.search.strategies.sizes import Sizes
from tuner.tuning.space import Space
from tuner.tuning.trial import Config, config_key

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

"""How far each rule of the guess held for other operators: weights around 1, by ridge regression on their stored trials.

Every past counts alike, however many trials it has. Few pasts leave the weights where the rules of thumb put them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tuner.space import Space
from tuner.strategies.known import Known, Past
from tuner.strategies.ledger import slowness_of
from tuner.strategies.prior import terms
from tuner.strategies.sizes import Sizes
from tuner.trial import Config, config_key

Array = NDArray[np.float64]

PULL = 0.3                # towards 1, in units of the variance that a rule explains
MOST = 3.0                # no rule counts more, and none turns round
FEW = 8                   # trials below which a past says nothing about rules
MOST_TRIALS = 5_000       # of one past


def trust(known: Known) -> dict[str, float]:
    """Rule -> weight, from the pasts of other operators; empty without any."""
    seen = [_seen(past, known) for past in known.past if past.operator != known.operator]
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


def _seen(past: Past, known: Known) -> tuple[Mapping[str, Array], Array] | None:
    """What the rules say about the past's configurations, and how slow these were; None: nothing to learn from."""
    by_key = {config_key(trial.config): trial for trial in past.trials[:MOST_TRIALS]}
    trials = list(by_key.values())
    configs: Sequence[Config] = [trial.config for trial in trials]
    if sum(trial.median_ms is not None for trial in trials) < FEW or any(c.keys() != configs[0].keys() for c in configs):
        return None
    space = Space.listed(configs)
    about = dataclasses.replace(known, operator=past.operator, shape=past.shape, dtype=past.dtype, gpu=past.gpu or known.gpu,
                                flops=past.flops, bytes=past.bytes)
    made = terms(space, about, Sizes(space))
    return (made, slowness_of(trials)) if made else None

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
import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from tuner.tuning.search.strategies.evolution import Breeder
from tuner.tuning.search.strategies.ledger import Ledger, slowness_of
from tuner.tuning.search.strategies.model import Proposer
from tuner.tuning.search.strategies.prior import element_bytes, guess_slowness, rule_terms
from tuner.tuning.search.strategies.prior_knowledge import PastSearch, PriorKnowledge, Shape, size_dims
from tuner.tuning.search.strategies.roles import Sizes, model_columns
from tuner.tuning.space import Param, Space
from tuner.tuning.trial import Config, Trial, config_key

# What trials of the same operator elsewhere say about this search.
#
# Each past says by how much every configuration was slower than the guess would have it there. That surprise, averaged
# over the pasts, the most similar ones counting most, is added to the guess for here: the guess carries what a change of
# shape or GPU changes, the surprise what the guess does not know about the kernel. Between recorded configurations it is
# interpolated; far from all of them nothing but the guess is left.

Array = NDArray[np.float64]

FADES = 4.0               # doublings of a shape's dimensions after which a past counts e times less
OTHER_GPU, OTHER_CLASS, OTHER_DTYPE, SAME_BYTES, OTHER_TOOLKIT = 0.7, 0.3, 0.5, 0.95, 0.9
NEIGHBOURS = 4            # recorded configurations that a new one is interpolated from
REACH = 0.5               # distance in the unit cube after which a surprise counts e times less
MOST_RECORDED = 20_000      # of one past
PER_PAST = 2              # winners taken over from one past


def related_searches(space: Space, prior: PriorKnowledge) -> list[PastSearch]:
    """Return past searches of this operator with these parameters, the most similar first."""
    searches = []
    for past in prior.past:
        usable = [trial for trial in past.trials[:MOST_RECORDED] if _is_usable(trial, space)]
        if past.operator == prior.operator and any(trial.median_ms for trial in usable):
            searches.append(dataclasses.replace(past, trials=usable))
    return sorted(searches, key=lambda past: -similarity(past, prior))


def _is_usable(trial: Trial, space: Space) -> bool:
    return all(param.name in trial.config for param in space.params)


def similarity(past: PastSearch, prior: PriorKnowledge) -> float:
    """Return how similar two searches are; 1 for the same shape, GPU, dtype and toolkit."""
    like = math.exp(-_shape_doublings(past.shape, prior.shape) / FADES)
    if past.gpu is not None and prior.gpu is not None and past.gpu.gpu != prior.gpu.gpu:
        like *= OTHER_GPU if past.gpu.compute_capability == prior.gpu.compute_capability else OTHER_CLASS
    if past.dtype and prior.dtype and past.dtype != prior.dtype:
        like *= SAME_BYTES if element_bytes(past.dtype) == element_bytes(prior.dtype) else OTHER_DTYPE
    return like * (OTHER_TOOLKIT if past.toolkit and prior.toolkit and past.toolkit != prior.toolkit else 1)


def _shape_doublings(one: Shape, other: Shape) -> float:
    mine, theirs = size_dims(one), size_dims(other)
    return sum(abs(math.log2((mine.get(name, 0) + 1) / (theirs.get(name, 0) + 1))) for name in mine.keys() | theirs.keys())


def past_winners(space: Space, searches: Sequence[PastSearch]) -> list[Config]:
    """Return the fastest valid configurations of each past search: all firsts, then all seconds."""
    ranked = []
    for past in searches:
        timed = sorted((t for t in past.trials if t.median_ms), key=lambda t: (t.median_ms, t.number))
        here = [{param.name: trial.config[param.name] for param in space.params} for trial in timed[:50]]
        ranked.append([config for config in here if config in space][:PER_PAST])
    return [configs[place] for place in range(PER_PAST) for configs in ranked if place < len(configs)]


def correct_guess(space: Space, prior: PriorKnowledge, guessed: Array, searches: Sequence[PastSearch],
                  weights: Mapping[str, float]) -> Array:
    """Return the guess corrected by past measurements: log time over the fastest expected, shape (N,)."""
    total, shares = np.zeros(len(space)), 0.0
    for past in searches:
        share = similarity(past, prior)
        total += share * _surprise(space, prior, past, weights)
        shares += share
    expected = guessed + total / shares
    return np.asarray(expected - expected.min())


def _surprise(space: Space, prior: PriorKnowledge, past: PastSearch, weights: Mapping[str, float]) -> Array:
    """Return, at every row, log time measured there minus the guess for there, around its median."""
    by_values = {tuple(trial.config[param.name] for param in space.params): trial for trial in past.trials}
    times = list(by_values)
    names = [param.name for param in space.params]
    there = Space.listed([dict(zip(names, values, strict=True)) for values in times])
    work = (past.flops, past.bytes) if past.flops and past.bytes else (prior.flops, prior.bytes)
    about = dataclasses.replace(prior, shape=past.shape, dtype=past.dtype, gpu=past.gpu or prior.gpu, flops=work[0], bytes=work[1])
    surprise = slowness_of(list(by_values.values())) - guess_slowness(there, about, Sizes(there), weights)
    scales = [_value_places((*param.values, *(values[i] for values in times))) for i, param in enumerate(space.params)]
    places = _places(there.params, there.rows, scales)
    here = _places(space.params, space.rows, scales)
    return interpolate(places, surprise - np.median(surprise), here)


def interpolate(at: Array, values: Array, here: Array) -> Array:
    """Return the mean of the nearest `values` at each place of `here`, weighted by 1/distance.

    at: (M, D) recorded places, values: (M,), here: (N, D); result (N,). A recorded place keeps its own value.
    """
    distance, nearest = KDTree(at).query(here, np.arange(1, min(NEIGHBOURS, len(at)) + 1))
    recorded = distance == 0
    with np.errstate(divide="ignore"):
        weights = np.where(recorded.any(axis=1, keepdims=True), recorded, 1 / distance)
    return np.asarray((weights * values[nearest]).sum(axis=1) / weights.sum(axis=1) * np.exp(-distance[:, 0] / REACH))


def _value_places(values: Sequence[object]) -> dict[object, float]:
    """Return a place in [0, 1] for each value of a parameter, on a log scale for numbers above 0."""
    numbers = [v for v in values if isinstance(v, int | float)]
    if len(numbers) < len(values):
        return {value: float(i) for i, value in enumerate(sorted({str(v) for v in values}))}
    places = np.log2(np.array(numbers, dtype=float)) if min(numbers) > 0 else np.array(numbers, dtype=float)
    span = np.ptp(places)
    return dict(zip(numbers, ((places - places.min()) / span if span else np.zeros(len(places))).tolist(), strict=True))


def _places(params: Sequence[Param], rows: NDArray[np.int32], scales: Sequence[dict[object, float]]) -> Array:
    def place(scale: dict[object, float], value: object) -> float:
        return scale[value] if value in scale else scale[str(value)]
    columns = [np.array([place(scale, v) for v in param.values])[rows[:, i]]
               for i, (param, scale) in enumerate(zip(params, scales, strict=True))]
    return np.stack(columns, axis=1) if columns else np.zeros((len(rows), 1))


# ---- weights of the guess's rules ----
# Weights of the guess's rules, by ridge regression on stored trials of other operators.
# Every past counts alike, however many trials it has. Few pasts leave the weights where the rules of thumb put them.


PULL = 0.3                # towards 1, in units of the variance that a rule explains
MOST = 3.0                # no rule counts more, and none turns round
FEW = 8                   # trials below which a past says nothing about rules
MOST_TRIALS = 5_000       # of one past


def rule_weights(prior: PriorKnowledge) -> dict[str, float]:
    """Return rule -> weight around 1; empty where other operators have no trials."""
    observations = [_observations(past, prior) for past in prior.past if past.operator != prior.operator]
    blocks = [block for block in observations if block is not None]
    names = list(dict.fromkeys(name for terms, _ in blocks for name in terms))
    if not names:
        return {}
    square, moment = PULL * np.eye(len(names)), np.zeros(len(names))
    for terms, slowness in blocks:
        x = np.stack([terms[name] - terms[name].mean() if name in terms else np.zeros(len(slowness)) for name in names], axis=1)
        square += x.T @ x / len(slowness)
        moment += x.T @ (slowness - slowness.mean() - x.sum(axis=1)) / len(slowness)
    weights = np.clip(1 + np.linalg.solve(square, moment), 0, MOST)
    return dict(zip(names, weights.tolist(), strict=True))


def _observations(past: PastSearch, prior: PriorKnowledge) -> tuple[Mapping[str, Array], Array] | None:
    """Return the rules' terms at a past search's configurations and their slowness; None without any."""
    by_key = {config_key(trial.config): trial for trial in past.trials[:MOST_TRIALS]}
    trials = list(by_key.values())
    configs: Sequence[Config] = [trial.config for trial in trials]
    if sum(trial.median_ms is not None for trial in trials) < FEW or any(c.keys() != configs[0].keys() for c in configs):
        return None
    space = Space.listed(configs)
    about = dataclasses.replace(prior, operator=past.operator, shape=past.shape, dtype=past.dtype, gpu=past.gpu or prior.gpu,
                                flops=past.flops, bytes=past.bytes)
    terms = rule_terms(space, about, Sizes(space))
    return (terms, slowness_of(trials)) if terms else None


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
    def __init__(self, space: Space, rng: np.random.Generator, prior: PriorKnowledge) -> None:
        sizes = Sizes(space)
        weights = rule_weights(prior)
        x, guessed = model_columns(space, sizes), guess_slowness(space, prior, sizes, weights)
        past = related_searches(space, prior)
        self._ledger = Ledger(space)
        self._breeder = Breeder(self._ledger, rng)
        self._cold = Proposer(self._ledger, x, guessed, rng)
        self._open = Proposer(self._ledger, x, guess_slowness(space, prior, sizes), rng, fits=False)
        self._warm = Proposer(self._ledger, x, correct_guess(space, prior, guessed, past, weights), rng) if past else self._cold
        self._winners = deque(row for config in past_winners(space, past)[:WINNERS] if (row := space.row(config)) is not None)
        self._default = space.row(prior.default) if prior.default is not None else None
        self._cycle = COLD if not past else WARM if similarity(past[0], prior) >= NEAR else FAR

    def ask(self, n: int) -> list[Config]:
        configs: list[Config] = []
        while len(configs) < n and not self._ledger.is_full:
            configs.append(self._ledger.take(self._next_row()))
        return configs

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

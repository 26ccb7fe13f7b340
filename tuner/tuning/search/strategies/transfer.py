"""What trials of the same operator elsewhere say about this search.

Each past says by how much every configuration was slower than the guess would have it there. That surprise, averaged
over the pasts, the most similar ones counting most, is added to the guess for here: the guess carries what a change of
shape or GPU changes, the surprise what the guess does not know about the kernel. Between recorded configurations it is
interpolated; far from all of them nothing but the guess is left.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from tuner.tuning.search.strategies.ledger import slowness_of
from tuner.tuning.search.strategies.prior import guess_slowness
from tuner.tuning.search.strategies.prior_knowledge import PastSearch, PriorKnowledge, Shape, size_dims
from tuner.tuning.search.strategies.sizes import Sizes
from tuner.tuning.space import Param, Space
from tuner.tuning.trial import Config, Trial

Array = NDArray[np.float64]

FADES = 4.0               # doublings of a shape's dimensions after which a past counts e times less
OTHER_GPU, OTHER_CLASS, OTHER_DTYPE, OTHER_TOOLKIT = 0.7, 0.3, 0.5, 0.9
NEIGHBOURS = 4            # recorded configurations that a new one is interpolated from
REACH = 0.5               # distance in the unit cube after which a surprise counts e times less
MOST_TRIALS = 20_000      # of one past
PER_PAST = 2              # winners taken over from one past


def related_searches(space: Space, known: PriorKnowledge) -> list[PastSearch]:
    """Return past searches of this operator with these parameters, the most similar first."""
    searches = []
    for past in known.past:
        usable = [trial for trial in past.trials[:MOST_TRIALS] if _is_usable(trial, space)]
        if past.operator == known.operator and any(trial.median_ms for trial in usable):
            searches.append(dataclasses.replace(past, trials=usable))
    return sorted(searches, key=lambda past: -similarity(past, known))


def _is_usable(trial: Trial, space: Space) -> bool:
    return all(param.name in trial.config for param in space.params)


def similarity(past: PastSearch, known: PriorKnowledge) -> float:
    """Return how similar two searches are; 1 for the same shape, GPU, dtype and toolkit."""
    like = math.exp(-_shape_doublings(past.shape, known.shape) / FADES)
    if past.gpu is not None and known.gpu is not None and past.gpu.gpu != known.gpu.gpu:
        like *= OTHER_GPU if past.gpu.compute_capability == known.gpu.compute_capability else OTHER_CLASS
    like *= OTHER_DTYPE if past.dtype and known.dtype and past.dtype != known.dtype else 1
    return like * (OTHER_TOOLKIT if past.toolkit and known.toolkit and past.toolkit != known.toolkit else 1)


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


def correct_guess(space: Space, known: PriorKnowledge, guessed: Array, searches: Sequence[PastSearch],
                  weights: Mapping[str, float]) -> Array:
    """Return the guess corrected by past measurements: log time over the fastest expected, shape (N,)."""
    total, shares = np.zeros(len(space)), 0.0
    for past in searches:
        share = similarity(past, known)
        total += share * _surprise(space, known, past, weights)
        shares += share
    expected = guessed + total / shares
    return np.asarray(expected - expected.min())


def _surprise(space: Space, known: PriorKnowledge, past: PastSearch, weights: Mapping[str, float]) -> Array:
    """Return, at every row, log time measured there minus the guess for there, around its median."""
    by_values = {tuple(trial.config[param.name] for param in space.params): trial for trial in past.trials}
    times = list(by_values)
    names = [param.name for param in space.params]
    there = Space.listed([dict(zip(names, values, strict=True)) for values in times])
    work = (past.flops, past.bytes) if past.flops and past.bytes else (known.flops, known.bytes)
    about = dataclasses.replace(known, shape=past.shape, dtype=past.dtype, gpu=past.gpu or known.gpu, flops=work[0], bytes=work[1])
    surprise = slowness_of(list(by_values.values())) - guess_slowness(there, about, Sizes(there), weights)
    scales = [_value_places((*param.values, *(values[i] for values in times))) for i, param in enumerate(space.params)]
    at = _places(there.params, there.rows, scales)
    here = _places(space.params, space.rows, scales)
    return interpolate(at, surprise - np.median(surprise), here)


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

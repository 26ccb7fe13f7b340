"""What is lost by using a configuration elsewhere: on another GPU, under another toolkit, for another shape of its bucket.

Only from times that were measured: the winner of one place, looked up among the trials of the other. Where it was not tried
there, nothing is known, and that is what is said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tuner.buckets import BUCKETS, Buckets, bucket, bucket_distance


@dataclass(frozen=True)
class Tested:
    """What was tried in one place: configuration (canonical text) -> median ms; None where it failed there."""

    operator: str
    dtype: str
    shape: Mapping[str, int]
    gpu: str
    toolkit: str
    times: Mapping[str, float | None]
    label: str = ""                                  # "recorded on …", "imported from …": whatever is no tune job of ours
    source: str = ""                                 # where a person finds it: "job 12", a file's name
    exact: frozenset[str] = frozenset()              # dimensions that are never rounded

    @property
    def best(self) -> str | None:
        measured = [(ms, key) for key, ms in self.times.items() if ms is not None]
        return min(measured)[1] if measured else None

    @property
    def best_ms(self) -> float | None:
        best = self.best
        return None if best is None else self.times[best]

    @property
    def what(self) -> tuple[str, str, tuple[tuple[str, int], ...]]:
        return self.operator, self.dtype, tuple(sorted(self.shape.items()))


@dataclass(frozen=True)
class Transfer:
    """The winner of `source` in `target`. efficiency 0.8: it reaches 80 % of the best speed known there; None: not tried."""

    source: Tested
    target: Tested
    config: str
    efficiency: float | None
    failed: bool = False                             # tried there, and did not run


def transfer(source: Tested, target: Tested) -> Transfer | None:
    """None when one of the two measured nothing."""
    config, best = source.best, target.best_ms
    if config is None or best is None:
        return None
    if config not in target.times:
        return Transfer(source, target, config, None)
    there = target.times[config]
    return Transfer(source, target, config, 0.0 if there is None else best / there, there is None)


@dataclass(frozen=True)
class Cell:
    """All transfers from one place to another: shapes in which the winner was tried there, and what it reached."""

    transfers: Sequence[Transfer] = field(default=())

    @property
    def known(self) -> list[Transfer]:
        return [one for one in self.transfers if one.efficiency is not None]

    @property
    def efficiency(self) -> float | None:
        """Geometric mean over what was tried; 0 when one of them does not run there."""
        values = [one.efficiency or 0.0 for one in self.known]
        if not values:
            return None
        return math.exp(sum(map(math.log, values)) / len(values)) if all(values) else 0.0

    @property
    def worst(self) -> float | None:
        return min((one.efficiency or 0.0 for one in self.known), default=None)

    @property
    def loss(self) -> float | None:
        """Extra time as a share: 0.25 is 25 % slower than the best known there."""
        mean = self.efficiency
        return None if not mean else 1 / mean - 1


@dataclass(frozen=True)
class Matrix:
    """Row: where a winner comes from; column: where it is used."""

    names: Sequence[str]
    cells: Mapping[tuple[str, str], Cell]


def matrix(tested: Sequence[Tested], place: Callable[[Tested], str], same: Callable[[Tested], object]) -> Matrix:
    """Transfers between every two places that tried the same operator, dtype and shape under the same `same`."""
    groups: dict[object, dict[str, Tested]] = {}
    for one in tested:                               # the last of several goes: callers give the oldest first
        groups.setdefault((one.what, same(one)), {})[place(one)] = one
    found: dict[tuple[str, str], list[Transfer]] = {}
    for places in groups.values():
        for source_name, source in places.items():
            for target_name, target in places.items():
                if source_name != target_name and (moved := transfer(source, target)) is not None:
                    found.setdefault((source_name, target_name), []).append(moved)
    names = sorted({name for pair in found for name in pair})
    return Matrix(names, {pair: Cell(tuple(moved)) for pair, moved in found.items()})


def between_gpus(tested: Sequence[Tested]) -> Matrix:
    """GPU × GPU. Toolkits may differ: a winner is carried over with what each GPU's own jobs ran."""
    return matrix(tested, lambda one: one.gpu, lambda one: None)


def between_toolkits(tested: Sequence[Tested]) -> Matrix:
    """Toolkit × toolkit, on the same GPU."""
    return matrix(tested, lambda one: one.toolkit, lambda one: one.gpu)


# ---- buckets ----

@dataclass(frozen=True)
class Step:
    """The winner of one shape used at another, `distance` powers of two away."""

    moved: Transfer
    distance: float


def steps(tested: Sequence[Tested]) -> list[Step]:
    """Every pair of shapes of one operator, dtype, GPU and toolkit that differ only in dimensions that may be rounded."""
    places: dict[object, list[Tested]] = {}
    for one in tested:
        places.setdefault((one.operator, one.dtype, one.gpu, one.toolkit, one.label), []).append(one)
    found = []
    for group in places.values():
        for source in group:
            for target in group:
                distance = _apart(source, target)
                if distance is not None and (moved := transfer(source, target)) is not None:
                    found.append(Step(moved, distance))
    return found


def _apart(source: Tested, target: Tested) -> float | None:
    """Powers of two between two shapes as they are, not as they are rounded; None when one never serves the other."""
    if source.what == target.what:
        return None
    fine = Buckets(exact_up_to=BUCKETS.exact_up_to, steps_per_doubling=0.0, max_distance=40)
    exact = source.exact | target.exact
    return bucket_distance(bucket(source.shape, exact, fine), bucket(target.shape, exact, fine), exact, fine)


def shared(found: Iterable[Step], policy: Buckets) -> Cell:
    """Transfers between shapes that a policy puts into one bucket: what bucketing costs."""
    return Cell(tuple(step.moved for step in found if _bucket(step.moved.source, policy) == _bucket(step.moved.target, policy)))


def _bucket(one: Tested, policy: Buckets) -> str:
    return bucket(one.shape, one.exact, policy)


def by_distance(found: Iterable[Step], limits: Sequence[float] = (0.5, 1, 2, 4, 8)) -> list[tuple[float, Cell]]:
    """Transfers up to each distance and beyond the one before it: what taking the nearest bucket costs."""
    found, rows, before = list(found), [], 0.0
    for limit in limits:
        rows.append((limit, Cell(tuple(step.moved for step in found if before < step.distance <= limit))))
        before = limit
    return rows

"""What is lost by using a configuration on another GPU, toolkit or shape of its bucket.

Only from times that were measured: the winner of one place, looked up among the trials of the other. Where it was not tried
there, nothing is known, and that is what is said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tuner.cache.buckets import BUCKETS, Buckets, bucket, bucket_distance


@dataclass(frozen=True)
class MeasuredSpace:
    """Configurations tried in one place: canonical text -> median ms, None where it failed."""

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
        """Return the fastest configuration; None where nothing ran."""
        measured = [(ms, key) for key, ms in self.times.items() if ms is not None]
        return min(measured)[1] if measured else None

    @property
    def best_ms(self) -> float | None:
        """Return its median in ms."""
        best = self.best
        return None if best is None else self.times[best]

    @property
    def what(self) -> tuple[str, str, tuple[tuple[str, int], ...]]:
        """Return operator, dtype and shape."""
        return self.operator, self.dtype, tuple(sorted(self.shape.items()))


@dataclass(frozen=True)
class Transfer:
    """The winner of `source` in `target`; efficiency 0.8: 80 % of the best there, None: not tried."""

    source: MeasuredSpace
    target: MeasuredSpace
    config: str
    efficiency: float | None
    failed: bool = False                             # tried there, and did not run


def transfer(source: MeasuredSpace, target: MeasuredSpace) -> Transfer | None:
    """Return the transfer; None when one of the two measured nothing."""
    config, best = source.best, target.best_ms
    if config is None or best is None:
        return None
    if config not in target.times:
        return Transfer(source, target, config, None)
    there = target.times[config]
    return Transfer(source, target, config, 0.0 if there is None else best / there, there is None)


@dataclass(frozen=True)
class Cell:
    """All transfers from one place to another, one per shape."""

    transfers: Sequence[Transfer] = field(default=())

    @property
    def tried(self) -> list[Transfer]:
        """Return the transfers whose winner was tried there."""
        return [attempt for attempt in self.transfers if attempt.efficiency is not None]

    @property
    def efficiency(self) -> float | None:
        """Return the geometric mean of what was tried; 0 when one does not run there."""
        values = [attempt.efficiency or 0.0 for attempt in self.tried]
        if not values:
            return None
        return math.exp(sum(map(math.log, values)) / len(values)) if all(values) else 0.0

    @property
    def worst(self) -> float | None:
        """Return the smallest efficiency."""
        return min((attempt.efficiency or 0.0 for attempt in self.tried), default=None)

    @property
    def loss(self) -> float | None:
        """Return extra time as a share: 0.25 is 25 % slower than the best known there."""
        mean = self.efficiency
        return None if not mean else 1 / mean - 1


@dataclass(frozen=True)
class Matrix:
    """Rows: where a winner comes from; columns: where it is used."""

    names: Sequence[str]
    cells: Mapping[tuple[str, str], Cell]


def transfer_matrix(spaces: Sequence[MeasuredSpace], place: Callable[[MeasuredSpace], str],
                    same: Callable[[MeasuredSpace], object]) -> Matrix:
    """Return transfers between every two places with the same problem under the same `same`."""
    groups: dict[object, dict[str, MeasuredSpace]] = {}
    for space in spaces:                               # the last of several goes: callers give the oldest first
        groups.setdefault((space.what, same(space)), {})[place(space)] = space
    transfers: dict[tuple[str, str], list[Transfer]] = {}
    for places in groups.values():
        for source_name, source in places.items():
            for target_name, target in places.items():
                if source_name != target_name and (carried := transfer(source, target)) is not None:
                    transfers.setdefault((source_name, target_name), []).append(carried)
    names = sorted({name for pair in transfers for name in pair})
    return Matrix(names, {pair: Cell(tuple(carried)) for pair, carried in transfers.items()})


def between_gpus(spaces: Sequence[MeasuredSpace]) -> Matrix:
    """Return GPU × GPU; toolkits may differ, each GPU's jobs ran with their own."""
    return transfer_matrix(spaces, lambda one: one.gpu, lambda one: None)


def between_toolkits(spaces: Sequence[MeasuredSpace]) -> Matrix:
    """Return toolkit × toolkit, on the same GPU."""
    return transfer_matrix(spaces, lambda one: one.toolkit, lambda one: one.gpu)


# ---- buckets ----

@dataclass(frozen=True)
class ShapeStep:
    """The winner of one shape used at another, `distance` powers of two away."""

    moved: Transfer
    distance: float


def shape_steps(spaces: Sequence[MeasuredSpace]) -> list[ShapeStep]:
    """Return every pair of shapes of one problem and place that differ in rounded dimensions only."""
    places: dict[object, list[MeasuredSpace]] = {}
    for space in spaces:
        places.setdefault((space.operator, space.dtype, space.gpu, space.toolkit, space.label), []).append(space)
    steps = []
    for group in places.values():
        for source in group:
            for target in group:
                distance = _shape_distance(source, target)
                if distance is not None and (moved := transfer(source, target)) is not None:
                    steps.append(ShapeStep(moved, distance))
    return steps


def _shape_distance(source: MeasuredSpace, target: MeasuredSpace) -> float | None:
    """Return powers of two between two unrounded shapes; None when one never serves the other."""
    if source.what == target.what:
        return None
    fine = Buckets(exact_up_to=BUCKETS.exact_up_to, steps_per_doubling=0.0, max_distance=40)
    exact = source.exact | target.exact
    return bucket_distance(bucket(source.shape, exact, fine), bucket(target.shape, exact, fine), exact, fine)


def shared_bucket_cell(steps: Iterable[ShapeStep], policy: Buckets) -> Cell:
    """Return transfers between shapes that a policy puts into one bucket: the cost of bucketing."""
    return Cell(tuple(step.moved for step in steps if _bucket(step.moved.source, policy) == _bucket(step.moved.target, policy)))


def _bucket(one: MeasuredSpace, policy: Buckets) -> str:
    return bucket(one.shape, one.exact, policy)


def cells_by_distance(steps: Iterable[ShapeStep], limits: Sequence[float] = (0.5, 1, 2, 4, 8)) -> list[tuple[float, Cell]]:
    """Return transfers up to each distance beyond the one before: the cost of the nearest bucket."""
    steps, rows, before = list(steps), [], 0.0
    for limit in limits:
        rows.append((limit, Cell(tuple(step.moved for step in steps if before < step.distance <= limit))))
        before = limit
    return rows

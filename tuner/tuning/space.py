"""The search space: parameters, constraints, and the valid configurations.

A space is enumerated once into a matrix of value indices, one row per valid configuration; strategies work on row
numbers. Constraints are functions with a reason, so that a page can say how many configurations each of them removed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from tuner.tuning.trial import Config, Value, config_key

MAX_PRODUCT = 1_000_000      # combinations that `enumerate` is willing to walk one by one, and configurations of a space
MAX_COMBINATIONS = 64_000_000        # … to look at where each constraint says what it reads: a byte of memory each
MAX_VALUES = 4096            # values of one parameter


@dataclass(frozen=True)
class Param:
    """A parameter with its values; `ordered` values have a next smaller and larger one."""

    name: str
    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        if not self.name or not 1 <= len(self.values) <= MAX_VALUES:
            raise ValueError(f"parameter {self.name!r}: a name and 1 to {MAX_VALUES} values, not {len(self.values)}")
        if len(set(self.values)) != len(self.values):
            raise ValueError(f"parameter {self.name!r} names a value twice")

    @property
    def ordered(self) -> bool:
        """Return whether the values have an order."""
        return all(isinstance(value, int | float) and not isinstance(value, bool) for value in self.values)


@dataclass(frozen=True)
class Constraint:
    """A rule; `holds(config)` is false where it cannot run, `reason` says why.

    `reads`: the parameters that `holds` looks at, where that is known; it is asked once for each of their combinations then.
    """

    reason: str
    holds: Callable[[Config], bool]
    reads: tuple[str, ...] | None = None


class Space:
    """Valid configurations as rows of value indices.

    params  the parameters in order
    rows    (N, P) index of each parameter's value
    pruned  reason -> configurations that were removed before anything was compiled
    """

    def __init__(self, params: Sequence[Param], rows: NDArray[np.int32], pruned: Mapping[str, int]) -> None:
        self.params = tuple(params)
        self.rows = rows
        self.pruned = dict(pruned)
        self._keys = [config_key(self.config(row)) for row in range(len(rows))]
        self._row_of_key = {key: row for row, key in enumerate(self._keys)}
        self._row_of_indices = {tuple(indices): row for row, indices in enumerate(rows.tolist())}
        if len(self._row_of_key) != len(rows):
            raise ValueError("a configuration stands twice in the space")

    @classmethod
    def enumerate(cls, params: Sequence[Param], constraints: Sequence[Constraint] = ()) -> Space:
        """Return the space of all combinations that satisfy the constraints; the first broken one counts.

        Raises ValueError for more than MAX_PRODUCT combinations, or MAX_COMBINATIONS where every constraint says what it reads.
        """
        combinations = math.prod(len(param.values) for param in params)
        is_known = all(constraint.reads is not None for constraint in constraints)
        most = MAX_COMBINATIONS if is_known else MAX_PRODUCT
        if combinations > most:
            raise ValueError(f"{combinations:,} combinations; at most {most:,}: give fewer values")
        if is_known:
            return cls(params, *_valid_rows(params, constraints))
        names = [param.name for param in params]
        rows: list[tuple[int, ...]] = []
        pruned: Counter[str] = Counter()
        for indices in product(*(range(len(param.values)) for param in params)):
            config = {name: param.values[i] for name, param, i in zip(names, params, indices, strict=True)}
            broken = next((c.reason for c in constraints if not c.holds(config)), None)
            if broken is None:
                rows.append(indices)
            else:
                pruned[broken] += 1
        return cls(params, np.array(rows, dtype=np.int32).reshape(len(rows), len(params)), pruned)

    @classmethod
    def listed(cls, configs: Sequence[Config], pruned: Mapping[str, int] | None = None,
               values: Mapping[str, Sequence[Value]] | None = None) -> Space:
        """Return the space of exactly these configurations; `values` orders a parameter, else sorted."""
        if not configs:
            return cls((), np.zeros((0, 0), dtype=np.int32), pruned or {})
        params = tuple(Param(name, _values(name, configs, (values or {}).get(name, ()))) for name in configs[0])
        lookup = [{value: i for i, value in enumerate(param.values)} for param in params]
        rows = [[index[config[param.name]] for param, index in zip(params, lookup, strict=True)] for config in configs]
        return cls(params, np.array(rows, dtype=np.int32), pruned or {})

    def __len__(self) -> int:
        """Return the number of valid configurations."""
        return len(self.rows)

    @property
    def size(self) -> int:
        """Return the number of configurations before pruning."""
        return len(self) + sum(self.pruned.values())

    def __contains__(self, config: Config) -> bool:
        return self.row(config) is not None

    def row(self, config: Config) -> int | None:
        """Return the row of a configuration; None when it is not in the space."""
        return self._row_of_key.get(config_key(config))

    def row_of(self, indices: Iterable[int]) -> int | None:
        """Return the row of value indices; None when they are not valid."""
        return self._row_of_indices.get(tuple(int(index) for index in indices))

    def config(self, row: int) -> dict[str, Value]:
        """Return the configuration of a row."""
        return {param.name: param.values[i] for param, i in zip(self.params, self.rows[row], strict=True)}

    def configs(self) -> Iterable[dict[str, Value]]:
        """Yield all configurations in order."""
        return (self.config(row) for row in range(len(self)))

    def neighbours(self, row: int) -> list[int]:
        """Return rows that differ in one parameter: the nearest valid values, any for unordered ones."""
        indices = self.rows[row].tolist()
        rows = []
        for position, param in enumerate(self.params):
            here = indices[position]
            if param.ordered:
                directions: list[Iterable[int]] = [range(here - 1, -1, -1), range(here + 1, len(param.values))]
            else:
                directions = [[other] for other in range(len(param.values)) if other != here]
            for candidates in directions:
                rows += self._first_valid(indices, position, candidates)
        return rows

    def _first_valid(self, indices: list[int], position: int, candidates: Iterable[int]) -> list[int]:
        for candidate in candidates:
            row = self._row_of_indices.get((*indices[:position], candidate, *indices[position + 1:]))
            if row is not None:
                return [row]
        return []

    def encoding(self) -> NDArray[np.float64]:
        """Return values in [0, 1] along their parameters, log scale for positive numbers, shape (N, P)."""
        columns = [_positions(param)[self.rows[:, i]] for i, param in enumerate(self.params)]
        return np.stack(columns, axis=1) if columns else np.zeros((len(self), 0))


def _valid_rows(params: Sequence[Param], constraints: Sequence[Constraint]) -> tuple[NDArray[np.int32], dict[str, int]]:
    """Return the rows that all constraints allow, in the order of `product`, and reason → combinations that it removed."""
    alive = np.ones([len(param.values) for param in params], dtype=bool)
    pruned: dict[str, int] = {}
    for constraint in constraints:
        holds, errors = _table(params, constraint)
        for place, error in errors.items():
            if alive[place].any():                    # what an earlier constraint removed is not asked of the next
                raise error
        if removed := int(np.count_nonzero(alive & ~holds)):
            pruned[constraint.reason] = pruned.get(constraint.reason, 0) + removed
        alive &= holds
    valid = int(np.count_nonzero(alive))
    if valid > MAX_PRODUCT:
        raise ValueError(f"{valid:,} configurations; at most {MAX_PRODUCT:,}: give fewer values or more constraints")
    return np.stack(np.nonzero(alive), axis=1).astype(np.int32).reshape(valid, len(params)), pruned


_Place = tuple[int | slice, ...]


def _table(params: Sequence[Param], constraint: Constraint) -> tuple[NDArray[np.bool_], dict[_Place, ValueError]]:
    """Return where a constraint holds, with an axis of length 1 for each parameter that it does not read, and where it fails."""
    axes = [param if constraint.reads is None or param.name in constraint.reads else None for param in params]
    table = np.ones([len(param.values) if param else 1 for param in axes], dtype=bool)
    if table.size > MAX_PRODUCT:
        raise ValueError(f"{constraint.reason}: {table.size:,} combinations of what it reads; at most {MAX_PRODUCT:,}")
    errors: dict[_Place, ValueError] = {}
    for place in np.ndindex(table.shape):
        try:
            table[place] = constraint.holds({param.name: param.values[i] for param, i in zip(axes, place, strict=True) if param})
        except ValueError as error:
            errors[tuple(i if param else slice(None) for param, i in zip(axes, place, strict=True))] = error
    return table, errors


def _positions(param: Param) -> NDArray[np.float64]:
    """Return one number in [0, 1] per value."""
    places = np.arange(len(param.values), dtype=np.float64)
    if param.ordered and all(isinstance(v, int | float) and v > 0 for v in param.values):
        places = np.log2(np.array(param.values, dtype=np.float64))
    span = places.max() - places.min()
    return (places - places.min()) / span if span else np.zeros(len(places))


def _values(name: str, configs: Sequence[Config], order: Sequence[Value]) -> tuple[Value, ...]:
    values = {config[name] for config in configs}
    first = [value for value in order if value in values]
    rest = sorted(values - set(first), key=lambda value: (isinstance(value, str), value))
    return (*first, *rest)

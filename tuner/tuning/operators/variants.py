"""One space over several kernels, each with its own values of each parameter.

A parameter that a kernel does not read has one value there, so no two configurations are the same code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from tuner.tuning.operators.limits import Limits
from tuner.tuning.space import Constraint, Param, Space
from tuner.tuning.trial import Config, Value

Values = Mapping[str, Sequence[Value]]


class Only(tuple[Value, ...]):
    """Values of a kernel that nobody adds to: what is written for exactly these, or known to fail beyond them."""


class UnionSpace(Space):
    """A space that knows what it was made of: the values of each kernel, and the constraints."""

    def __init__(self, params: Sequence[Param], rows: NDArray[np.int32], pruned: Mapping[str, int], kernels: Sequence[Values],
                 constraints: Sequence[Constraint]) -> None:
        super().__init__(params, rows, pruned)
        self.kernels, self.constraints = tuple(kernels), tuple(constraints)


def whole_number(config: Config, name: str) -> int:
    """Return a parameter that is a whole number."""
    value = config[name]
    return value if isinstance(value, int) else 0


def thread_limit(gpu: Limits) -> Constraint:
    """Return the constraint on threads per block."""
    return Constraint("threads per block", lambda c: 32 * whole_number(c, "num_warps") <= gpu.threads)


def union_space(kernels: Sequence[Values], constraints: Sequence[Constraint]) -> UnionSpace:
    """Return every combination of each kernel's values that all constraints allow, each once.

    Values of a parameter keep the order in which the kernels name them, numbers are sorted.
    """
    names = list(kernels[0])
    params = tuple(Param(name, _values(name, kernels)) for name in names)
    place = [{value: i for i, value in enumerate(param.values)} for param in params]
    rows: dict[tuple[int, ...], None] = {}
    pruned: Counter[str] = Counter()
    seen: set[tuple[int, ...]] = set()
    for kernel in kernels:
        for values in product(*(kernel[name] for name in names)):
            row = tuple(index[value] for index, value in zip(place, values, strict=True))
            if row in seen:
                continue
            seen.add(row)
            config = dict(zip(names, values, strict=True))
            broken = next((c.reason for c in constraints if not c.holds(config)), None)
            if broken is None:
                rows[row] = None
            else:
                pruned[broken] += 1
    found = np.array(list(rows), dtype=np.int32).reshape(len(rows), len(params))
    return UnionSpace(params, found, pruned, kernels, constraints)


def _values(name: str, kernels: Sequence[Values]) -> tuple[Value, ...]:
    values = tuple(dict.fromkeys(value for kernel in kernels for value in kernel[name]))
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return tuple(sorted(values, key=float))
    return values

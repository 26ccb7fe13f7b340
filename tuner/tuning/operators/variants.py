"""One space over several kernels, each with its own values of each parameter.

A parameter that a kernel does not read has one value there, so no two configurations are the same code.

A person adds values to the space of a built-in operator: which its kernels take, and the configurations that they make.

An added value goes to the kernels that have several values of its parameter: one that has a single value does not read it, or is
written for it. `Only` marks values of a kernel that nobody adds to. What cannot run is left out by the operator's own constraints.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

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


def tma_limit(gpu: Limits, *others: str) -> Constraint:
    """Return the constraint on kernels that load by TMA: all but `others`."""
    return Constraint("TMA: from compute capability 9.0", lambda c: c["KERNEL"] in others or gpu.capability >= (9, 0))


def union_space(kernels: Sequence[Values], constraints: Sequence[Constraint]) -> UnionSpace:
    """Return every combination of each kernel's values that all constraints allow, each once.

    Values of a parameter keep the order in which the kernels name them, numbers are sorted.
    """
    names = list(kernels[0])
    params = tuple(Param(name, _values(name, kernels)) for name in names)
    place = [{value: i for i, value in enumerate(param.values)} for param in params]
    rows: dict[tuple[int, ...], None] = {}
    pruned: Counter[str] = Counter()
    known_rows: set[tuple[int, ...]] = set()
    for kernel in kernels:
        for values in product(*(kernel[name] for name in names)):
            row = tuple(index[value] for index, value in zip(place, values, strict=True))
            if row in known_rows:
                continue
            known_rows.add(row)
            config = dict(zip(names, values, strict=True))
            broken = next((c.reason for c in constraints if not c.holds(config)), None)
            if broken is None:
                rows[row] = None
            else:
                pruned[broken] += 1
    table = np.array(list(rows), dtype=np.int32).reshape(len(rows), len(params))
    return UnionSpace(params, table, pruned, kernels, constraints)


def _values(name: str, kernels: Sequence[Values]) -> tuple[Value, ...]:
    values = tuple(dict.fromkeys(value for kernel in kernels for value in kernel[name]))
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return tuple(sorted(values, key=float))
    return values


MOST_WARPS, MOST_STAGES, MOST_COUNT, MOST_SIDE = 32, 16, 1024, 1 << 16
LEAST_SIDE = 16              # of a tile that tensor cores take; kernels without them name smaller ones themselves
COUNTS = {"GM": MOST_COUNT, "SPLIT_K": MOST_COUNT, "SPLITS": MOST_COUNT, "STEPS": MOST_STAGES, "PER_SM": MOST_COUNT,
          "num_stages": MOST_STAGES, "UNROLL": MOST_STAGES}        # parameters that count something: any whole number up to this


@dataclass(frozen=True)
class Takes:
    """Whole numbers that a parameter takes beside its own: `least` to `most`, powers of two alone where `powers`."""

    least: int
    most: int
    powers: bool

    def holds(self, value: Value) -> bool:
        """Return whether it takes a value."""
        if isinstance(value, bool) or not isinstance(value, int) or not self.least <= value <= self.most:
            return False
        return not self.powers or not value & (value - 1)

    def values(self) -> Iterator[int]:
        """Yield them, the smallest first."""
        value = self.least if not self.powers else 1 << (self.least - 1).bit_length()
        while value <= self.most:
            yield value
            value = 2 * value if self.powers else value + 1

    @property
    def text(self) -> str:
        """For people: "powers of two from 16 to 65,536"."""
        return f"{'powers of two' if self.powers else 'whole numbers'} from {self.least:,} to {self.most:,}"


def takes_of_kernel(kernel: Values, name: str) -> Takes | None:
    """Return what one kernel takes of a parameter beside its own values; None: nothing."""
    own = kernel[name]
    numbers = [value for value in own if isinstance(value, int) and not isinstance(value, bool)]
    if isinstance(own, Only) or len(own) < 2 or len(numbers) < len(own):
        return None
    if name in COUNTS:
        return Takes(1, COUNTS[name], powers=False)
    if name == "num_warps":
        return Takes(1, MOST_WARPS, powers=True)
    return Takes(min(LEAST_SIDE, *numbers), MOST_SIDE, powers=True)


def takes(space: UnionSpace, name: str) -> Takes | None:
    """Return what any kernel of a space takes of a parameter; None: nothing beside the values that the space has."""
    all_bounds = [bounds for kernel in space.kernels if (bounds := takes_of_kernel(kernel, name))]
    widest = min(all_bounds, key=lambda each: each.least, default=None)
    own = {value for param in space.params if param.name == name for value in param.values}
    return widest if widest is not None and any(value not in own for value in widest.values()) else None


def added_size(space: UnionSpace, values: Mapping[str, Sequence[Value]]) -> int:
    """Return how many combinations `added_configs` yields, without making them."""
    old_sets = [{name: {*own} & {*values[name]} for name, own in kernel.items()} for kernel in space.kernels]
    wider = [{name: set(choices) for name, choices in kernel.items()} for kernel in _widened(space, values)]
    return _union_size(wider) - _union_size(old_sets)


def added_configs(space: UnionSpace, values: Mapping[str, Sequence[Value]]) -> Iterator[tuple[Config, str]]:
    """Yield each combination of `values` that has one which the space lacks, with the first constraint that it breaks or ""."""
    names, own = list(space.kernels[0]), {param.name: set(param.values) for param in space.params}
    seen: set[tuple[Value, ...]] = set()
    for kernel in _widened(space, values):
        if all(value in own[name] for name in names for value in kernel[name]):
            continue
        for chosen in product(*(kernel[name] for name in names)):
            if chosen in seen or all(value in own[name] for name, value in zip(names, chosen, strict=True)):
                continue
            seen.add(chosen)
            config = dict(zip(names, chosen, strict=True))
            yield config, next((rule.reason for rule in space.constraints if not rule.holds(config)), "")


def _widened(space: UnionSpace, values: Mapping[str, Sequence[Value]]) -> Iterator[dict[str, list[Value]]]:
    """Yield each kernel's values that are kept, with those that are added to it."""
    own = {param.name: set(param.values) for param in space.params}
    for kernel in space.kernels:
        values_by_name = {}
        for name, mine in kernel.items():
            bounds = takes_of_kernel(kernel, name)
            values_by_name[name] = [value for value in values[name] if value in mine
                                    or (bounds is not None and value not in own[name] and bounds.holds(value))]
        yield values_by_name


def _union_size(boxes: Sequence[Mapping[str, set[Value]]]) -> int:
    """Return how many combinations lie in any of the boxes: inclusion and exclusion over a handful of them."""
    total = 0
    for count in range(1, len(boxes) + 1):
        for some in combinations(boxes, count):
            shared = math.prod(len(set.intersection(*(box[name] for box in some))) for name in some[0])
            total += shared if count % 2 else -shared
    return total

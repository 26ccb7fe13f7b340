"""Sizes of a space's configurations by role, and columns for models that learn from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tuner.tuning.search.strategies.roles import Role, exchanged, is_whole, roles
from tuner.tuning.space import Space

Array = NDArray[np.float64]

MOST_TEXTS = 16           # values of a text with a column for each


class Sizes:
    """Products of the parameters of a role, shapes (N,); 1 where a space has none."""

    def __init__(self, space: Space, given: Sequence[Role] | None = None) -> None:
        self._space = space
        self.roles = list(given) if given is not None else roles(space.params)
        self.threads = 32 * self.product(Role.WARPS) if self.has(Role.WARPS) else self.product(Role.THREADS)
        self.stages = self.product(Role.STAGES)
        self.tile = self.product(Role.TILE)
        self.depth = self.product(Role.DEPTH)

    @property
    def odd(self) -> Array:
        """Return log2 of the odd part of a CUDA block's threads and work, shape (N,): 0 where all sides are powers of two.

        Where no name tells a role, of all sizes.
        """
        total = np.zeros(len(self._space))
        sides = [*self.columns(Role.THREADS), *self.columns(Role.WORK)]
        if all(role is Role.OTHER for role in self.roles):
            sides = [index for index, param in enumerate(self._space.params) if is_whole(param)]
        for index in sides:
            odd = [int(value) // (int(value) & -int(value)) for value in self._space.params[index].values]
            total += np.log2(np.array(odd, dtype=np.float64))[self._space.rows[:, index]]
        return total

    def instead(self) -> Sizes | None:
        """Return the sizes by the roles that are as likely as these; None where names tell."""
        other = exchanged(self.roles, self._space.params)
        return None if other is None else Sizes(self._space, other)

    def columns(self, role: Role) -> list[int]:
        """Return the indices of the parameters of a role."""
        return [index for index, one in enumerate(self.roles) if one is role]

    def has(self, role: Role) -> bool:
        return role in self.roles

    def values(self, index: int) -> Array:
        """Return the numbers of one parameter, shape (N,)."""
        values = np.array([float(value) for value in self._space.params[index].values])
        return np.asarray(values[self._space.rows[:, index]])

    def product(self, role: Role) -> Array:
        """Return the product of the parameters of a role, shape (N,)."""
        product = np.ones(len(self._space))
        for index in self.columns(role):
            product = product * self.values(index)
        return product


def model_columns(space: Space, sizes: Sizes) -> Array:
    """Return the columns of a model, shape (N, columns): parameters and products of sizes.

    They lie in [0, 1]; a text of more than MOST_TEXTS values is one column that counts them (0, 1, 2, …), alike or not.
    Products (elements per thread, bytes of a stage, threads of a block) rule speed together; a model of single
    parameters would need many trials to find that out.
    """
    if not len(space):
        return np.zeros((0, 1))
    blocks = [_stretch(_parameter_columns(space))]
    if sizes.has(Role.WARPS) and sizes.has(Role.TILE):
        blocks.append(_stretch(np.log2(np.stack([sizes.tile / sizes.threads, sizes.tile], axis=1))))
        if sizes.has(Role.STAGES):
            blocks.append(_stretch(np.log2((sizes.tile * sizes.depth * sizes.stages)[:, None])))
    if sizes.has(Role.THREADS):
        work = sizes.product(Role.WORK)
        blocks.append(_stretch(np.log2(np.stack([sizes.threads, work, sizes.threads * work], axis=1))))
    if not sizes.has(Role.WARPS):
        blocks.append(_stretch(sizes.odd[:, None]))
    blocks.append(space.rows[:, _texts(space, many=True)].astype(float))
    joined = np.concatenate(blocks, axis=1)
    return joined if joined.shape[1] else np.zeros((len(space), 1))


def _parameter_columns(space: Space) -> Array:
    places = space.encoding()
    few, many = _texts(space), _texts(space, many=True)
    numbers = [index for index in range(len(space.params)) if index not in few and index not in many]
    one_hot = [(space.rows[:, index, None] == np.arange(len(space.params[index].values))).astype(float) for index in few]
    return np.concatenate([places[:, numbers], *one_hot], axis=1)


def _texts(space: Space, many: bool = False) -> list[int]:
    """Return the indices of parameters without an order: those of a few values, or those of many."""
    return [index for index, param in enumerate(space.params)
            if not param.ordered and len(param.values) > 2 and (len(param.values) > MOST_TEXTS) == many]


def _stretch(values: Array) -> Array:
    """Return the columns that vary, stretched to [0, 1]."""
    span = np.ptp(values, axis=0)
    keep = span > 0
    return np.asarray((values[:, keep] - values[:, keep].min(axis=0)) / span[keep])

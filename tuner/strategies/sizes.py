"""The configurations of a space by what their parameters are for, and columns for models that learn from them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tuner.space import Space
from tuner.strategies.roles import Role, roles

Array = NDArray[np.float64]


class Sizes:
    """(N,) products of the parameters of a role; 1 where a space has none of it."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self.roles = roles(space.params)
        self.threads = 32 * self.product(Role.WARPS) if self.has(Role.WARPS) else self.product(Role.THREADS)
        self.stages = self.product(Role.STAGES)
        self.tile = self.product(Role.TILE)
        self.depth = self.product(Role.DEPTH)

    def columns(self, role: Role) -> list[int]:
        return [index for index, one in enumerate(self.roles) if one is role]

    def has(self, role: Role) -> bool:
        return role in self.roles

    def values(self, index: int) -> Array:
        """A number per row of one parameter that has numbers."""
        values = np.array([float(value) for value in self._space.params[index].values])
        return np.asarray(values[self._space.rows[:, index]])

    def product(self, role: Role) -> Array:
        found = np.ones(len(self._space))
        for index in self.columns(role):
            found = found * self.values(index)
        return found


def columns(space: Space, sizes: Sizes) -> Array:
    """(N, columns) in [0, 1] for a model: each parameter that varies, texts one column a value, and products of sizes.

    Products (elements per thread, bytes of a stage, threads of a block) rule speed together; a model of single
    parameters would need many trials to find that out.
    """
    if not len(space):
        return np.zeros((0, 1))
    made = [_unit(_single(space))]
    if sizes.has(Role.WARPS) and sizes.has(Role.TILE):
        made.append(_unit(np.log2(np.stack([sizes.tile / sizes.threads, sizes.tile], axis=1))))
        if sizes.has(Role.STAGES):
            made.append(_unit(np.log2((sizes.tile * sizes.depth * sizes.stages)[:, None])))
    if sizes.has(Role.THREADS):
        work = sizes.product(Role.WORK)
        made.append(_unit(np.log2(np.stack([sizes.threads, work, sizes.threads * work], axis=1))))
    found = np.concatenate(made, axis=1)
    return found if found.shape[1] else np.zeros((len(space), 1))


def _single(space: Space) -> Array:
    places = space.encoding()
    texts = [index for index, param in enumerate(space.params) if not param.ordered and len(param.values) > 2]
    numbers = [index for index in range(len(space.params)) if index not in texts]
    one_hot = [(space.rows[:, index, None] == np.arange(len(space.params[index].values))).astype(float) for index in texts]
    return np.concatenate([places[:, numbers], *one_hot], axis=1)


def _unit(values: Array) -> Array:
    """Columns that vary, stretched to [0, 1]."""
    span = np.ptp(values, axis=0)
    keep = span > 0
    return np.asarray((values[:, keep] - values[:, keep].min(axis=0)) / span[keep])

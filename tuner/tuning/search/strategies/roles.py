"""Roles of tuning parameters, from names and values, and the sizes of configurations by role; no operator is named here.

Triton kernels name warps and pipeline stages alike everywhere, tiles begin with BLOCK, TILE or B; CUDA kernels name
threads per block. A parameter that fits nothing is `OTHER`: the search then learns it from trials alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from tuner.tuning.space import Param, Space


class Role(StrEnum):
    """What a parameter is for."""
    WARPS = "warps of a program"
    STAGES = "pipeline stages"
    PROGRAMS = "programs per SM"
    SPLIT = "parts that share one output"
    GROUP = "order of the tiles"
    TILE = "tile side that is an output"
    DEPTH = "tile side that is summed over"
    THREADS = "threads of a block"
    WORK = "outputs of a thread"
    OTHER = "anything else"


_BY_WORDS: tuple[tuple[Role, str], ...] = (          # the first that matches
    (Role.WARPS, r"n?_?warps?$|num_?warps"),
    (Role.STAGES, r"stages?|^steps$|pipeline|buffers|prefetch"),
    (Role.PROGRAMS, r"per_?sm|waves|programs|occupancy|ctas_per"),
    (Role.SPLIT, r"split|splits"),
    (Role.GROUP, r"group|^gm$|swizzle|raster"),
)
_TILE = re.compile(r"block|tile|^blk|^b_?[a-z]$|rows|cols|chunk|_per_(cta|program|block)")
_THREADS = re.compile(r"block_?(size|dim)|threads|work_?group|local_size|^wg")
LEAST_TILE, MOST_STAGES = 64, 8         # of the values of a parameter whose name says nothing
_DEPTH = re.compile(r"(^b|block|tile|blk|size|_)_?(k|red|reduce)$|split_?len")


def roles(params: Sequence[Param]) -> list[Role]:
    """Return one role per parameter."""
    named = [_role_by_name(param) for param in params]
    triton = Role.WARPS in named
    if not any(_says_something(param) for param in params):
        return _roles_by_values(params)
    return [role if role is not Role.OTHER else _role_by_values(param, triton) for param, role in zip(params, named, strict=True)]


def _role_by_name(param: Param) -> Role:
    name = param.name.lower()
    if not is_whole(param):
        return Role.OTHER
    return next((role for role, words in _BY_WORDS if re.search(words, name)), Role.OTHER)


def _role_by_values(param: Param, triton: bool) -> Role:
    name = param.name.lower()
    if not is_whole(param) or max(_numbers(param)) < 2:
        return Role.OTHER
    if not triton and _THREADS.search(name):
        return Role.THREADS
    if _TILE.search(name) or (triton and _are_powers(param) and max(_numbers(param)) >= 32):
        if not triton:
            return Role.WORK
        return Role.DEPTH if _DEPTH.search(name) else Role.TILE
    return Role.OTHER


def _says_something(param: Param) -> bool:
    name = param.name.lower()
    return _role_by_name(param) is not Role.OTHER or bool(_THREADS.search(name) or _TILE.search(name))


def _roles_by_values(params: Sequence[Param]) -> list[Role]:
    """Return roles where no name tells any: sizes of tiles are large powers of two, warps small ones, stages follow each other.

    Triton's sizes are powers of two. Where others stand among the values, or where more small ones do than warps and programs
    per SM, the kernel is of another kind, and nothing is said.
    """
    found = [Role.OTHER] * len(params)
    whole = [index for index, param in enumerate(params) if is_whole(param) and len(param.values) > 2]
    powers = [index for index in whole if _are_powers(params[index])]
    tiles = [index for index in powers if max(_numbers(params[index])) >= LEAST_TILE]
    small = [index for index in powers if index not in tiles]
    stages = [index for index in whole if index not in powers and _are_consecutive(params[index])]
    if len(stages) + len(powers) < len(whole) or not 1 <= len(small) <= 2 or len(stages) > 1:
        return found
    for index in stages:
        found[index] = Role.STAGES
    for index in tiles:
        found[index] = Role.TILE
    if len(tiles) > 2:
        found[min(tiles, key=lambda index: max(_numbers(params[index])))] = Role.DEPTH
    for role, index in zip((Role.WARPS, Role.PROGRAMS), reversed(small), strict=False):      # warps are named last, by habit
        found[index] = role
    return found


def exchanged(roles_: Sequence[Role], params: Sequence[Param]) -> list[Role] | None:
    """Return the roles that are as likely, where values alone could not tell warps from programs per SM; else None."""
    if any(map(_says_something, params)) or Role.PROGRAMS not in roles_:
        return None
    swap = {Role.WARPS: Role.PROGRAMS, Role.PROGRAMS: Role.WARPS}
    return [swap.get(role, role) for role in roles_]


def is_whole(param: Param) -> bool:
    """Return whether all values are positive whole numbers, as sizes and counts are."""
    return all(isinstance(v, int) and not isinstance(v, bool) and v > 0 for v in param.values)


def _numbers(param: Param) -> Iterable[int]:
    return [int(v) for v in param.values]


def _are_powers(param: Param) -> bool:
    return all(v & (v - 1) == 0 for v in _numbers(param))


def _are_consecutive(param: Param) -> bool:
    values = sorted(_numbers(param))
    return values[-1] <= MOST_STAGES and values == list(range(values[0], values[-1] + 1))


def cut_dimension(name: str, shape: Iterable[str]) -> str | None:
    """Return the dimension that a tile cuts: BLOCK_M, BM and TILE_m cut M; None where none matches."""
    tail = re.sub(r"^(block|tile|blk|b)(_?size)?_?", "", name.lower())
    return next((dim for dim in shape if tail and (tail == dim.lower() or tail.rstrip("s") == dim.lower())), None)


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
        return [index for index, other in enumerate(self.roles) if other is role]

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

"""The role of a tuning parameter, from its name and values; no operator is named here.

Triton kernels name warps and pipeline stages alike everywhere, tiles begin with BLOCK, TILE or B; CUDA kernels name
threads per block. A parameter that fits nothing is `OTHER`: the search then learns it from trials alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum

from tuner.tuning.space import Param


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

"""The space of a kernel that names none: which constexprs can be tuned, with which values, and what cannot run."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.bring.literals import UNKNOWN
from tuner.bring.source import LAUNCH_OPTIONS, Kernel
from tuner.tuning.operators.limits import Limits
from tuner.tuning.space import Constraint, Param, Space

_BLOCK = re.compile(r"BLOCK|TILE|CHUNK|^B[A-Z0-9]?$|^(?:BM|BN|BK)")
_FEW: tuple[tuple[re.Pattern[str], tuple[int, ...]], ...] = (
    (re.compile(r"GROUP|^GM$|SWIZZLE"), (1, 4, 8, 16)), (re.compile(r"SPLIT"), (1, 2, 4, 8)),
    (re.compile(r"UNROLL|VEC"), (1, 2, 4)), (re.compile(r"STAGES$"), (1, 2, 3, 4)),
    (re.compile(r"ROW|PER_(?:PROGRAM|BLOCK)"), (1, 2, 4, 8)))
_FLAG = re.compile(r"^(?:IS|HAS|USE|WITH|NEED|DO|STORE|RETURN|CAUSAL|FP8)(?:_|$)|CAUSAL|MASK$")
LEAST_BLOCK, MOST_VALUES = 16, 5
REGISTERS = 255             # of one thread, on every NVIDIA GPU since sm_35 (CUDA C++ Programming Guide, compute capabilities)


def params_of(kernel: Kernel) -> dict[str, tuple[Any, ...]]:
    """Return parameter → values: of a listed kernel those of its list, else a proposal around what the file launches."""
    if kernel.configs:
        names = list(dict.fromkeys(name for config in kernel.configs for name in config))
        return {name: tuple(dict.fromkeys(config[name] for config in kernel.configs if name in config)) for name in names}
    if kernel.kind != "triton.jit":
        return {}
    tuned = [each for each in kernel.constexprs if each.name not in kernel.heuristics and (
        kernel.fixed.get(each.name) is not UNKNOWN or each.name not in kernel.fixed or each.name in kernel.steps.loops)]
    blocks = [each.name for each in kernel.constexprs if _BLOCK.search(each.name) and each.name in kernel.blocks
              and not _few(each.name, kernel.fixed.get(each.name, each.default))]
    params: dict[str, tuple[Any, ...]] = {}
    for each in tuned:
        start = kernel.fixed.get(each.name, each.default)
        if each.name in blocks:
            params[each.name] = _powers(start, alone=len(blocks) == 1)
        elif each.name in kernel.steps.moves and (values := _few(each.name, start)):
            params[each.name] = tuple(sorted({*values, *([start] if isinstance(start, int) else [])}))
    if not params and not kernel.constexprs:
        return {"num_warps": (1, 2, 4, 8)}
    return {**params, "num_warps": (2, 4, 8) if kernel.tiles else (1, 2, 4, 8, 16),
            "num_stages": (2, 3, 4, 5) if kernel.tiles else (1, 2, 3) if kernel.loops else (1,)}


def _few(name: str, start: Any) -> tuple[int, ...]:
    """Return the values of what takes few; () where the host's own is far from these: SPLIT_SIZE=256, BLOCK_ROWS=64."""
    few = next((values for pattern, values in _FEW if pattern.search(name)), ())
    return few if not few or type(start) is not int or start <= 2 * few[-1] else ()


def _powers(start: Any, alone: bool) -> tuple[int, ...]:
    """Return powers of two around a size; where none is known, those that kernels with one block, or with several, use."""
    if not isinstance(start, int) or isinstance(start, bool) or start < 1:
        return (256, 512, 1024, 2048, 4096) if alone else (32, 64, 128, 256)
    middle = min(max(round(math.log2(start)), 4), 14)
    return tuple(1 << at for at in range(max(4, middle - 2), min(14, middle + 2) + 1))


def space_of(kernel: Kernel, gpu: Limits) -> Space:
    """Return the space with what cannot run left out, counted by reason. Raises ValueError for one that is too large."""
    return space_with(params_of(kernel), kernel.configs or (), kernel.tiles, gpu)


def space_with(params: Mapping[str, tuple[Any, ...]], configs: Sequence[Mapping[str, Any]], tiles: Sequence[tuple[str, ...]],
               gpu: Limits) -> Space:
    """Return the space of these parameters, or of the listed configurations. Raises ValueError for one that is too large."""
    rules = [Constraint("threads per block", lambda config: 32 * int(config.get("num_warps", 4)) <= gpu.threads, ("num_warps",))]
    for tile in tiles:
        if any(name in params for name in tile):
            rules.append(Constraint(f"{' × '.join(tile)} accumulators fit into the registers", lambda config, tile=tile: (         # type: ignore[misc]
                math.prod(config[name] for name in tile if isinstance(config.get(name), int))
                <= REGISTERS * 32 * int(config.get("num_warps", 4))), (*tile, "num_warps")))
    if configs:
        from tuner.tuning.team.description import narrow_space

        complete = [{name: config.get(name, values[0]) for name, values in params.items()} for config in configs]
        return narrow_space([dict(each) for each in {tuple(config.items()): config for config in complete}.values()], rules)
    listed = [Param(name, values) for name, values in params.items()]
    return Space.enumerate(listed, rules) if listed else Space.listed([])


def default_of(kernel: Kernel, params: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Return what the file launches without tuning: its own values first, then the first of a list, else the middle."""
    listed = kernel.configs[0] if kernel.configs else {}
    given = {each.name: each.default for each in kernel.constexprs if each.default is not UNKNOWN} | listed
    given |= {name: value for name, value in kernel.fixed.items() if value is not UNKNOWN}
    usual = {"num_warps": 4, "num_stages": 3 if kernel.tiles or kernel.loops else 1}      # 3: Triton's own
    return {name: given.get(name, usual.get(name, values_middle(values))) for name, values in params.items()}


def few_values(name: str, start: Any) -> tuple[int, ...]:
    """Return the values of a parameter that takes few (GROUP_M, SPLIT_K, STAGES), its own among them; () of any other."""
    few = _few(name.upper(), start)
    return tuple(sorted({*few, *([start] if type(start) is int else [])})) if few else ()


def powers_around(start: int) -> tuple[int, ...]:
    """Return powers of two around a block of the host; of one so small that it holds rows, not elements, from 1 on."""
    return tuple(sorted({*((1, 2, 4, 8, 16) if start < 16 else _powers(start, alone=False)), start}))


def values_middle(values: tuple[Any, ...]) -> Any:
    return values[(len(values) - 1) // 2]


def assumed_constexprs(kernel: Kernel, params: Mapping[str, Any], shape: Mapping[str, int]) -> dict[str, Any]:
    """Return values for constexprs that are not tuned and that neither file nor `shape` gives: guesses from their names."""
    found: dict[str, Any] = {}
    tests = dict(kernel.steps.tests)
    tiles = sum(1 for each in kernel.constexprs if each.name in kernel.steps.ranges)
    for each in kernel.constexprs:
        known = kernel.fixed.get(each.name, each.default)
        if each.name in params or each.name in shape or known is not UNKNOWN:
            continue
        name = each.name.upper()
        is_extent = each.name in kernel.steps.ranges | kernel.steps.moves
        if each.name in tests and not is_extent:
            found[each.name] = tests[each.name]
        elif name.startswith("EVEN"):
            found[each.name] = True
        elif _FLAG.search(name):
            found[each.name] = False
        elif "ACTIVATION" in name:
            found[each.name] = ""
        elif "DTYPE" in name or name.endswith("_TYPE"):
            found[each.name] = "bfloat16"
        elif each.name not in kernel.used:
            found[each.name] = False
        elif "HEAD" in name or name in ("D", "DIM", "BLOCK_D", "BLOCK_DMODEL"):
            found[each.name] = 64
        else:
            is_size = "SIZE" in name or len(kernel.constexprs) == 1 or name in ("N", "M", "K", "C")
            found[each.name] = 1024 if is_size and tiles <= 1 and not kernel.squares else 64
    return found


def known_constexprs(kernel: Kernel, params: Mapping[str, Any], shape: Mapping[str, int]) -> dict[str, Any]:
    """Return the values of constexprs that are not tuned, as far as the file or `shape` gives them."""
    found = {}
    for each in kernel.constexprs:
        value = shape.get(each.name, kernel.fixed.get(each.name, UNKNOWN))
        if each.name not in params and value is not UNKNOWN:
            found[each.name] = value
    return found


OPTIONS = LAUNCH_OPTIONS

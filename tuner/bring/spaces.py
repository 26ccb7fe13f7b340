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
    tuned = [arg for arg in kernel.constexprs if arg.name not in kernel.heuristics and (
        kernel.fixed.get(arg.name) is not UNKNOWN or arg.name not in kernel.fixed or arg.name in kernel.steps.loops)]
    blocks = [arg.name for arg in kernel.constexprs if _BLOCK.search(arg.name) and arg.name in kernel.blocks
              and not _few(arg.name, kernel.fixed.get(arg.name, arg.default))]
    params: dict[str, tuple[Any, ...]] = {}
    for arg in tuned:
        start = kernel.fixed.get(arg.name, arg.default)
        if arg.name in blocks:
            params[arg.name] = _powers(start, alone=len(blocks) == 1)
        elif arg.name in kernel.steps.moves and (values := _few(arg.name, start)):
            params[arg.name] = tuple(sorted({*values, *([start] if isinstance(start, int) else [])}))
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
    return tuple(1 << exponent for exponent in range(max(4, middle - 2), min(14, middle + 2) + 1))


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
        return narrow_space([dict(entry) for entry in {tuple(config.items()): config for config in complete}.values()], rules)
    listed = [Param(name, values) for name, values in params.items()]
    return Space.enumerate(listed, rules) if listed else Space.listed([])


def default_of(kernel: Kernel, params: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Return what the file launches without tuning: its own values first, then the first of a list, else the middle."""
    listed = kernel.configs[0] if kernel.configs else {}
    defaults = {argument.name: argument.default for argument in kernel.constexprs if argument.default is not UNKNOWN} | listed
    defaults |= {name: value for name, value in kernel.fixed.items() if value is not UNKNOWN}
    usual = {"num_warps": 4, "num_stages": 3 if kernel.tiles or kernel.loops else 1}      # 3: Triton's own
    return {name: defaults.get(name, usual.get(name, values_middle(values))) for name, values in params.items()}


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
    constants: dict[str, Any] = {}
    tests = dict(kernel.steps.tests)
    tiles = sum(1 for argument in kernel.constexprs if argument.name in kernel.steps.ranges)
    for argument in kernel.constexprs:
        constant = kernel.fixed.get(argument.name, argument.default)
        if argument.name in params or argument.name in shape or constant is not UNKNOWN:
            continue
        name = argument.name.upper()
        is_extent = argument.name in kernel.steps.ranges | kernel.steps.moves
        if argument.name in tests and not is_extent:
            constants[argument.name] = tests[argument.name]
        elif name.startswith("EVEN"):
            constants[argument.name] = True
        elif _FLAG.search(name):
            constants[argument.name] = False
        elif "ACTIVATION" in name:
            constants[argument.name] = ""
        elif "DTYPE" in name or name.endswith("_TYPE"):
            constants[argument.name] = "bfloat16"
        elif argument.name not in kernel.used:
            constants[argument.name] = False
        elif "HEAD" in name or name in ("D", "DIM", "BLOCK_D", "BLOCK_DMODEL"):
            constants[argument.name] = 64
        else:
            is_size = "SIZE" in name or len(kernel.constexprs) == 1 or name in ("N", "M", "K", "C")
            constants[argument.name] = 1024 if is_size and tiles <= 1 and not kernel.squares else 64
    return constants


def known_constexprs(kernel: Kernel, params: Mapping[str, Any], shape: Mapping[str, int]) -> dict[str, Any]:
    """Return the values of constexprs that are not tuned, as far as the file or `shape` gives them."""
    constants = {}
    for argument in kernel.constexprs:
        value = shape.get(argument.name, kernel.fixed.get(argument.name, UNKNOWN))
        if argument.name not in params and value is not UNKNOWN:
            constants[argument.name] = value
    return constants


OPTIONS = LAUNCH_OPTIONS

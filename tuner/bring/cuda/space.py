"""Values that a parameter of a CUDA C++ kernel may take: those that the file launches, else what its name and number suggest."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Any

from tuner.tuning.cuda.functions import BLOCK, CudaFunction, TemplateParam

# a macro or template parameter that is the number of threads of a block
THREADS = re.compile(r"^k?(?:block_?(?:size|dim|threads)?|(?:num_?|n_?)?threads(?:_?per_?block)?|threads_?per_?cta|tpb|nt"
                     r"|cta_?size)(?:_?x)?$", re.IGNORECASE)
MOST_PROPOSED = 50_000          # configurations
FEW: tuple[tuple[re.Pattern[str], tuple[int, ...]], ...] = (
    (re.compile(r"^use_|^USE_"), (0, 1)),
    (re.compile(r"unroll|vec|items_per|per_thread|^T[MN]$|tile_size|stages", re.IGNORECASE), (1, 2, 4, 8)),
    (re.compile(r"^W[MNK]$"), (16, 32, 64)), (re.compile(r"^BK$|(?:BLOCK|TILE)_?K", re.IGNORECASE), (8, 16, 32, 64)))
BLOCKS = re.compile(r"BLOCK|TILE|CHUNK|STEPS|^B[MN]$", re.IGNORECASE)
THREAD_VALUES = (32, 64, 128, 256, 512, 1024)
# what a kernel computes rests on these: the width of a row, a head, an alignment
SHAPES = re.compile(r"head|hidden|dim(?!s?_?tile)|channel|col|width|height|depth|rank|stride|radius|bits|classes|experts|"
                    r"warp_?size|type|group_?size|^max_|^(?:D|C|G|H|W|N|K|M|R|S|dim|size|hs|ndim|align\w*|pack_?size|length|len)$|"
                    r"num_(?!threads|warps|stages)", re.IGNORECASE)
# flags that say how it is computed; any other says what
HOW = re.compile(r"unroll|vec(?:tor)?(?:ize)?|prefetch|async|double_?buffer|pipelin|swizzl|use_?(?:smem|shared|ldg|tma)",
                 re.IGNORECASE)


def fixed_of(function: CudaFunction) -> dict[str, str]:
    """Return template parameters that are not tuned → the text for each; "" where neither the file nor a default gives one."""
    fixed: dict[str, str] = {}
    for parameter in function.template:
        if parameter.is_type:
            continue
        launched = parameter.launched[0] if parameter.launched else None
        if parameter.is_flag:
            if not HOW.search(parameter.name):
                fixed[parameter.name] = _flag(parameter.default if launched is None else str(launched))
        elif not parameter.is_number or parameter.name in function.counted or (
                not THREADS.match(parameter.name) and not _is_extent(function, parameter) and is_shape(parameter)):
            fixed[parameter.name] = str(launched) if launched is not None else parameter.default
    return fixed


def _flag(text: str) -> str:
    """Return a flag as C++ has it: as the file gives it, else false."""
    return {"1": "true", "0": "false", "": "false"}.get(text, text)


def _is_extent(function: CudaFunction, param: TemplateParam) -> bool:
    """Return whether a parameter alone is the threads along an axis: of a product the width of a row is no less a width."""
    return any(set(re.findall(r"[A-Za-z_]\w*", axis.extent)) == {param.name} for axis in function.block)


def is_shape(param: TemplateParam) -> bool:
    """Return whether a template's number is part of what is computed, not of how."""
    return bool(SHAPES.search(param.name)) and not few(param.name) and not BLOCKS.search(param.name)


def few(name: str) -> tuple[int, ...]:
    """Return the values that a name suggests; () for none."""
    return next((values for pattern, values in FEW if pattern.search(name)), ())


def knows(name: str) -> bool:
    """Return whether a macro's name is one that people tune."""
    if name.upper().startswith(("MAX", "MIN", "NUM_BLOCKS", "GRID", "RNG", "RAND")):
        return False                    # bounds, sizes of a grid, and what the random numbers of a result rest on
    return bool(few(name) or BLOCKS.search(name) or THREADS.match(name))


def values_of(name: str, start: int | None, several: Sequence[int], *, is_flag: bool, is_threads: bool, axes: int, others: int,
              most: int) -> tuple[int, ...]:
    """Return values of a parameter, what the file gives among them.

    start    the file's own number; several: those of its launches
    axes     axes of the block that have threads; `is_threads`: the parameter is one of them alone
    others   parameters beside the threads
    """
    if is_flag:
        return (False, True)
    if name == "block_size_x" or (is_threads and axes == 1):
        values: Sequence[int] = THREAD_VALUES if axes == 1 else (8, 16, 32, 64, 128)
    elif name in BLOCK:
        values = (1, 2, 4, 8, 16, 32) if name == "block_size_y" else (1, 2, 4, 8)
    elif is_threads:
        values = (8, 16, 32)                                # one name for two axes
    elif few_values := few(name):
        near = [each for each in (start // 2, start, start * 2) if each] if start and start > 0 and max(few_values) > 1 else []
        values = near if near and near[0] > max(few_values) else [*few_values, *near]         # a tile of 64 is no 1 to 8
    elif start is not None and start > 0 and others:
        values = [number for number in (start // 4, start // 2, start, start * 2, start * 4) if number >= 1]
    else:
        values = (16, 32, 64, 128) if others > 1 else (32, 64, 128, 256)
    values = [number for number in values if number <= most or not is_threads]
    return tuple(sorted({*values, *several, *([start] if start is not None else [])}))


def narrow(params: dict[str, tuple[Any, ...]], default: Mapping[str, Any], threads: Collection[str]) -> None:
    """Leave out the values that lie farthest from the default until a space can be counted at once."""
    while prod(map(len, params.values())) > MOST_PROPOSED:
        name = max(params, key=lambda each: (len(params[each]) - (2 if each in threads else 0), each))
        values = params[name]
        if len(values) == 1:
            return
        index = values.index(default[name])
        params[name] = values[1:] if index > len(values) - 1 - index else values[:-1]


TYPES = {"c10::Half": "__half", "at::Half": "__half", "torch::Half": "__half", "half": "__half", "c10::BFloat16": "__nv_bfloat16",
         "at::BFloat16": "__nv_bfloat16", "torch::BFloat16": "__nv_bfloat16", "nv_bfloat16": "__nv_bfloat16"}
_PLAIN = {"float", "double", "int", "__half", "__nv_bfloat16", "__half2", "half2", "float2", "float4", "int4", "int8_t", "uint8_t",
          "unsigned char", "char", "int64_t", "long", "uint32_t", "unsigned", "unsigned int", "uint4", "bool", "long long"}
NUMBERS_OF_TENSORS = {"float": "fp32", "__half": "fp16", "__nv_bfloat16": "bf16"}


def is_tensors_type(function: CudaFunction, param: TemplateParam) -> bool:
    """Return whether a type parameter is that of tensors: addresses of it are passed, and no launch gives it another type."""
    passed = [parameter for parameter in function.template if parameter.is_type and any(
        argument.pointer and argument.type == parameter.name for argument in function.arguments)]
    return param in passed and param.launched[:1] in ((), passed[0].launched[:1])


def type_of(function: CudaFunction, param: TemplateParam, c_type: str, declared: Sequence[str]) -> str:
    """Return the text that stands for a type parameter: of tensors `c_type`, else what the file gives.

    c_type   C++'s name of the tensors' type; "" where the caller asks for none
    declared names of types in the file
    """
    if c_type and is_tensors_type(function, param):
        return c_type
    for text in (*map(str, param.launched), param.default):
        plain = TYPES.get(text, text)
        if plain in _PLAIN or (text and text.partition("<")[0].rpartition("::")[2] in declared):
            return plain
    return c_type or "float"

"""The threads of a block along each axis: what a kernel asks of them, what its file launches, what its index arithmetic implies."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tuner.tuning.cuda.functions import MOST_THREADS, Axis, CudaArgument
from tuner.tuning.cuda.indexing import asserted, body_of, divisors, implied, shared_sizes
from tuner.tuning.cuda.items import Item
from tuner.tuning.cuda.launches import Launch
from tuner.tuning.cuda.source import Source
from tuner.tuning.cuda.symbolic import over_names
from tuner.tuning.cuda.values import Values

AXES = ("x", "y", "z")
_GROUPS = {"this_thread_block", "this_grid", "this_cluster"}
_GROUP_SIZES = {"size", "num_threads", "group_dim", "dim_threads", "meta_group_size"}


def read_block(
    source: Source,
    item: Item,
    words: Sequence[str],
    values: Values,
    of_kernel: Sequence[Launch],
    names: Mapping[str, int | None],
    template: Sequence[str],
    arguments: Sequence[CudaArgument] = (),
) -> tuple[Axis, Axis, Axis]:
    """Return the three axes.

    words     the tokens of the kernel and of all that it reaches
    names     macros, constants and template parameters of the kernel, with their numbers
    template  its template parameters in order
    arguments those of the kernel: threads may be computed of them, as blocks of the grid are
    """
    body = body_of(source, item)
    assertions = {axis: list(asserted(body, axis)) for axis in AXES}
    axes = [_asked(words, axis, len(assertions[axis])) for axis in AXES]
    for index, axis in enumerate(AXES):
        axes[index] = replace(axes[index], most=min([MOST_THREADS, *shared_sizes(body, axis, values)]))
    for launch in of_kernel:
        if not any(values.number(launch.scope, entry) or over_names(values, launch, entry, names, template, arguments)
                   for entry in launch.block):
            continue
        for index, words_along in enumerate(launch.block[:3]):
            axes[index] = _launched(axes[index], values, launch, words_along, names, template, arguments)
        if not any(block_axis.extent for block_axis in axes):
            continue
        for index in range(len(launch.block), 3):
            if not axes[index].extent:
                axes[index] = replace(axes[index], extent="1", value=1, adapts=False)
    if not any(block_axis.extent or block_axis.value for block_axis in axes):
        for index, axis in enumerate(AXES):
            extent = implied(source, item, body, axis, values, names)
            if extent and axes[index].used:
                axes[index] = replace(axes[index], extent=extent, implied=True)
    divided = divisors(body)
    axes[0] = replace(axes[0], split=tuple(name for name in names if name in divided))
    return axes[0], axes[1], axes[2]


def _asked(words: Sequence[str], axis: str, asserted: int) -> Axis:
    """Return what the tokens ask of an axis; `asserted`: how often they only check how many threads there are."""
    used, adapts, count = False, False, 0
    for index, word in enumerate(words):
        if word in ("threadIdx", "blockDim"):
            along = words[index + 2] if index + 2 < len(words) and words[index + 1] == "." else "x"
            used = used or along == axis
            count += word == "blockDim" and along == axis
        elif word in _GROUPS and axis == "x":
            used = True
            adapts = adapts or word != "this_thread_block" or bool(_GROUP_SIZES & set(words))
        elif word in ("thread_index", "group_index") and axis != "x":
            used = used or (
                word == "thread_index"
                and any(words[place : place + 2] == [".", axis] for place in range(index, min(index + 6, len(words))))
            )
            adapts = adapts or (used and "group_dim" in words)
    return Axis(used, adapts or count > asserted)


def _launched(
    axis: Axis,
    values: Values,
    launch: Launch,
    words: Sequence[str],
    names: Mapping[str, int | None],
    template: Sequence[str],
    arguments: Sequence[CudaArgument],
) -> Axis:
    number = values.number(launch.scope, words)
    extent = over_names(values, launch, words, names, template) or ""
    if not extent and number is None and not axis.adapts:
        extent = over_names(values, launch, words, names, template, arguments) or ""
    value = int(number.value) if number is not None and 0 < number.value <= MOST_THREADS else None
    if (extent and not re.search(r"[A-Za-z_]", extent)) or not extent:
        extent = str(value) if value is not None else ""
        same = [
            param
            for param, argument in zip(template, launch.template, strict=False)  # f<256><<<blocks, 256>>>
            if value is not None
            and value > 1
            and _looks_like_threads(param)
            and (constant := values.number(launch.scope, argument)) is not None
            and constant.value == value
        ]
        extent = same[0] if same else extent
    several = tuple(sorted({*axis.several, *(number.several if number else ()), *([value] if value else ())}))
    several = tuple(size for size in several if 0 < size <= MOST_THREADS)
    if axis.extent or axis.value is not None:
        return replace(axis, several=several)
    return replace(axis, extent=extent, value=value, several=several)


def _looks_like_threads(name: str) -> bool:
    return re.search(r"block|thread|tpb|tile|^B|^NT$|warps?_?size", name, re.IGNORECASE) is not None

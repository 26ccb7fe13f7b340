"""CUDA C++ that nobody packaged: functions of a .cu file or of a Kernel Tuner script, each with a space."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

from profiles.base.refused import Refused
from tuner.bring.cuda.space import THREADS, fixed_of, knows, narrow, values_of
from tuner.bring.cuda.ties import Tie, find_ties
from tuner.tuning.cuda.functions import BLOCK, MOST_THREADS, Axis, CudaFunction, CudaText
from tuner.tuning.cuda.includes import with_own_headers
from tuner.tuning.cuda.text import read_file, read_text
from tuner.tuning.operators.limits import Limits
from tuner.tuning.space import Constraint, Param, Space
from tuner.tuning.team.expressions import Expression

_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class CudaSource:
    """One function and what is tuned of it.

    file       of the function; `text` what stands there
    params     parameter → values
    default    what the file itself gives: its launch, macros, defaults of template parameters, else the middle
    rules      what a person reads → an expression over the parameters that must hold
    launched   parameters that only the launch uses (block_size_x of a function that asks blockDim)
    block      threads along x, y, z: expressions over the parameters and numbers; "" where nothing tells and only its author knows
    given      template parameters that are no parameters → the text that stands for them; "" where the file gives none
    tied       constants that follow a parameter, by name: with another number for one alone the kernel is another
    tuner      of a Kernel Tuner script: what it says of the launch ("problem_size", "grid_div_x", "arguments", …)
    """

    file: Path
    text: str
    holds: CudaText
    function: CudaFunction
    params: dict[str, tuple[Any, ...]]
    default: dict[str, Any]
    rules: dict[str, str] = field(default_factory=dict)
    launched: tuple[str, ...] = ()
    block: tuple[str, str, str] = BLOCK
    given: dict[str, str] = field(default_factory=dict)
    line: int = 0
    tuner: dict[str, Any] | None = None
    tied: dict[str, Tie] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return "kernel_tuner" if self.tuner is not None else "cuda"

    @property
    def knows_block(self) -> bool:
        """Whether the threads of a block are told along every axis that the kernel uses."""
        return all(self.block)

    def threads(self, config: Mapping[str, Any]) -> int:
        """Return the threads of a block, as far as the text tells."""
        return prod(max(1, int(self._along(extent, config))) for extent in self.block)

    def _along(self, extent: str, config: Mapping[str, Any]) -> float:
        if not extent or extent in config:
            return float(config.get(extent, 1))
        if extent in BLOCK:
            return 1.0
        try:
            return float(Expression(extent, [*self.params, *config]).value(config))
        except (ValueError, KeyError):
            return 1.0

    def space(self, gpu: Limits) -> Space:
        """Return the space without what cannot run, counted by reason. Raises ValueError for one that is too large."""
        reads = tuple(name for name in self.params if any(re.search(rf"\b{name}\b", extent) for extent in self.block))
        rules = [Constraint("threads per block", lambda config: self.threads(config) <= min(
            gpu.threads, self.function.threads or gpu.threads), reads)]
        for reason, text in self.rules.items():
            rule = Expression(text, list(self.params))
            rules.append(Constraint(reason, _holds(rule), tuple(rule.names)))
        params = [Param(name, values) for name, values in self.params.items()]
        return Space.enumerate(params, rules) if params else Space.listed([])

    def default_for(self, gpu: Limits) -> dict[str, Any]:
        """Return the default, or where a rule forbids it the configuration of the space that differs least. Raises ValueError."""
        space = self.space(gpu)
        if not len(space) or self.default in space:
            return dict(self.default)
        place = {param.name: {value: index for index, value in enumerate(param.values)} for param in space.params}
        nearest = min(range(len(space)), key=lambda row: sum(
            abs(place[name][value] - place[name].get(self.default[name], 0)) for name, value in space.config(row).items()))
        return dict(space.config(nearest))


def _holds(rule: Expression) -> Callable[[Mapping[str, Any]], bool]:
    return lambda config: bool(rule.value(config))


def read_cuda(path: Path, others: bool = False) -> list[CudaSource]:
    """Return the functions of a .cu file with a proposed space each; `others`: with those of its own headers. Raises Refused."""
    text, holds = read_file(path, others)
    text = with_own_headers(text, path.parent, path.name) if others else text
    return [propose(path, text, holds, function) for function in holds.functions]


def read_kernel(text: str, name: str, file: Path) -> tuple[CudaText, CudaFunction]:
    """Return what a kernel's text holds, and its function `name`. Raises Refused."""
    try:
        holds = read_text(text)
    except Refused as error:
        raise Refused(f"{file.name}: {error}") from error
    bare = name.partition("<")[0].strip().rpartition("::")[2]
    function = next((candidate for candidate in holds.functions if candidate.name == bare), None)
    if function is None:
        raise Refused(f"{file.name} holds no __global__ function {bare}")
    return holds, function


def propose(path: Path, text: str, holds: CudaText, function: CudaFunction) -> CudaSource:
    """Return a function with a space from its launch, macros, constants, template parameters and undefined names."""
    fixed = fixed_of(function)
    start: dict[str, Any] = dict.fromkeys(function.undefined)
    start |= {name: value for name, value in holds.defines.items()
              if name in function.uses and name not in function.counted and (name in holds.guarded or _looks_tuned(name, function))}
    several: dict[str, tuple[Any, ...]] = {}
    for param in function.template:
        if param.is_type or param.name in fixed:
            continue
        several[param.name] = tuple(value for value in param.launched if isinstance(value, int))
        written = param.default.rstrip("uU")
        start[param.name] = (several[param.name][0] if several[param.name] else int(written) if written.isdecimal() else
                             {"true": 1, "false": 0}.get(written))
    block, free = _block(function, start, fixed, None if function.launches else next(
        (value for name, value in holds.defines.items() if THREADS.match(name) and 0 < value <= MOST_THREADS), None))
    for name, axis in free.items():
        start[name], several[name] = axis.value, axis.several
    flags = {param.name for param in function.template if param.is_flag}
    params: dict[str, Any] = {}
    default: dict[str, Any] = {}
    for name in (*free, *(key for key in start if key not in free)):
        squared = any(len(re.findall(rf"\b{re.escape(name)}\b", extent)) > 1 for extent in block)
        axes = 2 if squared else sum(extent not in ("1", "") for extent in block)
        params[name] = values_of(name, start[name], several.get(name, ()), is_flag=name in flags,
                                 is_threads=name in block or squared, axes=axes,
                                 others=len(start) - len(free), most=free[name].most if name in free else function.threads or 1024)
        value = start[name] if start[name] is not None else params[name][(len(params[name]) - 1) // 2]
        default[name] = bool(value) if name in flags else value
    tied = find_ties(text, {name: default[name] for name in params if name in holds.defines and type(default[name]) is int})
    for name, tie in tied.items():
        params.pop(name), default.pop(name)
        params[tie.leader] = tuple(value for value in params[tie.leader] if tie.value(value) is not None)
    narrow(params, default, free)
    return CudaSource(path, text, holds, function, params, default, launched=tuple(free), block=block, given=fixed,
                      line=function.line, tied=tied)


def _looks_tuned(name: str, function: CudaFunction) -> bool:
    if re.fullmatch(r"k?_?WARP_?(?:SIZE|THREADS)|THREADS_PER_WARP", name, re.IGNORECASE):
        return False                            # 32 on every GPU
    is_extent = any(re.search(rf"\b{re.escape(name)}\b", axis.extent) for axis in function.block)
    return is_extent or knows(name)


def _block(function: CudaFunction, start: Mapping[str, Any], fixed: Mapping[str, str], named: int | None = None
           ) -> tuple[tuple[str, str, str], dict[str, Axis]]:
    """Return the extents along x, y, z, and the parameters that are threads of their own, with their axes.

    fixed  template parameters that are no parameters → the text that stands for them
    named  a constant of the file that is called the threads of a block, where it launches none: THREADS_PER_BLOCK
    """
    extents, free = ["1", "1", "1"], {}
    numbers = {name: text for name, text in fixed.items() if text.isdecimal()}
    covers = next((name for name in start if THREADS.match(name) and name not in BLOCK
                   and name not in function.block[0].split), "")
    for index, (dimension, name) in enumerate(zip(function.block, BLOCK, strict=True)):
        axis = replace(dimension, extent=_NAME.sub(lambda match: numbers.get(match[0], match[0]), dimension.extent))
        if name in start:                                   # as Kernel Tuner's kernels name it
            extents[index] = name
        elif axis.extent and not axis.is_free and _is_known(axis.extent, start, function):
            extents[index] = axis.extent
        elif not axis.used and not (axis.value or 0) > 1:
            extents[index] = "1"
        elif covers and index == 0 and not axis.value:
            extents[index] = covers
        elif axis.adapts:
            value = axis.value or ((function.threads or named) if index == 0 and not function.block[1].used else None)
            free[name] = Axis(True, axis.adapts, axis.extent, value, axis.several, most=min(axis.most, function.threads or 1024))
            extents[index] = name
        else:
            extents[index] = str(axis.value) if axis.value else ""
    return (extents[0], extents[1], extents[2]), free


def _is_known(extent: str, start: Mapping[str, Any], function: CudaFunction) -> bool:
    whole = {argument.name for argument in function.arguments if argument.kind == "integer"}
    return all(name in start or name in whole for name in _NAME.findall(extent))

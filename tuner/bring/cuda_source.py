"""CUDA C++ that nobody packaged: functions of a .cu file or of a Kernel Tuner script, each with a space."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from tuner.bring.source import FileRefused
from tuner.tuning.cuda.text import BLOCK, CudaFunction, CudaText, TextRefused, read_file, read_text
from tuner.tuning.operators.limits import Limits
from tuner.tuning.space import Constraint, Param, Space
from tuner.tuning.team.expressions import Expression

# a macro or template parameter that is the number of threads of a block
_THREADS = re.compile(r"^(?:block_?(?:size|dim)?|(?:num_?)?threads(?:_?per_?block)?|tpb|nt|n_?threads)(?:_?x)?$", re.IGNORECASE)
_FEW: tuple[tuple[re.Pattern[str], tuple[int, ...]], ...] = (
    (re.compile(r"^use_|^USE_"), (0, 1)),
    (re.compile(r"unroll|vec|items_per|per_thread|^T[MN]$|tile_size|stages", re.IGNORECASE), (1, 2, 4, 8)),
    (re.compile(r"^W[MNK]$"), (16, 32, 64)), (re.compile(r"^BK$|(?:BLOCK|TILE)_?K", re.IGNORECASE), (8, 16, 32, 64)))
_BLOCKS = re.compile(r"BLOCK|TILE|CHUNK|^B[MN]$", re.IGNORECASE)
THREAD_VALUES = (32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class CudaSource:
    """One function and what is tuned of it.

    file       of the function; `text` what stands there
    params     parameter → values
    default    what the file itself gives: macros, defaults of template parameters, else the middle
    rules      what a person reads → an expression over the parameters that must hold
    launched   parameters that only the launch uses (block_size_x of a function that asks blockDim)
    covers     parameter that is the number of threads along x, "" where only `block_size_x` is
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
    covers: str = ""
    line: int = 0
    tuner: dict[str, Any] | None = None

    @property
    def kind(self) -> str:
        return "kernel_tuner" if self.tuner is not None else "cuda"

    def threads(self, config: Mapping[str, Any]) -> int:
        """Return the threads of a block, as far as the text tells."""
        along = [int(config.get(name, 1)) for name in BLOCK]
        if self.covers:
            along[0] = int(config.get(self.covers, 1))
        return prod(along)

    def space(self, gpu: Limits) -> Space:
        """Return the space without what cannot run, counted by reason. Raises ValueError for one that is too large."""
        reads = tuple(name for name in (*BLOCK, self.covers) if name)
        rules = [Constraint("threads per block", lambda config: self.threads(config) <= gpu.threads, reads)]
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
        place = {param.name: {value: at for at, value in enumerate(param.values)} for param in space.params}
        nearest = min(range(len(space)), key=lambda row: sum(
            abs(place[name][value] - place[name].get(self.default[name], 0)) for name, value in space.config(row).items()))
        return dict(space.config(nearest))


def _holds(rule: Expression) -> Callable[[Mapping[str, Any]], bool]:
    return lambda config: bool(rule.value(config))


def read_cuda(path: Path) -> list[CudaSource]:
    """Return the functions of a .cu file with a proposed space each. Raises FileRefused."""
    try:
        text, holds = read_file(path)
    except TextRefused as error:
        raise FileRefused(str(error)) from error
    return [propose(path, text, holds, each) for each in holds.functions]


def read_kernel(text: str, name: str, file: Path) -> tuple[CudaText, CudaFunction]:
    """Return what a kernel's text holds, and its function `name`. Raises FileRefused."""
    try:
        holds = read_text(text)
    except TextRefused as error:
        raise FileRefused(f"{file.name}: {error}") from error
    bare = name.partition("<")[0].strip()
    function = next((each for each in holds.functions if each.name == bare), None)
    if function is None:
        raise FileRefused(f"{file.name} holds no __global__ function {bare}")
    return holds, function


def propose(path: Path, text: str, holds: CudaText, function: CudaFunction) -> CudaSource:
    """Return a function with a space from its macros, template parameters and undefined names."""
    numbers = {each.name: int(each.default) if each.default.isdecimal() else None
               for each in function.template if not each.is_type}
    macros = {name: holds.defines[name] for name in holds.defines
              if name in function.uses and (name in holds.guarded or _few(name) or _BLOCKS.search(name) or _THREADS.match(name))}
    given: dict[str, int | None] = {**dict.fromkeys(function.undefined), **macros, **numbers}
    covers = next((name for name in given if _THREADS.match(name)), "") if "block_size_x" not in given else ""
    blocks = [name for name in given if _BLOCKS.search(name) and not _few(name)]
    params = {name: _values(name, value, covers, len(blocks), "block_size_y" in given) for name, value in given.items()}
    launched: tuple[str, ...] = ()
    if not covers and "block_size_x" not in params and function.uses & {"blockDim", "threadIdx"}:
        params = {"block_size_x": tuple(value for value in THREAD_VALUES if value <= (function.threads or 1024)), **params}
        launched = ("block_size_x",)
    middle = {name: values[(len(values) - 1) // 2] for name, values in params.items()}
    default = {name: given[name] if given.get(name) is not None else middle[name] for name in params}
    return CudaSource(path, text, holds, function, params, default, launched=launched, covers=covers, line=function.line)


def _few(name: str) -> tuple[int, ...]:
    return next((values for pattern, values in _FEW if pattern.search(name)), ())


def _values(name: str, start: int | None, covers: str, blocks: int, is_flat: bool) -> tuple[int, ...]:
    """Return values for a parameter, the one that the file gives among them."""
    if name == covers or name == "block_size_x":
        values: Sequence[int] = (8, 16, 32, 64, 128) if is_flat else THREAD_VALUES
    elif name in BLOCK:
        values = (1, 2, 4, 8, 16, 32) if name == "block_size_y" else (1,)
    elif few := _few(name):
        values = few
    elif start is not None and start > 0 and blocks:
        values = [each for each in (start // 4, start // 2, start, start * 2, start * 4) if each >= 1]
    else:
        values = (16, 32, 64, 128) if blocks > 1 else (32, 64, 128, 256)
    return tuple(sorted({*values, *([start] if start is not None else [])}))

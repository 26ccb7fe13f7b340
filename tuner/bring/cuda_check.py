"""`operators check` of CUDA C++: the space counted, samples compiled by NVRTC in a child, what is missing named."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.bring import kernel_tuner, process
from tuner.bring.cuda_source import CudaSource, read_cuda
from tuner.bring.report import Found, Problem
from tuner.bring.samples import FEW_KERNELS, GPU, SAMPLES, choose_samples
from tuner.bring.source import FileRefused
from tuner.tuning.cuda.text import C_TYPES, as_macro

COMPILE_S = 60.0                                # one configuration for one GPU; CUTLASS takes longer than a plain kernel
SUFFIXES = (".cu", ".cuh")
INSTALL = "pip install cuda-core cuda-bindings nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-cccl"


def read_sources(path: Path) -> list[CudaSource] | None:
    """Return the functions of a .cu file or a Kernel Tuner script; None for a file of another kind. Raises FileRefused."""
    if path.suffix in SUFFIXES:
        return read_cuda(path)
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError):
        return None                             # told by whoever reads it as Python
    return kernel_tuner.read_script(path, text) if kernel_tuner.reads(text) else None


def check_sources(path: Path, sources: Sequence[CudaSource], name: str, shape: Mapping[str, int], dtype: str, run: bool,
                  say: Callable[[int, int], None], compiles: bool = True) -> list[Found]:
    """Return what is found of each function, or of the one named. Raises FileRefused where there is none."""
    chosen = [each for each in sources if not name or each.function.name == name]
    if not chosen:
        raise FileRefused(f"{path.name} holds no __global__ function {name}".rstrip())
    found, jobs = [], []
    samples = SAMPLES if len(chosen) <= FEW_KERNELS else 0
    for source in chosen:
        each = _read(source, shape)
        found.append(each)
        jobs += _jobs(source, each, dtype or "fp32", shape, samples)
        if run:
            each.problems.append(Problem("nothing was run: there are no arguments for it", "manage.py operators init",
                                         missing=True))
    if compiles:
        _compile(found, jobs, say)
    return found


def choose_source(sources: Sequence[CudaSource], name: str, path: Path) -> CudaSource:
    """Return the function that is meant: the one named, or the only one. Raises FileRefused."""
    chosen = [each for each in sources if not name or each.function.name == name]
    if len(chosen) != 1:
        raise FileRefused(f"{path.name} holds {f'no kernel {name}' if name else f'{len(chosen)} kernels'}: name one of "
                          f"{', '.join(each.function.name for each in sources) or 'none'} as {path.name}:NAME")
    return chosen[0]


def _read(source: CudaSource, shape: Mapping[str, int]) -> Found:
    function = source.function
    found = Found(function.name, source.kind, source.line or function.line,
                  parameters=[{"name": name, "values": list(values)} for name, values in source.params.items()],
                  arguments=[{"name": each.name, "kind": each.kind, "written": each.written, "type": each.type}
                             for each in function.arguments],
                  default=dict(source.default))
    try:
        space = source.space(GPU)
    except ValueError as error:
        found.problems.append(Problem(str(error)))
        return found
    found.size, found.valid, found.pruned = space.size, len(space), dict(space.pruned)
    if space.size and not len(space):
        found.problems.append(Problem("no configuration of the space can run", "give smaller values"))
    found.default = source.default_for(GPU)
    if not source.params:
        found.problems.append(Problem("nothing can be tuned: no macro, template parameter or block size may change",
                                      "make its block size a macro under #ifndef, or a template parameter"))
    for param in function.template:
        if param.is_type:
            found.assumed[param.name] = "the tensors' type"
    if not any(each.written for each in function.arguments):
        found.problems.append(Problem("no argument is written that the text shows", "name the result as `out`", missing=True))
    for each in function.arguments:
        if each.kind == "struct":
            found.problems.append(Problem(f"{each.name} is a {each.type}: only addresses and numbers can be passed",
                                          "write a __global__ function that takes its parts"))
    found.problems.append(Problem("argument tensors for a shape, the launch grid, a reference, FLOP and bytes",
                                  "manage.py operators init writes a CudaOperator with a place for them", missing=True))
    return found


def _jobs(source: CudaSource, found: Found, dtype: str, shape: Mapping[str, int], samples: int) -> list[dict[str, Any]]:
    if source.params and not found.size:            # a space that is too large, or that nothing of can run
        return []
    chosen = choose_samples(found.default, source.space(GPU), samples) if source.params else [{}]
    kind = C_TYPES.get(dtype, dtype)
    return [{"name": source.function.name, "config": config, "text": source.text, "file": str(source.file),
             "expression": expression_of(source, config, kind), "threads": source.threads(config),
             "defines": {name: as_macro(value) for name, value in config.items()
                         if name not in {each.name for each in source.function.template}} | {k: str(v) for k, v in shape.items()},
             "loose": sorted(frozenset(source.holds.defines) - source.holds.guarded)} for config in chosen]


def expression_of(source: CudaSource, config: Mapping[str, Any], c_type: str) -> str:
    """Return the function as NVRTC is asked for it: a template with the parameters' values and one type for all its types."""
    if source.tuner is not None and "<" in source.tuner["name"]:
        return str(source.tuner["name"])
    given = [c_type if each.is_type else str(config.get(each.name, each.default)) for each in source.function.template]
    return source.function.name + (f"<{', '.join(given)}>" if given else "")


def _compile(found: Sequence[Found], jobs: list[dict[str, Any]], say: Callable[[int, int], None]) -> None:
    if not jobs:
        return
    if not has_compiler():
        for each in found:
            each.problems.append(Problem("nothing was compiled: NVIDIA's run-time compiler is not installed here", INSTALL))
        return
    told = process.ask_child("tuner.bring.cuda_child", {"compile": jobs, "compile_s": COMPILE_S}, len(jobs), COMPILE_S, say)
    order = [job["config"] for job in jobs]
    for each in found:
        each.compiled = sorted(told.get("compiled", {}).get(each.name, []),
                               key=lambda line: (order.index(line["config"]), int(line["gpu"].removeprefix("sm_"))))
        if "failed" in told:
            each.problems.insert(0, Problem(f"nothing was compiled: {told['failed']}"))
        broken = sorted({line["error"] for line in each.compiled if "error" in line})
        if each.compiled and all("error" in line for line in each.compiled):
            each.problems.insert(0, Problem(f"no sample compiles: {broken[0]}", "--shape NAME=NUMBER gives a macro its value"))


def has_compiler() -> bool:
    """Return whether cuda-core and NVRTC's bindings are installed here."""
    try:
        return all(importlib.util.find_spec(each) is not None for each in ("cuda.core", "cuda.bindings.nvrtc"))
    except ModuleNotFoundError:
        return False

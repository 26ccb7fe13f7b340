"""`operators check` of CUDA C++: the space counted, samples compiled by NVRTC in a child, what is missing named."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from profiles.base.refused import Refused
from tuner.bring import kernel_tuner, process
from tuner.bring.cuda.source import CudaSource, read_cuda
from tuner.bring.cuda.space import THREADS, is_tensors_type, type_of
from tuner.bring.cuda.ties import followed
from tuner.bring.report import Found, Problem
from tuner.bring.samples import FEW_KERNELS, GPU, SAMPLES, choose_samples
from tuner.tuning.cuda.defines import as_macro
from tuner.tuning.cuda.functions import C_TYPES

COMPILE_S = 60.0                                # one configuration for one GPU; CUTLASS takes longer than a plain kernel
SUFFIXES = (".cu", ".cuh")
INSTALL = ("pip install cuda-core cuda-bindings nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-cccl nvidia-cuda-crt "
           "nvidia-curand")


def read_sources(path: Path) -> list[CudaSource] | None:
    """Return the functions of a .cu file or a Kernel Tuner script; None for a file of another kind. Raises Refused."""
    if path.suffix in SUFFIXES:
        return read_cuda(path)
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError):
        return None                             # told by whoever reads it as Python
    return kernel_tuner.read_script(path, text) if kernel_tuner.reads(text) else None


def check_sources(path: Path, sources: Sequence[CudaSource], name: str, shape: Mapping[str, int], dtype: str, run: bool,
                  say: Callable[[int, int], None], compiles: bool = True) -> list[Found]:
    """Return what is found of each function, or of the one named. Raises Refused where there is none."""
    chosen = [candidate for candidate in sources if not name or candidate.function.name == name]
    if not chosen:
        raise Refused(f"{path.name} holds no __global__ function {name}".rstrip())
    findings, jobs = [], []
    samples = SAMPLES if len(chosen) <= FEW_KERNELS else 0
    for source in chosen:
        finding = _read(source, shape)
        findings.append(finding)
        jobs += [] if source.function.problem else _jobs(source, finding, dtype, shape, samples)
        if run:
            finding.problems.append(Problem("nothing was run: there are no arguments for it", "manage.py operators init",
                                            missing=True))
    if compiles:
        compile_jobs(findings, jobs, say)
    return findings


def choose_source(sources: Sequence[CudaSource], name: str, path: Path) -> CudaSource:
    """Return the function that is meant: the one named, or the only one. Raises Refused."""
    chosen = [source for source in sources if not name or source.function.name == name]
    if len(chosen) != 1:
        raise Refused(f"{path.name} holds {f'no kernel {name}' if name else f'{len(chosen)} kernels'}: name one of "
                      f"{', '.join(source.function.name for source in sources) or 'none'} as {path.name}:NAME")
    return chosen[0]


def _read(source: CudaSource, shape: Mapping[str, int]) -> Found:
    function = source.function
    if function.problem:
        return Found(function.name, source.kind, source.line or function.line, problems=[
            Problem(f"this kernel cannot be read: {function.problem}")])
    finding = Found(function.name, source.kind, source.line or function.line,
                    parameters=[{"name": name, "values": list(values)} for name, values in source.params.items()],
                    arguments=[{"name": argument.name, "kind": argument.kind, "written": argument.written, "type": argument.type,
                                "unsure": argument.unsure} for argument in function.arguments],
                    default=dict(source.default))
    try:
        space = source.space(GPU)
    except ValueError as error:
        finding.problems.append(Problem(str(error)))
        return finding
    finding.size, finding.valid, finding.pruned = space.size, len(space), dict(space.pruned)
    if space.size and not len(space):
        finding.problems.append(Problem("no configuration of the space can run", "give smaller values"))
    finding.default = source.default_for(GPU)
    if not source.params:
        finding.problems.append(Problem("nothing can be tuned: no macro, template parameter or block size may change",
                                        "make its block size a macro under #ifndef, or a template parameter"))
    for param in function.template:
        if param.is_type:
            finding.assumed[param.name] = "the tensors' type" if is_tensors_type(function, param) else type_of(
                function, param, "", source.holds.types)
        elif param.name in source.given:
            if source.given[param.name]:
                finding.assumed[param.name] = source.given[param.name]
            else:
                finding.problems.append(Problem(
                    f"the file gives no value for the template parameter {param.name} ({param.type})",
                    f"--shape {param.name}=NUMBER" if param.is_number else "launch it in the file", missing=True))
    finding.problems += _of_threads(source)
    finding.problems += _of_results(source)
    for argument in function.arguments:
        if argument.kind == "struct":
            finding.problems.append(Problem(f"{argument.name} is a {argument.type}: only addresses and numbers can be passed",
                                            "write a __global__ function that takes its parts"))
    finding.problems.append(Problem("argument tensors for a shape, the launch grid, a reference, FLOP and bytes",
                                    "manage.py operators init writes a CudaOperator with a place for them", missing=True))
    return finding


def _of_threads(source: CudaSource) -> list[Problem]:
    """Return what the file does not tell of the threads of a block."""
    unknown = [axis for axis, extent in zip("xyz", source.block, strict=True) if not extent]
    if unknown:
        return [Problem(f"the threads of a block along {' and '.join(unknown)} are not told: the file launches no block, "
                        "and the kernel was written for one number", "say them as `block`", missing=True)]
    implied = [axis for axis, dimension in zip("xyz", source.function.block, strict=True) if dimension.implied]
    if implied and source.tuner is None and not all(size == "1" or THREADS.match(size) for size in source.block):
        return [Problem(f"the threads of a block along {' and '.join(implied)} are read from index arithmetic: "
                        f"{', '.join(size for size in source.block if size != '1')}", "check `block`", missing=True)]
    return []


def _of_results(source: CudaSource) -> list[Problem]:
    """Return what the file does not tell of the results."""
    arguments = source.function.arguments
    written, unsure = [arg.name for arg in arguments if arg.written], [arg.name for arg in arguments if arg.unsure]
    if not written and unsure:
        return [Problem(f"which argument is written is not told: {', '.join(unsure)} go to code that is not in the file",
                        "name the result as `out`", missing=True)]
    if not written:
        return [Problem("no argument is written that the text shows", "name the result as `out`", missing=True)]
    problems = []
    if len(written) > 1:
        problems.append(Problem(f"{', '.join(written)} are written", "name the one to compare as `out`", missing=True))
    if unsure:
        problems.append(Problem(f"whether {', '.join(unsure)} {'is' if len(unsure) == 1 else 'are'} written too is not told: code "
                                "that is not in the file gets the address", "check `out`", missing=True))
    return problems


def _jobs(source: CudaSource, finding: Found, dtype: str, shape: Mapping[str, int], samples: int) -> list[dict[str, Any]]:
    without_value = any(not text and name not in shape for name, text in source.given.items())
    if (source.params and not finding.size) or without_value:         # a space that is too large, or that nothing of can run
        return []
    chosen = choose_samples(finding.default, source.space(GPU), samples) if source.params else [{}]
    kind = C_TYPES.get(dtype, dtype)
    return [{"name": source.function.name, "config": config, "text": source.text, "file": str(source.file),
             "expression": expression_of(source, {**shape, **config}, kind), "threads": source.threads({**shape, **config}),
             "defines": {name: as_macro(value) for name, value in config.items()
                         if name not in {slot.name for slot in source.function.template}} | {k: str(v) for k, v in shape.items()}
             | followed(source.tied, config),
             "loose": sorted(frozenset(source.holds.defines) - source.holds.guarded)} for config in chosen]


def expression_of(source: CudaSource, config: Mapping[str, Any], c_type: str) -> str:
    """Return the function as NVRTC is asked for it, with its template's values; `c_type` of its tensors, "" for the file's own."""
    if source.tuner is not None and "<" in source.tuner["name"]:
        return str(source.tuner["name"])
    function = source.function
    arguments = []
    for parameter in function.template:
        if parameter.is_type:
            arguments.append(type_of(function, parameter, c_type, source.holds.types))
        else:
            value = config.get(parameter.name, source.given.get(parameter.name) or parameter.default)
            arguments.append(as_macro(value) if isinstance(value, bool | int) else str(value))
    while arguments and not arguments[-1]:
        arguments.pop()
    return function.qualified + (f"<{', '.join(arguments)}>" if arguments else "")


def compile_jobs(findings: Sequence[Found], jobs: list[dict[str, Any]], say: Callable[[int, int], None]) -> None:
    """Compile samples of what is found, and put into it what came of them."""
    if not jobs:
        return
    if not has_compiler():
        for finding in findings:
            finding.problems.append(Problem("nothing was compiled: NVIDIA's run-time compiler is not installed here", INSTALL))
        return
    answer = process.ask_child("tuner.bring.cuda.compiling", {"compile": jobs, "compile_s": COMPILE_S}, len(jobs), COMPILE_S, say)
    order = [job["config"] for job in jobs]
    for finding in findings:
        finding.compiled = sorted(answer.get("compiled", {}).get(finding.name, []),
                                  key=lambda line: (order.index(line["config"]), int(line["gpu"].removeprefix("sm_"))))
        if "failed" in answer:
            finding.problems.insert(0, Problem(f"nothing was compiled: {answer['failed']}"))
        broken = sorted({line["error"] for line in finding.compiled if "error" in line})
        if finding.compiled and all("error" in line for line in finding.compiled):
            finding.problems.insert(0, Problem(f"no sample compiles: {broken[0]}", "--shape NAME=NUMBER gives a macro its value"))


def has_compiler() -> bool:
    """Return whether cuda-core and NVRTC's bindings are installed here."""
    try:
        return all(importlib.util.find_spec(name) is not None for name in ("cuda.core", "cuda.bindings.nvrtc"))
    except ModuleNotFoundError:
        return False

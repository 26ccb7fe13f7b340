"""CUTLASS profiler: every kernel of an operation over problems, timed and checked by itself; its CSV becomes a profile.

Options as tools/profiler/src/options.cu of NVIDIA/cutlass names them. Rows are written as kernels are done: what a stop cuts short
holds those that were.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

from profiles.base.refused import Refused
from profiles.capture.tools.options import (
    TIME_LIMIT_S,
    Options,
    choice_of,
    names_like,
    read_yes_or_no,
    text_like,
    whole_number,
)
from profiles.capture.tools.tool import (
    COMMON_FAILURES,
    TIME_LIMIT,
    CaptureTool,
    Failure,
    Field,
    Group,
    Paths,
    Result,
    Stop,
    program_help,
)

PROGRAM = "cutlass_profiler"
PLACES = ("/opt/cutlass/build/tools/profiler/cutlass_profiler", "/usr/local/cutlass/bin/cutlass_profiler")
OPERATIONS = dict.fromkeys(("gemm", "grouped_gemm", "block_scaled_gemm", "blockwise_gemm", "spgemm", "conv2d", "conv3d", "rank_k",
                            "rank_2k", "trmm", "symm"), "")
PROVIDERS = {"cutlass": "", "cublas": "where it was built with it", "cudnn": "where it was built with it"}
MAX_ITERATIONS = 100_000
# arguments that Ridgepoint gives, or that name files
_NOT_ARGUMENTS = frozenset((
    "operation", "function", "kernels", "operation_names", "m", "n", "k", "providers", "profiling-iterations", "warmup-iterations",
    "verification-enabled", "output", "junit-output", "append", "kernels-file", "testlist-file", "save-workspace", "devices",
    "mode", "help", "version", "device-info", "verbose"))
_NO_GPU = "cudaGetNumDevices() failed"
_KERNEL = re.compile(r"[A-Za-z0-9_*][A-Za-z0-9_*.-]{0,199}")
_SIZES = re.compile(r"[1-9][0-9]{0,7}(:[1-9][0-9]{0,7}){0,2}(,[1-9][0-9]{0,7}(:[1-9][0-9]{0,7}){0,2}){0,31}")
_ARGUMENT = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}=[A-Za-z0-9_.*:+-]{1,150}")
_read_arguments = names_like(_ARGUMENT, "A=f16:row")
_SIZE = "a size such as 4096, several (1024,2048) or a range (1024:8192:1024)"


def read_arguments(value: Any) -> tuple[str, ...]:
    """Return further arguments NAME=value, none of which names a file or is given already. Raises ValueError."""
    arguments: tuple[str, ...] = _read_arguments(value)
    names = [argument.partition("=")[0] for argument in arguments]
    if strangers := [name for name in names if name in _NOT_ARGUMENTS or "file" in name.lower()]:
        raise ValueError(f"{strangers[0]} is not asked for here")
    if len(set(names)) < len(names):
        raise ValueError("each argument once")
    return arguments


@dataclass(frozen=True)
class CutlassOptions(Options):
    """A run of the CUTLASS profiler."""

    operation: str = "gemm"
    kernels: tuple[str, ...] = ()          # parts of names, * stands for anything; none: every kernel that was built
    m: str = "4096"
    n: str = "4096"
    k: str = "4096"
    arguments: tuple[str, ...] = ()        # A=f16:row, h=56, cluster_m=2 …
    providers: tuple[str, ...] = ("cutlass",)
    profiling_iterations: int = 100        # launches that are timed
    warmup_iterations: int = 10
    verification: bool = True

    TOOL = "cutlass"
    READ = {
        "operation": choice_of(OPERATIONS), "kernels": names_like(_KERNEL, "cutlass_tensorop_*"), "m": text_like(_SIZES, _SIZE),
        "n": text_like(_SIZES, _SIZE), "k": text_like(_SIZES, _SIZE), "arguments": read_arguments,
        "providers": names_like(re.compile("|".join(PROVIDERS)), "cutlass"),
        "profiling_iterations": whole_number(1, MAX_ITERATIONS), "warmup_iterations": whole_number(0, MAX_ITERATIONS),
        "verification": read_yes_or_no, "time_limit_s": whole_number(*TIME_LIMIT_S)}

    def problems(self) -> dict[str, str]:
        return {} if self.providers else {"providers": "at least one"}


def build_argv(options: CutlassOptions, program: Sequence[str], report: str, paths: Paths) -> list[str]:
    """Return the profiler with its options; it puts the operation's name before .csv. Raises Refused."""
    if not PurePosixPath(program[0]).name.startswith(PROGRAM):
        raise Refused({"target": f"the target must be the CUTLASS profiler: {PROGRAM}, or the path of one"})
    own = paths.program if program[0] == PROGRAM and paths.program.startswith("/") else program[0]
    sizes = [f"--{name}={value}" for name, value in (("m", options.m), ("n", options.n), ("k", options.k)) if value]
    return [own, *program[1:], f"--operation={options.operation}", *sizes,
            *([f"--kernels={','.join(options.kernels)}"] if options.kernels else []),
            *(f"--{argument}" for argument in options.arguments), f"--providers={','.join(options.providers)}",
            f"--profiling-iterations={options.profiling_iterations}", f"--warmup-iterations={options.warmup_iterations}",
            f"--verification-enabled={'true' if options.verification else 'false'}", f"--output={report}"]


@lru_cache(maxsize=1)
def installed_cutlass() -> dict[str, str]:
    """Return {"path", "version"} of this host's CUTLASS profiler, or {"missing": why}."""
    named = os.environ.get("RIDGEPOINT_CUTLASS_PROFILER")
    paths = [named] if named else [shutil.which(PROGRAM), *PLACES]
    path = next((path for path in paths if path and os.access(path, os.X_OK)), None)
    if path is None:
        return {"missing": f"{PROGRAM} is neither on PATH nor at {', '.join(PLACES)}; RIDGEPOINT_CUTLASS_PROFILER may name it"}
    output = program_help([path, "--version"])
    version = re.search(r"^CUTLASS (\S+) built on (\w+ +\d+ \d+)", output, re.MULTILINE)
    if version is None:         # it looks for a GPU before it reads its arguments
        why = "it sees no CUDA GPU" if _NO_GPU in output else f"--version says: {output.strip()[:300]}"
        return {"missing": f"{path}: {why}"}
    # one that was built as the sources stand prints the name of a variable in place of the version
    return {"path": path, "version": f"built {' '.join(version[2].split())}" if version[1].startswith("@") else version[1]}


TOOL = CaptureTool(
    name=CutlassOptions.TOOL, title="CUTLASS profiler", heading="Kernels with the CUTLASS profiler",
    purpose="which kernel of CUTLASS is fastest for a problem",
    note="The program is `cutlass_profiler`, or the path of one.",
    options=CutlassOptions, argv=build_argv, installed=installed_cutlass, label=lambda options: f"CUTLASS {options.operation}",
    results=(Result("report*.csv", what="one row a kernel and problem"),), stop=Stop(grace_s=5, signal=signal.SIGTERM),
    one_process="the CUTLASS profiler times one GPU",
    slowdown=lambda options: f"each kernel runs {options.profiling_iterations + options.warmup_iterations} times for each problem",
    form=(
        Field("operation", "Operation", "choice", choices=OPERATIONS),
        Group((Field("m", "m", help="4096, 1024,2048 or 1024:8192:1024", attrs={"class": "mono"}),
               Field("n", "n", attrs={"class": "mono"}), Field("k", "k", attrs={"class": "mono"}))),
        Field("kernels", "Kernels", "lines", "parts of names, * stands for anything; empty: all that were built",
              attrs={"class": "mono", "spellcheck": "false", "placeholder": "cutlass3x_sm90_tensorop_*"}),
        Field("arguments", "Further arguments", "lines", "NAME=value, one per line",
              attrs={"class": "mono", "spellcheck": "false", "placeholder": "A=f16:row"}),
        Field("providers", "Compare with", "many", choices=PROVIDERS),
        Group((Field("profiling_iterations", "Timed launches", "number"), Field("warmup_iterations", "Warm-up", "number"))),
        Field("verification", "Check results", "yes"),
        TIME_LIMIT,
    ),
    failures=(
        Failure(rf"{re.escape(_NO_GPU)}|cudaGetDeviceProperties\(\) failed", "the CUTLASS profiler sees no CUDA GPU",
                "try nvidia-smi on the worker; build it with a toolkit that the driver takes"),
        Failure(r"Could not open output file", "the CUTLASS profiler could not write its table", "free space on the worker"),
        *COMMON_FAILURES,
    ),
)

"""Launches a suite's kernels a few times under ncu or torch.profiler.

    RIDGEPOINT_KERNELS=kernels.json python -m tuner.tuning.measure.counted

The file says which kernels, with which configuration, and how they were timed (`workers.fresh.captured` writes it). Each launch
that counts lies in the NVTX range `RANGE`, which is what ncu is told to profile, and in one that names its kernel, by which the
report tells launches of several kernels apart. Compiling, warming up and flushing L2 lie outside. After each round over the
kernels the builtin `ridgepoint_step()` is called where torch.profiler's launcher put it.
"""

from __future__ import annotations

import builtins
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tuner.tuning.kernels.problem import Problem
from tuner.tuning.measure.child import source_hash
from tuner.tuning.measure.flush import Flush
from tuner.tuning.operators import find, limits
from tuner.tuning.team import packages
from tuner.tuning.trial import Config

SPEC = "RIDGEPOINT_KERNELS"
RANGE = "ridgepoint"
WARMUP = 3
EXIT_NOTHING = 76


@dataclass(frozen=True)
class WarmKernel:
    """One kernel that was compiled and launched."""

    key: str
    launch: Callable[[], Any]


def say(text: str) -> None:
    """Print one line for whoever reads the log."""
    print(f"ridgepoint: {text}", flush=True)


def warm_up(one: Mapping[str, Any], device: torch.device) -> WarmKernel:
    """Compile by the build's own code and launch once. Raises whatever the kernel raises."""
    operator = find(one["operator"])
    if operator is None:
        raise ValueError(f"no operator {one['operator']} is known here")
    module = importlib.import_module(operator.kernel_module)
    here, measured = source_hash(module, operator.name), one.get("source_hash") or ""
    if measured and here != measured:
        raise ValueError(f"the code here (source {here[:12]}) is not what was measured ({measured[:12]}): "
                         "put the build's code where the suite's build_path says, or measure the build again")
    problem: Problem = module.PROBLEMS[operator.name](one["shape"], one["dtype"], device, int(one.get("seed", 0)))
    config: Config = one.get("config") or operator.default_config(one["shape"], one["dtype"], limits(*_device_facts(device)))
    for _ in range(WARMUP):
        problem.launch(config)
    _finish(device)
    say(f"{one['key']}: {config}, source {here[:12]}")
    return WarmKernel(one["key"], lambda: problem.launch(config))


def launch_rounds(kernels: Sequence[WarmKernel], number: int, cold: bool, device: torch.device) -> None:
    """Launch each kernel once a round, L2 cold or warm as its samples were taken."""
    flush = Flush(device, torch.cuda.get_device_properties(device).L2_cache_size) if cold and device.type == "cuda" else None
    for _ in range(number):
        for kernel in kernels:
            if cold:
                if flush is not None:
                    flush.begin()
                    flush()
            else:
                kernel.launch()
            _finish(device)
            with mark_launches(kernel.key, device):
                kernel.launch()
            _finish(device)
        step = getattr(builtins, "ridgepoint_step", None)
        if step is not None:
            step()


@contextmanager
def mark_launches(key: str, device: torch.device) -> Iterator[None]:
    """Mark launches inside the block, for ncu and for torch.profiler's timeline."""
    if device.type != "cuda":
        with torch.profiler.record_function(key):
            yield
        return
    named = torch.cuda.nvtx.range_start(key)            # beside the stack: `RANGE` alone lies on it, as ncu's filter wants it
    with torch.profiler.record_function(key), torch.cuda.nvtx.range(RANGE):
        yield
    torch.cuda.nvtx.range_end(named)


def _device_facts(device: torch.device) -> tuple[str, str | None, int | None]:
    if device.type != "cuda":
        return "", None, None
    properties = torch.cuda.get_device_properties(device)
    return properties.name, f"{properties.major}.{properties.minor}", properties.multi_processor_count


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def run(spec: Mapping[str, Any], device: torch.device) -> int:
    """Launch every kernel of the specification; return the exit status."""
    kernels = []
    for kernel_spec in spec["kernels"]:
        try:
            kernels.append(warm_up(kernel_spec, device))
        except Exception as error:          # one kernel's fault: the others are looked at all the same
            say(f"{kernel_spec['key']} cannot be launched: {type(error).__name__}: {error}"[:2000])
    if not kernels:
        return EXIT_NOTHING
    launch_rounds(kernels, int(spec["rounds"]), spec["kind"] == "cold", device)
    return 0


def main() -> int:
    """Read the specification and run it; return the exit status."""
    place = os.environ.get(SPEC)
    if not place:
        say(f"{SPEC} names no file: this program launches the kernels of a benchmark suite, and a worker says which")
        return EXIT_NOTHING
    packages.provide()
    if not torch.cuda.is_available():
        say("torch sees no CUDA GPU: install a CUDA build of torch; try nvidia-smi on this worker")
        return EXIT_NOTHING
    return run(json.loads(Path(place).read_text(encoding="utf-8")), torch.device("cuda"))


if __name__ == "__main__":
    sys.exit(main())

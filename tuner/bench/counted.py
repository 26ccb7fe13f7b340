"""Launches kernels a few times for a profiler that looks on: what a suite's runs time, once more under ncu or torch.profiler.

    RIDGEPOINT_KERNELS=kernels.json python -m tuner.bench.counted

The file says which kernels, with which configuration, and how they were timed (`workers.counted` writes it). Each launch that
counts lies in the NVTX range `RANGE`, which is what ncu is told to profile, and in one that names its kernel, by which the report
tells launches of several kernels apart. Compiling, warming up and flushing L2 lie outside. After each round over the kernels the
builtin `ridgepoint_step()` is called where torch.profiler's launcher put it.
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

from tuner.bench.child import source_hash
from tuner.kernels.problem import Problem
from tuner.operators import find, limits
from tuner.team import packages
from tuner.trial import Config

SPEC = "RIDGEPOINT_KERNELS"
RANGE = "ridgepoint"
WARMUP = 3
FLUSH_BYTES = 256 * 2**20           # as the cold timer writes: more than any L2
EXIT_NOTHING = 76


@dataclass(frozen=True)
class Ready:
    """One kernel that has been compiled and launched."""

    key: str
    launch: Callable[[], Any]


def say(text: str) -> None:
    print(f"ridgepoint: {text}", flush=True)


def ready(one: Mapping[str, Any], device: torch.device) -> Ready:
    """Compiled by the build's own code and warmed up. Raises whatever the kernel raises."""
    operator = find(one["operator"])
    if operator is None:
        raise ValueError(f"no operator {one['operator']} is known here")
    module = importlib.import_module(operator.kernel_module)
    here, measured = source_hash(module, operator.name), one.get("source_hash") or ""
    if measured and here != measured:
        raise ValueError(f"the code here (source {here[:12]}) is not what was measured ({measured[:12]}): "
                         "put the build's code where the suite's build_path says, or measure the build again")
    problem: Problem = module.PROBLEMS[operator.name](one["shape"], one["dtype"], device, int(one.get("seed", 0)))
    config: Config = one.get("config") or operator.default_config(one["shape"], one["dtype"], limits(*_device(device)))
    for _ in range(WARMUP):
        problem.launch(config)
    _finish(device)
    say(f"{one['key']}: {config}, source {here[:12]}")
    return Ready(one["key"], lambda: problem.launch(config))


def rounds(kernels: Sequence[Ready], number: int, cold: bool, device: torch.device) -> None:
    """Each kernel once a round, as its samples were taken: after a write to more than L2, or with L2 as the last launch left it."""
    flush = torch.empty(FLUSH_BYTES if cold and device.type == "cuda" else 0, dtype=torch.int8, device=device)
    for _ in range(number):
        for kernel in kernels:
            if cold:
                flush.zero_()
            else:
                kernel.launch()
            _finish(device)
            with within(kernel.key, device):
                kernel.launch()
            _finish(device)
        step = getattr(builtins, "ridgepoint_step", None)
        if step is not None:
            step()


@contextmanager
def within(key: str, device: torch.device) -> Iterator[None]:
    """Marks what is launched now: for ncu, and by name for torch.profiler's timeline."""
    if device.type != "cuda":
        with torch.profiler.record_function(key):
            yield
        return
    named = torch.cuda.nvtx.range_start(key)            # beside the stack: `RANGE` alone lies on it, as ncu's filter wants it
    with torch.profiler.record_function(key), torch.cuda.nvtx.range(RANGE):
        yield
    torch.cuda.nvtx.range_end(named)


def _device(device: torch.device) -> tuple[str, str | None, int | None]:
    if device.type != "cuda":
        return "", None, None
    found = torch.cuda.get_device_properties(device)
    return found.name, f"{found.major}.{found.minor}", found.multi_processor_count


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def run(spec: Mapping[str, Any], device: torch.device) -> int:
    """Every kernel that can be launched; the others are said. The exit status."""
    kernels = []
    for one in spec["kernels"]:
        try:
            kernels.append(ready(one, device))
        except Exception as error:          # one kernel's fault: the others are looked at all the same
            say(f"{one['key']} cannot be launched: {type(error).__name__}: {error}"[:2000])
    if not kernels:
        return EXIT_NOTHING
    rounds(kernels, int(spec["rounds"]), spec["kind"] == "cold", device)
    return 0


def main() -> int:
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

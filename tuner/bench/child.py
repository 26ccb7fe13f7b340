"""The process that owns CUDA: compiles, checks and times configurations of one operator and shape; may die of it.

Started by workers.sandbox as `python -m tuner.bench.child READ_FD WRITE_FD PARENT_PID`; speaks tuner.bench.wire.
Only operators of the OPERATORS table can be named.
"""

from __future__ import annotations

import hashlib
import importlib
import math
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton

from tuner.bench import accuracy, nvml, timing, wire
from tuner.bench.device import alive
from tuner.kernels.problem import Problem
from tuner.operators import OPERATORS, Operator
from tuner.trial import Config, Reason

MESSAGE_CHARS = 2000
_RESOURCES = ("OutOfResources", "OutOfMemoryError")


class Bench:
    """One operator, shape and dtype on one device. Methods are the requests of the protocol."""

    def __init__(self, device: torch.device, timer: Callable[[torch.device], timing.Timer]) -> None:
        self.device, self._make_timer = device, timer
        self.problem: Problem
        self.operator: Operator

    def handlers(self) -> dict[str, wire.Handler]:
        return {"open": self.open, "compile": self.compile, "run": self.run, "finalists": self.finalists}

    def open(self, request: dict[str, Any]) -> dict[str, Any]:
        """Inputs, reference, timer; `library_ms` when asked. Raises wire.Failed when there is nothing to measure on."""
        if request["operator"] not in OPERATORS:
            raise wire.Failed(f"unknown operator {request['operator']!r}", f"one of {', '.join(OPERATORS)}")
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise wire.Failed("torch sees no CUDA GPU", "install a CUDA build of torch; try nvidia-smi on this worker")
        self.operator = OPERATORS[request["operator"]]
        self.tolerance = self.operator.tolerance.get(request["dtype"]) or accuracy.TOLERANCE[request["dtype"]]
        self.policy = timing.Policy(**request.get("policy", {}))
        self.gpu_index = int(request.get("gpu_index", 0))
        module = importlib.import_module(self.operator.kernel_module)
        make = module.PROBLEMS[self.operator.name]
        library_ms = None
        try:
            self.problem = make(request["shape"], request["dtype"], self.device, request["seed"])
            self.timer = self._make_timer(self.device)
            if request["library"]:
                library_ms = timing.measure(self.timer, self.problem.library, self.policy).median_ms
        except ValueError as error:
            raise wire.Failed(str(error), "choose another shape") from error
        except torch.cuda.OutOfMemoryError as error:
            raise wire.Failed(f"the GPU has too little free memory: {_short(error)}",
                              "choose a smaller shape, or free the GPU") from error
        source = Path(module.__file__ or "").read_bytes()
        return {**self._device_facts(), "library_ms": library_ms,
                "policy": {**self.policy.as_json(), **self.timer.about(), "tolerance": self.tolerance},
                "source_hash": hashlib.sha256(source).hexdigest()}

    def _device_facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"torch": torch.__version__, "triton": triton.__version__, "cuda": torch.version.cuda,
                                 "python": platform.python_version(), "clocks": nvml.reading(self.gpu_index)}
        if self.device.type != "cuda":
            return {**facts, "gpu": platform.processor() or "CPU", "compute_capability": None}
        properties = torch.cuda.get_device_properties(self.device)
        driver = next((gpu["driver"] for gpu in nvml.devices()), None)
        return {**facts, "gpu": properties.name, "compute_capability": f"{properties.major}.{properties.minor}",
                "sms": properties.multi_processor_count, "l2_bytes": properties.L2_cache_size,
                "memory_bytes": properties.total_memory, "driver": driver}

    def compile(self, request: dict[str, Any]) -> dict[str, Any]:
        started = time.perf_counter()
        try:
            self.problem.compile(request["config"])
        except Exception as error:
            reason = Reason.RESOURCES if _is_resources(error) else Reason.COMPILE
            raise wire.Refused(reason, _short(error), compile_s=round(time.perf_counter() - started, 3)) from error
        return {"compile_s": round(time.perf_counter() - started, 3)}

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Check on fresh inputs, then time. A wrong result is never timed."""
        config = request["config"]
        kernel, facts = self._checked(config, request["seed"])
        times, clocks = timing.with_clocks(self.gpu_index, lambda: self._guarded(
            lambda: timing.measure(self.timer, lambda: self.problem.launch(config), self.policy)))
        return {**times.as_json(), "facts": {**facts, **_kernel_facts(kernel), "clocks": clocks}}

    def finalists(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        configs = request["configs"]
        launches = [lambda config=config: self.problem.launch(config) for config in configs]
        times, clocks = timing.with_clocks(
            self.gpu_index, lambda: self._guarded(lambda: timing.interleaved(self.timer, launches, self.policy)))
        return [{**taken.as_json(), "facts": {"clocks": clocks, "interleaved": len(configs)}} for taken in times]

    def _checked(self, config: Config, seed: int) -> tuple[Any, dict[str, Any]]:
        kernel, verdict = self._guarded(lambda: accuracy.check(self.problem, config, seed, self.tolerance))
        if not verdict.right:
            raise wire.Refused(Reason.WRONG, verdict.message, **_kernel_facts(kernel), inputs_seed=seed,
                               relative_error=verdict.relative_error if math.isfinite(verdict.relative_error) else None)
        return kernel, {"relative_error": verdict.relative_error, "worst_error": verdict.worst, "inputs_seed": seed}

    def _guarded(self, work: Callable[[], Any]) -> Any:
        """Turn what goes wrong on the GPU into a reason; say whether the CUDA context survived it."""
        try:
            return work()
        except wire.Refused:
            raise
        except Exception as error:
            if not alive(self.device):
                raise wire.Refused(Reason.CRASH, _short(error), fatal=True) from error
            reason = Reason.RESOURCES if _is_resources(error) else Reason.OTHER
            raise wire.Refused(reason, _short(error)) from error


def _kernel_facts(kernel: Any) -> dict[str, Any]:
    """Registers per thread, spills and shared memory as Triton reports them once the module is loaded."""
    metadata = getattr(kernel, "metadata", None)
    facts = {"registers": getattr(kernel, "n_regs", None), "spills": getattr(kernel, "n_spills", None),
             "smem_bytes": getattr(metadata, "shared", None)}
    return {name: value for name, value in facts.items() if value is not None}


def _is_resources(error: Exception) -> bool:
    return any(name in (cls.__name__ for cls in type(error).__mro__) for name in _RESOURCES)


def _short(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}".strip()
    return text if len(text) <= MESSAGE_CHARS else text[:MESSAGE_CHARS] + " …"


def main(argv: list[str]) -> None:
    read_fd, write_fd, parent_pid = (int(arg) for arg in argv)
    wire.enter_child(parent_pid)
    wire.serve(Bench(torch.device("cuda"), timing.CudaTimer).handlers(), read_fd, write_fd)
    os._exit(0)                     # no teardown of a CUDA context that may be poisoned


if __name__ == "__main__":
    main(sys.argv[1:])

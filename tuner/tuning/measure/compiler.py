"""The process that compiles configurations ahead of the GPU child; it never opens CUDA.

Started by workers.core.compilers as `python -m tuner.tuning.measure.compiler READ_FD WRITE_FD PARENT_PID`; speaks
tuner.tuning.wire. Its binaries reach the child that measures through Triton's cache folder (TRITON_CACHE_DIR).
"""

from __future__ import annotations

import importlib
import os
import resource
import sys
import time
from typing import Any

os.environ["CUDA_VISIBLE_DEVICES"] = ""         # before torch: whatever a kernel's module does, there is no GPU to open

import torch
import triton

from tuner.tuning import wire
from tuner.tuning.kernels.problem import Problem
from tuner.tuning.measure import offline
from tuner.tuning.operators import OPERATORS, find
from tuner.tuning.team import packages
from tuner.tuning.trial import Reason, error_text

MAX_DATA_BYTES = 24 * 2**30       # of memory: a compiler that runs away fails alone
NICENESS = 10                     # the process that times kernels goes first


class Compiler:
    """One operator, shape and dtype for one GPU model; methods are the protocol's requests."""

    problem: Problem

    def __init__(self) -> None:
        self.launchers = offline.Launchers()
        offline.make_empty_like_plain()

    def handlers(self) -> dict[str, wire.Handler]:
        return {"open": self.open, "compile": self.compile}

    def open(self, request: dict[str, Any]) -> dict[str, Any]:
        """Set what to compile and for which GPU."""
        operator = find(request["operator"])
        if operator is None:
            raise wire.Failure(f"unknown operator {request['operator']!r}", f"one of {', '.join(OPERATORS)}")
        if request.get("triton", triton.__version__) != triton.__version__:        # its binaries would never be looked for
            raise wire.Failure(f"Triton {triton.__version__} compiles here, {request['triton']} measures",
                               "install the same Triton on all workers")
        self.compute_capability = request["compute_capability"]
        offline.set_target(self.compute_capability, request["sms"])
        try:
            make = importlib.import_module(operator.kernel_module).PROBLEMS[operator.name]
            self.problem = make(request["shape"], request["dtype"], torch.device("meta"), request["seed"])
        except Exception as error:          # a team's code may need values, which "meta" has none of: the GPU child compiles then
            raise wire.Failure(f"no compile ahead: {error_text(error)}") from error
        return {"triton": triton.__version__}

    def compile(self, request: dict[str, Any]) -> dict[str, Any]:
        """Compile one configuration; return its static facts."""
        started = time.perf_counter()
        try:
            kernels = self.problem.compile(request["config"])
            self.launchers.build(kernels)
        except Exception as error:
            raise wire.Rejection(offline.reason_of(error), error_text(error), compile_s=_elapsed_s(started)) from error
        facts = {**offline.static_facts(kernels, self.compute_capability), "compile_s": _elapsed_s(started)}
        too_much = offline.why_not_start(facts, self.compute_capability)
        if too_much is not None:
            raise wire.Rejection(Reason.RESOURCES, f"does not fit: {too_much}", **facts)
        return facts


def _elapsed_s(started: float) -> float:
    return round(time.perf_counter() - started, 3)


def enter(parent_pid: int) -> None:
    """Become a compile process that dies with its parent."""
    wire.enter_child(parent_pid)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""         # of a fork, whose variables came after the imports
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_DATA_BYTES, MAX_DATA_BYTES))
    torch.set_num_threads(1)


def main(argv: list[str]) -> None:
    """Serve requests until the worker closes its end."""
    read_fd, write_fd, parent_pid = (int(arg) for arg in argv)
    enter(parent_pid)
    packages.provide()
    wire.serve(Compiler().handlers(), read_fd, write_fd)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])

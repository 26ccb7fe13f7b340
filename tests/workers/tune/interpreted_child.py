"""The real GPU child on the CPU: Triton's interpreter for the compiler, a host clock for CUDA events."""

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"       # before any kernel is decorated

import torch

from tests.workers.tune.host_timer import HostTimer
from tuner.tuning import wire
from tuner.tuning.measure import child
from tuner.tuning.team import packages


class Bench(child.Bench):
    """Adds configurations whose kernel lies."""

    def run(self, request):
        lie, launch = request["config"].get("lie"), type(self.problem).launch
        if lie == "unwritten":
            self.problem.launch = lambda config: None
        elif lie == "scaled":
            self.problem.launch = lambda config: (launch(self.problem, config), self.problem.out.mul_(1.05))
        elif lie == "one element":
            self.problem.launch = lambda config: (launch(self.problem, config), self.problem.out[0, :1].add_(1.0))
        elif lie == "raises":
            self.problem.launch = lambda config: 1 / 0
        try:
            return super().run(request)
        finally:
            self.problem.__dict__.pop("launch", None)

    def compile(self, request):
        return {"compile_s": 0.0}          # the interpreter has nothing to compile


if __name__ == "__main__":
    wire.enter_child(int(sys.argv[3]))
    packages.provide()
    wire.serve(Bench(torch.device("cpu"), HostTimer).handlers(), int(sys.argv[1]), int(sys.argv[2]))

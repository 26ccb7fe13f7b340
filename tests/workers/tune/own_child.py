"""The measuring process of an own kernel on the CPU: Triton's interpreter for the compiler, a host clock for CUDA events."""

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"       # before any kernel is decorated

import torch

from tests.workers.tune.host_timer import HostTimer
from tuner.bring.travel import measuring
from tuner.tuning import wire


class Bench(measuring.Bench):
    def compile(self, request):
        return {"compile_s": 0.0}          # the interpreter has nothing to compile


if __name__ == "__main__":
    wire.enter_child(int(sys.argv[3]))
    measuring.provide()
    wire.serve(Bench(torch.device("cpu"), HostTimer).handlers(), int(sys.argv[1]), int(sys.argv[2]))

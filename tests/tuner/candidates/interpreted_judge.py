"""The real judge on the CPU: Triton's interpreter for the compiler, a host clock for CUDA events."""

import os
import sys
import time

os.environ["TRITON_INTERPRET"] = "1"       # before any kernel is decorated

import torch

from tuner.candidates.judge.child import Judge, answer, read_request

now_s = time.perf_counter       # as the judge takes its clock: before the candidate comes


class HostTimer:
    def __init__(self, taken, gpu_index, policy):
        pass

    def samples(self, launch, count):
        launch.begin(count)
        taken = []
        for _ in range(count):
            launch.before()
            started = now_s()
            launch()
            taken.append((now_s() - started) * 1000)
            launch.after()
        launch.settle()
        return taken

    def about(self):
        return {"cold_l2": False}

    def reading(self):
        return {}


if __name__ == "__main__":
    request = read_request()
    request["policy"] = {"rounds": 6, "batch": 3, "warmup": 1}
    sys.exit(answer(request, lambda say: Judge(request, torch.device("cpu"), say, HostTimer)))

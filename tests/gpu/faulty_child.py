"""The real GPU child with kernels that go wrong on purpose: illegal access, a hang, a wrong result, too much shared memory."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
import triton
import triton.language as tl

from tuner.tuning import wire
from tuner.tuning.measure.child import Bench

HANG_CYCLES = 40_000_000_000      # about 20 s at 2 GHz: far beyond the test's limit, and over by itself


@triton.jit
def stray_store(out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i + (1 << 40), 1.0)


class Faulty(Bench):
    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        fault = request["config"].pop("fault", "")
        launch = self.problem.launch
        if fault == "illegal access":
            self.problem.launch = lambda config: stray_store[(4,)](self.problem.out, 4, BLOCK=128)
        elif fault == "hang":
            self.problem.launch = lambda config: torch.cuda._sleep(HANG_CYCLES)
        elif fault == "wrong":
            self.problem.launch = lambda config: (launch(config), self.problem.out[0, :64].zero_())[0]
        elif fault == "dies":
            os.abort()
        try:
            return super().run(request)
        finally:
            self.problem.launch = launch

    def compile(self, request: dict[str, Any]) -> dict[str, Any]:
        request["config"].pop("fault", "")
        return super().compile(request)


if __name__ == "__main__":
    wire.enter_child(int(sys.argv[3]))
    wire.serve(Faulty(torch.device("cuda")).handlers(), int(sys.argv[1]), int(sys.argv[2]))
    os._exit(0)

"""The real GPU child on the CPU with an operator that lists its own space: a product of matrices by torch, in several real ways."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch

from tests.workers.tune.host_timer import HostTimer
from tuner.tuning import wire
from tuner.tuning.kernels.problem import Unavailable, normal_tensors
from tuner.tuning.measure import child
from tuner.tuning.offer import Offer
from tuner.tuning.operators import VENDORS, Dim, Operator
from tuner.tuning.operators.vendor import library_choice, unlisted_space
from tuner.tuning.trial import Config

NAME, LIBRARY = "host_matmul", "host products 1.0"
WAYS = ("whole", "rows", "columns", "truncated")            # the last one is wrong
OPERATOR = Operator(
    name=NAME, title="Products on the host", dims=(Dim("M", "rows", exact=True),), dtypes=("fp32",), presets=({"M": 64},),
    space=unlisted_space, default_config=library_choice, flops=lambda shape: 2 * shape["M"] ** 3,
    bytes=lambda shape, dtype: 12 * shape["M"] ** 2, kernel_module="tests.workers.tune.listing_child", kernel_names=(),
    tolerance={"fp32": 1e-4}, unit="FLOP/s", library="torch", listed_on_gpu=True, parameters=("WAY", "BLOCK", "LIBRARY"))
NOTHING_M, MISSING_M = 7, 13


class HostMatmul:
    def __init__(self, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        size = shape["M"]
        if size == MISSING_M:
            raise Unavailable("no library of host products", "install it")
        self.a, self.b, self.out = (torch.empty((size, size), device=device) for _ in range(3))
        self.refill(seed)

    def refill(self, seed: int) -> None:
        normal_tensors(seed, self.a, self.b)

    def reference(self) -> torch.Tensor:
        return self.a @ self.b

    def library(self) -> torch.Tensor:
        return self.a @ self.b

    def environment(self) -> dict[str, Any]:
        return {"host_products": "1.0"}

    def offer(self) -> Offer:
        size = len(self.a)
        configs = [{"WAY": way, "BLOCK": block, "LIBRARY": LIBRARY} for way in WAYS for block in (8, 16, 32)]
        kept = [] if size == NOTHING_M else configs
        return Offer.of(kept, LIBRARY, preferred=kept[4:6], pruned={"too small a matrix": 3})

    def compile(self, config: Config) -> None:
        if config and config["LIBRARY"] != LIBRARY:
            raise ValueError(f"the configuration is of {config['LIBRARY']}")

    def launch(self, config: Config) -> None:
        self.compile(config)
        way, block = config.get("WAY", "whole"), int(config.get("BLOCK", 16))
        if way == "whole":
            torch.matmul(self.a, self.b, out=self.out)
            return
        for first in range(0, len(self.a), block):
            part = slice(first, first + block)
            if way == "columns":
                self.out[:, part] = self.a @ self.b[:, part]
            else:
                self.out[part] = self.a[part] @ self.b if way == "rows" else (self.a[part] @ self.b).round()


PROBLEMS = {NAME: HostMatmul}


def source_hash(operator: str) -> str:
    return "0" * 64


if __name__ == "__main__":
    wire.enter_child(int(sys.argv[3]))
    VENDORS[NAME] = OPERATOR
    bench = child.Bench(torch.device("cpu"), HostTimer)
    bench.compile = lambda request: bench.problem.compile(request["config"]) or {"compile_s": 0.0}       # type: ignore[method-assign]
    wire.serve(bench.handlers(), int(sys.argv[1]), int(sys.argv[2]))

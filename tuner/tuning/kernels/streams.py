"""Kernels that read and write a matrix once: SiLU-mul, sum of rows, transpose.

silu_mul   X[R, 2C] = gate | up -> silu(gate) · up, in tiles of ROWS × BLOCK
row_sum    X[R, C] -> the sum of each row, in SPLIT parts that a second kernel adds up
transpose  X[R, C] -> X[C, R], a tile of BM × BN through shared memory; ORDER says along which side tiles follow each other
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from tuner.tuning.kernels.extents import in_units, unit_of
from tuner.tuning.kernels.problem import Launch, check_elements, normal_tensors, sizes, torch_dtype
from tuner.tuning.trial import Config


@triton.jit
def silu_mul(x, y, rows, cols, sx, sy, ROWS: tl.constexpr, BLOCK: tl.constexpr, UNIT: tl.constexpr):
    cols, sx, sy = in_units(cols, UNIT), in_units(sx, UNIT), in_units(sy, UNIT)
    across = tl.cdiv(cols, BLOCK)
    pid = tl.program_id(0)
    r = (pid // across) * ROWS + tl.arange(0, ROWS)[:, None]
    i = (pid % across) * BLOCK + tl.arange(0, BLOCK)[None, :]
    m = (r < rows) & (i < cols)
    gate = tl.load(x + r * sx + i, mask=m, other=0.0).to(tl.float32)
    up = tl.load(x + r * sx + cols + i, mask=m, other=0.0).to(tl.float32)
    tl.store(y + r * sy + i, (gate / (1.0 + tl.exp(-gate)) * up).to(y.dtype.element_ty), mask=m)


@triton.jit
def row_sum(x, parts, rows, cols, sx, SPLIT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, UNROLL: tl.constexpr,
            UNIT: tl.constexpr):
    """Part `pid % SPLIT` of ROWS rows: every SPLIT-th block of BLOCK columns."""
    cols, sx = in_units(cols, UNIT), in_units(sx, UNIT)
    pid = tl.program_id(0)
    part = pid % SPLIT
    r = (pid // SPLIT) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for o in tl.range(part * BLOCK, cols, SPLIT * BLOCK, loop_unroll_factor=UNROLL):
        i = o + tl.arange(0, BLOCK)
        total += tl.load(x + r[:, None] * sx + i[None, :], mask=(r < rows)[:, None] & (i < cols)[None, :], other=0.0).to(tl.float32)
    tl.store(parts + r * SPLIT + part, tl.sum(total, 1).to(parts.dtype.element_ty), mask=r < rows)


@triton.jit
def transpose(x, y, rows, cols, sx, sy, BM: tl.constexpr, BN: tl.constexpr, ORDER: tl.constexpr, HIGH: tl.constexpr,
              WIDE: tl.constexpr):
    rows, sy, cols, sx = in_units(rows, HIGH), in_units(sy, HIGH), in_units(cols, WIDE), in_units(sx, WIDE)
    pid = tl.program_id(0)
    down, across = tl.cdiv(rows, BM), tl.cdiv(cols, BN)
    if ORDER == "rows":
        pm, pn = pid // across, pid % across
    else:
        pm, pn = pid % down, pid // down
    r = pm * BM + tl.arange(0, BM)
    c = pn * BN + tl.arange(0, BN)
    tile = tl.load(x + r[:, None] * sx + c[None, :], mask=(r < rows)[:, None] & (c < cols)[None, :])
    tl.store(y + c[:, None] * sy + r[None, :], tl.trans(tile), mask=(c < cols)[:, None] & (r < rows)[None, :])


class _Stream(ABC):

    WIDTH = 1                 # columns of X for each of C

    def __init__(self, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        self.R, self.C = sizes(shape, "R", "C")
        check_elements(X=self.R * self.C * self.WIDTH)
        self.x = torch.empty((self.R, self.C * self.WIDTH), device=device, dtype=torch_dtype(dtype))
        self.out = torch.empty(self._out_shape(), device=device, dtype=self.x.dtype)
        self.refill(seed)

    def refill(self, seed: int) -> None:
        normal_tensors(seed, self.x)

    def _out_shape(self) -> tuple[int, ...]:
        return (self.R, self.C)

    @abstractmethod
    def _calls(self, config: Config) -> list[Launch]:
        """Return what a configuration launches, in order; the first is the one that counts."""

    def compile(self, config: Config) -> Any:
        return [kernel.warmup(*args, grid=grid, **options) for kernel, grid, args, options in self._calls(config)]

    def launch(self, config: Config) -> Any:
        return [kernel[grid](*args, **options) for kernel, grid, args, options in self._calls(config)]


class SiluMul(_Stream):
    WIDTH = 2

    def reference(self) -> torch.Tensor:
        gate, up = self.x.float().chunk(2, -1)
        return torch.nn.functional.silu(gate) * up

    def library(self) -> torch.Tensor:
        return torch.nn.functional.silu(self.x[:, :self.C]) * self.x[:, self.C:]

    def _calls(self, config: Config) -> list[Launch]:
        rows, block = int(config["ROWS"]), int(config["BLOCK"])
        grid = (triton.cdiv(self.R, rows) * triton.cdiv(self.C, block),)
        args = (self.x, self.out, self.R, self.C, self.x.stride(0), self.out.stride(0))
        return [(silu_mul, grid, args, {"ROWS": rows, "BLOCK": block, "UNIT": unit_of(self.C),
                                        "num_warps": config["num_warps"]})]


class RowSum(_Stream):
    FINISH = {"SPLIT": 1, "ROWS": 16, "UNROLL": 1, "num_warps": 4}           # of the second kernel

    def __init__(self, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        super().__init__(shape, dtype, device, seed)
        self._parts: dict[int, torch.Tensor] = {}

    def _out_shape(self) -> tuple[int, ...]:
        return (self.R,)

    def reference(self) -> torch.Tensor:
        return self.x.double().sum(-1).float()

    def library(self) -> torch.Tensor:
        return self.x.sum(-1)

    def _calls(self, config: Config) -> list[Launch]:
        rows, split = int(config["ROWS"]), int(config["SPLIT"])
        first = {"UNROLL": config.get("UNROLL", 1), "UNIT": unit_of(self.C),
                 **{name: config[name] for name in ("SPLIT", "ROWS", "BLOCK", "num_warps")}}
        grid = (triton.cdiv(self.R, rows) * split,)
        if split == 1:
            return [(row_sum, grid, (self.x, self.out, self.R, self.C, self.x.stride(0)), first)]
        if split not in self._parts:
            self._parts[split] = torch.empty((self.R, split), device=self.x.device, dtype=torch.float32)
        parts = self._parts[split]
        return [(row_sum, grid, (self.x, parts, self.R, self.C, self.x.stride(0)), first),
                (row_sum, (triton.cdiv(self.R, self.FINISH["ROWS"]),), (parts, self.out, self.R, split, split),
                 {**self.FINISH, "BLOCK": split, "UNIT": unit_of(split)})]


class Transpose(_Stream):
    def _out_shape(self) -> tuple[int, ...]:
        return (self.C, self.R)

    def reference(self) -> torch.Tensor:
        return self.x.float().t().contiguous()

    def library(self) -> torch.Tensor:
        return self.x.t().contiguous()

    def _calls(self, config: Config) -> list[Launch]:
        tile = {name: config[name] for name in ("BM", "BN", "ORDER", "num_warps")}
        units = {"HIGH": unit_of(self.R), "WIDE": unit_of(self.C)}
        grid = (triton.cdiv(self.R, tile["BM"]) * triton.cdiv(self.C, tile["BN"]),)
        return [(transpose, grid, (self.x, self.out, self.R, self.C, self.x.stride(0), self.out.stride(0)), {**tile, **units})]


PROBLEMS = {"silu_mul": SiluMul, "row_sum": RowSum, "transpose": Transpose}

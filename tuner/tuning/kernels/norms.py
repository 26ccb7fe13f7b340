"""RMS norm of X[R, C], plain and fused with the addition of a residual, as a transformer's block begins.

norm_tile    ROWS whole rows at a time, held in registers between the sum of squares and the result
norm_blocks  a row per program in blocks of BLOCK columns, read twice: the second time from L2

With a residual X + residual is written too: out[0] is the norm, out[1] the sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from tuner.tuning.kernels.extents import in_units, unit_of
from tuner.tuning.kernels.problem import Launch, OneKernel, check_elements, normal_tensors, sizes, torch_dtype
from tuner.tuning.trial import Config

EPSILON = 1e-5


@triton.jit
def norm_tile(x, residual, w, y, total, rows, cols, sx, eps, ADD: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
              UNIT: tl.constexpr):
    cols, sx = in_units(cols, UNIT), in_units(sx, UNIT)
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    i = tl.arange(0, BLOCK)[None, :]
    m = (i < cols) & (r < rows)
    v = tl.load(x + r * sx + i, mask=m, other=0.0).to(tl.float32)
    if ADD:
        v += tl.load(residual + r * sx + i, mask=m, other=0.0).to(tl.float32)
        tl.store(total + r * sx + i, v.to(y.dtype.element_ty), mask=m)
    weight = tl.load(w + i, mask=i < cols, other=0.0)         # on its way while the row is summed: no load passes a barrier
    scale = 1.0 / tl.sqrt(tl.sum(v * v, 1) / cols + eps)
    tl.store(y + r * sx + i, (v * scale[:, None] * weight.to(tl.float32)).to(y.dtype.element_ty), mask=m)


@triton.jit
def norm_blocks(x, residual, w, y, total, rows, cols, sx, eps, ADD: tl.constexpr, BLOCK: tl.constexpr, UNROLL: tl.constexpr,
                UNIT: tl.constexpr):
    cols, sx = in_units(cols, UNIT), in_units(sx, UNIT)
    at = tl.program_id(0) * sx
    squares = tl.zeros((BLOCK,), tl.float32)
    for o in tl.range(0, cols, BLOCK, loop_unroll_factor=UNROLL):
        i = o + tl.arange(0, BLOCK)
        m = i < cols
        v = tl.load(x + at + i, mask=m, other=0.0).to(tl.float32)
        if ADD:
            v += tl.load(residual + at + i, mask=m, other=0.0).to(tl.float32)
            tl.store(total + at + i, v.to(y.dtype.element_ty), mask=m)
        squares += v * v
    scale = 1.0 / tl.sqrt(tl.sum(squares, 0) / cols + eps)
    for o in tl.range(0, cols, BLOCK, loop_unroll_factor=UNROLL):
        i = o + tl.arange(0, BLOCK)
        m = i < cols
        v = tl.load(x + at + i, mask=m, other=0.0).to(tl.float32)
        if ADD:
            v += tl.load(residual + at + i, mask=m, other=0.0).to(tl.float32)
        tl.store(y + at + i, (v * scale * tl.load(w + i, mask=m).to(tl.float32)).to(y.dtype.element_ty), mask=m)


class RmsNorm(OneKernel):
    ADD = False

    def __init__(self, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        super().__init__()
        self.R, self.C = sizes(shape, "R", "C")
        check_elements(X=self.R * self.C)
        kind = torch_dtype(dtype)
        self.x = torch.empty((self.R, self.C), device=device, dtype=kind)
        self.weight = torch.empty(self.C, device=device, dtype=kind)
        self.residual = torch.empty_like(self.x) if self.ADD else self.x
        self.out = torch.empty((2, self.R, self.C) if self.ADD else (self.R, self.C), device=device, dtype=kind)
        self.refill(seed)

    def refill(self, seed: int) -> None:
        normal_tensors(seed, self.x, self.weight, *([self.residual] if self.ADD else []))

    def reference(self) -> torch.Tensor:
        return torch.nn.functional.rms_norm(self.x.float(), (self.C,), self.weight.float(), EPSILON)

    def library(self) -> torch.Tensor:
        return torch.nn.functional.rms_norm(self.x, (self.C,), self.weight, EPSILON)

    def _call(self, config: Config) -> Launch:
        y, total = (self.out[0], self.out[1]) if self.ADD else (self.out, self.out)
        args = (self.x, self.residual, self.weight, y, total, self.R, self.C, self.x.stride(0), EPSILON)
        options = {"ADD": self.ADD, "BLOCK": config["BLOCK"], "UNIT": unit_of(self.C), "num_warps": config["num_warps"]}
        if config["PASSES"] == 2:
            return norm_blocks, (self.R,), args, {**options, "UNROLL": config.get("UNROLL", 1)}
        rows = int(config["ROWS"])
        return norm_tile, (triton.cdiv(self.R, rows),), args, {**options, "ROWS": rows}


class AddRmsNorm(RmsNorm):
    ADD = True

    def reference(self) -> torch.Tensor:
        total = self.x.float() + self.residual.float()
        return torch.stack((torch.nn.functional.rms_norm(total, (self.C,), self.weight.float(), EPSILON), total))

    def library(self) -> torch.Tensor:
        """Two launches, as PyTorch does it without a compiler; the sum is kept by PyTorch's allocator, the norm returned."""
        return torch.nn.functional.rms_norm(self.x + self.residual, (self.C,), self.weight, EPSILON)


PROBLEMS = {"rmsnorm": RmsNorm, "add_rmsnorm": AddRmsNorm}

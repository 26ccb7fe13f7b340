"""Row-wise kernels: softmax and layer norm of X[R, C].

softmax_row, layernorm_row    the kernels of the recorded H200 landscapes: a row per program, whole or in blocks read twice
softmax_tile, layernorm_tile  ROWS whole rows at a time, held in registers between their statistics and their result
softmax_blocks                rows in blocks of BLOCK columns with a running maximum (online softmax), read twice

softmax kernels are persistent: PER_SM programs per multiprocessor walk the rows, STEPS pipeline stages ahead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from tuner.tuning.kernels.extents import in_units, unit_of
from tuner.tuning.kernels.problem import Launch, OneKernel, check_elements, multiprocessors, normal_tensors, sizes, torch_dtype
from tuner.tuning.trial import Config

EPSILON = 1e-5


@triton.jit
def softmax_row(x, y, rows, cols, sx, sy, BLOCK: tl.constexpr, STEPS: tl.constexpr, UNIT: tl.constexpr):
    cols, sx, sy = in_units(cols, UNIT), in_units(sx, UNIT), in_units(sy, UNIT)
    pid = tl.program_id(0)
    for r in tl.range(pid, rows, tl.num_programs(0), num_stages=STEPS):
        i = tl.arange(0, BLOCK)
        m = i < cols
        v = tl.load(x + r * sx + i, mask=m, other=-float("inf")).to(tl.float32)
        v = tl.exp(v - tl.max(v, 0))
        tl.store(y + r * sy + i, (v / tl.sum(v, 0)).to(y.dtype.element_ty), mask=m)


@triton.jit
def softmax_tile(x, y, rows, cols, sx, sy, BLOCK: tl.constexpr, ROWS: tl.constexpr, STEPS: tl.constexpr, UNIT: tl.constexpr):
    cols, sx, sy = in_units(cols, UNIT), in_units(sx, UNIT), in_units(sy, UNIT)
    i = tl.arange(0, BLOCK)[None, :]
    for tile in tl.range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STEPS):
        r = tile * ROWS + tl.arange(0, ROWS)[:, None]
        m = (i < cols) & (r < rows)
        v = tl.load(x + r * sx + i, mask=m, other=-float("inf")).to(tl.float32)
        highest = tl.max(v, 1)
        v = tl.exp(v - tl.where(highest == -float("inf"), 0.0, highest)[:, None])      # rows beyond the last one
        total = tl.sum(v, 1)
        tl.store(y + r * sy + i, (v * (1.0 / total)[:, None]).to(y.dtype.element_ty), mask=m)


@triton.jit
def softmax_blocks(x, y, rows, cols, sx, sy, BLOCK: tl.constexpr, STEPS: tl.constexpr, UNIT: tl.constexpr):
    """Each lane keeps a maximum and a sum of its own (Milakov and Gimelshein 2018); they meet once per row."""
    lowest: tl.constexpr = -3.0e38
    cols, sx, sy = in_units(cols, UNIT), in_units(sx, UNIT), in_units(sy, UNIT)
    i = tl.arange(0, BLOCK)
    for r in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        highest = tl.full((BLOCK,), lowest, tl.float32)
        total = tl.zeros((BLOCK,), tl.float32)
        for o in tl.range(0, cols, BLOCK, num_stages=STEPS):
            v = tl.load(x + r * sx + o + i, mask=o + i < cols, other=lowest).to(tl.float32)
            higher = tl.maximum(highest, v)
            total = total * tl.exp(highest - higher) + tl.exp(v - higher)
            highest = higher
        top = tl.max(highest, 0)
        scale = 1.0 / tl.sum(tl.where(highest > lowest, total * tl.exp(highest - top), 0.0), 0)
        for o in tl.range(0, cols, BLOCK, num_stages=STEPS):
            m = o + i < cols
            v = tl.load(x + r * sx + o + i, mask=m, other=0.0).to(tl.float32)
            tl.store(y + r * sy + o + i, (tl.exp(v - top) * scale).to(y.dtype.element_ty), mask=m)


@triton.jit
def layernorm_tile(x, w, b, y, rows, cols, sx, eps, BLOCK: tl.constexpr, ROWS: tl.constexpr, UNIT: tl.constexpr):
    cols, sx = in_units(cols, UNIT), in_units(sx, UNIT)
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    i = tl.arange(0, BLOCK)[None, :]
    m = (i < cols) & (r < rows)
    v = tl.load(x + r * sx + i, mask=m, other=0.0).to(tl.float32)
    weight = tl.load(w + i, mask=i < cols, other=0.0)         # on their way while the row is summed: no load passes a barrier
    bias = tl.load(b + i, mask=i < cols, other=0.0)
    centred = tl.where(i < cols, v - (tl.sum(v, 1) / cols)[:, None], 0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / cols + eps)
    tl.store(y + r * sx + i, (centred * rstd[:, None] * weight.to(tl.float32) + bias.to(tl.float32)).to(y.dtype.element_ty), mask=m)


@triton.jit
def layernorm_row(x, w, b, y, cols, sx, eps, BLOCK: tl.constexpr, UNROLL: tl.constexpr, UNIT: tl.constexpr):
    cols, sx = in_units(cols, UNIT), in_units(sx, UNIT)
    r = tl.program_id(0)
    x += r * sx
    y += r * sx
    s = tl.zeros((BLOCK,), tl.float32)
    q = tl.zeros((BLOCK,), tl.float32)
    for o in tl.range(0, cols, BLOCK, loop_unroll_factor=UNROLL):
        i = o + tl.arange(0, BLOCK)
        v = tl.load(x + i, mask=i < cols, other=0.0).to(tl.float32)
        s += v
        q += v * v
    mean = tl.sum(s, 0) / cols
    rstd = 1.0 / tl.sqrt(tl.sum(q, 0) / cols - mean * mean + eps)
    for o in tl.range(0, cols, BLOCK, loop_unroll_factor=UNROLL):
        i = o + tl.arange(0, BLOCK)
        m = i < cols
        v = tl.load(x + i, mask=m, other=0.0).to(tl.float32)
        tl.store(y + i, ((v - mean) * rstd * tl.load(w + i, mask=m) + tl.load(b + i, mask=m)).to(y.dtype.element_ty),
                 mask=m)


class _Rows(OneKernel):
    """X[R, C] in, out[R, C]; `_call` says what a configuration launches."""

    def __init__(self, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        self.R, self.C = sizes(shape, "R", "C")
        check_elements(X=self.R * self.C)
        self.x = torch.empty((self.R, self.C), device=device, dtype=torch_dtype(dtype))
        self.out = torch.empty_like(self.x)
        super().__init__()
        self.refill(seed)

    def refill(self, seed: int) -> None:
        normal_tensors(seed, self.x)


class Softmax(_Rows):
    def reference(self) -> torch.Tensor:
        return torch.softmax(self.x.float(), -1)

    def library(self) -> torch.Tensor:
        return torch.softmax(self.x, -1)

    def _call(self, config: Config) -> Launch:
        rows, block = int(config.get("ROWS", 1)), int(config.get("BLOCK", 0))
        grid = (min(triton.cdiv(self.R, rows), multiprocessors(self.out.device) * int(config["PER_SM"])),)
        args = (self.x, self.out, self.R, self.C, self.x.stride(0), self.out.stride(0))
        options = {"BLOCK": block or triton.next_power_of_2(self.C), "STEPS": config["STEPS"], "UNIT": unit_of(self.C),
                   "num_warps": config["num_warps"]}
        if block:
            return softmax_blocks, grid, args, options
        return (softmax_tile, grid, args, {**options, "ROWS": rows}) if rows > 1 else (softmax_row, grid, args, options)


class LayerNorm(_Rows):
    def __init__(self, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        columns = sizes(shape, "C")[0]
        self.weight = torch.empty(columns, device=device, dtype=torch_dtype(dtype))
        self.bias = torch.empty_like(self.weight)
        super().__init__(shape, dtype, device, seed)

    def refill(self, seed: int) -> None:
        normal_tensors(seed, self.x, self.weight, self.bias)

    def reference(self) -> torch.Tensor:
        weight, bias = self.weight.float(), self.bias.float()
        return torch.nn.functional.layer_norm(self.x.float(), (self.C,), weight, bias, EPSILON)

    def library(self) -> torch.Tensor:
        return torch.nn.functional.layer_norm(self.x, (self.C,), self.weight, self.bias, EPSILON)

    def _call(self, config: Config) -> Launch:
        tensors = (self.x, self.weight, self.bias, self.out)
        options = {"BLOCK": config["BLOCK"], "UNIT": unit_of(self.C), "num_warps": config["num_warps"]}
        if config.get("PASSES", 2) == 1:
            rows = int(config["ROWS"])
            return layernorm_tile, (triton.cdiv(self.R, rows),), (*tensors, self.R, self.C, self.x.stride(0), EPSILON), {
                **options, "ROWS": rows}
        return layernorm_row, (self.R,), (*tensors, self.C, self.x.stride(0), EPSILON), {
            **options, "UNROLL": config.get("UNROLL", 1)}


PROBLEMS = {"softmax": Softmax, "layernorm": LayerNorm}

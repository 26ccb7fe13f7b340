"""Row-wise kernels: softmax and layer norm of X[R, C]; the kernels of the recorded H200 landscapes.

softmax    persistent programs walk the rows: STEPS pipeline stages, PER_SM programs per multiprocessor, num_warps
layer norm one program per row, two passes over BLOCK columns at a time: BLOCK, num_warps, num_stages
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from tuner.kernels.problem import check_elements, generator_on, normal, sizes, torch_dtype
from tuner.trial import Config

EPSILON = 1e-5


@triton.jit
def softmax_row(x, y, rows, cols, sx, sy, BLOCK: tl.constexpr, STEPS: tl.constexpr):
    pid = tl.program_id(0)
    for r in tl.range(pid, rows, tl.num_programs(0), num_stages=STEPS):
        i = tl.arange(0, BLOCK)
        m = i < cols
        v = tl.load(x + r * sx + i, mask=m, other=-float("inf")).to(tl.float32)
        v = tl.exp(v - tl.max(v, 0))
        tl.store(y + r * sy + i, (v / tl.sum(v, 0)).to(y.dtype.element_ty), mask=m)


@triton.jit
def layernorm_row(x, w, b, y, cols, sx, eps, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    x += r * sx
    y += r * sx
    s = tl.zeros((BLOCK,), tl.float32)
    q = tl.zeros((BLOCK,), tl.float32)
    for o in range(0, cols, BLOCK):
        i = o + tl.arange(0, BLOCK)
        v = tl.load(x + i, mask=i < cols, other=0.0).to(tl.float32)
        s += v
        q += v * v
    mean = tl.sum(s, 0) / cols
    rstd = 1.0 / tl.sqrt(tl.sum(q, 0) / cols - mean * mean + eps)
    for o in range(0, cols, BLOCK):
        i = o + tl.arange(0, BLOCK)
        m = i < cols
        v = tl.load(x + i, mask=m, other=0.0).to(tl.float32)
        tl.store(y + i, ((v - mean) * rstd * tl.load(w + i, mask=m) + tl.load(b + i, mask=m)).to(y.dtype.element_ty),
                 mask=m)


class _Rows:
    """X[R, C] in, out[R, C]."""

    def __init__(self, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        self.R, self.C = sizes(shape, "R", "C")
        check_elements(X=self.R * self.C)
        self.x = torch.empty((self.R, self.C), device=device, dtype=torch_dtype(dtype))
        self.out = torch.empty_like(self.x)
        self.refill(seed)

    def refill(self, seed: int) -> None:
        normal(generator_on(self.out.device, seed), self.x)


class Softmax(_Rows):
    def reference(self) -> torch.Tensor:
        return torch.softmax(self.x.float(), -1)

    def library(self) -> torch.Tensor:
        return torch.softmax(self.x, -1)

    def _call(self, config: Config) -> tuple[tuple[int], tuple[Any, ...], dict[str, Any]]:
        grid = (min(self.R, _multiprocessors(self.out.device) * int(config["PER_SM"])),)
        args = (self.x, self.out, self.R, self.C, self.x.stride(0), self.out.stride(0))
        return grid, args, {"BLOCK": triton.next_power_of_2(self.C), "STEPS": config["STEPS"],
                            "num_warps": config["num_warps"]}

    def compile(self, config: Config) -> Any:
        grid, args, options = self._call(config)
        return softmax_row.warmup(*args, grid=grid, **options)

    def launch(self, config: Config) -> Any:
        grid, args, options = self._call(config)
        return softmax_row[grid](*args, **options)


class LayerNorm(_Rows):
    def __init__(self, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        columns = sizes(shape, "C")[0]
        self.weight = torch.empty(columns, device=device, dtype=torch_dtype(dtype))
        self.bias = torch.empty_like(self.weight)
        super().__init__(shape, dtype, device, seed)

    def refill(self, seed: int) -> None:
        generator = generator_on(self.out.device, seed)
        for tensor in (self.x, self.weight, self.bias):
            normal(generator, tensor)

    def reference(self) -> torch.Tensor:
        weight, bias = self.weight.float(), self.bias.float()
        return torch.nn.functional.layer_norm(self.x.float(), (self.C,), weight, bias, EPSILON)

    def library(self) -> torch.Tensor:
        return torch.nn.functional.layer_norm(self.x, (self.C,), self.weight, self.bias, EPSILON)

    def _call(self, config: Config) -> tuple[tuple[int], tuple[Any, ...], dict[str, Any]]:
        args = (self.x, self.weight, self.bias, self.out, self.C, self.x.stride(0), EPSILON)
        return (self.R,), args, {name: config[name] for name in ("BLOCK", "num_warps", "num_stages")}

    def compile(self, config: Config) -> Any:
        grid, args, options = self._call(config)
        return layernorm_row.warmup(*args, grid=grid, **options)

    def launch(self, config: Config) -> Any:
        grid, args, options = self._call(config)
        return layernorm_row[grid](*args, **options)


def _multiprocessors(device: torch.device) -> int:
    """Multiprocessors of the GPU; 1 under Triton's interpreter, which has none."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


PROBLEMS = {"softmax": Softmax, "layernorm": LayerNorm}

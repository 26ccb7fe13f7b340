"""Convolution forward, Y[B, OH, OW, F] = X[B, H, W, C] ∗ filters[F, KS, KS, C], as a product without unrolling X in memory.

Channels stand last. A row of the product is a pixel of Y, its K runs over the filter's KS × KS places and their C channels, and
each block of K is gathered from the pixels that the place touches (implicit GEMM: Chetlur et al. 2014, cuDNN §3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from tuner.kernels.matmul_parts import tile_place
from tuner.kernels.problem import Launch, OneKernel, check_elements, full_precision, normal_tensors, sizes, torch_dtype
from tuner.trial import Config


@triton.jit
def conv2d(x, w, y, H, W, C, F, OH, OW, M, STRIDE: tl.constexpr, PAD: tl.constexpr, KS: tl.constexpr,
           BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr):
    pm, pn = tile_place(tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(F, BN), GM)
    pixel = pm * BM + tl.arange(0, BM)
    batch, place = pixel // (OH * OW), pixel % (OH * OW)
    top, left = place // OW * STRIDE - PAD, place % OW * STRIDE - PAD
    f = pn * BN + tl.arange(0, BN)
    c = tl.arange(0, BK)
    blocks = tl.cdiv(C, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, KS * KS * blocks):
        tap, channel = k // blocks, k % blocks * BK + c
        row, column = top + tap // KS, left + tap % KS
        inside = (row >= 0) & (row < H) & (column >= 0) & (column < W) & (pixel < M)
        at = ((batch * H + row) * W + column) * C
        xv = tl.load(x + at[:, None] + channel[None, :], mask=inside[:, None] & (channel < C)[None, :], other=0.0)
        wv = tl.load(w + (f * (KS * KS) + tap)[None, :] * C + channel[:, None],
                     mask=(channel < C)[:, None] & (f < F)[None, :], other=0.0)
        acc = tl.dot(xv, wv, acc)
    tl.store(y + pixel[:, None] * F + f[None, :], acc.to(y.dtype.element_ty), mask=(pixel < M)[:, None] & (f < F)[None, :])


class Convolution(OneKernel):
    def __init__(self, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        self.B, self.H, self.W, self.C, self.F, self.KS, self.stride = sizes(shape, "B", "H", "W", "C", "F", "KS", "S")
        pad = shape.get("P")
        if isinstance(pad, bool) or not isinstance(pad, int) or pad < 0:
            raise ValueError(f"shape: P must be a whole number of at least 0, not {pad!r}")
        self.pad = pad
        self.OH, self.OW = ((side + 2 * pad - self.KS) // self.stride + 1 for side in (self.H, self.W))
        if self.OH < 1 or self.OW < 1:
            raise ValueError(f"shape: a filter of {self.KS} × {self.KS} is larger than the padded image")
        check_elements(X=self.B * self.H * self.W * self.C, filters=self.F * self.KS**2 * self.C,
                       Y=self.B * self.OH * self.OW * self.F)
        kind = torch_dtype(dtype)
        self.x = torch.empty((self.B, self.H, self.W, self.C), device=device, dtype=kind)
        self.filters = torch.empty((self.F, self.KS, self.KS, self.C), device=device, dtype=kind)
        self.out = torch.empty((self.B, self.OH, self.OW, self.F), device=device, dtype=kind)
        super().__init__()
        self.refill(seed)

    def refill(self, seed: int) -> None:
        normal_tensors(seed, self.x, self.filters)

    def reference(self) -> torch.Tensor:
        full_precision()
        return self._convolved(self.x.float(), self.filters.float())

    def library(self) -> torch.Tensor:
        return self._convolved(self.x, self.filters)

    def _convolved(self, x: torch.Tensor, filters: torch.Tensor) -> torch.Tensor:
        """PyTorch names the channels second; in memory they stand last, as here."""
        y = torch.nn.functional.conv2d(x.permute(0, 3, 1, 2), filters.permute(0, 3, 1, 2), stride=self.stride, padding=self.pad)
        return y.permute(0, 2, 3, 1)

    def _call(self, config: Config) -> Launch:
        pixels = self.B * self.OH * self.OW
        grid = (triton.cdiv(pixels, config["BM"]) * triton.cdiv(self.F, config["BN"]),)
        args = (self.x, self.filters, self.out, self.H, self.W, self.C, self.F, self.OH, self.OW, pixels)
        names = ("BM", "BN", "BK", "GM", "num_warps", "num_stages")
        return conv2d, grid, args, {"STRIDE": self.stride, "PAD": self.pad, "KS": self.KS, **{name: config[name] for name in names}}


PROBLEMS = {"conv2d": Convolution}

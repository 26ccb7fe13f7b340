"""Convolution forward, Y[B, OH, OW, F] = X[B, H, W, C] ∗ filters[F, KS, KS, C], as a product without unrolling X in memory.

Channels stand last. A row of the product is a pixel of Y, its K runs over the filter's KS × KS places and their C channels, and
each block of K is gathered from the pixels that the place touches (implicit GEMM: Chetlur et al. 2014, cuDNN §3).

KERNEL  gather              addresses of the first place are made once, a place adds one number to all; which places lie in the
                            image is a bit each
        flat                few channels: K runs over places and channels as one, each number by its own address
        boxes               the pixels of a tile are a box of BM, which TMA reads at each place, zeros beyond the image; a stride
                            must divide the image, and BK then the channels
        boxes, persistent   one program per multiprocessor walks the tiles
        product …           1 × 1, stride 1, no padding: a plain product, see tuner.tuning.kernels.matmul_tma and matmul_warp_groups
BM pixels × BN filters a tile, steps of BK channels, groups of GM tiles that share filters in L2.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from tuner.tuning.kernels.extents import in_units, unit_of
from tuner.tuning.kernels.hopper.matmul_warp_groups import launch_of
from tuner.tuning.kernels.matmul_parts import tile_place
from tuner.tuning.kernels.matmul_tma import matmul_persistent, matmul_tma
from tuner.tuning.kernels.problem import (
    Launch,
    OneKernel,
    check_elements,
    full_precision,
    multiprocessors,
    normal_tensors,
    sizes,
    torch_dtype,
)
from tuner.tuning.trial import Config

ABSENT = {"KERNEL": "gather"}


@triton.jit
def _inside(start, side, KS: tl.constexpr):
    """A bit for each of the KS places from `start` on that lie in 0 … side."""
    bits = tl.zeros_like(start)
    for place in tl.static_range(KS):
        bits |= ((start + place >= 0) & (start + place < side)).to(tl.int32) << place
    return bits


@triton.jit
def conv2d(x, w, y, H, W, C, F, OH, OW, M, STRIDE: tl.constexpr, PAD: tl.constexpr, KS: tl.constexpr, BLOCKS: tl.constexpr,
           EVEN: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr, UNIT: tl.constexpr):
    """BLOCKS of BK channels a place; EVEN: they are whole ones."""
    C, F = in_units(C, UNIT), in_units(F, UNIT)
    pm, pn = tile_place(tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(F, BN), GM)
    pixel = pm * BM + tl.arange(0, BM)
    place = pixel % (OH * OW)
    top, left = place // OW * STRIDE - PAD, place % OW * STRIDE - PAD
    rows, columns = _inside(top, H, KS), tl.where(pixel < M, _inside(left, W, KS), 0)
    f, c = pn * BN + tl.arange(0, BN), tl.arange(0, BK)
    xp = x + ((pixel // (OH * OW) * H + top) * W + left)[:, None] * C + c[None, :]
    wp = w + f[None, :] * (KS * KS * C) + c[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, KS * KS * BLOCKS):
        tap, channel = k // BLOCKS, k % BLOCKS * BK
        down, right = tap // KS, tap % KS
        here = (((rows >> down) & (columns >> right) & 1) != 0)[:, None]
        there = (f < F)[None, :]
        if not EVEN:
            here, there = here & (channel + c < C)[None, :], there & (channel + c < C)[:, None]
        xv = tl.load(xp + ((down * W + right) * C + channel), mask=here, other=0.0)
        wv = tl.load(wp + (tap * C + channel), mask=there, other=0.0)
        acc = tl.dot(xv, wv, acc)
    tl.store(y + pixel[:, None] * F + f[None, :], acc.to(y.dtype.element_ty), mask=(pixel < M)[:, None] & (f < F)[None, :])


@triton.jit
def conv2d_flat(x, w, y, H, W, F, OH, OW, M, C: tl.constexpr, STRIDE: tl.constexpr, PAD: tl.constexpr, KS: tl.constexpr,
                BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr):
    pm, pn = tile_place(tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(F, BN), GM)
    pixel = pm * BM + tl.arange(0, BM)
    place = pixel % (OH * OW)
    top, left = place // OW * STRIDE - PAD, place % OW * STRIDE - PAD
    rows, columns = _inside(top, H, KS), tl.where(pixel < M, _inside(left, W, KS), 0)
    f = pn * BN + tl.arange(0, BN)
    first = ((pixel // (OH * OW) * H + top) * W + left) * C
    acc = tl.zeros((BM, BN), tl.float32)
    for o in range(0, KS * KS * C, BK):
        k = o + tl.arange(0, BK)
        down, along = k // (KS * C), k % (KS * C)                           # of a row of places numbers lie side by side in X
        here = ((rows[:, None] >> down[None, :]) & (columns[:, None] >> (along // C)[None, :]) & 1) != 0
        here &= (k < KS * KS * C)[None, :]
        xv = tl.load(x + first[:, None] + (down * W * C + along)[None, :], mask=here, other=0.0)
        wv = tl.load(w + f[None, :] * (KS * KS * C) + k[:, None], mask=(f < F)[None, :] & (k < KS * KS * C)[:, None], other=0.0)
        acc = tl.dot(xv, wv, acc)
    tl.store(y + pixel[:, None] * F + f[None, :], acc.to(y.dtype.element_ty), mask=(pixel < M)[:, None] & (f < F)[None, :])


@triton.jit
def _box(tile, B, OH, OW, F, TB: tl.constexpr, TH: tl.constexpr, TW: tl.constexpr, BN: tl.constexpr, GM: tl.constexpr):
    """First image, row, column and filter of a tile; tiles side by side follow each other."""
    nh, nw = tl.cdiv(OH, TH), tl.cdiv(OW, TW)
    pm, pn = tile_place(tile, tl.cdiv(B, TB) * nh * nw, tl.cdiv(F, BN), GM)
    return pm // (nh * nw) * TB, pm // nw % nh * TH, pm % nw * TW, pn * BN


@triton.jit
def _convolved(xd, wd, acc, k, b, i, j, f, C, S: tl.constexpr, PAD: tl.constexpr, KS: tl.constexpr, BLOCKS: tl.constexpr,
               BM: tl.constexpr, BK: tl.constexpr):
    """Add a step. Filters are the rows, so that the box, of which the compiler makes a matrix in shared memory, is the columns."""
    tap, channel = k // BLOCKS, k % BLOCKS * BK
    BEFORE: tl.constexpr = (PAD + S - 1) // S                               # runs of S rows that padding begins before the image
    down, right = tap // KS + BEFORE * S - PAD, tap % KS + BEFORE * S - PAD
    xv = xd.load([b, i + down // S - BEFORE, down % S, j + right // S - BEFORE, right % S * C + channel])
    return tl.dot(wd.load([f, tap * C + channel]), tl.reshape(xv, (BM, BK)).T, acc)


@triton.jit
def conv2d_boxes(xd, wd, yd, B, OH, OW, C, F, S: tl.constexpr, PAD: tl.constexpr, KS: tl.constexpr, BLOCKS: tl.constexpr,
                 TB: tl.constexpr, TH: tl.constexpr, TW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                 GM: tl.constexpr):
    """A tile is TB images × TH rows × TW columns; xd describes X as [B, H/S, S, W/S, S·C].

    Beyond C, where S is 1, a block reads zeros of X, whatever the filters' next place holds.
    """
    b, i, j, f = _box(tl.program_id(0), B, OH, OW, F, TB, TH, TW, BN, GM)
    acc = tl.zeros((BN, BM), tl.float32)
    for k in range(0, KS * KS * BLOCKS):
        acc = _convolved(xd, wd, acc, k, b, i, j, f, C, S, PAD, KS, BLOCKS, BM, BK)
    yd.store([b, i, j, f], tl.reshape(tl.trans(acc.to(yd.dtype)), (TB, TH, TW, BN)))


@triton.jit
def conv2d_persistent(xd, wd, yd, B, OH, OW, C, F, tiles, S: tl.constexpr, PAD: tl.constexpr, KS: tl.constexpr,
                      BLOCKS: tl.constexpr, TB: tl.constexpr, TH: tl.constexpr, TW: tl.constexpr, BM: tl.constexpr,
                      BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr):
    start, programs = tl.program_id(0), tl.num_programs(0)
    done = start - programs                  # the epilogue's own count: its tile hangs on no value of the loads' part
    for tile in tl.range(start, tiles, programs, flatten=True):
        b, i, j, f = _box(tile, B, OH, OW, F, TB, TH, TW, BN, GM)
        acc = tl.zeros((BN, BM), tl.float32)
        for k in range(0, KS * KS * BLOCKS):
            acc = _convolved(xd, wd, acc, k, b, i, j, f, C, S, PAD, KS, BLOCKS, BM, BK)
        done += programs
        b, i, j, f = _box(done, B, OH, OW, F, TB, TH, TW, BN, GM)
        yd.store([b, i, j, f], tl.reshape(tl.trans(acc.to(yd.dtype)), (TB, TH, TW, BN)))


def box(pixels: int, images: int, high: int, wide: int) -> tuple[int, int, int]:
    """Return images, rows and columns of a box of `pixels` that cover all with least waste; of equal ones the squarest."""
    powers = [1 << n for n in range(pixels.bit_length())]
    found = ((pixels // (rows * columns), rows, columns) for rows, columns in product(powers, powers) if rows * columns <= pixels)

    def cost(sides: tuple[int, int, int]) -> tuple[int, int]:
        b, h, w = sides
        return triton.cdiv(images, b) * triton.cdiv(high, h) * triton.cdiv(wide, w), b * (h + 2) * (w + 2)

    return min(found, key=cost)


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
        config = {**ABSENT, **config}
        bm, bn, bk, kernel = config["BM"], config["BN"], config["BK"], str(config["KERNEL"])
        pixels, filters = self.B * self.OH * self.OW, self.filters.view(self.F, -1)
        options = {name: config[name] for name in ("BM", "BN", "BK", "GM", "num_warps", "num_stages")}
        grid = (triton.cdiv(pixels, bm) * triton.cdiv(self.F, bn),)
        places = {**options, "STRIDE": self.stride, "PAD": self.pad, "KS": self.KS}
        blocks = triton.cdiv(self.C, bk)
        if kernel == "gather":
            gathered = (self.x, filters, self.out, self.H, self.W, self.C, self.F, self.OH, self.OW, pixels)
            return conv2d, grid, gathered, {**places, "BLOCKS": blocks, "EVEN": self.C % bk == 0,
                                                    "UNIT": unit_of(self.C, self.F)}
        if kernel == "flat":
            return conv2d_flat, grid, (self.x, filters, self.out, self.H, self.W, self.F, self.OH, self.OW, pixels), {
                **places, "C": self.C}
        if kernel == "product, warp groups":
            return launch_of(config, self.x.view(pixels, self.C), filters, self.out.view(pixels, self.F), by_columns=True)
        w = TensorDescriptor.from_tensor(filters, [bn, bk])
        if kernel.startswith("product"):
            x = TensorDescriptor.from_tensor(self.x.view(pixels, self.C), [bm, bk])
            y = TensorDescriptor.from_tensor(self.out.view(pixels, self.F), [bm, bn])
            options |= {"STORE": "tma", "ACT": 0, "BT": True}
            size = (pixels, self.F, self.C)
            if kernel == "product, tma":
                return matmul_tma, (*grid, 1), (x, w, y, None, None, None, None, *size, 0), {**options, "SPLIT_K": 1}
            return matmul_persistent, self._programs(grid), (x, w, y, None, None, *size, *grid), options
        images, rows, columns = box(bm, self.B, self.OH, self.OW)
        runs = self.x.view(self.B, self.H // self.stride, self.stride, self.W // self.stride, self.stride * self.C)
        x = TensorDescriptor.from_tensor(runs, [images, rows, 1, columns, bk])
        y = TensorDescriptor.from_tensor(self.out, [images, rows, columns, bn])
        boxes = triton.cdiv(self.B, images) * triton.cdiv(self.OH, rows) * triton.cdiv(self.OW, columns)
        grid = (boxes * triton.cdiv(self.F, bn),)
        options |= {"S": self.stride, "PAD": self.pad, "KS": self.KS, "BLOCKS": blocks, "TB": images, "TH": rows, "TW": columns}
        args = (x, w, y, self.B, self.OH, self.OW, self.C, self.F)
        if kernel == "boxes":
            return conv2d_boxes, grid, args, options
        return conv2d_persistent, self._programs(grid), (*args, *grid), options

    def _programs(self, grid: tuple[int]) -> tuple[int]:
        """One program per multiprocessor, or one for each tile."""
        return (min(grid[0], multiprocessors(self.out.device)),)


PROBLEMS = {"conv2d": Convolution}

"""Products with quantised weights, accumulated in float32.

int4_matmul       Y[M, N] = X[M, K] · (q − 8)·s: weights of four bits, a scale s for each GROUP rows of K and each column. In a
                  group byte i holds row i in its low half and row i + GROUP/2 in its high one, so both halves meet columns of X
                  that lie side by side; BK rows of each half are a step, SPLIT_K programs share the K of a tile
    KERNEL        tiles: bytes are converted and go through shared memory; vector, words: see tuner.tuning.kernels.int4_matmul;
                  warp groups: see tuner.tuning.kernels.hopper.int4_warp_groups;
                  unpacked …: W is unpacked to memory once, then a kernel of tuner.tuning.kernels.matmul multiplies in steps of BK
fp8_block_matmul  Y[M, N] = Σ over blocks of A[M, k]·sa[M, k] · B[N, k]ᵀ·sb[N, k]: fp8 with a scale for each 1 × 128 of A and each
                  128 × 128 of B (DeepSeek-V3, 2024, §3.3.2)
    KERNEL        tiles, or specialised (tuner.tuning.kernels.hopper.fp8_block_specialised)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor

from tuner.tuning.kernels.extents import unit_of
from tuner.tuning.kernels.hopper.fp8_block_specialised import ROWS, fp8_block_specialised
from tuner.tuning.kernels.hopper.int4_warp_groups import (
    BYTES,
    COMPUTE_REGISTERS,
    LOAD_REGISTERS,
    SUMMED,
    WORDS,
    int4_sum,
    int4_warp_groups,
)
from tuner.tuning.kernels.hopper.warp_parts import REGISTERS
from tuner.tuning.kernels.int4_matmul import finish_tile, int4_unpack, int4_vector, int4_words
from tuner.tuning.kernels.matmul import matmul
from tuner.tuning.kernels.matmul_parts import tile_place
from tuner.tuning.kernels.matmul_tma import matmul_persistent, matmul_tma
from tuner.tuning.kernels.problem import (
    Calls,
    Launch,
    OneKernel,
    Workspace,
    check_elements,
    full_precision,
    generator_on,
    multiprocessors,
    normal_tensors,
    sizes,
    torch_dtype,
)
from tuner.tuning.trial import Config

GROUP = 128                # rows of K that share a scale
SCALE_BLOCK = 128          # of fp8, in both directions
UNPACKED = {"BN": 256, "ROWS": 16, "num_warps": 4}      # of a program that unpacks weights
ABSENT = {"KERNEL": "tiles"}


@triton.jit
def int4_matmul(x, q, scales, y, M, N, K, work, locks, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr,
                SPLIT_K: tl.constexpr, HALF: tl.constexpr):
    tile, split = tl.program_id(0), tl.program_id(1)
    pm, pn = tile_place(tile, tl.cdiv(M, BM), tl.cdiv(N, BN), GM)
    m, n, k = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN), tl.arange(0, BK)
    steps = K // (2 * BK)
    each = tl.cdiv(steps, SPLIT_K)
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(split * each, tl.minimum(steps, split * each + each)):
        byte = step * BK                                                     # of the packed rows
        group, inside = byte // HALF, byte % HALF
        low = group * (2 * HALF) + inside + k
        at = x + m[:, None] * K + low[None, :]
        xl = tl.load(at, mask=(m < M)[:, None], other=0.0)
        xh = tl.load(at + HALF, mask=(m < M)[:, None], other=0.0)
        packed = tl.load(q + (byte + k)[:, None] * N + n[None, :], mask=(n < N)[None, :], other=0).to(tl.int32)
        scale = tl.load(scales + group * N + n, mask=n < N, other=0.0)[None, :]
        wl = ((packed & 15) - 8).to(scale.dtype) * scale
        wh = ((packed >> 4) - 8).to(scale.dtype) * scale
        acc = tl.dot(xl, wl, acc)
        acc = tl.dot(xh, wh, acc)
    finish_tile(acc, y, m, n, M, N, work, locks, tile, split, SPLIT_K, BM, BN)


@triton.jit
def fp8_block_matmul(a, b, sa, sb, y, M, N, K, work, locks, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr,
                     SPLIT_K: tl.constexpr, SIDE: tl.constexpr):
    tile, split = tl.program_id(0), tl.program_id(1)
    pm, pn = tile_place(tile, tl.cdiv(M, BM), tl.cdiv(N, BN), GM)
    m, n, k = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN), tl.arange(0, BK)
    blocks = K // SIDE
    steps = tl.cdiv(K, BK)
    each = tl.cdiv(steps, SPLIT_K)
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(split * each, tl.minimum(steps, split * each + each)):
        o = step * BK
        av = tl.load(a + m[:, None] * K + (o + k)[None, :], mask=(m < M)[:, None], other=0.0)
        bv = tl.load(b + n[None, :] * K + (o + k)[:, None], mask=(n < N)[None, :], other=0.0)
        block = o // SIDE
        rows = tl.load(sa + m * blocks + block, mask=m < M, other=0.0)
        columns = tl.load(sb + n // SIDE * blocks + block, mask=n < N, other=0.0)
        acc += tl.dot(av, bv) * rows[:, None] * columns[None, :]
    finish_tile(acc, y, m, n, M, N, work, locks, tile, split, SPLIT_K, BM, BN)


class _Quantised:
    """The library multiplies what the weights stand for, kept unpacked in 16 bits, unless it has a product of its own for them:
    `plain` holds its operands.
    """

    out: torch.Tensor
    plain: tuple[torch.Tensor, torch.Tensor]

    def __init__(self, shape: Mapping[str, Any]) -> None:
        self.M, self.N, self.K = sizes(shape, "M", "N", "K")
        if self.K % GROUP:
            raise ValueError(f"shape: K must be a multiple of {GROUP}: so many of its rows share a scale")
        check_elements(X=self.M * self.K, weights=self.N * self.K, Y=self.M * self.N)
        super().__init__()

    def library(self) -> torch.Tensor:
        return self.plain[0] @ self.plain[1]

    def _tiles(self, config: Config) -> tuple[int, dict[str, Any]]:
        names = ("BM", "BN", "BK", "GM", "num_warps", "num_stages")
        return triton.cdiv(self.M, config["BM"]) * triton.cdiv(self.N, config["BN"]), {name: config[name] for name in names}


class Int4Matmul(_Quantised):
    def __init__(self, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        super().__init__(shape)
        kind = torch_dtype(dtype)
        self.x = torch.empty((self.M, self.K), device=device, dtype=kind)
        self.q = torch.empty((self.K // 2, self.N), device=device, dtype=torch.uint8)
        self.scales = torch.empty((self.K // GROUP, self.N), device=device, dtype=kind)
        self.out = torch.empty((self.M, self.N), device=device, dtype=kind)
        self._unpacked: torch.Tensor | None = None
        self._workspace = Workspace(device)
        self._calls = Calls(self._call)
        self.refill(seed)

    def refill(self, seed: int) -> None:
        normal_tensors(seed, self.x, self.scales)
        self.q.random_(0, 256, generator=generator_on(self.x.device, seed + 1))
        self.plain = (self.x, self._weights(self.scales))

    def reference(self) -> torch.Tensor:
        full_precision()
        return self.x.float() @ self._weights(self.scales.float())

    def _weights(self, scales: torch.Tensor) -> torch.Tensor:
        """[K, N] of the scales' type."""
        packed = self.q.view(-1, GROUP // 2, self.N)
        numbers = torch.cat((packed & 15, packed >> 4), 1).to(scales.dtype) - 8
        return (numbers * scales[:, None, :]).view(self.K, self.N)

    def compile(self, config: Config) -> Any:
        return [kernel.warmup(*args, grid=grid, **options) for kernel, grid, args, options in self._call(config)]

    def launch(self, config: Config) -> Any:
        return [kernel[grid](*args, **options) for kernel, grid, args, options in self._calls.of(config)]

    def _call(self, config: Config) -> tuple[Launch, ...]:
        config = {**ABSENT, **config}
        if str(config["KERNEL"]).startswith("unpacked"):
            return (self._unpack(), self._product(config))
        if config["KERNEL"] == "warp groups":
            return self._warp_groups(config)
        (tiles, options), split = self._tiles(config), int(config["SPLIT_K"])
        shared = (None, None) if split == 1 else self._workspace.of(tiles * split * config["BM"] * config["BN"], tiles)
        size, options = (self.M, self.N, self.K), {**options, "SPLIT_K": split, "HALF": GROUP // 2}
        if config["KERNEL"] == "tiles":
            return ((int4_matmul, (tiles, split), (self.x, self.q, self.scales, self.out, *size, *shared), options),)
        args = (self.x, self.q.view(torch.int32), self.scales, self.out, *size, *shared)
        if config["KERNEL"] == "words":
            return ((int4_words, (tiles, split), args, options),)
        vector = {name: value for name, value in options.items() if name not in ("GM", "num_stages")}
        return ((int4_vector, (tiles, split), args, {**vector, "STAGES": config["num_stages"]}),)

    def _warp_groups(self, config: Config) -> tuple[Launch, ...]:
        """Tensor cores read X and the words as they are described here."""
        bm, bk, split = int(config["BM"]), int(config["BK"]), int(config["SPLIT_K"])
        kind = gl.bfloat16 if self.x.dtype == torch.bfloat16 else gl.float16
        size = self.M * self.N
        out = self.out if split == 1 else self._workspace.of(split * size, 0)[0]
        x = GluonDescriptor.from_tensor(self.x, [bm, bk], gl.NVMMASharedLayout.get_default_for([bm, bk], kind))
        w = GluonDescriptor.from_tensor(self.q.view(torch.int32), [bk, WORDS], gl.NVMMASharedLayout(128, 32, 2))
        units = triton.cdiv(self.M, bm) * triton.cdiv(self.N, config["BN"]) * split
        options = {"BM": bm, "BK": bk, "HALF": GROUP // 2, "WORDS": WORDS, "BYTES": BYTES[bm], "SPLIT_K": split,
                   "STAGES": config["num_stages"], "LOAD": LOAD_REGISTERS,
                   "COMPUTE": COMPUTE_REGISTERS, "num_warps": config["num_warps"]}
        args = (x, w, self.scales, out, self.M, self.N, self.K)
        product = int4_warp_groups, (min(multiprocessors(self.out.device), units),), args, options
        if split == 1:
            return (product,)
        added = {"SPLIT_K": split, "BLOCK": SUMMED, "num_warps": 4}
        return product, (int4_sum, (triton.cdiv(size, SUMMED),), (out, self.out, size), added)

    def _unpack(self) -> Launch:
        if self._unpacked is None:
            self._unpacked = torch.empty((self.K, self.N), device=self.x.device, dtype=self.x.dtype)
        grid = (self.K // 2 // UNPACKED["ROWS"], triton.cdiv(self.N, UNPACKED["BN"]))
        return int4_unpack, grid, (self.q, self.scales, self._unpacked, self.N), {**UNPACKED, "HALF": GROUP // 2}

    def _product(self, config: Config) -> Launch:
        """X · W with the unpacked weights."""
        (tiles, options), weights, size = self._tiles(config), self._unpacked, (self.M, self.N, self.K)
        assert weights is not None
        options |= {"ACT": 0}
        if config["KERNEL"] == "unpacked, tiles":
            strides = (*self.x.stride(), *weights.stride(), *self.out.stride())
            args = (self.x, weights, self.out, *size, *strides, None, None, None, None)
            return matmul, (tiles, 1), args, {**options, "SPLIT_K": 1, "BT": False, "UNIT": unit_of(self.N, self.K)}
        bm, bn, bk = config["BM"], config["BN"], config["BK"]
        halves = config["KERNEL"] == "unpacked, persistent" and bn > 128
        x, w = TensorDescriptor.from_tensor(self.x, [bm, bk]), TensorDescriptor.from_tensor(weights, [bk, bn])
        y, options = TensorDescriptor.from_tensor(self.out, [bm, bn // 2 if halves else bn]), {**options, "BT": False}
        if config["KERNEL"] == "unpacked, tma":
            args = (x, w, y, None, None, None, None, *size, 0)
            return matmul_tma, (tiles, 1), args, {**options, "SPLIT_K": 1, "STORE": "tma"}
        programs = (min(tiles, multiprocessors(self.out.device)),)
        return matmul_persistent, programs, (x, w, y, None, None, *size, tiles), {**options, "STORE": "halves" if halves else "tma"}


class Fp8BlockMatmul(_Quantised, OneKernel):
    _cublas: bool | None           # None: not tried yet

    def __init__(self, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        super().__init__(shape)
        blocks, kind = self.K // SCALE_BLOCK, torch_dtype(dtype)
        self.a = torch.empty((self.M, self.K), device=device, dtype=kind)
        self.b = torch.empty((self.N, self.K), device=device, dtype=kind)
        self.row_scales = torch.empty((self.M, blocks), device=device)
        self.block_scales = torch.empty((triton.cdiv(self.N, SCALE_BLOCK), blocks), device=device)
        self.out = torch.empty((self.M, self.N), device=device, dtype=torch.bfloat16)
        self._workspace = Workspace(device)
        self.refill(seed)

    def refill(self, seed: int) -> None:
        normal_tensors(seed, self.a, self.b)
        for number, scales in enumerate((self.row_scales, self.block_scales)):
            scales.uniform_(0.5, 2.0, generator=generator_on(self.a.device, seed + 1 + number))
        a, b = self._unscaled()
        self.plain = (a.bfloat16(), b.bfloat16().t())
        self._scales = (self.row_scales.t().contiguous().t(), self.block_scales.t())     # as cuBLAS wants them to lie
        self._cublas = None

    def library(self) -> torch.Tensor:
        """cuBLAS's product of scaled blocks where this GPU, toolkit and shape have it (Hopper, CUDA 12.9), else of bf16."""
        if self._cublas is None:
            self._cublas = self._has_scaled_blocks()
        return self._scaled_blocks() if self._cublas else super().library()

    def _scaled_blocks(self) -> torch.Tensor:
        return torch._scaled_mm(self.a, self.b.t(), *self._scales, out_dtype=torch.bfloat16)

    def _has_scaled_blocks(self) -> bool:
        if self.a.device.type != "cuda":
            return False
        try:
            self._scaled_blocks()
        except (RuntimeError, ValueError):          # what it says depends on what is missing
            return False
        return True

    def reference(self) -> torch.Tensor:
        full_precision()
        a, b = self._unscaled()
        return a @ b.t()

    def _unscaled(self) -> tuple[torch.Tensor, torch.Tensor]:
        """A and B as float32 numbers."""
        columns = self.block_scales.repeat_interleave(SCALE_BLOCK, 0)[:self.N]
        a, b = (tensor.float().view(len(tensor), -1, SCALE_BLOCK) * scales[:, :, None]
                for tensor, scales in ((self.a, self.row_scales), (self.b, columns)))
        return a.view(self.M, self.K), b.view(self.N, self.K)

    def _call(self, config: Config) -> Launch:
        config = {**ABSENT, "SPLIT_K": 1, **config}
        (tiles, options), split = self._tiles(config), int(config["SPLIT_K"])
        scales, size = (self.row_scales, self.block_scales, self.out), (self.M, self.N, self.K)
        if config["KERNEL"] == "specialised":
            groups = int(config["BM"]) // ROWS
            load, compute = REGISTERS[groups]
            args = (_as_tensor_cores_read(self.a, ROWS), _as_tensor_cores_read(self.b, config["BN"]), *scales, *size)
            return fp8_block_specialised, (min(multiprocessors(self.out.device), tiles),), args, {
                "ROWS": ROWS, "GROUPS": groups, "STAGES": config["num_stages"], "LOAD": load, "COMPUTE": compute,
                **{name: config[name] for name in ("BN", "BK", "GM", "num_warps")}}
        shared = (None, None) if split == 1 else self._workspace.of(tiles * split * config["BM"] * config["BN"], tiles)
        args = (self.a, self.b, *scales, *size, *shared)
        return fp8_block_matmul, (tiles, split), args, {**options, "SPLIT_K": split, "SIDE": SCALE_BLOCK}


def _as_tensor_cores_read(matrix: torch.Tensor, rows: int) -> GluonDescriptor:
    """Describe a matrix of bytes in blocks of `rows` × SCALE_BLOCK."""
    return GluonDescriptor.from_tensor(matrix, [rows, SCALE_BLOCK], gl.NVMMASharedLayout(128, 8, 2))


PROBLEMS = {"int4_matmul": Int4Matmul, "fp8_block_matmul": Fp8BlockMatmul}

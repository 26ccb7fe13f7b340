"""Out[r] = X[r] · W[e]ᵀ for the rows r of each expert e: the product of a mixture-of-experts layer, rows sorted by expert.

X[T, K], where T is M of the shape; W[E, N, K] as checkpoints store it; `ends` is the row after each expert's last one.
How many rows an expert has is known on the GPU only: a program finds its expert by adding up their blocks of rows (as
Triton's tutorial 11 walks them).

KERNEL  tiles       one output tile per program, loads through pointers
        tma         loads through TMA descriptors; a block may run into the next expert's rows, which nobody stores
        persistent  the same by one program per multiprocessor
BM, BN, BK tile; GM rows of tiles that share W's rows in L2; num_warps; num_stages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from tuner.tuning.kernels.extents import in_units, unit_of
from tuner.tuning.kernels.matmul_parts import tile_place
from tuner.tuning.kernels.problem import Calls, check_elements, full_precision, multiprocessors, normal_tensors, sizes, torch_dtype
from tuner.tuning.trial import Config

ROUTING_SEED = 0            # which expert gets how many rows: the same in every run, so that configurations compare


@triton.jit
def _row_blocks(ends, E, BM: tl.constexpr, EP: tl.constexpr):
    """First row, end and blocks of rows of every expert."""
    i = tl.arange(0, EP)
    end = tl.load(ends + i, mask=i < E, other=0)
    start = tl.load(ends + i - 1, mask=(i > 0) & (i < E), other=0)
    return start, end, tl.where(i < E, tl.cdiv(end - start, BM), 0)


@triton.jit
def _expert(start, end, blocks, pm, BM: tl.constexpr, EP: tl.constexpr):
    """Expert of the row block `pm`, its first row there, the end of its rows."""
    upto = tl.cumsum(blocks, 0)
    e = tl.sum((upto <= pm).to(tl.int32), 0)
    here = tl.arange(0, EP) == e
    row = tl.sum(tl.where(here, start + (pm - upto + blocks) * BM, 0), 0)
    return e, row, tl.sum(tl.where(here, end, 0), 0)


@triton.jit
def _store(acc, out, row, stop, n, N, BM: tl.constexpr, BN: tl.constexpr, UNIT: tl.constexpr):
    N = in_units(N, UNIT)
    cm, cn = row + tl.arange(0, BM), n + tl.arange(0, BN)
    tl.store(out + cm[:, None] * N + cn[None, :], acc.to(out.dtype.element_ty), mask=(cm[:, None] < stop) & (cn[None, :] < N))


@triton.jit
def grouped_matmul(x, w, out, ends, T, E, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr,
                   EP: tl.constexpr, UNIT: tl.constexpr):
    start, end, blocks = _row_blocks(ends, E, BM, EP)
    nm, nn = tl.sum(blocks, 0), tl.cdiv(N, BN)
    if tl.program_id(0) >= nm * nn:
        return                                       # the grid is as large as the worst routing needs
    pm, pn = tile_place(tl.program_id(0), nm, nn, GM)
    e, row, stop = _expert(start, end, blocks, pm, BM, EP)
    n, K = pn * BN, in_units(K, UNIT)
    rm, rn, rk = tl.minimum(row + tl.arange(0, BM), T - 1), (n + tl.arange(0, BN)) % N, tl.arange(0, BK)
    xp = x + rm[:, None] * K + rk[None, :]
    wp = w + e.to(tl.int64) * N * K + rn[None, :] * K + rk[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        xv = tl.load(xp, mask=rk[None, :] < K - k * BK, other=0.0)
        wv = tl.load(wp, mask=rk[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(xv, wv, acc)
        xp += BK
        wp += BK
    _store(acc, out, row, stop, n, N, BM, BN, UNIT)


@triton.jit
def grouped_matmul_tma(xd, wd, out, ends, T, E, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                       GM: tl.constexpr, EP: tl.constexpr, UNIT: tl.constexpr):
    start, end, blocks = _row_blocks(ends, E, BM, EP)
    nm, nn = tl.sum(blocks, 0), tl.cdiv(N, BN)
    if tl.program_id(0) >= nm * nn:
        return
    pm, pn = tile_place(tl.program_id(0), nm, nn, GM)
    e, row, stop = _expert(start, end, blocks, pm, BM, EP)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        acc = tl.dot(xd.load([row, k * BK]), wd.load([e * N + pn * BN, k * BK]).T, acc)
    _store(acc, out, row, stop, pn * BN, N, BM, BN, UNIT)


@triton.jit
def grouped_matmul_persistent(xd, wd, out, ends, T, E, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                              GM: tl.constexpr, EP: tl.constexpr, UNIT: tl.constexpr):
    start, end, blocks = _row_blocks(ends, E, BM, EP)
    nm, nn = tl.sum(blocks, 0), tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), nm * nn, tl.num_programs(0)):
        pm, pn = tile_place(tile, nm, nn, GM)
        e, row, stop = _expert(start, end, blocks, pm, BM, EP)
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, tl.cdiv(K, BK)):
            acc = tl.dot(xd.load([row, k * BK]), wd.load([e * N + pn * BN, k * BK]).T, acc)
        _store(acc, out, row, stop, pn * BN, N, BM, BN, UNIT)


class GroupedMatmul:
    def __init__(self, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        self.T, self.E, self.N, self.K = sizes(shape, "M", "E", "N", "K")
        check_elements(X=self.T * self.K, W_of_one_expert=self.N * self.K, Out=self.T * self.N, W_rows=self.E * self.N)
        kind = torch_dtype(dtype)
        self.x = torch.empty((self.T, self.K), device=device, dtype=kind)
        self.w = torch.empty((self.E, self.N, self.K), device=device, dtype=kind)
        self.out = torch.empty((self.T, self.N), device=device, dtype=kind)
        routed = torch.randint(0, self.E, (self.T,), generator=torch.Generator().manual_seed(ROUTING_SEED))
        self.counts = torch.bincount(routed, minlength=self.E).tolist()
        self.ends = torch.tensor(self.counts, dtype=torch.int32).cumsum(0, dtype=torch.int32).to(device)
        self.programs = multiprocessors(device)
        self._calls = Calls(self._call)
        self.refill(seed)

    def refill(self, seed: int) -> None:
        normal_tensors(seed, self.x, self.w)

    def reference(self) -> torch.Tensor:
        full_precision()
        parts = [rows.float() @ self.w[e].float().t() for e, rows in enumerate(self.x.split(self.counts))]
        return torch.cat(parts)

    def library(self) -> torch.Tensor:
        return torch.nn.functional.grouped_mm(self.x, self.w.transpose(1, 2), offs=self.ends)

    def compile(self, config: Config) -> Any:
        kernel, grid, args, options = self._call(config)
        return kernel.warmup(*args, grid=grid, **options)

    def launch(self, config: Config) -> Any:
        kernel, grid, args, options = self._calls.of(config)
        return kernel[grid](*args, **options)

    def _call(self, config: Config) -> tuple[Any, tuple[int], tuple[Any, ...], dict[str, Any]]:
        """Kernel, grid, arguments and constants of a configuration."""
        bm, bn, bk, name = config["BM"], config["BN"], config["BK"], config["KERNEL"]
        blocks = min(self.T, triton.cdiv(self.T, bm) + self.E - 1)          # at most, however the rows are routed
        tiles = blocks * triton.cdiv(self.N, bn)
        options = {"EP": triton.next_power_of_2(self.E), "UNIT": unit_of(self.N, self.K),
                   **{key: config[key] for key in ("BM", "BN", "BK", "GM", "num_warps", "num_stages")}}
        size = (self.out, self.ends, self.T, self.E, self.N, self.K)
        if name == "tiles":
            return grouped_matmul, (tiles,), (self.x, self.w, *size), options
        x = TensorDescriptor.from_tensor(self.x, [bm, bk])
        w = TensorDescriptor.from_tensor(self.w.view(-1, self.K), [bn, bk])
        if name == "tma":
            return grouped_matmul_tma, (tiles,), (x, w, *size), options
        return grouped_matmul_persistent, (min(tiles, self.programs),), (x, w, *size), options


PROBLEMS = {"grouped_matmul": GroupedMatmul}

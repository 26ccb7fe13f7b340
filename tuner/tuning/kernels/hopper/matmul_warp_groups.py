"""matmul for Hopper in Gluon: one warp loads, two or three warp groups multiply 64 rows of a tile each, or 128 as two products.

Tiles of three warp groups have 192 rows, which no power of two has: other numbers of tiles, other last waves. While one warp group
writes its rows, the others multiply and the loading warp brings the next tile (the persistent kernels of CUTLASS 3 do the same).
"""

from __future__ import annotations

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from tuner.tuning.kernels.hopper.warp_parts import REGISTERS, barriers, bring_operands, place_of_tile
from tuner.tuning.kernels.problem import Launch, multiprocessors
from tuner.tuning.trial import Config

ROWS = 64                   # of a product
# Warp groups that compute and products of each, by the rows of a tile.
WARP_GROUPS = {128: (2, 1), 192: (3, 1), 256: (2, 2)}
WIDE = 64                   # columns that are written at a time


@gluon.jit
def _product(part: gl.constexpr, slot, ab, bb, acc, PARTS: gl.constexpr, BT: gl.constexpr):
    """Start a product of one block."""
    b = bb.index(slot)
    if BT:
        b = b.permute((1, 0))
    return warpgroup_mma(ab.index(PARTS * slot + part), b, acc, is_async=True)


@gluon.jit
def _activated(x, ACT: gl.constexpr):
    """0 none, 1 ReLU, 2 GELU (tanh form, Hendrycks and Gimpel 2016), 3 SiLU."""
    if ACT == 1:
        x = gl.maximum(x, 0.0)
    if ACT == 2:
        x = x / (1.0 + gl.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))     # tanh(u) = 2·sigmoid(2u) − 1
    if ACT == 3:
        x = x / (1.0 + gl.exp(-x))
    return x


@gluon.jit
def _write(acc, cd, buffer, m, n, N, bias, scale, ACT: gl.constexpr, layout: gl.constexpr):
    """Write WIDE columns: scale, bias and activation, then through shared memory."""
    acc = gl.convert_layout(acc, layout)
    if scale is not None:
        acc *= gl.load(scale)
    if bias is not None:
        columns = n + gl.arange(0, acc.shape[1], gl.SliceLayout(0, layout))
        acc += gl.load(bias + columns, mask=columns < N, other=0.0).to(gl.float32)[None, :]
    tma.store_wait(0)                                       # what was written before has left
    buffer.store(_activated(acc, ACT).to(cd.dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(cd, [m, n], buffer)


@gluon.jit
def _halves(x):
    """Left and right columns."""
    return gl.split(x.reshape([x.shape[0], 2, x.shape[1] // 2]).permute([0, 2, 1]))


@gluon.jit
def _write_rows(acc, cd, buffer, m, n, N, bias, scale, WIDE: gl.constexpr, ACT: gl.constexpr, layout: gl.constexpr):
    """Write the columns of one product."""
    if acc.shape[1] == WIDE:
        _write(acc, cd, buffer, m, n, N, bias, scale, ACT, layout)
    else:
        half: gl.constexpr = acc.shape[1] // 2
        left, right = _halves(acc)
        _write_rows(left, cd, buffer, m, n, N, bias, scale, WIDE, ACT, layout)
        _write_rows(right, cd, buffer, m, n + half, N, bias, scale, WIDE, ACT, layout)


@gluon.jit
def _multiply(group: gl.constexpr, ab, bb, cb, full, empty, cd, bias, scale, M, N, K, ROWS: gl.constexpr, GROUPS: gl.constexpr,
              TWICE: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, GM: gl.constexpr, STAGES: gl.constexpr, WIDE: gl.constexpr,
              ACT: gl.constexpr, BT: gl.constexpr):
    """One warp group: ROWS rows of each tile, or TWICE as many."""
    PARTS: gl.constexpr = 2 * GROUPS if TWICE else GROUPS
    BM: gl.constexpr = ROWS * PARTS
    part: gl.constexpr = 2 * group if TWICE else group
    deep: gl.constexpr = 256 // ab.dtype.primitive_bitwidth              # of K in one instruction: 32 bytes
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, deep])
    narrow: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDE, deep])
    blocks = gl.cdiv(K, BK)
    buffer = cb.index(group)
    step = 0
    for tile in range(gl.program_id(0), gl.cdiv(M, BM) * gl.cdiv(N, BN), gl.num_programs(0)):
        pm, pn = place_of_tile(tile, M, N, BM, BN, GM)
        m, n = pm * BM + part * ROWS, pn * BN
        acc = gl.zeros([ROWS, BN], gl.float32, layout)
        if TWICE:
            lower = gl.zeros([ROWS, BN], gl.float32, layout)
            for _ in range(blocks):
                slot = step % STAGES
                mbarrier.wait(full.index(slot), step // STAGES & 1)
                acc = _product(part, slot, ab, bb, acc, PARTS, BT)
                lower = _product(part + 1, slot, ab, bb, lower, PARTS, BT)
                acc, lower = warpgroup_mma_wait(0, deps=[acc, lower])
                mbarrier.arrive(empty.index(slot))
                step += 1
            _write_rows(acc, cd, buffer, m, n, N, bias, scale, WIDE, ACT, narrow)
            _write_rows(lower, cd, buffer, m + ROWS, n, N, bias, scale, WIDE, ACT, narrow)
        else:
            for _ in range(blocks // 2):                                 # none is pending where the loop begins anew (ptxas C7514)
                first, second = step % STAGES, (step + 1) % STAGES
                mbarrier.wait(full.index(first), step // STAGES & 1)
                acc = _product(part, first, ab, bb, acc, PARTS, BT)
                mbarrier.wait(full.index(second), (step + 1) // STAGES & 1)
                acc = _product(part, second, ab, bb, acc, PARTS, BT)
                acc = warpgroup_mma_wait(1, deps=[acc])
                mbarrier.arrive(empty.index(first))
                acc = warpgroup_mma_wait(0, deps=[acc])
                mbarrier.arrive(empty.index(second))
                step += 2
            if blocks % 2:
                mbarrier.wait(full.index(step % STAGES), step // STAGES & 1)
                acc = warpgroup_mma_wait(0, deps=[_product(part, step % STAGES, ab, bb, acc, PARTS, BT)])
                mbarrier.arrive(empty.index(step % STAGES))
                step += 1
            _write_rows(acc, cd, buffer, m, n, N, bias, scale, WIDE, ACT, narrow)
    tma.store_wait(0)


@gluon.jit
def matmul_warp_groups(ad, bd, cd, bias, scale, M, N, K, ROWS: gl.constexpr, GROUPS: gl.constexpr, TWICE: gl.constexpr,
                       BN: gl.constexpr, BK: gl.constexpr, GM: gl.constexpr, STAGES: gl.constexpr, WIDE: gl.constexpr,
                       ACT: gl.constexpr, BT: gl.constexpr, LOAD: gl.constexpr, COMPUTE: gl.constexpr):
    """A in blocks of ROWS × BK, B of BK × BN (BT: of BN × BK), C of ROWS × WIDE."""
    PARTS: gl.constexpr = 2 * GROUPS if TWICE else GROUPS
    ab = gl.allocate_shared_memory(ad.dtype, [PARTS * STAGES, ROWS, BK], ad.layout)
    bb = gl.allocate_shared_memory(bd.dtype, [STAGES, BN, BK] if BT else [STAGES, BK, BN], bd.layout)
    cb = gl.allocate_shared_memory(cd.dtype, [GROUPS, ROWS, WIDE], cd.layout)
    full, empty = barriers(STAGES, 1), barriers(STAGES, GROUPS)
    one: gl.constexpr = 0
    two: gl.constexpr = 1
    three: gl.constexpr = 2
    if GROUPS == 2:         # constants reach the parts only as they are written here
        gl.warp_specialize([
            (_multiply, (one, ab, bb, cb, full, empty, cd, bias, scale, M, N, K, ROWS, GROUPS, TWICE, BN, BK, GM, STAGES, WIDE, ACT,
                         BT)),
            (_multiply, (two, ab, bb, cb, full, empty, cd, bias, scale, M, N, K, ROWS, GROUPS, TWICE, BN, BK, GM, STAGES, WIDE, ACT,
                         BT)),
            (bring_operands, (ad, bd, ab, bb, full, empty, M, N, K, ROWS, PARTS, BN, BK, GM, STAGES, BT))], [4, 1], [COMPUTE, LOAD])
    else:
        gl.warp_specialize([
            (_multiply, (one, ab, bb, cb, full, empty, cd, bias, scale, M, N, K, ROWS, GROUPS, TWICE, BN, BK, GM, STAGES, WIDE, ACT,
                         BT)),
            (_multiply, (two, ab, bb, cb, full, empty, cd, bias, scale, M, N, K, ROWS, GROUPS, TWICE, BN, BK, GM, STAGES, WIDE, ACT,
                         BT)),
            (_multiply, (three, ab, bb, cb, full, empty, cd, bias, scale, M, N, K, ROWS, GROUPS, TWICE, BN, BK, GM, STAGES, WIDE,
                         ACT, BT)),
            (bring_operands, (ad, bd, ab, bb, full, empty, M, N, K, ROWS, PARTS, BN, BK, GM, STAGES, BT))],
            [4, 4, 1], [COMPUTE, COMPUTE, LOAD])


def launch_of(config: Config, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, *, by_columns: bool, act: int = 0,
              bias: torch.Tensor | None = None, scale: torch.Tensor | None = None) -> Launch:
    """Return the launch of C[M, N] = A[M, K] · B: b is [K, N], or `by_columns` [N, K]. All are contiguous."""
    (rows, steps), columns = a.shape, c.shape[1]
    bn, bk, (groups, products) = config["BN"], config["BK"], WARP_GROUPS[int(config["BM"])]
    load, compute = REGISTERS[groups]
    tiles = triton.cdiv(rows, config["BM"]) * triton.cdiv(columns, bn)
    args = (_described(a, ROWS, bk), _described(b, *((bn, bk) if by_columns else (bk, bn))), _described(c, ROWS, WIDE), bias, scale,
            rows, columns, steps)
    options = {"ROWS": ROWS, "GROUPS": groups, "TWICE": products == 2, "STAGES": config["num_stages"], "WIDE": WIDE, "ACT": act,
               "BT": by_columns, "LOAD": load, "COMPUTE": compute,
               **{name: config[name] for name in ("BN", "BK", "GM", "num_warps")}}
    return matmul_warp_groups, (min(tiles, multiprocessors(c.device)),), args, options


def _described(matrix: torch.Tensor, rows: int, columns: int) -> TensorDescriptor:
    """Describe a matrix in blocks of rows × columns, as tensor cores read them from shared memory."""
    kinds = {torch.float8_e4m3fn: gl.float8e4nv, torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}
    layout = gl.NVMMASharedLayout.get_default_for([rows, columns], kinds[matrix.dtype])
    return TensorDescriptor.from_tensor(matrix, [rows, columns], layout)

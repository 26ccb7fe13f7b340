"""Matmul kernels that load tiles through TMA descriptors: one tile per program, persistent, warp-specialised.

matmul_tma         one output tile (or one of SPLIT_K pieces of its sum) per program, from tile `first` on
matmul_persistent  one program per multiprocessor walks the tiles up to `last`; the flattened loop loads the next tile's
                   first blocks while this one's epilogue runs (Triton tutorial 09)
matmul_specialised persistent, one warp group loads, two others multiply; the compiler cuts A's and C's blocks in two for
                   them, so their descriptors are made in the kernel

The two make a pair for outputs of some whole waves of tiles and a bit: the persistent one does the waves, then few tiles are
left, which would leave most multiprocessors idle, so their sums are split until all have work (the data-parallel hybrid of
Stream-K, Osama and others, PPoPP 2023). Both in one kernel compile badly: ptxas then runs every wgmma by itself (C7515).

A block of B is [BK, BN], or [BN, BK] where B is stored by columns (BT: fp8 tensor cores read K first).
"""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.tuning.kernels.extents import in_units
from tuner.tuning.kernels.matmul_parts import came_last, finished, leave_partial, partials_summed, tile_place


@triton.jit
def _product(ad, bd, acc, m, n, k, BT: tl.constexpr):
    av = ad.load([m, k])
    bv = bd.load([n, k]).T if BT else bd.load([k, n])
    return tl.dot(av, bv, acc)


@triton.jit
def _store(acc, c, m, n, M, N, bias, scale, BM: tl.constexpr, BN: tl.constexpr, ACT: tl.constexpr, STORE: tl.constexpr):
    """direct: from registers; tma: through shared memory; halves: one half after the other, which leaves room for a stage."""
    if STORE == "direct":
        N = in_units(N, 8)                     # rows of 16 bytes, as B's descriptor asks
        cm, cn = m + tl.arange(0, BM), n + tl.arange(0, BN)
        tl.store(c + cm[:, None] * N + cn[None, :], finished(acc, cn, N, bias, scale, ACT).to(c.dtype.element_ty),
                 mask=(cm[:, None] < M) & (cn[None, :] < N))
    elif STORE == "tma":
        c.store([m, n], finished(acc, n + tl.arange(0, BN), N, bias, scale, ACT).to(c.dtype))
    else:
        HALF: tl.constexpr = BN // 2
        left, right = tl.split(tl.permute(tl.reshape(acc, (BM, 2, HALF)), (0, 2, 1)))
        c.store([m, n], finished(left, n + tl.arange(0, HALF), N, bias, scale, ACT).to(c.dtype))
        n += HALF
        c.store([m, n], finished(right, n + tl.arange(0, HALF), N, bias, scale, ACT).to(c.dtype))


@triton.jit
def matmul_tma(ad, bd, c, bias, scale, work, locks, M, N, K, first,
               BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr, SPLIT_K: tl.constexpr,
               STORE: tl.constexpr, ACT: tl.constexpr, BT: tl.constexpr):
    tile, split = tl.program_id(0), tl.program_id(1)
    pm, pn = tile_place(first + tile, tl.cdiv(M, BM), tl.cdiv(N, BN), GM)
    m, n = pm * BM, pn * BN
    blocks = tl.cdiv(K, BK)
    each = tl.cdiv(blocks, SPLIT_K)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in tl.range(split * each, tl.minimum(blocks, (split + 1) * each)):
        acc = _product(ad, bd, acc, m, n, i * BK, BT)
    if SPLIT_K == 1:
        _store(acc, c, m, n, M, N, bias, scale, BM, BN, ACT, STORE)
    else:
        leave_partial(acc, work, tile * SPLIT_K + split, BM, BN)
        if came_last(locks, tile, SPLIT_K):
            _store(partials_summed(work, tile * SPLIT_K, SPLIT_K, BM, BN), c, m, n, M, N, bias, scale, BM, BN, ACT, STORE)


@triton.jit
def matmul_persistent(ad, bd, c, bias, scale, M, N, K, last,
                      BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr, STORE: tl.constexpr,
                      ACT: tl.constexpr, BT: tl.constexpr):
    start, programs = tl.program_id(0), tl.num_programs(0)
    nm, nn = tl.cdiv(M, BM), tl.cdiv(N, BN)
    blocks = tl.cdiv(K, BK)
    done = start - programs                  # the epilogue's own count: its tile hangs on no value of the loads' part
    for tile in tl.range(start, last, programs, flatten=True):
        pm, pn = tile_place(tile, nm, nn, GM)
        acc = tl.zeros((BM, BN), tl.float32)
        for i in range(blocks):
            acc = _product(ad, bd, acc, pm * BM, pn * BN, i * BK, BT)
        done += programs
        pm, pn = tile_place(done, nm, nn, GM)
        _store(acc, c, pm * BM, pn * BN, M, N, bias, scale, BM, BN, ACT, STORE)


@triton.jit
def matmul_specialised(a, bd, c, bias, scale, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                       GM: tl.constexpr, STORE: tl.constexpr, ACT: tl.constexpr, BT: tl.constexpr):
    nm, nn = tl.cdiv(M, BM), tl.cdiv(N, BN)
    blocks = tl.cdiv(K, BK)
    ad = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    if STORE == "tma":
        c = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    for tile in tl.range(tl.program_id(0), nm * nn, tl.num_programs(0), warp_specialize=True):
        pm, pn = tile_place(tile, nm, nn, GM)
        acc = tl.zeros((BM, BN), tl.float32)
        for i in range(blocks):
            acc = _product(ad, bd, acc, pm * BM, pn * BN, i * BK, BT)
        _store(acc, c, pm * BM, pn * BN, M, N, bias, scale, BM, BN, ACT, STORE)

"""Attention forward in two stages: blocks of keys that no mask touches, then the few on the diagonal and at the end.

attn_two_stage    loads through pointers
attn_tma          loads through TMA descriptors
attn_specialised  one warp group loads, two compute 64 query rows each. Triton specialises one loop only, so every block is
                  masked (MASK); and it cuts the blocks of Q and O in two, for which their descriptors are made in the kernel.
                  `tall` is BM once more, unknown to the compiler: from pm · BM it would make the second half's rows by
                  adding half a tile twice, as that number is also where the descriptors' blocks begin (Triton 3.6, 3.7)

The scale goes into the exponent's multiply-add, the mask costs nothing where it is not needed (FlashAttention-2, Dao 2023,
§3.1; Triton tutorial 06). Causal programs with the longest rows start first, so that the last ones to end are short.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _block(acc, li, mi, qv, kt, vv, rm, rn, N, scale, CAUSAL: tl.constexpr, MASK: tl.constexpr):
    """One block of keys: scores, online softmax, weighted values. `kt` is K transposed."""
    s = tl.dot(qv, kt)
    if MASK:
        ok = rn[None, :] < N
        if CAUSAL:
            ok = ok & (rm[:, None] >= rn[None, :])
        s = tl.where(ok, s, -1e30)
    mn = tl.maximum(mi, tl.max(s, 1) * scale)
    p = tl.math.exp2(s * scale - mn[:, None])
    al = tl.math.exp2(mi - mn)
    li = li * al + tl.sum(p, 1)
    acc = tl.dot(p.to(vv.dtype), vv, acc * al[:, None])
    return acc, li, mn


@triton.jit
def _place(H, GROUP: tl.constexpr, CAUSAL: tl.constexpr):
    """Row tile, batch·head of Q and of K: the longest causal rows first."""
    pm, ph = tl.program_id(0), tl.program_id(1)
    if CAUSAL:
        pm = tl.num_programs(0) - 1 - pm
    return pm, ph, ph // H * (H // GROUP) + ph % H // GROUP


@triton.jit
def _range(pm, N, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr):
    """End of the keys that need no mask, end of all keys."""
    if CAUSAL:
        return pm * BM // BN * BN, tl.minimum(N, (pm + 1) * BM)
    else:
        return N // BN * BN, N


@triton.jit
def attn_two_stage(q, k, v, o, H, N, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr,
                   CAUSAL: tl.constexpr):
    pm, ph, pk = _place(H, GROUP, CAUSAL)
    q += ph.to(tl.int64) * N * D
    o += ph.to(tl.int64) * N * D
    k += pk.to(tl.int64) * N * D
    v += pk.to(tl.int64) * N * D
    rm, rb, rd = pm * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    qv = tl.load(q + rm[:, None] * D + rd[None, :], mask=rm[:, None] < N, other=0.0)
    mi = tl.full((BM,), -1e30, tl.float32)
    li = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    free, end = _range(pm, N, BM, BN, CAUSAL)
    for n in range(0, free, BN):
        rn = n + rb
        kt = tl.load(k + rn[None, :] * D + rd[:, None])
        vv = tl.load(v + rn[:, None] * D + rd[None, :])
        acc, li, mi = _block(acc, li, mi, qv, kt, vv, rm, rn, N, scale, CAUSAL, False)
    for n in range(free, end, BN):
        rn = n + rb
        kt = tl.load(k + rn[None, :] * D + rd[:, None], mask=rn[None, :] < N, other=0.0)
        vv = tl.load(v + rn[:, None] * D + rd[None, :], mask=rn[:, None] < N, other=0.0)
        acc, li, mi = _block(acc, li, mi, qv, kt, vv, rm, rn, N, scale, CAUSAL, True)
    tl.store(o + rm[:, None] * D + rd[None, :], (acc / li[:, None]).to(o.dtype.element_ty), mask=rm[:, None] < N)


@triton.jit
def attn_tma(qd, kd, vd, o, H, N, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr,
             CAUSAL: tl.constexpr):
    pm, ph, pk = _place(H, GROUP, CAUSAL)
    o += ph.to(tl.int64) * N * D
    row, key = ph * N + pm * BM, pk * N           # heads stand one below the other: a block may run into the next one's rows
    rm, rb, rd = pm * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    qv = qd.load([row, 0])
    mi = tl.full((BM,), -1e30, tl.float32)
    li = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    free, end = _range(pm, N, BM, BN, CAUSAL)
    for n in range(0, free, BN):
        kt, vv = kd.load([key + n, 0]).T, vd.load([key + n, 0])
        acc, li, mi = _block(acc, li, mi, qv, kt, vv, rm, n + rb, N, scale, CAUSAL, False)
    for n in range(free, end, BN):
        kt, vv = kd.load([key + n, 0]).T, vd.load([key + n, 0])
        acc, li, mi = _block(acc, li, mi, qv, kt, vv, rm, n + rb, N, scale, CAUSAL, True)
    tl.store(o + rm[:, None] * D + rd[None, :], (acc / li[:, None]).to(o.dtype.element_ty), mask=rm[:, None] < N)


@triton.jit
def attn_specialised(q, kd, vd, o, H, N, scale, tall, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr,
                     CAUSAL: tl.constexpr, MASK: tl.constexpr):
    pm, ph, pk = _place(H, GROUP, CAUSAL)
    qd = tl.make_tensor_descriptor(q + ph.to(tl.int64) * N * D, [N, D], [D, 1], [BM, D])
    od = tl.make_tensor_descriptor(o + ph.to(tl.int64) * N * D, [N, D], [D, 1], [BM, D])
    rm, rb, key = pm * tall + tl.arange(0, BM), tl.arange(0, BN), pk * N
    qv = qd.load([pm * BM, 0])
    mi = tl.full((BM,), -1e30, tl.float32)
    li = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    _, end = _range(pm, N, BM, BN, CAUSAL)
    for n in tl.range(0, end, BN, warp_specialize=True):
        kt, vv = kd.load([key + n, 0]).T, vd.load([key + n, 0])
        acc, li, mi = _block(acc, li, mi, qv, kt, vv, rm, n + rb, N, scale, CAUSAL, MASK)
    od.store([pm * BM, 0], (acc / li[:, None]).to(o.dtype.element_ty))

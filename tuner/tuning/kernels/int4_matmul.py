"""Products with weights of four bits that are read four columns at a time, and the weights unpacked to memory.

`q` is the packed matrix (see tuner.tuning.kernels.quantised_matmul) seen as words of 32 bits, [K/2, N/4]: byte b of a word is column
4·word + b. A weight q is put into the mantissa of a number whose last place is 1 there, so that no integer is converted.

int4_vector   few rows: sums in registers, without tensor cores; a thread reads 16 bytes along N, one scale a group is multiplied
              into the sum of its 128 products
int4_words    Yᵀ = Wᵀ · Xᵀ: unpacked weights are the operand that tensor cores take from registers, a product for each byte of the
              words, whose columns stand apart until the end
int4_unpack   W[K, N] in 16 bits, for a plain product
"""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.tuning.kernels.matmul_parts import came_last, leave_partial, partials_summed, tile_place


@triton.jit
def _columns(a, b, c, d, ROWS: tl.constexpr, BN: tl.constexpr):
    """Put the columns of four bytes, each [ROWS, BN/4], in their order: [ROWS, BN]."""
    return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (ROWS, BN))


@triton.jit
def finish_tile(acc, y, m, n, M, N, work, locks, tile, split, SPLIT_K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Write a tile, or leave a part of it and add up all parts if this is the last."""
    at, inside = y + m[:, None] * N + n[None, :], (m < M)[:, None] & (n < N)[None, :]
    if SPLIT_K == 1:
        tl.store(at, acc.to(y.dtype.element_ty), mask=inside)
    else:
        leave_partial(acc, work, tile * SPLIT_K + split, BM, BN)
        if came_last(locks, tile, SPLIT_K):
            tl.store(at, partials_summed(work, tile * SPLIT_K, SPLIT_K, BM, BN).to(y.dtype.element_ty), mask=inside)


@triton.jit
def _float(words, place: tl.constexpr):
    """128 + the four bits from `place` on, as float32: the last of them counts 1 in a number from 128 to 256."""
    moved = words << (16 - place) if place <= 16 else words >> (place - 16)
    return ((moved & 0xF0000) | 0x43000000).to(tl.float32, bitcast=True)


@triton.jit
def int4_vector(x, q, scales, y, M, N, K, work, locks, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                SPLIT_K: tl.constexpr, HALF: tl.constexpr, STAGES: tl.constexpr):
    """BM rows, all of X; BN columns; BK packed rows at once, which stay apart until the end."""
    tile, split = tl.program_id(0), tl.program_id(1)
    WORDS: tl.constexpr = BN // 4
    m, r, w = tl.arange(0, BM)[:, None, None], tl.arange(0, BK)[None, :, None], tile * WORDS + tl.arange(0, WORDS)[None, None, :]
    groups = K // (2 * HALF)
    each = tl.cdiv(groups, SPLIT_K)
    zero = tl.zeros((BM, BK, WORDS), tl.float32)
    a, b, c, d = zero, zero, zero, zero
    there = w < N // 4
    for group in tl.range(split * each, tl.minimum(groups, split * each + each), num_stages=STAGES):
        ga, gb, gc, gd = zero, zero, zero, zero
        total = tl.zeros((BM, BK, 1), tl.float32)
        for part in tl.static_range(HALF // BK):
            words = tl.load(q + (group * HALF + part * BK + r) * (N // 4) + w, mask=there, other=0)
            at = x + m * K + group * (2 * HALF) + part * BK + r
            low = tl.load(at, mask=m < M, other=0.0).to(tl.float32)
            high = tl.load(at + HALF, mask=m < M, other=0.0).to(tl.float32)
            ga += _float(words, 0) * low + _float(words, 4) * high
            gb += _float(words, 8) * low + _float(words, 12) * high
            gc += _float(words, 16) * low + _float(words, 20) * high
            gd += _float(words, 24) * low + _float(words, 28) * high
            total += low + high
        total *= 136.0                                                      # 128 and the weights' own 8
        s = scales + group * N + 4 * w
        a += (ga - total) * tl.load(s, mask=there, other=0.0).to(tl.float32)
        b += (gb - total) * tl.load(s + 1, mask=there, other=0.0).to(tl.float32)
        c += (gc - total) * tl.load(s + 2, mask=there, other=0.0).to(tl.float32)
        d += (gd - total) * tl.load(s + 3, mask=there, other=0.0).to(tl.float32)
    acc = _columns(tl.sum(a, 1), tl.sum(b, 1), tl.sum(c, 1), tl.sum(d, 1), BM, BN)
    finish_tile(acc, y, tl.arange(0, BM), tile * BN + tl.arange(0, BN), M, N, work, locks, tile, split, SPLIT_K, BM, BN)


@triton.jit
def _number(words, place: tl.constexpr, KIND: tl.constexpr):
    """q − 8 of the four bits from `place` on, exact in 16 bits."""
    if KIND.is_bf16():
        return (((words >> place) & 15) | 0x4300).to(tl.int16).to(KIND, bitcast=True) - 136.0              # of 128 + q
    else:
        return (((words >> place) & 15) | 0x6400).to(tl.int16).to(KIND, bitcast=True) - 1032.0             # of 1024 + q


@triton.jit
def int4_words(x, q, scales, y, M, N, K, work, locks, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr,
               SPLIT_K: tl.constexpr, HALF: tl.constexpr):
    """Tiles BM × BN; steps of BK packed rows, 2·BK of K."""
    tile, split = tl.program_id(0), tl.program_id(1)
    pm, pn = tile_place(tile, tl.cdiv(M, BM), tl.cdiv(N, BN), GM)
    WORDS: tl.constexpr = BN // 4
    m, w, k = pm * BM + tl.arange(0, BM), pn * WORDS + tl.arange(0, WORDS), tl.arange(0, BK)
    steps = K // (2 * BK)
    each = tl.cdiv(steps, SPLIT_K)
    first, last = split * each, tl.minimum(steps, split * each + each)
    zero = tl.zeros((WORDS, BM), tl.float32)
    a, b, c, d = zero, zero, zero, zero
    there = w < N // 4
    for step in range(first, last):
        row = step * BK                                                      # of the packed rows
        words = tl.load(q + (row + k)[None, :] * (N // 4) + w[:, None], mask=there[:, None], other=0)
        at = x + m[None, :] * K + (row + row // HALF * HALF + k)[:, None]
        low = tl.load(at, mask=(m < M)[None, :], other=0.0)
        high = tl.load(at + HALF, mask=(m < M)[None, :], other=0.0)
        s = scales + row // HALF * N + 4 * w
        sa, sb = tl.load(s, mask=there, other=0.0), tl.load(s + 1, mask=there, other=0.0)
        sc, sd = tl.load(s + 2, mask=there, other=0.0), tl.load(s + 3, mask=there, other=0.0)
        kind: tl.constexpr = x.dtype.element_ty
        a += tl.dot(_number(words, 4, kind), high, tl.dot(_number(words, 0, kind), low)) * sa.to(tl.float32)[:, None]
        b += tl.dot(_number(words, 12, kind), high, tl.dot(_number(words, 8, kind), low)) * sb.to(tl.float32)[:, None]
        c += tl.dot(_number(words, 20, kind), high, tl.dot(_number(words, 16, kind), low)) * sc.to(tl.float32)[:, None]
        d += tl.dot(_number(words, 28, kind), high, tl.dot(_number(words, 24, kind), low)) * sd.to(tl.float32)[:, None]
    acc = _columns(tl.trans(a), tl.trans(b), tl.trans(c), tl.trans(d), BM, BN)
    finish_tile(acc, y, m, pn * BN + tl.arange(0, BN), M, N, work, locks, tile, split, SPLIT_K, BM, BN)


@triton.jit
def int4_unpack(q, scales, weights, N, BN: tl.constexpr, ROWS: tl.constexpr, HALF: tl.constexpr):
    """W[K, N] of `q`, here bytes: ROWS packed rows and BN columns a program."""
    row, n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None], tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    packed = tl.load(q + row * N + n, mask=n < N, other=0).to(tl.int32)
    group = tl.program_id(0) * ROWS // HALF
    scale = tl.load(scales + group * N + n, mask=n < N, other=0.0)
    at = weights + (row + group * HALF) * N + n
    tl.store(at, _number(packed, 0, scale.dtype) * scale, mask=n < N)
    tl.store(at + HALF * N, _number(packed, 4, scale.dtype) * scale, mask=n < N)

"""int4_matmul for Hopper in Gluon: one warp loads, two warp groups unpack weights into registers and multiply.

Yᵀ = Wᵀ · Xᵀ with `q` seen as words of four columns, as in tuner.tuning.kernels.int4_matmul: an unpacked byte of 64 words is the operand
that tensor cores take from registers, and each byte has sums of its own, whose columns stand apart until the end. While one warp
group unpacks, the other multiplies (Marlin, Frantar and others 2024; its layout of weights is not needed, as words are swizzled in
shared memory).

BM rows of X a tile. Of 64 rows or fewer a warp group has all four bytes of its own 64 words, of 128 two bytes of words that both
share, of 256 one, and a tile then has two of the four bytes. BK packed rows a step, 2·BK of K. SPLIT_K programs can share the K
of a tile: each leaves its sums in memory, and int4_sum adds them up.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

from tuner.tuning.kernels.hopper.warp_parts import barriers

WORDS = 64                  # rows of a product: columns of W by fours
LOAD_REGISTERS, COMPUTE_REGISTERS = 24, 240         # a thread, of 168 that each of 384 threads has before they are shared out
SUMMED = 1024               # numbers of a program that adds up parts
BYTES = {16: 4, 32: 4, 64: 4, 128: 2, 256: 1}       # of its words that a warp group multiplies, by rows of X


@triton.constexpr_function
def _unpacking(byte, kind):
    """Instructions for both halves of one byte of two words: q − 8 times its scale.

    The bits are put into the mantissa of a number whose last place counts 1: 128 + q in bf16, 1024 + q in fp16.
    """
    pair, ones, eight = ("bf16x2", "0x43004300", "0x43084308") if kind.is_bf16() else ("f16x2", "0x64006400", "0x64086408")
    return """{
        .reg .b32 u, v, c;
        mov.b32 c, """ + eight + """;
        prmt.b32 u, $2, $3, """ + str(0x4400 + 0x1111 * byte) + """;
        lop3.b32 v, u, 0x000F000F, """ + ones + """, 0xEA;
        sub.rn.""" + pair + """ v, v, c;
        mul.rn.""" + pair + """ $0, v, $4;
        shr.b32 u, u, 4;
        lop3.b32 v, u, 0x000F000F, """ + ones + """, 0xEA;
        sub.rn.""" + pair + """ v, v, c;
        mul.rn.""" + pair + """ $1, v, $4;
    }"""


@gluon.jit
def _place(tile, M, BM: gl.constexpr, PAIRS: gl.constexpr):
    """Row of tiles, column of words and pair of bytes of a tile: those that read the same words follow each other."""
    rows = gl.cdiv(M, BM)
    return tile % rows, tile // rows // PAIRS, tile // rows % PAIRS


@gluon.jit
def _steps(split, K, BK: gl.constexpr, SPLIT_K: gl.constexpr):
    """First step of a part of K, and the first one after it."""
    steps = K // (2 * BK)
    each = gl.cdiv(steps, SPLIT_K)
    return gl.minimum(split * each, steps), gl.minimum(split * each + each, steps)


@gluon.jit
def _bring(xd, wd, xb, wb, full, empty, M, N, K, BM: gl.constexpr, BK: gl.constexpr, HALF: gl.constexpr, WORDS: gl.constexpr,
           COLUMNS: gl.constexpr, PAIRS: gl.constexpr, SPLIT_K: gl.constexpr, STAGES: gl.constexpr):
    """The loading warp: packed rows of COLUMNS × WORDS words, and X where their halves meet it."""
    tiles = gl.cdiv(M, BM) * gl.cdiv(N, 4 * COLUMNS * WORDS) * PAIRS
    done = 0
    for unit in range(gl.program_id(0), tiles * SPLIT_K, gl.num_programs(0)):
        pm, pw, _ = _place(unit // SPLIT_K, M, BM, PAIRS)
        first, last = _steps(unit % SPLIT_K, K, BK, SPLIT_K)
        for step in range(first, last):
            slot = done % STAGES
            row = step * BK
            k = row + row // HALF * HALF
            mbarrier.wait(empty.index(slot), (done // STAGES & 1) ^ 1)
            mbarrier.expect(full.index(slot), 4 * COLUMNS * WORDS * BK + 4 * BM * BK)
            for column in gl.static_range(COLUMNS):
                tma.async_copy_global_to_shared(wd, [row, (pw * COLUMNS + column) * WORDS], full.index(slot),
                                                wb.index(COLUMNS * slot + column))
            tma.async_copy_global_to_shared(xd, [pm * BM, k], full.index(slot), xb.index(2 * slot))
            tma.async_copy_global_to_shared(xd, [pm * BM, k + HALF], full.index(slot), xb.index(2 * slot + 1))
            done += 1


@gluon.jit
def _multiplied(words, s, low, high, acc, BYTE: gl.constexpr, kind: gl.constexpr):
    """Start both products of one byte of the words."""
    s = s[:, None].broadcast_to(words.shape[0], words.shape[1])
    code: gl.constexpr = _unpacking(BYTE, kind)
    if kind.is_bf16():
        a, b = gl.inline_asm_elementwise(code, "=r,=r,r,r,r", [words, s], dtype=(gl.bfloat16, gl.bfloat16), is_pure=True, pack=2)
    else:
        a, b = gl.inline_asm_elementwise(code, "=r,=r,r,r,r", [words, s], dtype=(gl.float16, gl.float16), is_pure=True, pack=2)
    acc = warpgroup_mma(a, low, acc, is_async=True)
    return warpgroup_mma(b, high, acc, is_async=True)


@gluon.jit
def _store(acc, out, word, byte, m, M, N, BYTES: gl.constexpr):
    """Write [BYTES · words, rows of X]: BYTES columns of each word from `byte` on."""
    layout: gl.constexpr = acc.type.layout
    r = gl.arange(0, acc.shape[0], gl.SliceLayout(1, layout))
    n = 4 * (word + r // BYTES) + byte + r % BYTES
    rows = m + gl.arange(0, acc.shape[1], gl.SliceLayout(0, layout))
    gl.store(out + rows.to(gl.int64)[None, :] * N + n[:, None], acc.to(out.dtype.element_ty),
             mask=(n < N)[:, None] & (rows < M)[None, :])


@gluon.jit
def _multiply(group: gl.constexpr, xb, wb, full, empty, scales, out, M, N, K, BM: gl.constexpr, BK: gl.constexpr,
              HALF: gl.constexpr, WORDS: gl.constexpr, COLUMNS: gl.constexpr, PAIRS: gl.constexpr, BYTES: gl.constexpr,
              SPLIT_K: gl.constexpr, STAGES: gl.constexpr):
    """One warp group: BYTES of WORDS words."""
    kind: gl.constexpr = xb.dtype
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BM, 16])
    operand: gl.constexpr = gl.DotOperandLayout(0, layout, 2)
    own: gl.constexpr = group if COLUMNS == 2 else 0             # words of its own, or both warp groups the same
    tiles = gl.cdiv(M, BM) * gl.cdiv(N, 4 * COLUMNS * WORDS) * PAIRS
    done = 0
    for unit in range(gl.program_id(0), tiles * SPLIT_K, gl.num_programs(0)):
        pm, pw, pair = _place(unit // SPLIT_K, M, BM, PAIRS)
        first, last = _steps(unit % SPLIT_K, K, BK, SPLIT_K)
        word = (pw * COLUMNS + own) * WORDS
        column = 4 * (word + gl.arange(0, WORDS, gl.SliceLayout(1, operand)))
        a = gl.zeros([WORDS, BM], gl.float32, layout)
        b, c, d = a, a, a
        for step in range(first, last):
            slot = done % STAGES
            s = scales + step * BK // HALF * N + column
            there = column < N
            if BYTES == 4:
                sa = gl.load(s, mask=there, other=0.0)
                sb = gl.load(s + 1, mask=there, other=0.0)
                sc = gl.load(s + 2, mask=there, other=0.0)
                sd = gl.load(s + 3, mask=there, other=0.0)
            elif BYTES == 2:
                sa = gl.load(s + 2 * group, mask=there, other=0.0)
                sb = gl.load(s + 2 * group + 1, mask=there, other=0.0)
            else:
                sa = gl.load(s + 2 * pair + group, mask=there, other=0.0)
            mbarrier.wait(full.index(slot), done // STAGES & 1)
            words = wb.index(COLUMNS * slot + own).permute((1, 0)).load(operand)
            low, high = xb.index(2 * slot).permute((1, 0)), xb.index(2 * slot + 1).permute((1, 0))
            if BYTES == 4:
                a = _multiplied(words, sa, low, high, a, 0, kind)
                b = _multiplied(words, sb, low, high, b, 1, kind)
                c = _multiplied(words, sc, low, high, c, 2, kind)
                d = _multiplied(words, sd, low, high, d, 3, kind)
                a, b, c, d = warpgroup_mma_wait(0, deps=[a, b, c, d])
            elif BYTES == 2:
                a = _multiplied(words, sa, low, high, a, 2 * group, kind)
                b = _multiplied(words, sb, low, high, b, 2 * group + 1, kind)
                a, b = warpgroup_mma_wait(0, deps=[a, b])
            else:
                moved = words >> (8 * (2 * pair + group))
                a = warpgroup_mma_wait(0, deps=[_multiplied(moved, sa, low, high, a, 0, kind)])
            mbarrier.arrive(empty.index(slot))
            done += 1
        target = out + (unit % SPLIT_K).to(gl.int64) * M * N
        if BYTES == 4:
            whole = gl.join(gl.join(a, c), gl.join(b, d)).permute([0, 2, 3, 1]).reshape([4 * WORDS, BM])
            _store(whole, target, word, 0, pm * BM, M, N, BYTES)
        elif BYTES == 2:
            whole = gl.join(a, b).permute([0, 2, 1]).reshape([2 * WORDS, BM])
            _store(whole, target, word, 2 * group, pm * BM, M, N, BYTES)
        else:
            _store(a, target, word, 2 * pair + group, pm * BM, M, N, BYTES)


@gluon.jit
def int4_warp_groups(xd, wd, scales, out, M, N, K, BM: gl.constexpr, BK: gl.constexpr, HALF: gl.constexpr, WORDS: gl.constexpr,
                     BYTES: gl.constexpr, SPLIT_K: gl.constexpr, STAGES: gl.constexpr, LOAD: gl.constexpr,
                     COMPUTE: gl.constexpr):
    """`out` is Y, or of SPLIT_K parts as many float32 sums [M, N] one after the other."""
    COLUMNS: gl.constexpr = 2 if BYTES == 4 else 1
    PAIRS: gl.constexpr = 2 if BYTES == 1 else 1
    xb = gl.allocate_shared_memory(xd.dtype, [2 * STAGES, BM, BK], xd.layout)
    wb = gl.allocate_shared_memory(wd.dtype, [COLUMNS * STAGES, BK, WORDS], wd.layout)
    full, empty = barriers(STAGES, 1), barriers(STAGES, 2)
    one: gl.constexpr = 0
    two: gl.constexpr = 1
    gl.warp_specialize([            # constants reach the parts only as they are written here
        (_multiply, (one, xb, wb, full, empty, scales, out, M, N, K, BM, BK, HALF, WORDS, COLUMNS, PAIRS, BYTES, SPLIT_K,
                     STAGES)),
        (_multiply, (two, xb, wb, full, empty, scales, out, M, N, K, BM, BK, HALF, WORDS, COLUMNS, PAIRS, BYTES, SPLIT_K,
                     STAGES)),
        (_bring, (xd, wd, xb, wb, full, empty, M, N, K, BM, BK, HALF, WORDS, COLUMNS, PAIRS, SPLIT_K, STAGES))],
        [4, 1], [COMPUTE, LOAD])


@triton.jit
def int4_sum(work, y, size, SPLIT_K: tl.constexpr, BLOCK: tl.constexpr):
    """Add up the sums of all parts, in order."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for part in tl.static_range(SPLIT_K):
        total += tl.load(work + part * size + at, mask=at < size, other=0.0)
    tl.store(y + at, total.to(y.dtype.element_ty), mask=at < size)

"""Attention in fp8 for Hopper in Gluon: as tuner.tuning.kernels.hopper.attention_overlapped, with both products on fp8 tensor cores.

One warp loads, two warp groups compute, softmax runs beside the products. K comes in boxes of sixteen rows that are read mixed, V
transposed (tuner.tuning.kernels.fp8_attention says why): weights go from the scores' registers to the second product without moving.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

from tuner.tuning.kernels.hopper.attention_overlapped import INFINITY, SIGN, hear_tile, place_of, tell_tile
from tuner.tuning.kernels.hopper.warp_parts import barriers

RAISED = gl.constexpr(8.0)           # weights are 2⁸ times as large: e4m3 ends at 448


@gluon.jit
def _bring(qd, kd, vd, qb, kb, vb, told, q_full, q_empty, k_full, k_empty, v_full, v_empty, tile_full, tile_empty, counter, heads,
           together, H, N, D: gl.constexpr, ROWS: gl.constexpr, BN: gl.constexpr, STAGES: gl.constexpr, SHARED_BY: gl.constexpr,
           CAUSAL: gl.constexpr):
    """The loading warp: of each tile both query blocks, then keys and values from the last block to the first.

    `counter` says how many tiles were taken beyond the first of each program; who counts last sets it back to 0.
    """
    programs = gl.num_programs(0)
    tiles = heads * gl.cdiv(N, 2 * ROWS)
    tile = gl.program_id(0)
    turn = 0
    done = 0
    while tile < tiles:
        tell_tile(tile, turn, told, tile_full, tile_empty)
        pm, ph, pk, blocks, _ = place_of(tile, heads, together, H, N, 2 * ROWS, BN, SHARED_BY, CAUSAL)
        for part in gl.static_range(2):
            mbarrier.wait(q_empty.index(part), (turn & 1) ^ 1)
            mbarrier.expect(q_full.index(part), ROWS * D)
            tma.async_copy_global_to_shared(qd, [ph * N + (2 * pm + part) * ROWS, 0], q_full.index(part), qb.index(part))
        for step in range(done, done + blocks):
            slot, again = step % STAGES, (step // STAGES & 1) ^ 1
            at = (blocks - 1 - (step - done)) * BN
            mbarrier.wait(k_empty.index(slot), again)
            mbarrier.expect(k_full.index(slot), BN * D)
            tma.async_copy_global_to_shared(kd, [pk * gl.cdiv(N, 16) + at // 16, 0, 0, 0, 0], k_full.index(slot), kb.index(slot))
            mbarrier.wait(v_empty.index(slot), again)
            mbarrier.expect(v_full.index(slot), BN * D)
            tma.async_copy_global_to_shared(vd, [pk * D, at], v_full.index(slot), vb.index(slot))
        done += blocks
        turn += 1
        taken = gl.atomic_add(counter, 1, sem="relaxed")
        tile = programs + taken
        if taken == tiles - 1:
            gl.store(counter, 0)
    tell_tile(tile, turn, told, tile_full, tile_empty)


@gluon.jit
def _softened(s, top, total, rows, keys, N, scale, CAUSAL: gl.constexpr, MASK: gl.constexpr):
    """Return weights times 2⁸ in float32, the factor for what was added before, the new maxima and sums of the online softmax."""
    if MASK:
        # the sign of what is left to the last key that a row sees, on an infinity: comparisons would be packed into bits
        last = gl.minimum(rows, N - 1) if CAUSAL else rows * 0 + (N - 1)
        bound = (last[:, None] - keys[None, :]) & SIGN | INFINITY
        s = gl.minimum(s, bound.to(gl.float32, bitcast=True))
    higher = gl.maximum(top, gl.max(s, 1) * scale)
    weights = gl.exp2(s * scale - (higher - RAISED)[:, None])
    factor = gl.exp2(top - higher)
    return weights, factor, higher, total * factor + gl.sum(weights, 1)


@gluon.jit
def _rounded(weights, kind: gl.constexpr, ROWS: gl.constexpr, BN: gl.constexpr, p_layout: gl.constexpr):
    """Return the weights in fp8 as the second product takes them, their keys in order; no thread gives one away."""
    mixed = weights.to(kind).reshape(ROWS, BN // 16, 2, 4, 2)
    return gl.convert_layout(mixed.permute(0, 1, 3, 2, 4).reshape(ROWS, BN), p_layout, assert_trivial=True)


@gluon.jit
def _step(step, q, kb, vb, k_full, k_empty, v_full, v_empty, acc, p, top, total, rows, keys, nothing, N, scale,
          ROWS: gl.constexpr, D: gl.constexpr, BN: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr, MASK: gl.constexpr,
          p_layout: gl.constexpr, of_rows: gl.constexpr):
    """Scores of this block, then, while the values of the block before are added, their softmax.

    `p` are the weights of the block before, still in float32: what a loop carries in 8 bits is packed and unpacked each time.
    """
    slot, before = step % STAGES, (step - 1) % STAGES
    weights = _rounded(p, vb.dtype, ROWS, BN, p_layout)
    mbarrier.wait(k_full.index(slot), step // STAGES & 1)
    s = warpgroup_mma(q, kb.index(slot).reshape([BN, D]).permute((1, 0)), nothing, use_acc=False, is_async=True)
    mbarrier.wait(v_full.index(before), (step - 1) // STAGES & 1)
    acc = warpgroup_mma(weights, vb.index(before).permute((1, 0)), acc, is_async=True)
    s = warpgroup_mma_wait(1, deps=[s])
    mbarrier.arrive(k_empty.index(slot))
    p, factor, top, total = _softened(s, top, total, rows, keys, N, scale, CAUSAL, MASK)
    acc = warpgroup_mma_wait(0, deps=[acc])
    mbarrier.arrive(v_empty.index(before))
    acc = acc * gl.convert_layout(factor, of_rows)[:, None]
    return acc, p, top, total


@gluon.jit
def _attend(part: gl.constexpr, qb, kb, vb, told, q_full, q_empty, k_full, k_empty, v_full, v_empty, tile_full, tile_empty, o,
            q_scales, k_scales, v_scales, heads, together, H, N, scale, D: gl.constexpr, ROWS: gl.constexpr, BN: gl.constexpr,
            STAGES: gl.constexpr, SHARED_BY: gl.constexpr, CAUSAL: gl.constexpr, MASK: gl.constexpr):
    """One warp group: ROWS query rows of each tile over all blocks of keys that they see."""
    kind: gl.constexpr = o.dtype.element_ty
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 32])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 32])
    p_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, 4)
    of_rows: gl.constexpr = gl.SliceLayout(1, o_layout)
    out_layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // D, D // 8], [4, 1], [1, 0])
    column = gl.arange(0, BN, gl.SliceLayout(0, s_layout))
    mixed = column // 16 * 16 + column % 8 // 2 * 4 + column % 16 // 8 * 2 + column % 2
    nothing = gl.zeros([ROWS, BN], gl.float32, s_layout)
    q = qb.index(part)
    done = 0
    tiles = heads * gl.cdiv(N, 2 * ROWS)
    turn = 0
    tile = hear_tile(turn, told, tile_full, tile_empty)
    while tile < tiles:
        pm, ph, pk, blocks, masked = place_of(tile, heads, together, H, N, 2 * ROWS, BN, SHARED_BY, CAUSAL)
        factor_of_scores = scale * gl.load(q_scales + ph) * gl.load(k_scales + pk)
        first = (2 * pm + part) * ROWS
        rows = first + gl.arange(0, ROWS, gl.SliceLayout(1, s_layout))
        last = done + blocks - 1
        acc = gl.zeros([ROWS, D], gl.float32, o_layout)
        top = gl.full([ROWS], -1e30, gl.float32, gl.SliceLayout(1, s_layout))
        total = gl.zeros([ROWS], gl.float32, gl.SliceLayout(1, s_layout))

        mbarrier.wait(q_full.index(part), turn & 1)
        mbarrier.wait(k_full.index(done % STAGES), done // STAGES & 1)
        s = warpgroup_mma(q, kb.index(done % STAGES).reshape([BN, D]).permute((1, 0)), nothing, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(0, deps=[s])
        mbarrier.arrive(k_empty.index(done % STAGES))
        p, _, top, total = _softened(s, top, total, rows, (blocks - 1) * BN + mixed, N, factor_of_scores, CAUSAL, MASK)
        for step in range(done + 1, done + masked):
            acc, p, top, total = _step(step, q, kb, vb, k_full, k_empty, v_full, v_empty, acc, p, top, total, rows,
                                       (last - step) * BN + mixed, nothing, N, factor_of_scores, ROWS, D, BN, STAGES, CAUSAL,
                                       True, p_layout, of_rows)
        for step in range(done + masked, done + blocks):
            acc, p, top, total = _step(step, q, kb, vb, k_full, k_empty, v_full, v_empty, acc, p, top, total, rows,
                                       (last - step) * BN + mixed, nothing, N, factor_of_scores, ROWS, D, BN, STAGES, CAUSAL,
                                       False, p_layout, of_rows)
        mbarrier.arrive(q_empty.index(part))

        mbarrier.wait(v_full.index(last % STAGES), last // STAGES & 1)
        acc = warpgroup_mma(_rounded(p, vb.dtype, ROWS, BN, p_layout), vb.index(last % STAGES).permute((1, 0)), acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(v_empty.index(last % STAGES))
        acc = acc * (gl.load(v_scales + pk) / gl.convert_layout(total, of_rows))[:, None]
        row = first + gl.arange(0, ROWS, gl.SliceLayout(1, out_layout))
        place = gl.arange(0, D, gl.SliceLayout(0, out_layout))
        gl.store(o + ph.to(gl.int64) * N * D + row[:, None] * D + place[None, :],
                 gl.convert_layout(acc.to(kind), out_layout), mask=row[:, None] < N)
        done += blocks
        turn += 1
        tile = hear_tile(turn, told, tile_full, tile_empty)


@gluon.jit
def fp8_attn_overlapped(qd, kd, vd, o, q_scales, k_scales, v_scales, counter, heads, together, H, N, scale, D: gl.constexpr,
                        ROWS: gl.constexpr, BN: gl.constexpr, STAGES: gl.constexpr, SHARED_BY: gl.constexpr, CAUSAL: gl.constexpr,
                        MASK: gl.constexpr, LOAD: gl.constexpr, COMPUTE: gl.constexpr):
    """`heads` of queries in all, H of each batch; SHARED_BY read one head of keys; MASK: the last block holds keys not seen.

    `counter` is 0 before each launch and after it; as many programs as there are multiprocessors share the tiles.
    """
    qb = gl.allocate_shared_memory(qd.dtype, [2, ROWS, D], qd.layout)
    kb = gl.allocate_shared_memory(kd.dtype, [STAGES, BN // 16, 2, 4, 2, D], kd.layout)
    vb = gl.allocate_shared_memory(vd.dtype, [STAGES, D, BN], vd.layout)
    told = gl.allocate_shared_memory(gl.int32, [2, 1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    tile_full, tile_empty = barriers(2, 1), barriers(2, 2)
    q_full, q_empty = barriers(2, 1), barriers(2, 1)
    k_full, k_empty = barriers(STAGES, 1), barriers(STAGES, 2)         # both warp groups
    v_full, v_empty = barriers(STAGES, 1), barriers(STAGES, 2)
    first: gl.constexpr = 0
    second: gl.constexpr = 1
    gl.warp_specialize([            # constants reach the parts only as they are written here
        (_attend, (first, qb, kb, vb, told, q_full, q_empty, k_full, k_empty, v_full, v_empty, tile_full, tile_empty, o, q_scales,
                   k_scales, v_scales, heads, together, H, N, scale, D, ROWS, BN, STAGES, SHARED_BY, CAUSAL, MASK)),
        (_attend, (second, qb, kb, vb, told, q_full, q_empty, k_full, k_empty, v_full, v_empty, tile_full, tile_empty, o, q_scales,
                   k_scales, v_scales, heads, together, H, N, scale, D, ROWS, BN, STAGES, SHARED_BY, CAUSAL, MASK)),
        (_bring, (qd, kd, vd, qb, kb, vb, told, q_full, q_empty, k_full, k_empty, v_full, v_empty, tile_full, tile_empty, counter,
                  heads, together, H, N, D, ROWS, BN, STAGES, SHARED_BY, CAUSAL))], [4, 1], [COMPUTE, LOAD])

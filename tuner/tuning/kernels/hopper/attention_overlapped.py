"""Attention forward for Hopper in Gluon: one warp loads, two or three warp groups compute, softmax runs beside the products.

Each warp group owns ROWS query rows of a tile. While the tensor cores add block j's weighted values, the warp group computes the
softmax of block j + 1, whose scores were started before (FlashAttention-3, Shah et al. 2024, §3.2, algorithm 2); the warp groups
drift apart, so that one computes while the other multiplies (§3.1). Blocks of keys run from the last to the first: those that a
mask touches come first, in a loop of their own. A program takes tile after tile, whichever is next, so that the loading warp has
the next tile's queries and keys there when the rows of one are written.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

from tuner.tuning.kernels.hopper.warp_parts import barriers

GROUPS = {128: 2, 192: 3, 256: 2}                   # warp groups that compute, by the query rows of a tile
SIGN, INFINITY = gl.constexpr(-2**31), gl.constexpr(0x7F800000)         # of a float32's bits


@gluon.jit
def tell_tile(tile, turn, told, tile_full, tile_empty):
    """The loading warp tells the others which tile a turn is."""
    mbarrier.wait(tile_empty.index(turn & 1), (turn // 2 & 1) ^ 1)
    told.index(turn & 1).store(gl.full([1], tile, gl.int32, gl.BlockedLayout([1], [32], [1], [0])))
    mbarrier.arrive(tile_full.index(turn & 1))


@gluon.jit
def hear_tile(turn, told, tile_full, tile_empty):
    """Return the tile of a turn."""
    mbarrier.wait(tile_full.index(turn & 1), turn // 2 & 1)
    tile = gl.max(told.index(turn & 1).load(gl.BlockedLayout([1], [32], [4], [0])), 0)
    mbarrier.arrive(tile_empty.index(turn & 1))
    return tile


@gluon.jit
def place_of(tile, heads, together, H, N, BM: gl.constexpr, BN: gl.constexpr, SHARED_BY: gl.constexpr, CAUSAL: gl.constexpr):
    """Return a tile's place among the rows, its head of queries and of keys, its blocks of keys and how many the diagonal masks.

    `together` heads stand side by side, whose keys and values L2 holds; of them the longest causal rows come first.
    """
    tall = gl.cdiv(N, BM)
    part = tile // (together * tall)
    inside = tile % (together * tall)
    wide = gl.minimum(heads - part * together, together)
    pm, ph = inside // wide, part * together + inside % wide
    pk = ph // H * (H // SHARED_BY) + ph % H // SHARED_BY
    if CAUSAL:
        pm = tall - 1 - pm
        blocks = gl.cdiv(gl.minimum(N, (pm + 1) * BM), BN)
        masked = blocks - pm * BM // BN
    else:
        blocks = gl.cdiv(N, BN)
        masked = blocks * 0 + 1
    return pm, ph, pk, blocks, masked


@gluon.jit
def _bring(qd, kd, vd, qb, kb, vb, told, q_full, q_empty, k_full, k_empty, v_full, v_empty, tile_full, tile_empty, counter, heads,
           together, H, N, D: gl.constexpr, ROWS: gl.constexpr, GROUPS: gl.constexpr, BN: gl.constexpr, STAGES: gl.constexpr,
           SHARED_BY: gl.constexpr, CAUSAL: gl.constexpr):
    """The loading warp: of each tile the query blocks of all warp groups, then keys and values from the last block to the first.

    A program that is done with one tile takes the next that nobody has. `counter` says how many were taken beyond the first of
    each program; who counts last, when none is left, sets it back to 0 for the next launch.
    """
    BM: gl.constexpr = GROUPS * ROWS
    programs = gl.num_programs(0)
    tiles = heads * gl.cdiv(N, BM)
    tile = gl.program_id(0)
    turn = 0
    size: gl.constexpr = kb.dtype.primitive_bitwidth // 8
    done = 0
    while tile < tiles:
        tell_tile(tile, turn, told, tile_full, tile_empty)
        pm, ph, pk, blocks, _ = place_of(tile, heads, together, H, N, BM, BN, SHARED_BY, CAUSAL)
        for part in gl.static_range(GROUPS):
            mbarrier.wait(q_empty.index(part), (turn & 1) ^ 1)
            mbarrier.expect(q_full.index(part), ROWS * D * size)
            tma.async_copy_global_to_shared(qd, [ph * N + pm * BM + part * ROWS, 0], q_full.index(part), qb.index(part))
        for step in range(done, done + blocks):
            slot, again = step % STAGES, (step // STAGES & 1) ^ 1
            at = pk * N + (blocks - 1 - (step - done)) * BN
            mbarrier.wait(k_empty.index(slot), again)
            mbarrier.expect(k_full.index(slot), BN * D * size)
            tma.async_copy_global_to_shared(kd, [at, 0], k_full.index(slot), kb.index(slot))
            mbarrier.wait(v_empty.index(slot), again)
            mbarrier.expect(v_full.index(slot), BN * D * size)
            tma.async_copy_global_to_shared(vd, [at, 0], v_full.index(slot), vb.index(slot))
        done += blocks
        turn += 1
        taken = gl.atomic_add(counter, 1, sem="relaxed")
        tile = programs + taken
        if taken == tiles - 1:
            gl.store(counter, 0)
    tell_tile(tile, turn, told, tile_full, tile_empty)


@gluon.jit
def _softened(s, top, total, rows, keys, N, scale, CAUSAL: gl.constexpr, MASK: gl.constexpr):
    """Return weights, the factor for what was added before, the new maxima and sums of the online softmax."""
    if MASK:
        # the sign of what is left to the last key that a row sees, on an infinity: comparisons would be packed into bits
        last = gl.minimum(rows, N - 1) if CAUSAL else rows * 0 + (N - 1)
        bound = (last[:, None] - keys[None, :]) & SIGN | INFINITY
        s = gl.minimum(s, bound.to(gl.float32, bitcast=True))
    higher = gl.maximum(top, gl.max(s, 1) * scale)
    weights = gl.exp2(s * scale - higher[:, None])
    factor = gl.exp2(top - higher)
    return weights, factor, higher, total * factor + gl.sum(weights, 1)


@gluon.jit
def _step(step, q, kb, vb, k_full, k_empty, v_full, v_empty, acc, weights, top, total, rows, keys, nothing, N, scale,
          STAGES: gl.constexpr, CAUSAL: gl.constexpr, MASK: gl.constexpr, p_layout: gl.constexpr, of_rows: gl.constexpr):
    """Scores of this block, then, while the values of the block before are added, their softmax."""
    slot, before = step % STAGES, (step - 1) % STAGES
    mbarrier.wait(k_full.index(slot), step // STAGES & 1)
    s = warpgroup_mma(q, kb.index(slot).permute((1, 0)), nothing, use_acc=False, is_async=True)
    mbarrier.wait(v_full.index(before), (step - 1) // STAGES & 1)
    acc = warpgroup_mma(weights, vb.index(before), acc, is_async=True)
    s = warpgroup_mma_wait(1, deps=[s])
    mbarrier.arrive(k_empty.index(slot))
    p, factor, top, total = _softened(s, top, total, rows, keys, N, scale, CAUSAL, MASK)
    acc = warpgroup_mma_wait(0, deps=[acc])
    mbarrier.arrive(v_empty.index(before))
    acc = acc * gl.convert_layout(factor, of_rows)[:, None]
    return acc, gl.convert_layout(p.to(vb.dtype), p_layout), top, total


@gluon.jit
def _attend(part: gl.constexpr, qb, kb, vb, told, q_full, q_empty, k_full, k_empty, v_full, v_empty, tile_full, tile_empty, o,
            heads, together, H, N, scale, D: gl.constexpr, ROWS: gl.constexpr, GROUPS: gl.constexpr, BN: gl.constexpr,
            STAGES: gl.constexpr, SHARED_BY: gl.constexpr, CAUSAL: gl.constexpr, MASK: gl.constexpr):
    """One warp group: ROWS query rows of each tile over all blocks of keys that they see."""
    BM: gl.constexpr = GROUPS * ROWS
    kind: gl.constexpr = kb.dtype
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    p_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, 2)
    of_rows: gl.constexpr = gl.SliceLayout(1, o_layout)
    out_layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // D, D // 8], [4, 1], [1, 0])
    columns = gl.arange(0, BN, gl.SliceLayout(0, s_layout))
    nothing = gl.zeros([ROWS, BN], gl.float32, s_layout)
    q = qb.index(part)
    done = 0
    tiles = heads * gl.cdiv(N, BM)
    turn = 0
    tile = hear_tile(turn, told, tile_full, tile_empty)
    while tile < tiles:
        pm, ph, _, blocks, masked = place_of(tile, heads, together, H, N, BM, BN, SHARED_BY, CAUSAL)
        first = pm * BM + part * ROWS
        rows = first + gl.arange(0, ROWS, gl.SliceLayout(1, s_layout))
        last = done + blocks - 1
        if CAUSAL and GROUPS * ROWS > BN:       # what other warp groups see of keys behind these rows
            seen = gl.cdiv(gl.minimum(N, first + ROWS), BN)
            masked = gl.maximum(seen - first // BN, 1)
            for step in range(done, done + blocks - seen):
                mbarrier.wait(k_full.index(step % STAGES), step // STAGES & 1)
                mbarrier.arrive(k_empty.index(step % STAGES))
                mbarrier.wait(v_full.index(step % STAGES), step // STAGES & 1)
                mbarrier.arrive(v_empty.index(step % STAGES))
            done += blocks - seen
            blocks = seen
        acc = gl.zeros([ROWS, D], gl.float32, o_layout)
        top = gl.full([ROWS], -1e30, gl.float32, gl.SliceLayout(1, s_layout))
        total = gl.zeros([ROWS], gl.float32, gl.SliceLayout(1, s_layout))

        mbarrier.wait(q_full.index(part), turn & 1)
        mbarrier.wait(k_full.index(done % STAGES), done // STAGES & 1)
        s = warpgroup_mma(q, kb.index(done % STAGES).permute((1, 0)), nothing, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(0, deps=[s])
        mbarrier.arrive(k_empty.index(done % STAGES))
        # N, told by the tile: what it makes of the columns would else be computed once, and wait in registers from tile to tile
        end = N if CAUSAL else gl.minimum(N, N + tile)
        p, _, top, total = _softened(s, top, total, rows, (blocks - 1) * BN + columns, end, scale, CAUSAL, MASK)
        weights = gl.convert_layout(p.to(kind), p_layout)
        if CAUSAL:                          # without, only the last block is masked, which is done
            for step in range(done + 1, done + masked):
                acc, weights, top, total = _step(step, q, kb, vb, k_full, k_empty, v_full, v_empty, acc, weights, top, total, rows,
                                                 (last - step) * BN + columns, nothing, N, scale, STAGES, CAUSAL, True, p_layout,
                                                 of_rows)
        for step in range(done + masked, done + blocks):
            acc, weights, top, total = _step(step, q, kb, vb, k_full, k_empty, v_full, v_empty, acc, weights, top, total, rows,
                                             (last - step) * BN + columns, nothing, N, scale, STAGES, CAUSAL, False, p_layout,
                                             of_rows)
        mbarrier.arrive(q_empty.index(part))

        mbarrier.wait(v_full.index(last % STAGES), last // STAGES & 1)
        acc = warpgroup_mma(weights, vb.index(last % STAGES), acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(v_empty.index(last % STAGES))
        acc = acc * (1 / gl.convert_layout(total, of_rows))[:, None]
        row = first + gl.arange(0, ROWS, gl.SliceLayout(1, out_layout))
        column = gl.arange(0, D, gl.SliceLayout(0, out_layout))
        gl.store(o + ph.to(gl.int64) * N * D + row[:, None] * D + column[None, :],
                 gl.convert_layout(acc.to(kind), out_layout), mask=row[:, None] < N)
        done += blocks
        turn += 1
        tile = hear_tile(turn, told, tile_full, tile_empty)


@gluon.jit
def attn_overlapped(qd, kd, vd, o, counter, heads, together, H, N, scale, D: gl.constexpr, ROWS: gl.constexpr, BN: gl.constexpr,
                    STAGES: gl.constexpr, SHARED_BY: gl.constexpr, CAUSAL: gl.constexpr, MASK: gl.constexpr, LOAD: gl.constexpr,
                    COMPUTE: gl.constexpr, GROUPS: gl.constexpr):
    """`heads` of queries in all, H of each batch; SHARED_BY read one head of keys; MASK: the last block holds keys not seen.

    `counter` is 0 before each launch and after it; as many programs as there are multiprocessors share the tiles.
    """
    qb = gl.allocate_shared_memory(qd.dtype, [GROUPS, ROWS, D], qd.layout)
    kb = gl.allocate_shared_memory(kd.dtype, [STAGES, BN, D], kd.layout)
    vb = gl.allocate_shared_memory(vd.dtype, [STAGES, BN, D], vd.layout)
    told = gl.allocate_shared_memory(gl.int32, [2, 1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    tile_full, tile_empty = barriers(2, 1), barriers(2, GROUPS)
    q_full, q_empty = barriers(GROUPS, 1), barriers(GROUPS, 1)
    k_full, k_empty = barriers(STAGES, 1), barriers(STAGES, GROUPS)
    v_full, v_empty = barriers(STAGES, 1), barriers(STAGES, GROUPS)
    one: gl.constexpr = 0
    two: gl.constexpr = 1
    three: gl.constexpr = 2
    if GROUPS == 2:                 # constants reach the parts only as they are written here
        gl.warp_specialize([
            (_attend, (one, qb, kb, vb, told, q_full, q_empty, k_full, k_empty, v_full, v_empty, tile_full, tile_empty, o, heads,
                       together, H, N, scale, D, ROWS, GROUPS, BN, STAGES, SHARED_BY, CAUSAL, MASK)),
            (_attend, (two, qb, kb, vb, told, q_full, q_empty, k_full, k_empty, v_full, v_empty, tile_full, tile_empty, o, heads,
                       together, H, N, scale, D, ROWS, GROUPS, BN, STAGES, SHARED_BY, CAUSAL, MASK)),
            (_bring, (qd, kd, vd, qb, kb, vb, told, q_full, q_empty, k_full, k_empty, v_full, v_empty, tile_full, tile_empty,
                      counter, heads, together, H, N, D, ROWS, GROUPS, BN, STAGES, SHARED_BY, CAUSAL))], [4, 1], [COMPUTE, LOAD])
    else:
        gl.warp_specialize([
            (_attend, (one, qb, kb, vb, told, q_full, q_empty, k_full, k_empty, v_full, v_empty, tile_full, tile_empty, o, heads,
                       together, H, N, scale, D, ROWS, GROUPS, BN, STAGES, SHARED_BY, CAUSAL, MASK)),
            (_attend, (two, qb, kb, vb, told, q_full, q_empty, k_full, k_empty, v_full, v_empty, tile_full, tile_empty, o, heads,
                       together, H, N, scale, D, ROWS, GROUPS, BN, STAGES, SHARED_BY, CAUSAL, MASK)),
            (_attend, (three, qb, kb, vb, told, q_full, q_empty, k_full, k_empty, v_full, v_empty, tile_full, tile_empty, o, heads,
                       together, H, N, scale, D, ROWS, GROUPS, BN, STAGES, SHARED_BY, CAUSAL, MASK)),
            (_bring, (qd, kd, vd, qb, kb, vb, told, q_full, q_empty, k_full, k_empty, v_full, v_empty, tile_full, tile_empty,
                      counter, heads, together, H, N, D, ROWS, GROUPS, BN, STAGES, SHARED_BY, CAUSAL))],
            [4, 4, 1], [COMPUTE, COMPUTE, LOAD])

"""Parts of the kernels whose warps divide the work: barriers of a ring, the place of a tile, the warp that loads two operands."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

# Registers of a thread that loads and of one that computes, by warp groups that compute: of 65,536 of a multiprocessor.
REGISTERS = {2: (24, 240), 3: (32, 160)}


@gluon.jit
def barriers(SLOTS: gl.constexpr, ARRIVALS: gl.constexpr):
    """Return a barrier for each slot, passed after so many arrivals."""
    made = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(SLOTS):
        mbarrier.init(made.index(slot), count=ARRIVALS)
    return made


@gluon.jit
def place_of_tile(tile, M, N, BM: gl.constexpr, BN: gl.constexpr, GM: gl.constexpr):
    """Return row and column of a tile: GM rows of tiles stand together, so that L2 serves both operands."""
    rows, columns = gl.cdiv(M, BM), gl.cdiv(N, BN)
    group = tile // (GM * columns)
    height = gl.minimum(rows - group * GM, GM)
    inside = tile % (GM * columns)
    return group * GM + inside % height, inside // height


@gluon.jit
def bring_operands(ad, bd, ab, bb, full, empty, M, N, K, ROWS: gl.constexpr, PARTS: gl.constexpr, BN: gl.constexpr,
                   BK: gl.constexpr, GM: gl.constexpr, STAGES: gl.constexpr, BT: gl.constexpr):
    """The loading warp of a product: blocks of A, PARTS of ROWS rows, and of B (BT: by columns) for each tile of this program."""
    BM: gl.constexpr = ROWS * PARTS
    size: gl.constexpr = ab.dtype.primitive_bitwidth // 8
    step = 0
    for tile in range(gl.program_id(0), gl.cdiv(M, BM) * gl.cdiv(N, BN), gl.num_programs(0)):
        pm, pn = place_of_tile(tile, M, N, BM, BN, GM)
        for k in range(0, K, BK):
            slot = step % STAGES
            mbarrier.wait(empty.index(slot), (step // STAGES & 1) ^ 1)
            mbarrier.expect(full.index(slot), (BM + BN) * BK * size)
            for part in gl.static_range(PARTS):
                tma.async_copy_global_to_shared(ad, [pm * BM + part * ROWS, k], full.index(slot), ab.index(PARTS * slot + part))
            if BT:
                tma.async_copy_global_to_shared(bd, [pn * BN, k], full.index(slot), bb.index(slot))
            else:
                tma.async_copy_global_to_shared(bd, [k, pn * BN], full.index(slot), bb.index(slot))
            step += 1

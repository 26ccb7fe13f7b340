"""fp8_block_matmul for Hopper in Gluon: one warp loads, two or three warp groups multiply and scale.

Tensor cores sum 128 of K without scales; then each sum is multiplied by its scales and added in float32 (DeepSeek-V3, 2024,
§3.3.2): one warp group scales while another multiplies.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait

from tuner.tuning.kernels.hopper.warp_parts import barriers, bring_operands, place_of_tile

ROWS = 64                   # of a tile for each warp group


@gluon.jit
def _multiply(part: gl.constexpr, ab, bb, full, empty, sa, sb, y, M, N, K, ROWS: gl.constexpr, GROUPS: gl.constexpr,
              BN: gl.constexpr, BK: gl.constexpr, GM: gl.constexpr, STAGES: gl.constexpr):
    """One warp group: ROWS rows of each tile."""
    BM: gl.constexpr = ROWS * GROUPS
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 32])
    nothing = gl.zeros([ROWS, BN], gl.float32, layout)
    blocks = K // BK
    step = 0
    for tile in range(gl.program_id(0), gl.cdiv(M, BM) * gl.cdiv(N, BN), gl.num_programs(0)):
        pm, pn = place_of_tile(tile, M, N, BM, BN, GM)
        m = pm * BM + part * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
        rows, columns = sa + gl.minimum(m, M - 1) * blocks, sb + pn * BN // BK * blocks
        acc = gl.zeros([ROWS, BN], gl.float32, layout)
        for block in range(blocks):
            scale = gl.load(rows + block) * gl.load(columns + block)
            slot = step % STAGES
            mbarrier.wait(full.index(slot), step // STAGES & 1)
            b = bb.index(slot).permute((1, 0))
            sums = warpgroup_mma(ab.index(GROUPS * slot + part), b, nothing, use_acc=False, is_async=True)
            sums = warpgroup_mma_wait(0, deps=[sums])
            mbarrier.arrive(empty.index(slot))
            acc += sums * scale[:, None]
            step += 1
        out_layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // BN, BN // 8], [4, 1], [1, 0])
        r = pm * BM + part * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, out_layout))
        n = pn * BN + gl.arange(0, BN, gl.SliceLayout(0, out_layout))
        gl.store(y + r.to(gl.int64)[:, None] * N + n[None, :], gl.convert_layout(acc.to(y.dtype.element_ty), out_layout),
                 mask=(r < M)[:, None] & (n < N)[None, :])


@gluon.jit
def fp8_block_specialised(ad, bd, sa, sb, y, M, N, K, ROWS: gl.constexpr, GROUPS: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
                          GM: gl.constexpr, STAGES: gl.constexpr, LOAD: gl.constexpr, COMPUTE: gl.constexpr):
    """A and B in blocks of ROWS × BK and BN × BK. BK is a scale's extent in K and in N, so BN columns share one: BN ≤ BK."""
    ab = gl.allocate_shared_memory(ad.dtype, [GROUPS * STAGES, ROWS, BK], ad.layout)
    bb = gl.allocate_shared_memory(bd.dtype, [STAGES, BN, BK], bd.layout)
    full, empty = barriers(STAGES, 1), barriers(STAGES, GROUPS)
    first: gl.constexpr = 0
    second: gl.constexpr = 1
    third: gl.constexpr = 2
    if GROUPS == 2:         # constants reach the parts only as they are written here
        gl.warp_specialize([
            (_multiply, (first, ab, bb, full, empty, sa, sb, y, M, N, K, ROWS, GROUPS, BN, BK, GM, STAGES)),
            (_multiply, (second, ab, bb, full, empty, sa, sb, y, M, N, K, ROWS, GROUPS, BN, BK, GM, STAGES)),
            (bring_operands, (ad, bd, ab, bb, full, empty, M, N, K, ROWS, GROUPS, BN, BK, GM, STAGES, True))],
            [4, 1], [COMPUTE, LOAD])
    else:
        gl.warp_specialize([
            (_multiply, (first, ab, bb, full, empty, sa, sb, y, M, N, K, ROWS, GROUPS, BN, BK, GM, STAGES)),
            (_multiply, (second, ab, bb, full, empty, sa, sb, y, M, N, K, ROWS, GROUPS, BN, BK, GM, STAGES)),
            (_multiply, (third, ab, bb, full, empty, sa, sb, y, M, N, K, ROWS, GROUPS, BN, BK, GM, STAGES)),
            (bring_operands, (ad, bd, ab, bb, full, empty, M, N, K, ROWS, GROUPS, BN, BK, GM, STAGES, True))],
            [4, 4, 1], [COMPUTE, COMPUTE, LOAD])

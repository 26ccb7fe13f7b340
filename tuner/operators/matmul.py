"""C[M, N] = A[M, K] · B[K, N], accumulated in fp32."""

from __future__ import annotations

from tuner.operators.limits import Limits
from tuner.operators.operator import BYTES, Dim, Operator, Shape, power_of_two_at_least
from tuner.space import Constraint, Param, Space
from tuner.trial import Config

ACCUMULATORS_PER_THREAD = 256      # above this the fp32 tile alone spills: 255 registers per thread


def space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """Tiles BM×BN×BK, groups of GM row tiles that share columns in L2, warps and pipeline stages."""
    size = BYTES[dtype]

    def of(config: Config, name: str) -> int:
        value = config[name]
        return value if isinstance(value, int) else 0

    def fits_registers(c: Config) -> bool:
        return of(c, "BM") * of(c, "BN") <= ACCUMULATORS_PER_THREAD * 32 * of(c, "num_warps")

    def fits_smem(c: Config) -> bool:
        stage = (of(c, "BM") + of(c, "BN")) * of(c, "BK") * size
        # Warp-group MMA keeps every stage in shared memory; older tensor cores hold the last one in registers.
        return stage * (of(c, "num_stages") - (0 if gpu.warpgroup_mma else 1)) <= gpu.smem_bytes

    def fits_threads(c: Config) -> bool:
        return 32 * of(c, "num_warps") <= gpu.threads

    return Space.enumerate(
        (Param("BM", (16, 32, 64, 128, 256)), Param("BN", (32, 64, 128, 256)), Param("BK", (32, 64, 128)),
         Param("GM", (8,)), Param("num_warps", (2, 4, 8)), Param("num_stages", (2, 3, 4, 5))),
        (Constraint("accumulator registers", fits_registers), Constraint("shared memory", fits_smem),
         Constraint("threads per block", fits_threads)))


def default_config(shape: Shape, dtype: str, gpu: Limits) -> Config:
    """A middling square tile, cut to the matrix: what one writes before tuning."""
    bm = min(128, max(16, power_of_two_at_least(shape["M"])))
    bn = min(128, max(32, power_of_two_at_least(shape["N"])))
    return {"BM": bm, "BN": bn, "BK": 32, "GM": 8, "num_warps": 4, "num_stages": 3}


MATMUL = Operator(
    name="matmul", title="Matrix multiplication",
    dims=(Dim("M", "rows of A and C", high=1 << 17), Dim("N", "columns of B and C", high=1 << 17),
          Dim("K", "columns of A, rows of B", high=1 << 17)),
    dtypes=("bf16", "fp16"),
    presets=({"M": 4096, "N": 4096, "K": 4096}, {"M": 16, "N": 4096, "K": 4096}, {"M": 2048, "N": 11008, "K": 4096},
             {"M": 1024, "N": 1024, "K": 1024}),
    space=space, default_config=default_config,
    flops=lambda s: 2 * s["M"] * s["N"] * s["K"],
    bytes=lambda s, dtype: BYTES[dtype] * (s["M"] * s["K"] + s["K"] * s["N"] + s["M"] * s["N"]),
    kernel_module="tuner.kernels.matmul", kernel_names=("matmul", "matmul_kernel"),
    tolerance={"bf16": 1e-2, "fp16": 2e-3}, unit="FLOP/s",
)

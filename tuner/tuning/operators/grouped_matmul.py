"""Grouped matmul: the rows of each expert times its weights, as in a mixture-of-experts layer."""

from __future__ import annotations

from tuner.tuning.operators.limits import Limits
from tuner.tuning.operators.matmul import (
    ACCUMULATORS_PER_THREAD,
    ACCUMULATORS_WITH_LOADS,
    TMA_ALIGNMENT,
    smem_bytes,
)
from tuner.tuning.operators.operator import BYTES, Dim, Operator, Shape, power_of_two_at_least
from tuner.tuning.operators.variants import Values, thread_limit, tma_limit, union_space, whole_number
from tuner.tuning.space import Constraint, Space
from tuner.tuning.trial import Config

_TILES: Values = {"BM": (16, 32, 64, 128), "BN": (32, 64, 128, 256), "BK": (32, 64, 128), "GM": (1, 8), "num_warps": (4, 8),
                  "num_stages": (2, 3, 4, 5), "KERNEL": ("tiles",)}
_TMA: Values = {**_TILES, "BM": (16, 32, 64, 128, 256), "BN": (64, 128, 256), "BK": (64, 128), "num_stages": (3, 4, 5),
                "KERNEL": ("tma", "persistent")}
MOST_ROWS_PER_EXPERT = 4     # a block may be this many times taller than an expert's average rows


def space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """Return the space of three kernels: tiles BM×BN×BK, groups of GM row tiles, warps, stages."""
    size = BYTES[dtype]
    average = -(-shape["M"] // shape["E"])
    most_rows = max(16, MOST_ROWS_PER_EXPERT * power_of_two_at_least(average))

    def is_aligned(c: Config) -> bool:
        return c["KERNEL"] == "tiles" or shape["K"] * size % TMA_ALIGNMENT == 0

    def fits_registers(c: Config) -> bool:
        limit = ACCUMULATORS_PER_THREAD if c["KERNEL"] == "tiles" else ACCUMULATORS_WITH_LOADS
        return whole_number(c, "BM") * whole_number(c, "BN") <= limit * 32 * whole_number(c, "num_warps")

    def fits_smem(c: Config) -> bool:
        return smem_bytes({**c, "STORE": "direct"}, size, size, gpu.warpgroup_mma or c["KERNEL"] != "tiles") <= gpu.smem_bytes

    def fits_experts(c: Config) -> bool:
        return whole_number(c, "BM") <= most_rows

    return union_space((_TILES, _TMA), (
        tma_limit(gpu, "tiles"),
        Constraint("TMA: rows that start at multiples of 16 bytes", is_aligned),
        Constraint("accumulator registers", fits_registers), Constraint("shared memory", fits_smem),
        thread_limit(gpu), Constraint("tile much taller than an expert's rows", fits_experts)))


def default_config(shape: Shape, dtype: str, gpu: Limits) -> Config:
    """Return vLLM's default for fused MoE: small tiles for few rows, 64×64×32 for many."""
    few = shape["M"] <= shape["E"]
    return {"BM": 16 if few else 64, "BN": 32 if few else 64, "BK": 64 if few else 32, "GM": 1 if few else 8,
            "num_warps": 4, "num_stages": 3, "KERNEL": "tiles"}


def starts(shape: Shape, dtype: str, gpu: Limits) -> tuple[Config, ...]:
    """Return tiles as tall as an expert's rows, up to a large matmul's; after vLLM's H100 files."""
    rows = min(128, max(16, power_of_two_at_least(-(-shape["M"] // shape["E"]))))
    wide: Config = {"BM": rows, "BN": 256 if rows >= 128 else 128, "BK": 64 if rows >= 128 else 128, "GM": 8,
                    "num_warps": 8 if rows >= 128 else 4, "num_stages": 3 if rows >= 128 else 4, "KERNEL": "persistent"}
    return (wide, {**wide, "KERNEL": "tma"}, {**wide, "BN": 128, "num_warps": 8, "KERNEL": "tiles"})


def bytes_moved(shape: Shape, dtype: str) -> int:
    """Return bytes of rows in and out and of the E · (1 − (1 − 1/E)^M) experts that rows reach."""
    reached = round(shape["E"] * (1 - (1 - 1 / shape["E"]) ** shape["M"]))
    return BYTES[dtype] * (shape["M"] * (shape["K"] + shape["N"]) + reached * shape["N"] * shape["K"])


GROUPED_MATMUL = Operator(
    name="grouped_matmul", title="Grouped matrix multiplication (mixture of experts)",
    dims=(Dim("M", "rows of all experts together: tokens × experts per token", high=1 << 20),
          Dim("E", "experts", high=512, exact=True), Dim("N", "columns of the output", high=1 << 17),
          Dim("K", "columns of the input", high=1 << 17)),
    dtypes=("bf16", "fp16"),
    presets=({"M": 8192, "E": 8, "N": 14336, "K": 4096}, {"M": 4096, "E": 64, "N": 2816, "K": 2048},
             {"M": 64, "E": 128, "N": 1536, "K": 2048}),
    space=space, default_config=default_config,
    flops=lambda s: 2 * s["M"] * s["N"] * s["K"],
    bytes=bytes_moved,
    kernel_module="tuner.tuning.kernels.grouped_matmul",
    kernel_names=("grouped_matmul", "grouped_matmul_tma", "grouped_matmul_persistent", "fused_moe_kernel"),
    tolerance={"bf16": 1e-2, "fp16": 2e-3}, unit="FLOP/s", starts=starts,
)

"""Products with quantised weights: four bits with a scale for each 128 rows, and fp8 with a scale for each block."""

from __future__ import annotations

from collections.abc import Callable

from tuner.operators.limits import Limits
from tuner.operators.matmul_space import FP8_CAPABILITY
from tuner.operators.operator import BYTES, Dim, Operator, Shape, power_of_two_at_least
from tuner.operators.variants import Values, union_space, whole_number
from tuner.space import Constraint, Space
from tuner.trial import Config

GROUP = 128                        # rows of K that share a scale; fp8: the side of a block
ACCUMULATORS_PER_THREAD = 128
_TILES: Values = {"BM": (16, 32, 64, 128), "BN": (32, 64, 128, 256), "GM": (8,), "num_warps": (4, 8), "num_stages": (2, 3, 4, 5)}


def _tile_limits(shape: Shape, gpu: Limits, stage_bytes: Callable[[Config], int]) -> tuple[Constraint, ...]:
    """Return what both products ask of a tile whose loads take `stage_bytes` a stage."""
    most_rows, most_columns = (max(least, power_of_two_at_least(shape[name])) for name, least in (("M", 16), ("N", 32)))

    def fits_registers(c: Config) -> bool:
        return whole_number(c, "BM") * whole_number(c, "BN") <= ACCUMULATORS_PER_THREAD * 32 * whole_number(c, "num_warps")

    def fits_matrix(c: Config) -> bool:
        return whole_number(c, "BM") <= most_rows and whole_number(c, "BN") <= most_columns

    return (Constraint("accumulator registers", fits_registers),
            Constraint("shared memory", lambda c: whole_number(c, "num_stages") * stage_bytes(c) <= gpu.smem_bytes),
            Constraint("threads per block", lambda c: 32 * whole_number(c, "num_warps") <= gpu.threads),
            Constraint("tile larger than the matrix", fits_matrix))


def int4_space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """Return tiles BM × BN, steps of BK packed rows (2·BK of K), SPLIT_K programs a tile."""
    values: Values = {**_TILES, "BK": (16, 32, 64), "SPLIT_K": (1, 2, 4, 8, 16)}

    def stage_bytes(c: Config) -> int:
        return whole_number(c, "BK") * (2 * whole_number(c, "BM") * BYTES[dtype] + whole_number(c, "BN"))

    def splits_usefully(c: Config) -> bool:
        tiles = -(-shape["M"] // whole_number(c, "BM")) * -(-shape["N"] // whole_number(c, "BN"))
        split = whole_number(c, "SPLIT_K")
        return split == 1 or (tiles < 2 * gpu.sms and shape["K"] >= 4 * split * whole_number(c, "BK"))

    return union_space((values,), (
        *_tile_limits(shape, gpu, stage_bytes),
        Constraint("split-K: enough tiles without, or too few blocks of K", splits_usefully)))


def int4_default(shape: Shape, dtype: str, gpu: Limits) -> Config:
    """Return a middling tile, cut to the matrix."""
    return {"BM": min(64, max(16, power_of_two_at_least(shape["M"]))), "BN": min(64, max(32, power_of_two_at_least(shape["N"]))),
            "GM": 8, "num_warps": 4, "num_stages": 3, "BK": 32, "SPLIT_K": 1}


def int4_starts(shape: Shape, dtype: str, gpu: Limits) -> tuple[Config, ...]:
    """Return a wide tile for many rows; for few of them as many programs as the GPU has room for."""
    if shape["M"] > 64:
        return ({"BM": 128, "BN": 128, "GM": 8, "num_warps": 8, "num_stages": 3, "BK": 32, "SPLIT_K": 1},)
    short: Config = {"BM": max(16, power_of_two_at_least(shape["M"])), "BN": 64, "GM": 8, "num_warps": 4, "num_stages": 4, "BK": 64}
    split = min(16, power_of_two_at_least(max(1, 2 * gpu.sms * 64 // shape["N"])))
    return tuple({**short, "SPLIT_K": each} for each in dict.fromkeys((split, max(1, split // 2))))


def int4_bytes(shape: Shape, dtype: str) -> int:
    """Return bytes of X, of half a byte a weight, of the scales, and of Y."""
    weights = shape["K"] * shape["N"]
    return BYTES[dtype] * (shape["M"] * (shape["K"] + shape["N"]) + weights // GROUP) + weights // 2


def fp8_space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """Return tiles BM × BN, steps of BK of K within a block of scales."""
    values: Values = {**_TILES, "BK": (32, 64, 128), "GM": (1, 8)}

    def stage_bytes(c: Config) -> int:
        return whole_number(c, "BK") * (whole_number(c, "BM") + whole_number(c, "BN"))

    return union_space((values,), (
        Constraint("fp8 tensor cores: from compute capability 8.9", lambda c: gpu.capability >= FP8_CAPABILITY),
        *_tile_limits(shape, gpu, stage_bytes)))


def fp8_default(shape: Shape, dtype: str, gpu: Limits) -> Config:
    """Return vLLM's default of this product, cut to the matrix."""
    return {"BM": min(64, max(16, power_of_two_at_least(shape["M"]))), "BN": min(128, max(32, power_of_two_at_least(shape["N"]))),
            "GM": 8, "num_warps": 4, "num_stages": 2, "BK": 128}


def fp8_starts(shape: Shape, dtype: str, gpu: Limits) -> tuple[Config, ...]:
    """Return a tile of one block of scales, and short ones with more loads ahead."""
    wide: Config = {"BM": 128, "BN": 128, "GM": 8, "num_warps": 8, "num_stages": 4, "BK": 128}
    return (wide, {**wide, "BM": 64, "num_warps": 4}, {**wide, "BM": max(16, min(64, power_of_two_at_least(shape["M"]))),
                                                       "BN": 64, "num_warps": 4, "num_stages": 5})


def fp8_bytes(shape: Shape, dtype: str) -> int:
    """Return bytes of A and B, of a float32 scale for each block, and of Y in bf16."""
    rows, columns, steps = shape["M"], shape["N"], shape["K"]
    scales = 4 * (rows + -(-columns // GROUP)) * (steps // GROUP)
    return BYTES[dtype] * (rows + columns) * steps + scales + BYTES["bf16"] * rows * columns


def group_problems(shape: Shape, dtype: str) -> dict[str, str]:
    """Return field → problem where K is not made of whole groups."""
    return {"K": f"K must be a multiple of {GROUP}: so many of its rows share a scale"} if shape["K"] % GROUP else {}


_DIMS = (Dim("M", "rows of X and Y", high=1 << 17), Dim("N", "columns of the weights and Y", high=1 << 17),
         Dim("K", "columns of X, rows of the weights", low=GROUP, high=1 << 17))

INT4_MATMUL = Operator(
    name="int4_matmul", title="Matrix multiplication with 4-bit weights", dims=_DIMS, dtypes=("bf16", "fp16"),
    presets=({"M": 16, "N": 4096, "K": 4096}, {"M": 1, "N": 14336, "K": 4096}, {"M": 4096, "N": 4096, "K": 4096}),
    space=int4_space, default_config=int4_default, starts=int4_starts, together=group_problems,
    flops=lambda s: 2 * s["M"] * s["N"] * s["K"], bytes=int4_bytes,
    kernel_module="tuner.kernels.quantised_matmul", kernel_names=("int4_matmul",),
    tolerance={"bf16": 1e-2, "fp16": 2e-3}, unit="FLOP/s", library="cuBLAS on 16-bit weights",
)

FP8_BLOCK_MATMUL = Operator(
    name="fp8_block_matmul", title="Matrix multiplication, fp8 with a scale for each block", dims=_DIMS, dtypes=("fp8",),
    presets=({"M": 4096, "N": 7168, "K": 2048}, {"M": 64, "N": 7168, "K": 2048}, {"M": 4096, "N": 4096, "K": 4096}),
    space=fp8_space, default_config=fp8_default, starts=fp8_starts, together=group_problems,
    flops=lambda s: 2 * s["M"] * s["N"] * s["K"], bytes=fp8_bytes,
    kernel_module="tuner.kernels.quantised_matmul", kernel_names=("fp8_block_matmul", "_w8a8_block_fp8_matmul"),
    tolerance={"fp8": 2e-2}, unit="FLOP/s", library="cuBLAS in bf16",
)

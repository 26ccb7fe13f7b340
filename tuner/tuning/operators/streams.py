"""Operators that read and write once: SiLU-mul, sums of rows, transpose; rows of an embedding table, rotary position embedding.

The last two are of a token: both only move and turn what they read.
"""

from __future__ import annotations

from tuner.tuning.operators.limits import Limits
from tuner.tuning.operators.operator import BYTES, Dim, Operator, Shape, power_of_two_at_least
from tuner.tuning.operators.rowwise import ROWS, STAGES_UNREAD, UNROLL, WARPS, fits_registers, unrolled_within
from tuner.tuning.operators.variants import Values, thread_limit, union_space, whole_number
from tuner.tuning.space import Constraint, Space
from tuner.tuning.trial import Config

_TOLERANCE = {"fp16": 2e-3, "bf16": 1e-2}


def _tile_limit(first: str, second: str) -> Constraint:
    return Constraint("tile registers", lambda c: fits_registers(c, whole_number(c, first) * whole_number(c, second)))


def silu_mul_space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """Return tiles of ROWS × BLOCK; both halves of X are read at the same place."""
    row = power_of_two_at_least(shape["C"])
    values: Values = {"ROWS": (1, 2, 4, 8, 16), "BLOCK": (64, 128, 256, 512, 1024, 2048, 4096, 8192), "num_warps": WARPS[:-1]}
    return union_space((values,), (
        thread_limit(gpu), _tile_limit("ROWS", "BLOCK"),
        Constraint("block beyond the row", lambda c: whole_number(c, "BLOCK") <= max(64, row)),
        Constraint("more rows than there are", lambda c: whole_number(c, "ROWS") < 2 * shape["R"])))


def row_default(shape: Shape, dtype: str, gpu: Limits) -> Config:
    """Return a row or a token a program, in blocks of 1,024 columns at most."""
    return {"ROWS": 1, "BLOCK": min(1024, max(64, power_of_two_at_least(shape["C"]))), "num_warps": 4}


def row_sum_space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """Return ROWS rows a program in blocks of BLOCK columns, UNROLL of them a step; long rows split into SPLIT parts."""
    row = power_of_two_at_least(shape["C"])
    values: Values = {"ROWS": (1, 2, 4, 8, 16), "BLOCK": (128, 256, 512, 1024, 2048, 4096), "SPLIT": (1, 2, 4, 8, 16, 32, 64),
                      "num_warps": WARPS[:-1], "num_stages": (1,), "UNROLL": UNROLL}
    return union_space((values,), (
        thread_limit(gpu), _tile_limit("ROWS", "BLOCK"), unrolled_within(shape["C"]),
        Constraint("block beyond the row", lambda c: whole_number(c, "BLOCK") <= max(128, row)),
        Constraint("more rows than there are", lambda c: whole_number(c, "ROWS") < 2 * shape["R"]),
        Constraint("more parts than blocks",
                   lambda c: whole_number(c, "SPLIT") == 1 or whole_number(c, "SPLIT") * whole_number(c, "BLOCK") <= shape["C"]),
        Constraint("parts that no SM waits for", lambda c: whole_number(c, "SPLIT") == 1
                   or whole_number(c, "SPLIT") * -(-shape["R"] // whole_number(c, "ROWS")) <= 64 * gpu.sms)))


def row_sum_default(shape: Shape, dtype: str, gpu: Limits) -> Config:
    """Return the default configuration of sums of rows."""
    return {"ROWS": 1, "BLOCK": min(1024, max(128, power_of_two_at_least(shape["C"]))), "SPLIT": 1, "num_warps": 4, "num_stages": 1,
            "UNROLL": 1}


def transpose_space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """Return tiles BM × BN through shared memory, ordered along rows or columns of X."""
    sides = (16, 32, 64, 128, 256)
    values: Values = {"BM": sides, "BN": sides, "ORDER": ("rows", "columns"), "num_warps": WARPS[:-1]}
    size = BYTES[dtype]
    return union_space((values,), (
        thread_limit(gpu), _tile_limit("BM", "BN"),
        Constraint("shared memory", lambda c: whole_number(c, "BM") * whole_number(c, "BN") * size <= gpu.smem_bytes)))


def transpose_default(shape: Shape, dtype: str, gpu: Limits) -> Config:
    """Return the tile of CUDA's transpose examples, doubled for two-byte values."""
    return {"BM": 64, "BN": 64, "ORDER": "rows", "num_warps": 4}


SILU_MUL = Operator(
    name="silu_mul", title="Fused SiLU-mul",
    dims=(ROWS, Dim("C", "columns of the result (half of those read)", high=1 << 17)), dtypes=("bf16", "fp16"),
    presets=({"R": 4096, "C": 11008}, {"R": 8192, "C": 14336}, {"R": 16, "C": 14336}),
    space=silu_mul_space, default_config=row_default,
    flops=lambda s: 5 * s["R"] * s["C"],                      # negate, exp, add, divide, multiply
    bytes=lambda s, dtype: 3 * BYTES[dtype] * s["R"] * s["C"],
    kernel_module="tuner.tuning.kernels.streams", kernel_names=("silu_mul", "silu_and_mul", "act_and_mul_kernel", "swiglu"),
    tolerance=_TOLERANCE, unit="B/s",
)

ROW_SUM = Operator(
    name="row_sum", title="Sum of rows (reduction)", dims=(ROWS, Dim("C", "columns", high=1 << 24)),
    dtypes=("bf16", "fp16", "fp32"),
    presets=({"R": 8192, "C": 8192}, {"R": 8, "C": 1 << 22}, {"R": 1 << 20, "C": 128}),
    space=row_sum_space, default_config=row_sum_default,
    flops=lambda s: s["R"] * s["C"],
    bytes=lambda s, dtype: BYTES[dtype] * s["R"] * (s["C"] + 1),
    kernel_module="tuner.tuning.kernels.streams", kernel_names=("row_sum", "reduce_kernel"),
    tolerance={**_TOLERANCE, "fp32": 2e-4}, unit="B/s", absent={"UNROLL": 1}, unread=STAGES_UNREAD,
)

TRANSPOSE = Operator(
    name="transpose", title="Transpose", dims=(ROWS, Dim("C", "columns", high=1 << 22)), dtypes=("bf16", "fp16", "fp32"),
    presets=({"R": 8192, "C": 8192}, {"R": 65536, "C": 128}, {"R": 4096, "C": 11008}),
    space=transpose_space, default_config=transpose_default,
    flops=lambda s: 0,                                        # it only moves
    bytes=lambda s, dtype: 2 * BYTES[dtype] * s["R"] * s["C"],
    kernel_module="tuner.tuning.kernels.streams", kernel_names=("transpose",),
    tolerance={"fp16": 1e-6, "bf16": 1e-6, "fp32": 1e-6}, unit="B/s",
)


_TOKENS = Dim("T", "tokens", high=1 << 20)
INDEX_BYTES = 8            # of an id or a position


def embedding_space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """Return tiles of ROWS tokens × BLOCK columns."""
    row = power_of_two_at_least(shape["C"])
    values: Values = {"ROWS": (1, 2, 4, 8, 16, 32), "BLOCK": (64, 128, 256, 512, 1024, 2048, 4096, 8192), "num_warps": WARPS[:-1]}
    return union_space((values,), (
        thread_limit(gpu),
        Constraint("tile registers", lambda c: fits_registers(c, whole_number(c, "ROWS") * whole_number(c, "BLOCK"))),
        Constraint("block beyond the row", lambda c: whole_number(c, "BLOCK") <= max(64, row)),
        Constraint("more rows than there are", lambda c: whole_number(c, "ROWS") < 2 * shape["T"])))


def rotary_space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """Return tiles of TOKENS × HEADS; the heads of a tile share the angles that it reads."""
    values: Values = {"TOKENS": (1, 2, 4, 8, 16), "HEADS": (1, 2, 4, 8, 16, 32, 64), "num_warps": WARPS[:-1]}
    heads = power_of_two_at_least(shape["H"])

    def tile_fits(c: Config) -> bool:
        return fits_registers(c, whole_number(c, "TOKENS") * whole_number(c, "HEADS") * shape["D"])

    return union_space((values,), (
        thread_limit(gpu), Constraint("tile registers", tile_fits),
        Constraint("more heads than there are", lambda c: whole_number(c, "HEADS") <= heads),
        Constraint("more tokens than there are", lambda c: whole_number(c, "TOKENS") < 2 * shape["T"])))


def rotary_default(shape: Shape, dtype: str, gpu: Limits) -> Config:
    """Return one token a program with about 2,048 values."""
    heads = max(1, min(power_of_two_at_least(shape["H"]), 2048 // shape["D"]))
    return {"TOKENS": 1, "HEADS": heads, "num_warps": 4}


def rotary_starts(shape: Shape, dtype: str, gpu: Limits) -> tuple[Config, ...]:
    """Return all heads of a token at once, as vLLM and Liger Kernel do, as far as they fit."""
    heads = min(64, power_of_two_at_least(shape["H"]))
    while heads > 1 and heads * shape["D"] > 8192:
        heads //= 2
    return ({"TOKENS": 1, "HEADS": heads, "num_warps": min(16, max(1, heads * shape["D"] // 512))},)


EMBEDDING = Operator(
    name="embedding", title="Embedding: rows of a table",
    dims=(_TOKENS, Dim("V", "rows of the table", high=1 << 19), Dim("C", "columns", high=1 << 15)),
    dtypes=("bf16", "fp16", "fp32"),
    presets=({"T": 16384, "V": 128256, "C": 4096}, {"T": 64, "V": 128256, "C": 4096}, {"T": 65536, "V": 50257, "C": 768}),
    space=embedding_space, default_config=row_default,
    flops=lambda s: 0,                                        # it only moves
    bytes=lambda s, dtype: 2 * BYTES[dtype] * s["T"] * s["C"] + INDEX_BYTES * s["T"],
    kernel_module="tuner.tuning.kernels.tokens", kernel_names=("embedding",),
    tolerance={"bf16": 1e-6, "fp16": 1e-6, "fp32": 1e-6}, unit="B/s", library="PyTorch",
)

ROTARY = Operator(
    name="rotary", title="Rotary position embedding",
    dims=(_TOKENS, Dim("H", "heads", high=1024), Dim("D", "head size", exact=True, only=(32, 64, 128, 256))),
    dtypes=("bf16", "fp16"),
    presets=({"T": 8192, "H": 32, "D": 128}, {"T": 16384, "H": 40, "D": 128}, {"T": 64, "H": 64, "D": 128}),
    space=rotary_space, default_config=rotary_default, starts=rotary_starts,
    flops=lambda s: 3 * s["T"] * s["H"] * s["D"],             # two products and a sum for each value
    bytes=lambda s, dtype: BYTES[dtype] * s["T"] * s["D"] * (2 * s["H"] + 1) + INDEX_BYTES * s["T"],
    kernel_module="tuner.tuning.kernels.tokens", kernel_names=("rotary", "rotary_embedding_kernel", "_triton_rope"),
    tolerance={"bf16": 1e-2, "fp16": 2e-3}, unit="B/s", library="PyTorch",
)

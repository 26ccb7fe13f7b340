"""Operators of a token: rows of an embedding table, rotary position embedding; both only move and turn what they read."""

from __future__ import annotations

from tuner.tuning.operators.limits import Limits
from tuner.tuning.operators.operator import BYTES, Dim, Operator, Shape, power_of_two_at_least
from tuner.tuning.operators.rowwise import WARPS, fits_registers
from tuner.tuning.operators.variants import Values, thread_limit, union_space, whole_number
from tuner.tuning.space import Constraint, Space
from tuner.tuning.trial import Config

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


def embedding_default(shape: Shape, dtype: str, gpu: Limits) -> Config:
    """Return a token a program, in blocks of 1,024 columns at most."""
    return {"ROWS": 1, "BLOCK": min(1024, max(64, power_of_two_at_least(shape["C"]))), "num_warps": 4}


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
    space=embedding_space, default_config=embedding_default,
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

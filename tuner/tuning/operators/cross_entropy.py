"""Cross entropy of rows of logits [R, C] with a target class each; memory-bound, C is a vocabulary or a number of classes."""

from __future__ import annotations

from tuner.tuning.operators.limits import Limits
from tuner.tuning.operators.operator import BYTES, Dim, Operator, Shape, power_of_two_at_least
from tuner.tuning.operators.rowwise import (
    ROWS,
    STAGES_UNREAD,
    TILE_ROWS,
    UNROLL,
    WARPS,
    fits_registers,
    rows_per_tile,
    unrolled_within,
)
from tuner.tuning.operators.variants import Values, thread_limit, union_space, whole_number
from tuner.tuning.space import Constraint, Space
from tuner.tuning.trial import Config

LONGEST_ROW = 32768        # that one program holds


def space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """Return ROWS whole rows in registers, or a row in blocks of BLOCK columns that SPLIT programs share, UNROLL a step."""
    row = max(16, power_of_two_at_least(shape["C"]))
    blocks: Values = {"BLOCK": (512, 1024, 2048, 4096, 8192, 16384, 32768), "num_warps": WARPS[1:], "num_stages": (1,),
                      "SPLIT": (1, 2, 4, 8, 16), "ROWS": (1,), "UNROLL": UNROLL}
    whole: Values = {**blocks, "BLOCK": (row,), "num_warps": WARPS, "num_stages": (1,), "SPLIT": (1,), "ROWS": TILE_ROWS,
                     "UNROLL": (1,)}

    def whole_or_blocks(c: Config) -> bool:
        return whole_number(c, "BLOCK") <= min(row, LONGEST_ROW)

    def tile_fits(c: Config) -> bool:
        return fits_registers(c, whole_number(c, "BLOCK") * whole_number(c, "ROWS"))

    def splits_usefully(c: Config) -> bool:
        split = whole_number(c, "SPLIT")
        return split == 1 or (split * whole_number(c, "BLOCK") <= shape["C"] and split * shape["R"] <= 64 * gpu.sms)

    return union_space((blocks, whole), (
        thread_limit(gpu), Constraint("block beyond the row, or a row beyond a program", whole_or_blocks),
        Constraint("a row that is one block is held whole", lambda c: whole_number(c, "BLOCK") < row
                   or c["SPLIT"] == 1),
        Constraint("tile registers", tile_fits), unrolled_within(shape["C"]),
        Constraint("parts: fewer than blocks, and no more than programs wait for", splits_usefully),
        Constraint("more rows than there are", lambda c: whole_number(c, "ROWS") < 2 * shape["R"])))


def default_config(shape: Shape, dtype: str, gpu: Limits) -> Config:
    """Return short rows whole, long ones in blocks of 4,096."""
    row = max(16, power_of_two_at_least(shape["C"]))
    if row <= 4096:
        return {"BLOCK": row, "num_warps": min(8, max(1, row // 512)), "num_stages": 1, "SPLIT": 1, "ROWS": 1, "UNROLL": 1}
    return {"BLOCK": 4096, "num_warps": 8, "num_stages": 1, "SPLIT": 1, "ROWS": 1, "UNROLL": 1}


def starts(shape: Shape, dtype: str, gpu: Limits) -> tuple[Config, ...]:
    """Return whole rows in tiles of about 2,048 logits; the blocks of Liger Kernel; a long row over several programs."""
    row = max(16, power_of_two_at_least(shape["C"]))
    if row <= LONGEST_ROW:
        rows = rows_per_tile(shape)
        return ({"BLOCK": row, "num_warps": min(32, max(1, row * rows // 1024)), "num_stages": 1, "SPLIT": 1, "ROWS": rows,
                 "UNROLL": 1},)
    wide: Config = {"BLOCK": 32768, "num_warps": 32, "num_stages": 1, "SPLIT": 1, "ROWS": 1, "UNROLL": 1}
    split = min(8, power_of_two_at_least(max(1, 4 * gpu.sms // shape["R"])))
    return (wide, {"BLOCK": 8192, "num_warps": 16, "num_stages": 1, "SPLIT": split, "ROWS": 1, "UNROLL": 1})


CROSS_ENTROPY = Operator(
    name="cross_entropy", title="Cross entropy of rows of logits",
    dims=(ROWS, Dim("C", "classes, or the vocabulary", low=2, high=1 << 19)), dtypes=("bf16", "fp16", "fp32"),
    presets=({"R": 4096, "C": 128256}, {"R": 8192, "C": 32000}, {"R": 16384, "C": 1000}),
    space=space, default_config=default_config, starts=starts,
    flops=lambda s: 4 * s["R"] * s["C"],                      # max, subtract, exp, sum
    bytes=lambda s, dtype: BYTES[dtype] * s["R"] * s["C"] + 12 * s["R"],       # the logits, an index of 8 bytes, a loss of 4
    kernel_module="tuner.tuning.kernels.cross_entropy", kernel_names=("xent_rows", "xent_blocks", "liger_cross_entropy_kernel"),
    tolerance={"bf16": 2e-3, "fp16": 2e-3, "fp32": 1e-4}, unit="B/s", library="PyTorch", absent={"UNROLL": 1},
    unread=STAGES_UNREAD,
)

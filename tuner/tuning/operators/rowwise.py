"""Softmax, layer norm and RMS norm over the rows of a matrix [R, C]; memory-bound.

Three ways of a row: whole in one program's registers; several short rows in one program; a long row in blocks, read
twice (the second time from L2 where it fits).
RMS norm is also fused with the residual addition.
"""

from __future__ import annotations

from tuner.tuning.operators.limits import Limits
from tuner.tuning.operators.operator import BYTES, Dim, Operator, Shape, power_of_two_at_least
from tuner.tuning.operators.variants import Values, thread_limit, union_space, whole_number
from tuner.tuning.space import Constraint, Space
from tuner.tuning.trial import Config

ROWS = Dim("R", "rows", high=1 << 22)
WARPS = (1, 2, 4, 8, 16, 32)
TILE_PER_THREAD = 128        # fp32 values of a tile that a thread can hold beside what it computes with them …
TILE_PER_BLOCK = 32768       # … and those of a block: half the registers of an SM
TILE_ROWS = (1, 2, 4, 8, 16)
UNROLL = (1, 2, 4)            # blocks of a row that one step of a loop takes
STAGES_UNREAD: Config = {"num_stages": 1}     # Triton pipelines by them what feeds a product, or loops that say so themselves
EACH = 4096                  # programs per multiprocessor: as a rule one for each tile


def fits_registers(c: Config, elements: int) -> bool:
    """Return whether `elements` fit the registers of the configuration's threads."""
    return elements <= min(TILE_PER_BLOCK, TILE_PER_THREAD * 32 * whole_number(c, "num_warps"))


def rows_per_tile(shape: Shape) -> int:
    """Return rows that make a tile of about 2,048 values, as far as there are so many."""
    return min(16, max(1, 2048 // power_of_two_at_least(shape["C"])), power_of_two_at_least(shape["R"]))


def softmax_space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """Return programs that walk rows: PER_SM per SM, one for each tile at most; STEPS loads ahead; ROWS whole or one in blocks."""
    row, size = power_of_two_at_least(shape["C"]), BYTES[dtype]
    recorded: Values = {"STEPS": (1, 2, 3, 4), "PER_SM": (1, 2, 4, 8, 16, 32, EACH), "num_warps": WARPS, "ROWS": (1,),
                        "BLOCK": (0,)}
    several: Values = {**recorded, "STEPS": (1, 2, 3), "PER_SM": (2, 4, 8, 16, EACH), "num_warps": (1, 2, 4, 8),
                       "ROWS": TILE_ROWS[1:]}
    blocks: Values = {**recorded, "STEPS": (1, 2, 3), "PER_SM": (1, 2, 4), "num_warps": (4, 8, 16, 32),
                      "BLOCK": (1024, 2048, 4096, 8192)}

    def fits_smem(c: Config) -> bool:
        loads = whole_number(c, "BLOCK") or row * whole_number(c, "ROWS")
        return (whole_number(c, "STEPS") - 1) * loads * size <= gpu.smem_bytes

    def tile_fits(c: Config) -> bool:
        rows, block = whole_number(c, "ROWS"), whole_number(c, "BLOCK")
        recorded_too = rows == 1 and not block and c["PER_SM"] != EACH
        return recorded_too or fits_registers(c, (block or row) * rows)

    return union_space((recorded, several, blocks), (
        Constraint("shared memory", fits_smem), thread_limit(gpu), Constraint("tile registers", tile_fits),
        Constraint("more rows than there are", lambda c: whole_number(c, "ROWS") < 2 * shape["R"]),
        Constraint("a block is the whole row", lambda c: whole_number(c, "BLOCK") < row)))


def softmax_held(shape: Shape, config: Config) -> int:
    """Return the values of a whole row, as fp32, that each thread holds; 0 of a row in blocks."""
    values = 0 if config.get("BLOCK") else power_of_two_at_least(shape["C"]) * int(config.get("ROWS", 1))
    return values // (32 * whole_number(config, "num_warps"))


def softmax_default(shape: Shape, dtype: str, gpu: Limits) -> Config:
    """Return the default configuration of softmax."""
    row = power_of_two_at_least(shape["C"])
    steps = 2 if row * BYTES[dtype] <= gpu.smem_bytes else 1
    return {"STEPS": steps, "PER_SM": 4, "num_warps": min(16, max(4, row // 512)), "ROWS": 1, "BLOCK": 0}


def softmax_starts(shape: Shape, dtype: str, gpu: Limits) -> tuple[Config, ...]:
    """Return tiles of about 4 KiB for short rows, blocks for rows too long for a program."""
    row = power_of_two_at_least(shape["C"])
    if row <= 1024:
        tile: Config = {"STEPS": 2, "PER_SM": 16, "num_warps": 4, "ROWS": rows_per_tile(shape), "BLOCK": 0}
        return tile, {**tile, "STEPS": 1, "PER_SM": EACH}
    return ({"STEPS": 2, "PER_SM": 2, "num_warps": 16, "ROWS": 1, "BLOCK": 4096},) if row >= 65536 else ()


def tile_or_blocks_space(shape: Shape, gpu: Limits, *, blocks: tuple[int, ...]) -> Space:
    """Return PASSES 1: ROWS whole rows in registers; PASSES 2: a row in blocks, read twice, UNROLL of them a step of the loop."""
    row = max(16, power_of_two_at_least(shape["C"]))
    twice: Values = {"BLOCK": blocks, "num_warps": WARPS, "num_stages": (1,), "PASSES": (2,), "ROWS": (1,), "UNROLL": UNROLL}
    once: Values = {"BLOCK": (row,), "num_warps": WARPS, "num_stages": (1,), "PASSES": (1,), "ROWS": TILE_ROWS, "UNROLL": (1,)}

    def tile_fits(c: Config) -> bool:
        return c["PASSES"] == 2 or fits_registers(c, whole_number(c, "BLOCK") * whole_number(c, "ROWS"))

    return union_space((twice, once), (
        thread_limit(gpu), Constraint("tile registers", tile_fits),
        Constraint("more rows than there are", lambda c: whole_number(c, "ROWS") < 2 * shape["R"]),
        unrolled_within(shape["C"])))


def unrolled_within(columns: int) -> Constraint:
    """Return the constraint that a program's part of the row has as many blocks as one step takes."""
    def has_blocks(c: Config) -> bool:
        return c["UNROLL"] == 1 or whole_number(c, "UNROLL") * whole_number(c, "BLOCK") * int(c.get("SPLIT", 1)) <= columns

    return Constraint("unrolled beyond the row", has_blocks)


def whole_rows_config(shape: Shape) -> Config:
    """Return rows in registers, about 2,048 values at a time, a warp for every 1,024."""
    row = max(16, power_of_two_at_least(shape["C"]))
    rows = rows_per_tile(shape)
    return {"BLOCK": row, "num_warps": min(32, max(1, row * rows // 1024)), "num_stages": 1, "PASSES": 1, "ROWS": rows, "UNROLL": 1}


def layernorm_space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """Return the space of layer norm."""
    return tile_or_blocks_space(shape, gpu, blocks=(128, 256, 512, 1024, 2048, 4096, 8192))


def layernorm_default(shape: Shape, dtype: str, gpu: Limits) -> Config:
    """Return Triton's fused layer norm tutorial: whole rows up to 64 KiB, warps by length."""
    block = min(8192, max(128, power_of_two_at_least(shape["C"])))
    return {"BLOCK": block, "num_warps": min(8, max(1, block // 256)), "num_stages": 1, "PASSES": 2, "ROWS": 1, "UNROLL": 1}


def norm_starts(shape: Shape, dtype: str, gpu: Limits) -> tuple[Config, ...]:
    """Return configurations of a norm that are worth trying early: whole rows."""
    row = power_of_two_at_least(shape["C"])
    return (whole_rows_config(shape),) if row <= 32768 else ()


SOFTMAX = Operator(
    name="softmax", title="Softmax over rows",
    dims=(ROWS, Dim("C", "columns", high=1 << 16)),
    dtypes=("fp16", "bf16"),
    presets=({"R": 8192, "C": 4096}, {"R": 2048, "C": 32768}, {"R": 262144, "C": 128}),
    space=softmax_space, default_config=softmax_default,
    flops=lambda s: 5 * s["R"] * s["C"],                      # max, subtract, exp, sum, divide
    bytes=lambda s, dtype: 2 * BYTES[dtype] * s["R"] * s["C"],
    kernel_module="tuner.tuning.kernels.rowwise", kernel_names=("softmax_row", "softmax_tile", "softmax_blocks", "softmax_kernel"),
    tolerance={"fp16": 2e-3, "bf16": 1e-2}, unit="B/s", absent={"ROWS": 1, "BLOCK": 0}, starts=softmax_starts, held=softmax_held,
)

LAYERNORM = Operator(
    name="layernorm", title="Layer norm over rows",
    dims=(ROWS, Dim("C", "columns", high=1 << 17)),
    dtypes=("fp16", "bf16"),
    presets=({"R": 8192, "C": 4096}, {"R": 65536, "C": 768}, {"R": 64, "C": 16384}),
    space=layernorm_space, default_config=layernorm_default,
    flops=lambda s: 8 * s["R"] * s["C"],                      # mean, centre, square, sum, scale, weight, bias
    bytes=lambda s, dtype: 2 * BYTES[dtype] * s["R"] * s["C"],
    kernel_module="tuner.tuning.kernels.rowwise", kernel_names=("layernorm_row", "layernorm_tile", "layernorm_kernel"),
    tolerance={"fp16": 2e-3, "bf16": 1e-2}, unit="B/s",
    absent={"PASSES": 2, "ROWS": 1, "UNROLL": 1}, unread=STAGES_UNREAD, starts=norm_starts,
)


_COLUMNS = Dim("C", "columns", high=1 << 17)
_PRESETS: tuple[Shape, ...] = ({"R": 8192, "C": 4096}, {"R": 16384, "C": 2048}, {"R": 32, "C": 8192}, {"R": 262144, "C": 128})


def space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """Return the space of both norms."""
    return tile_or_blocks_space(shape, gpu, blocks=(256, 512, 1024, 2048, 4096, 8192))


def default_config(shape: Shape, dtype: str, gpu: Limits) -> Config:
    """Return the whole row in one program, warps by its length; a long row in blocks."""
    row = max(16, power_of_two_at_least(shape["C"]))
    if row > 16384:
        return {"BLOCK": 8192, "num_warps": 16, "num_stages": 1, "PASSES": 2, "ROWS": 1, "UNROLL": 1}
    return {"BLOCK": row, "num_warps": min(16, max(4, row // 512)), "num_stages": 1, "PASSES": 1, "ROWS": 1, "UNROLL": 1}


RMSNORM = Operator(
    name="rmsnorm", title="RMS norm over rows", dims=(ROWS, _COLUMNS), dtypes=("bf16", "fp16"), presets=_PRESETS,
    space=space, default_config=default_config, starts=norm_starts,
    flops=lambda s: 4 * s["R"] * s["C"],                      # square, sum, scale, weight
    bytes=lambda s, dtype: 2 * BYTES[dtype] * s["R"] * s["C"],
    kernel_module="tuner.tuning.kernels.norms", kernel_names=("norm_tile", "norm_blocks", "rms_norm", "rmsnorm"),
    tolerance={"fp16": 2e-3, "bf16": 1e-2}, unit="B/s", absent={"UNROLL": 1}, unread=STAGES_UNREAD,
)

ADD_RMSNORM = Operator(
    name="add_rmsnorm", title="Residual add and RMS norm", dims=(ROWS, _COLUMNS), dtypes=("bf16", "fp16"), presets=_PRESETS,
    space=space, default_config=default_config, starts=norm_starts,
    flops=lambda s: 5 * s["R"] * s["C"],
    bytes=lambda s, dtype: 4 * BYTES[dtype] * s["R"] * s["C"],      # X and residual read, their sum and the norm written
    kernel_module="tuner.tuning.kernels.norms", kernel_names=("fused_add_rms_norm", "add_rms_norm", "add_rmsnorm"),
    tolerance={"fp16": 2e-3, "bf16": 1e-2}, unit="B/s", absent={"UNROLL": 1}, unread=STAGES_UNREAD,
)

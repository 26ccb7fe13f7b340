"""RMS norm over the rows of a matrix [R, C], also fused with the residual addition."""

from __future__ import annotations

from tuner.tuning.operators.limits import Limits
from tuner.tuning.operators.operator import BYTES, Dim, Operator, Shape, power_of_two_at_least
from tuner.tuning.operators.rowwise import ROWS, STAGES_UNREAD, norm_starts, tile_or_blocks_space
from tuner.tuning.space import Space
from tuner.tuning.trial import Config

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

"""Softmax and layer norm over the rows of a matrix [R, C]: read and written once, they live off memory bandwidth."""

from __future__ import annotations

from tuner.operators.limits import Limits
from tuner.operators.operator import BYTES, Dim, Operator, Shape, power_of_two_at_least
from tuner.space import Constraint, Param, Space
from tuner.trial import Config

_ROWS = Dim("R", "rows", high=1 << 22)


def _int(config: Config, name: str) -> int:
    value = config[name]
    return value if isinstance(value, int) else 0


def softmax_space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """Persistent programs, PER_SM of them on each SM, that hold a whole row and load STEPS rows ahead."""
    row = power_of_two_at_least(shape["C"])

    def fits_smem(c: Config) -> bool:
        return (_int(c, "STEPS") - 1) * row * BYTES[dtype] <= gpu.smem_bytes

    def fits_threads(c: Config) -> bool:
        return 32 * _int(c, "num_warps") <= gpu.threads

    return Space.enumerate(
        (Param("STEPS", (1, 2, 3, 4)), Param("PER_SM", (1, 2, 4, 8, 16, 32)), Param("num_warps", (1, 2, 4, 8, 16, 32))),
        (Constraint("shared memory", fits_smem), Constraint("threads per block", fits_threads)))


def softmax_default(shape: Shape, dtype: str, gpu: Limits) -> Config:
    row = power_of_two_at_least(shape["C"])
    steps = 2 if row * BYTES[dtype] <= gpu.smem_bytes else 1
    return {"STEPS": steps, "PER_SM": 4, "num_warps": min(16, max(4, row // 512))}


def layernorm_space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """One program per row that walks its columns in blocks of BLOCK."""

    def fits_threads(c: Config) -> bool:
        return 32 * _int(c, "num_warps") <= gpu.threads

    return Space.enumerate(
        (Param("BLOCK", (128, 256, 512, 1024, 2048, 4096, 8192)), Param("num_warps", (1, 2, 4, 8, 16, 32)),
         Param("num_stages", (1, 2, 3, 4))),
        (Constraint("threads per block", fits_threads),))


def layernorm_default(shape: Shape, dtype: str, gpu: Limits) -> Config:
    """Triton's fused layer norm tutorial: the whole row up to 64 KiB, warps by its length."""
    block = min(8192, max(128, power_of_two_at_least(shape["C"])))
    return {"BLOCK": block, "num_warps": min(8, max(1, block // 256)), "num_stages": 2}


SOFTMAX = Operator(
    name="softmax", title="Softmax over rows",
    dims=(_ROWS, Dim("C", "columns", high=1 << 16)),
    dtypes=("fp16", "bf16"),
    presets=({"R": 8192, "C": 4096}, {"R": 2048, "C": 32768}),
    space=softmax_space, default_config=softmax_default,
    flops=lambda s: 5 * s["R"] * s["C"],                      # max, subtract, exp, sum, divide
    bytes=lambda s, dtype: 2 * BYTES[dtype] * s["R"] * s["C"],
    kernel_module="tuner.kernels.rowwise", kernel_names=("softmax_row", "softmax_kernel"),
    tolerance={"fp16": 2e-3, "bf16": 1e-2}, unit="B/s",
)

LAYERNORM = Operator(
    name="layernorm", title="Layer norm over rows",
    dims=(_ROWS, Dim("C", "columns", high=1 << 17)),
    dtypes=("fp16", "bf16"),
    presets=({"R": 8192, "C": 4096}, {"R": 65536, "C": 768}, {"R": 64, "C": 16384}),
    space=layernorm_space, default_config=layernorm_default,
    flops=lambda s: 8 * s["R"] * s["C"],                      # mean, centre, square, sum, scale, weight, bias
    bytes=lambda s, dtype: 2 * BYTES[dtype] * s["R"] * s["C"],
    kernel_module="tuner.kernels.rowwise", kernel_names=("layernorm_row", "layernorm_kernel"),
    tolerance={"fp16": 2e-3, "bf16": 1e-2}, unit="B/s",
)

"""Convolution forward of images whose channels stand last, accumulated in fp32."""

from __future__ import annotations

from tuner.operators.limits import Limits
from tuner.operators.operator import BYTES, Dim, Operator, Shape, power_of_two_at_least
from tuner.operators.variants import Values, union_space, whole_number
from tuner.space import Constraint, Space
from tuner.trial import Config

ACCUMULATORS_PER_THREAD = 128      # half the registers: the gathered addresses take the rest


def output_sides(shape: Shape) -> tuple[int, int]:
    """Return height and width of Y."""
    high, wide = ((shape[side] + 2 * shape["P"] - shape["KS"]) // shape["S"] + 1 for side in ("H", "W"))
    return high, wide


def space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """Return tiles of BM pixels × BN filters, steps of BK channels, groups of GM tiles that share filters in L2."""
    values: Values = {"BM": (32, 64, 128, 256), "BN": (32, 64, 128, 256), "BK": (16, 32, 64, 128), "GM": (1, 8),
                      "num_warps": (4, 8), "num_stages": (2, 3, 4, 5)}
    high, wide = output_sides(shape)
    pixels, filters = power_of_two_at_least(shape["B"] * high * wide), power_of_two_at_least(shape["F"])
    channels = power_of_two_at_least(shape["C"])

    def fits_registers(c: Config) -> bool:
        return whole_number(c, "BM") * whole_number(c, "BN") <= ACCUMULATORS_PER_THREAD * 32 * whole_number(c, "num_warps")

    def fits_smem(c: Config) -> bool:
        stage = (whole_number(c, "BM") + whole_number(c, "BN")) * whole_number(c, "BK") * BYTES[dtype]
        return stage * whole_number(c, "num_stages") <= gpu.smem_bytes

    def fits_matrix(c: Config) -> bool:
        return (whole_number(c, "BM") <= max(32, pixels) and whole_number(c, "BN") <= max(32, filters)
                and whole_number(c, "BK") <= max(16, channels))

    return union_space((values,), (
        Constraint("accumulator registers", fits_registers), Constraint("shared memory", fits_smem),
        Constraint("threads per block", lambda c: 32 * whole_number(c, "num_warps") <= gpu.threads),
        Constraint("tile larger than the matrix", fits_matrix)))


def default_config(shape: Shape, dtype: str, gpu: Limits) -> Config:
    """Return a middling tile, cut to the matrix."""
    high, wide = output_sides(shape)
    bm = min(64, max(32, power_of_two_at_least(shape["B"] * high * wide)))
    return {"BM": bm, "BN": min(64, max(32, power_of_two_at_least(shape["F"]))),
            "BK": min(32, max(16, power_of_two_at_least(shape["C"]))), "GM": 8, "num_warps": 4, "num_stages": 3}


def starts(shape: Shape, dtype: str, gpu: Limits) -> tuple[Config, ...]:
    """Return CUTLASS's tiles of implicit GEMM: 128 × 128 and 128 × 256, steps of 64 channels."""
    step = min(64, max(16, power_of_two_at_least(shape["C"])))
    square: Config = {"BM": 128, "BN": 128, "BK": step, "GM": 8, "num_warps": 8, "num_stages": 3}
    return (square, {**square, "BN": 256}, {**square, "BN": 64, "num_warps": 4, "num_stages": 4})


def image_problems(shape: Shape, dtype: str) -> dict[str, str]:
    """Return field → problem where the filter is larger than the padded image."""
    return {"KS": "the filter is larger than the padded image"} if min(output_sides(shape)) < 1 else {}


def bytes_moved(shape: Shape, dtype: str) -> int:
    """Return bytes of image and filters read and Y written."""
    high, wide = output_sides(shape)
    return BYTES[dtype] * (shape["B"] * (shape["H"] * shape["W"] * shape["C"] + high * wide * shape["F"])
                           + shape["F"] * shape["KS"] ** 2 * shape["C"])


def flops(shape: Shape) -> int:
    """Return 2·pixels·F·KS²·C; what padding adds is counted, as vendors do."""
    high, wide = output_sides(shape)
    return 2 * shape["B"] * high * wide * shape["F"] * shape["KS"] ** 2 * shape["C"]


CONV2D = Operator(
    name="conv2d", title="Convolution of images, forward",
    dims=(Dim("B", "images", high=4096), Dim("H", "height", high=4096), Dim("W", "width", high=4096),
          Dim("C", "channels", high=8192), Dim("F", "filters", high=8192),
          Dim("KS", "side of a filter", high=11, exact=True), Dim("S", "stride", high=4, exact=True),
          Dim("P", "padding on each side", low=0, high=8, exact=True)),
    dtypes=("fp16", "bf16"),
    presets=({"B": 32, "H": 56, "W": 56, "C": 64, "F": 64, "KS": 3, "S": 1, "P": 1},
             {"B": 32, "H": 14, "W": 14, "C": 256, "F": 256, "KS": 3, "S": 1, "P": 1},
             {"B": 2, "H": 64, "W": 64, "C": 320, "F": 320, "KS": 3, "S": 1, "P": 1}),
    space=space, default_config=default_config, starts=starts, together=image_problems, flops=flops, bytes=bytes_moved,
    kernel_module="tuner.kernels.convolution", kernel_names=("conv2d",),
    tolerance={"fp16": 2e-3, "bf16": 1e-2}, unit="FLOP/s", library="cuDNN",
)

"""Convolution forward of images whose channels stand last, accumulated in fp32."""

from __future__ import annotations

from tuner.tuning.operators.limits import Limits
from tuner.tuning.operators.matmul import (
    SPECIALISED_ON,
    SWIZZLED_BYTES,
    TMA_ALIGNMENT,
    smem_bytes,
    suits_warp_groups,
    warps_that_multiply,
)
from tuner.tuning.operators.operator import BYTES, Dim, Operator, Shape, power_of_two_at_least
from tuner.tuning.operators.variants import Only, Values, thread_limit, union_space, whole_number
from tuner.tuning.space import Constraint, Space
from tuner.tuning.trial import Config, Value

ACCUMULATORS_PER_THREAD = 128      # half the registers: the gathered addresses take the rest
SINGLE_LOADS = {"gather": 40, "flat": 48}      # numbers a thread and step that are loaded one by one; more spill
FLAT_CHANNELS = 16                 # at most of which places and channels are summed over as one
ABSENT: dict[str, Value] = {"KERNEL": "gather"}
_GATHER: Values = {"KERNEL": ("gather",), "BM": (32, 64, 128, 256), "BN": (32, 64, 128, 256), "BK": (16, 32, 64, 128), "GM": (1, 8),
                   "num_warps": (4, 8), "num_stages": (2, 3, 4, 5)}
_FLAT: Values = {**_GATHER, "KERNEL": ("flat",), "BM": (64, 128, 256), "num_stages": (2, 3)}
_TMA: Values = {**_GATHER, "KERNEL": ("boxes", "boxes, persistent", "product, tma", "product, persistent"), "BM": (64, 128, 256),
                "BN": (64, 128, 256), "BK": (32, 64, 128), "num_stages": (3, 4, 5, 6)}
_WARP_GROUPS: Values = {**_TMA, "KERNEL": ("product, warp groups",), "BM": Only((128, 192, 256)), "BN": Only((64, 128, 256)),
                        "BK": (64,), "num_warps": (4,)}


def output_sides(shape: Shape) -> tuple[int, int]:
    """Return height and width of Y."""
    high, wide = ((shape[side] + 2 * shape["P"] - shape["KS"]) // shape["S"] + 1 for side in ("H", "W"))
    return high, wide


def has_tma(shape: Shape, dtype: str, gpu: Limits) -> bool:
    """Return whether TMA reads and writes the tensors: rows of 16 bytes, images that the stride divides."""
    rows = shape["C"] * BYTES[dtype] % TMA_ALIGNMENT == 0 and shape["F"] * BYTES[dtype] % TMA_ALIGNMENT == 0
    return rows and gpu.capability >= (9, 0) and shape["H"] % shape["S"] == 0 and shape["W"] % shape["S"] == 0


def is_product(shape: Shape) -> bool:
    """Return whether every pixel of Y is one of X times the filters."""
    return shape["KS"] == 1 and shape["S"] == 1 and shape["P"] == 0


def space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """Return tiles of BM pixels × BN filters, steps of BK channels, groups of GM tiles that share filters in L2."""
    high, wide = output_sides(shape)
    pixels, filters = power_of_two_at_least(shape["B"] * high * wide), power_of_two_at_least(shape["F"])
    tma, plain = has_tma(shape, dtype, gpu), is_product(shape)

    def by_tma(c: Config) -> bool:
        return c["KERNEL"] not in ("gather", "flat")

    def grouped(c: Config) -> bool:
        return c["KERNEL"] == "product, warp groups"

    def has_kernel(c: Config) -> bool:
        if by_tma(c):
            return tma and plain == str(c["KERNEL"]).startswith("product")
        return c["KERNEL"] == "gather" or shape["C"] <= FLAT_CHANNELS

    def whole_blocks(c: Config) -> bool:
        return not by_tma(c) or shape["S"] == 1 or shape["C"] % whole_number(c, "BK") == 0

    def fits_warp_groups(c: Config) -> bool:
        return not grouped(c) or (suits_warp_groups(c, BYTES[dtype]) and gpu.compute_capability in SPECIALISED_ON)

    def fits_registers(c: Config) -> bool:
        warps = warps_that_multiply(c) if grouped(c) else whole_number(c, "num_warps")
        return whole_number(c, "BM") * whole_number(c, "BN") <= ACCUMULATORS_PER_THREAD * 32 * warps

    def loads_fit(c: Config) -> bool:
        """Return whether addresses of single numbers have room: rows of 16 bytes are loaded as such."""
        if by_tma(c) or (c["KERNEL"] == "gather" and shape["C"] * BYTES[dtype] % TMA_ALIGNMENT == 0):
            return True
        loaded = (whole_number(c, "BM") + whole_number(c, "BN")) * whole_number(c, "BK")
        return loaded <= SINGLE_LOADS[str(c["KERNEL"])] * 32 * whole_number(c, "num_warps")

    def fits_smem(c: Config) -> bool:
        kinds = (kind for kind in ("persistent", "warp groups") if str(c["KERNEL"]).endswith(kind))
        kind = next(kinds, "tma" if by_tma(c) else "tiles")
        return smem_bytes({**c, "KERNEL": kind, "STORE": "tma"}, BYTES[dtype], BYTES[dtype], True) <= gpu.smem_bytes

    def fits_matrix(c: Config) -> bool:
        summed = shape["C"] * (shape["KS"] ** 2 if c["KERNEL"] == "flat" else 1)
        least = 64 if by_tma(c) else 32
        return (whole_number(c, "BM") <= max(least, pixels) and whole_number(c, "BN") <= max(least, filters)
                and whole_number(c, "BK") <= max(least // 2, power_of_two_at_least(summed)))

    def has_a_second_tile(c: Config) -> bool:
        tiles = -(-shape["B"] * high * wide // whole_number(c, "BM")) * -(-shape["F"] // whole_number(c, "BN"))
        return not str(c["KERNEL"]).endswith("persistent") or tiles > gpu.sms

    return union_space((_GATHER, _FLAT, _TMA, _WARP_GROUPS), (
        Constraint("kernel: flat for few channels, TMA for rows of 16 bytes, a product for 1 × 1", has_kernel),
        Constraint("stride: blocks of channels that divide them", whole_blocks),
        Constraint("warp groups: Hopper only; above 128 rows at most 128 columns", fits_warp_groups),
        Constraint("accumulator registers", fits_registers), Constraint("shared memory", fits_smem),
        Constraint("registers for addresses", loads_fit),
        thread_limit(gpu),
        Constraint("tile larger than the matrix", fits_matrix),
        Constraint("persistent: no program has a second tile", has_a_second_tile)))


def default_config(shape: Shape, dtype: str, gpu: Limits) -> Config:
    """Return a middling tile of the kernel that suits the shape, cut to the matrix."""
    high, wide = output_sides(shape)
    pixels, filters = power_of_two_at_least(shape["B"] * high * wide), power_of_two_at_least(shape["F"])
    channels = power_of_two_at_least(shape["C"])
    suited = _by_tma(shape, dtype, gpu)
    if suited:
        return suited[-1]
    if shape["C"] <= FLAT_CHANNELS:
        step = min(32, max(16, power_of_two_at_least(shape["C"] * shape["KS"] ** 2)))
        return {"KERNEL": "flat", "BM": min(128, max(64, pixels)), "BN": min(64, max(32, filters)), "BK": step, "GM": 8,
                "num_warps": 4, "num_stages": 2}
    return {**ABSENT, "BM": min(64, max(32, pixels)), "BN": min(64, max(32, filters)), "BK": min(32, max(16, channels)), "GM": 8,
            "num_warps": 4, "num_stages": 3}


def starts(shape: Shape, dtype: str, gpu: Limits) -> tuple[Config, ...]:
    """Return CUTLASS's tiles: 256 × 128, 128 × 128 and narrower ones, steps of 64 channels."""
    step = min(64, max(16, power_of_two_at_least(shape["C"])))
    square: Config = {**ABSENT, "BM": 128, "BN": 128, "BK": step, "GM": 8, "num_warps": 8, "num_stages": 3}
    narrow: Config = {**square, "BN": 64, "num_warps": 4, "num_stages": 4}
    if shape["C"] <= FLAT_CHANNELS:
        flat = default_config(shape, dtype, gpu)
        return (flat, {**flat, "BM": 256, "num_warps": 8}, {**flat, "BK": 64, "num_warps": 8}, narrow)
    return (*_by_tma(shape, dtype, gpu), square, {**square, "BN": 256}, narrow, {**narrow, "BM": 64})


def _by_tma(shape: Shape, dtype: str, gpu: Limits) -> tuple[Config, ...]:
    """Return large tiles first, the last the smallest; none where TMA cannot read the tensors."""
    high, wide = output_sides(shape)
    pixels, filters = power_of_two_at_least(shape["B"] * high * wide), max(64, power_of_two_at_least(shape["F"]))
    step = next((step for step in (64, 32) if shape["S"] == 1 or shape["C"] % step == 0), 0)
    if not has_tma(shape, dtype, gpu) or not step or pixels < 64 or gpu.compute_capability != "9.0":
        return ()
    once, persistent = ("product, tma", "product, persistent") if is_product(shape) else ("boxes", "boxes, persistent")
    small: Config = {"KERNEL": once, "BM": min(128, pixels), "BN": 64, "BK": min(step, max(32, power_of_two_at_least(shape["C"]))),
                     "GM": 8, "num_warps": 4, "num_stages": 4}
    wide_tile: Config = {**small, "KERNEL": persistent, "BM": 256, "BN": min(128, filters), "num_warps": 8, "num_stages": 3}
    square: Config = {**small, "BN": min(128, filters)}
    tiles: tuple[Config, ...] = (
        wide_tile, {**wide_tile, "KERNEL": once}, {**square, "KERNEL": persistent}, {**square, "BM": 64})
    if is_product(shape) and step * BYTES[dtype] == SWIZZLED_BYTES:
        tiles = ({**square, "KERNEL": "product, warp groups", "BM": 128}, *tiles)
    return (*tiles, *((square,) if square != small else ()), small)


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
    kernel_module="tuner.tuning.kernels.convolution", absent=ABSENT,
    kernel_names=("conv2d", "conv2d_flat", "conv2d_boxes", "conv2d_persistent"),
    tolerance={"fp16": 2e-3, "bf16": 1e-2}, unit="FLOP/s", library="cuDNN",
)

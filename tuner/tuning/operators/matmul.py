"""Matmul C[M, N] = A[M, K] · B[K, N] accumulated in fp32, also with bias and activation, and the space of its kernels.

The kernels are those of tuner/tuning/kernels/matmul.py, matmul_tma.py and matmul_warp_groups.py. The shared-memory formulas are
what Triton 3.6 and 3.7 allocate on sm_90: every stage of A and B, and room for the part of C that the epilogue stages.
"""

from __future__ import annotations

from tuner.tuning.operators.limits import Limits
from tuner.tuning.operators.operator import BYTES, Dim, Operator, Shape, power_of_two_at_least
from tuner.tuning.operators.variants import Only, Values, thread_limit, tma_limit, union_space, whole_number
from tuner.tuning.space import Constraint, Space
from tuner.tuning.trial import Config, Value

ABSENT: dict[str, Value] = {"KERNEL": "tiles", "SPLIT_K": 1, "STORE": "direct"}
ACCUMULATORS_PER_THREAD = 256      # above this the fp32 tile alone spills: 255 registers per thread
ACCUMULATORS_WITH_LOADS = 128      # of the kernels that have no recorded limit: half the registers, as CUTLASS takes
BARRIERS_BYTES = 1024
SPECIALISED_STORE_BYTES = 16384    # at least, for the two warp groups that store
WRITTEN_COLUMNS = 64               # at a time by each warp group, of 64 rows
TALL_COLUMNS = 128                 # of more than 128 rows at most: registers
SWIZZLED_BYTES = 128               # of K in a block that warp groups read from shared memory
TMA_ALIGNMENT = 16                 # bytes that every row of a TMA tensor starts at a multiple of
FP8_CAPABILITY = (8, 9)
LEAST_FP8_STEP = 32
SPECIALISED_ON = ("9.0",)

_RECORDED: Values = {
    "BM": (16, 32, 64, 128, 256), "BN": (32, 64, 128, 256), "BK": (32, 64, 128), "GM": (8,), "num_warps": (2, 4, 8),
    "num_stages": (2, 3, 4, 5), "KERNEL": ("tiles",), "SPLIT_K": (1,), "STORE": ("direct",)}
_SPLIT: Values = {**_RECORDED, "BM": (16, 32, 64, 128), "BN": (32, 64, 128), "BK": (64, 128), "num_warps": (4, 8),
                  "num_stages": (3, 4, 5), "SPLIT_K": (2, 4, 8, 16)}
_TMA: Values = {**_RECORDED, "KERNEL": ("tma",), "BM": (64, 128, 256), "BN": (32, 64, 128, 256), "BK": (64, 128),
                "num_warps": (4, 8), "num_stages": (3, 4, 5, 6), "STORE": ("tma", "direct")}
_TMA_SPLIT: Values = {**_TMA, "BM": (64, 128), "SPLIT_K": (2, 4, 8, 16), "STORE": ("direct",)}
_PERSISTENT: Values = {**_TMA, "KERNEL": ("persistent",), "BN": (64, 128, 256), "GM": (8, 16), "num_stages": (3, 4, 5),
                       "STORE": ("halves", "tma", "direct")}
_SPECIALISED: Values = {**_PERSISTENT, "KERNEL": ("specialised",), "BM": (128, 256), "num_warps": (4,), "num_stages": Only((3, 4)),
                        "STORE": ("direct", "tma")}      # with five stages Triton 3.6 computes nonsense (seen on an H200)
_WAVES: Values = {**_PERSISTENT, "KERNEL": ("waves and split",), "STORE": ("halves", "direct")}
_WARP_GROUPS: Values = {**_PERSISTENT, "KERNEL": ("warp groups",), "BM": Only((128, 192, 256)), "BN": Only((64, 128, 256)),
                        "num_warps": (4,), "num_stages": (3, 4, 5, 6), "STORE": ("tma",)}
KERNELS = (_RECORDED, _SPLIT, _TMA, _TMA_SPLIT, _PERSISTENT, _SPECIALISED, _WAVES, _WARP_GROUPS)


def tile_count(shape: Shape, c: Config) -> int:
    """Return the number of output tiles."""
    return -(-shape["M"] // whole_number(c, "BM")) * -(-shape["N"] // whole_number(c, "BN"))


def smem_bytes(c: Config, size: int, out_size: int, keeps_last_stage: bool) -> int:
    """Return shared memory of a configuration; older tensor cores hold the last stage in registers."""
    stage = (whole_number(c, "BM") + whole_number(c, "BN")) * whole_number(c, "BK") * size
    staged = stage * (whole_number(c, "num_stages") - (0 if keeps_last_stage else 1))
    result = whole_number(c, "BM") * whole_number(c, "BN") * out_size
    if c["KERNEL"] == "tiles":
        return staged
    if c["KERNEL"] == "warp groups":
        return staged + 16 * warps_that_multiply(c) * WRITTEN_COLUMNS * out_size + BARRIERS_BYTES
    if c["KERNEL"] == "tma":                                   # C takes the place of A and B, which are done with
        return max(staged, result) + BARRIERS_BYTES
    least = SPECIALISED_STORE_BYTES if c["KERNEL"] == "specialised" else 0
    return staged + (result if c["STORE"] == "tma" else max(result // 2, least)) + BARRIERS_BYTES


def suits_warp_groups(c: Config, size: int) -> bool:
    """Return whether the kernel "warp groups" has the registers for a tile, and blocks of K that lie as tensor cores read them."""
    tall = whole_number(c, "BM") > 128 and whole_number(c, "BN") > TALL_COLUMNS
    return not tall and whole_number(c, "BK") * size == SWIZZLED_BYTES


def warps_that_multiply(c: Config) -> int:
    """Return the warps of the kernel "warp groups" that compute: three warp groups for 192 rows, else two."""
    return 12 if c["BM"] == 192 else 8


def space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """Return the space of the kernels: tiles, groups of GM row tiles, split sums, epilogues."""
    size, out_size = BYTES[dtype], 2 if dtype == "fp8" else BYTES[dtype]
    most_rows = max(64, power_of_two_at_least(shape["M"]))
    aligned = all(shape[name] * size % TMA_ALIGNMENT == 0 for name in ("K", "N")) and shape["N"] * out_size % TMA_ALIGNMENT == 0

    def has_dtype(c: Config) -> bool:
        return dtype != "fp8" or gpu.capability >= FP8_CAPABILITY

    def is_aligned(c: Config) -> bool:
        return c["KERNEL"] == "tiles" or aligned

    def can_specialise(c: Config) -> bool:
        return c["KERNEL"] not in ("specialised", "warp groups") or gpu.compute_capability in SPECIALISED_ON

    def fits_warp_groups(c: Config) -> bool:
        return c["KERNEL"] != "warp groups" or suits_warp_groups(c, size)

    def fits_registers(c: Config) -> bool:
        computing = {"specialised": 8, "warp groups": warps_that_multiply(c)}
        warps = computing.get(str(c["KERNEL"]), whole_number(c, "num_warps"))
        plain = c["KERNEL"] == "tiles" and c["SPLIT_K"] == 1
        limit = ACCUMULATORS_PER_THREAD if plain else ACCUMULATORS_WITH_LOADS
        return whole_number(c, "BM") * whole_number(c, "BN") <= limit * 32 * warps

    def fits_smem(c: Config) -> bool:
        return smem_bytes(c, size, out_size, gpu.warpgroup_mma or c["KERNEL"] != "tiles") <= gpu.smem_bytes

    def fits_matrix(c: Config) -> bool:
        return (c["KERNEL"] == "tiles" and c["SPLIT_K"] == 1) or whole_number(c, "BM") <= most_rows

    def splits_usefully(c: Config) -> bool:
        """Return whether splitting K adds parallelism rather than traffic alone."""
        split = whole_number(c, "SPLIT_K")
        return split == 1 or (tile_count(shape, c) < 2 * gpu.sms and shape["K"] >= 2 * split * whole_number(c, "BK"))

    def leaves_a_rest(c: Config) -> bool:
        """Return whether at most half a wave of tiles is left over, to be split in two."""
        rest = tile_count(shape, c) % gpu.sms
        return c["KERNEL"] != "waves and split" or (tile_count(shape, c) > gpu.sms and 0 < rest <= gpu.sms // 2)

    def has_a_second_tile(c: Config) -> bool:
        return c["KERNEL"] not in ("persistent", "specialised") or tile_count(shape, c) > gpu.sms

    return union_space(KERNELS, (
        Constraint("fp8 tensor cores: from compute capability 8.9", has_dtype),
        Constraint("fp8 tensor cores: steps of 32 of K at least",
                   lambda c: dtype != "fp8" or whole_number(c, "BK") >= LEAST_FP8_STEP),
        tma_limit(gpu, "tiles"),
        Constraint("warp specialisation: Hopper only", can_specialise),
        Constraint("TMA: rows that start at multiples of 16 bytes", is_aligned),
        Constraint("warp groups: 128 bytes of K; above 128 rows at most 128 columns", fits_warp_groups),
        Constraint("accumulator registers", fits_registers), Constraint("shared memory", fits_smem),
        thread_limit(gpu), Constraint("tile taller than the matrix", fits_matrix),
        Constraint("split-K: enough tiles without, or too few blocks of K", splits_usefully),
        Constraint("persistent: no program has a second tile", has_a_second_tile),
        Constraint("waves and split: nothing left to split", leaves_a_rest)))


def default_config(shape: Shape, dtype: str, gpu: Limits) -> Config:
    """Return a middling square tile, cut to the matrix."""
    bm = min(128, max(16, power_of_two_at_least(shape["M"])))
    bn = min(128, max(32, power_of_two_at_least(shape["N"])))
    return {"BM": bm, "BN": bn, "BK": 32, "GM": 8, "num_warps": 4, "num_stages": 3, **ABSENT}


def starts(shape: Shape, dtype: str, gpu: Limits) -> tuple[Config, ...]:
    """Return published designs: Triton's tutorials 03, 09, 11 and split-K of vLLM and cuBLAS."""
    bk = 128 if dtype == "fp8" else 64
    if shape["M"] <= 64:
        bm = max(16, power_of_two_at_least(shape["M"]))
        short: Config = {"BM": bm, "BN": 64, "BK": 128, "GM": 8, "num_warps": 4, "num_stages": 4, **ABSENT}
        tall: Config = {**short, "BM": 64, "KERNEL": "tma", "num_stages": 5}
        split = power_of_two_at_least(-(-2 * gpu.sms // tile_count(shape, short)))
        return tuple({**c, "SPLIT_K": s} for c in (short, tall) for s in dict.fromkeys((split, max(1, split // 2))))
    wide: Config = {"BM": 128, "BN": 256, "BK": bk, "GM": 8, "num_warps": 8, "num_stages": 4, "KERNEL": "persistent",
                    "SPLIT_K": 1, "STORE": "halves"}
    square: Config = {**wide, "BN": 128, "num_warps": 4, "num_stages": 4, "STORE": "tma"}
    grouped: Config = {**wide, "KERNEL": "warp groups", "num_warps": 4, "STORE": "tma"}
    return (wide, grouped, {**grouped, "BM": 192, "BN": 128, "num_stages": 5}, {**wide, "KERNEL": "waves and split"},
            {**wide, "KERNEL": "specialised", "num_warps": 4, "STORE": "direct"},
            {**square, "KERNEL": "tma"}, square, {**square, "KERNEL": "tma", "SPLIT_K": 2, "STORE": "direct"},
            {**square, "KERNEL": "tma", "BM": 64, "num_stages": 3}, {**square, "KERNEL": "tma", "BM": 64, "BK": 2 * bk})


_DIMS = (Dim("M", "rows of A and C", high=1 << 17), Dim("N", "columns of B and C", high=1 << 17),
         Dim("K", "columns of A, rows of B", high=1 << 17))
FP8_MULTIPLE = 16
_TOLERANCE = {"bf16": 1e-2, "fp16": 2e-3, "fp8": 2e-2}      # fp8: the inputs are exact, the tensor cores' sum is not fp32


def flops(shape: Shape) -> int:
    """Return 2·M·N·K."""
    return 2 * shape["M"] * shape["N"] * shape["K"]


def bytes_moved(shape: Shape, dtype: str) -> int:
    """Return bytes of A and B read and C written; the product of fp8 matrices is bf16."""
    result = BYTES["bf16"] if dtype == "fp8" else BYTES[dtype]
    return BYTES[dtype] * (shape["M"] * shape["K"] + shape["K"] * shape["N"]) + result * shape["M"] * shape["N"]


def bytes_moved_with_bias(shape: Shape, dtype: str) -> int:
    """Return bytes as `bytes_moved` does, with the bias."""
    return bytes_moved(shape, dtype) + shape["N"] * (BYTES["bf16"] if dtype == "fp8" else BYTES[dtype])


def fp8_problems(shape: Shape, dtype: str) -> dict[str, str]:
    """Return field → problem where cuBLAS does not take these fp8 matrices."""
    odd = [name for name in ("N", "K") if shape[name] % FP8_MULTIPLE]
    return {name: f"in fp8 {name} must be a multiple of {FP8_MULTIPLE}" for name in odd} if dtype == "fp8" else {}


MATMUL = Operator(
    name="matmul", title="Matrix multiplication",
    dims=_DIMS, dtypes=("bf16", "fp16", "fp8"),
    presets=({"M": 4096, "N": 4096, "K": 4096}, {"M": 16, "N": 4096, "K": 4096}, {"M": 2048, "N": 11008, "K": 4096},
             {"M": 1024, "N": 1024, "K": 1024}),
    space=space, default_config=default_config, flops=flops, bytes=bytes_moved,
    kernel_module="tuner.tuning.kernels.matmul",
    kernel_names=("matmul", "matmul_kernel", "matmul_tma", "matmul_persistent", "matmul_specialised",
                  "matmul_warp_groups"),
    tolerance=_TOLERANCE, unit="FLOP/s", library="cuBLAS", absent=ABSENT, starts=starts, together=fp8_problems,
)

MATMUL_BIAS_ACT = Operator(
    name="matmul_bias_act", title="Matrix multiplication with bias and activation",
    dims=(*_DIMS, Dim("act", "0 none, 1 ReLU, 2 GELU, 3 SiLU", low=0, exact=True, only=(0, 1, 2, 3))),
    dtypes=("bf16", "fp16", "fp8"),
    presets=({"M": 4096, "N": 16384, "K": 4096, "act": 2}, {"M": 16, "N": 11008, "K": 4096, "act": 3}),
    space=space, default_config=default_config,
    flops=flops,                                               # bias and activation are not counted: a thousandth of it
    bytes=bytes_moved_with_bias,
    kernel_module="tuner.tuning.kernels.matmul", kernel_names=(),      # the same kernels: their names belong to matmul
    tolerance=_TOLERANCE, unit="FLOP/s", absent=ABSENT, starts=starts, together=fp8_problems,
)

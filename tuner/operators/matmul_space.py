"""Which configurations of the matmul kernels may run: their values, and the limits of shape and GPU.

The kernels are those of tuner/kernels/matmul.py and matmul_tma.py. The shared-memory formulas are what Triton 3.6 and 3.7
allocate on sm_90: every stage of A and B, and room for the part of C that the epilogue stages.
"""

from __future__ import annotations

from tuner.operators.limits import Limits
from tuner.operators.operator import BYTES, Shape, power_of_two_at_least
from tuner.operators.variants import Values, union, whole
from tuner.space import Constraint, Space
from tuner.trial import Config, Value

ABSENT: dict[str, Value] = {"KERNEL": "tiles", "SPLIT_K": 1, "STORE": "direct"}
ACCUMULATORS_PER_THREAD = 256      # above this the fp32 tile alone spills: 255 registers per thread
ACCUMULATORS_WITH_LOADS = 128      # of the kernels that have no recorded limit: half the registers, as CUTLASS takes
BARRIERS_BYTES = 1024
SPECIALISED_STORE_BYTES = 16384    # at least, for the two warp groups that store
TMA_ALIGNMENT = 16                 # bytes that every row of a TMA tensor starts at a multiple of
FP8_CAPABILITY = (8, 9)
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
_SPECIALISED: Values = {**_PERSISTENT, "KERNEL": ("specialised",), "BM": (128, 256), "num_warps": (4,), "num_stages": (3, 4),
                        "STORE": ("direct", "tma")}      # with five stages Triton 3.6 computes nonsense (seen on an H200)
_WAVES: Values = {**_PERSISTENT, "KERNEL": ("waves and split",), "STORE": ("halves", "direct")}
KERNELS = (_RECORDED, _SPLIT, _TMA, _TMA_SPLIT, _PERSISTENT, _SPECIALISED, _WAVES)


def tiles(shape: Shape, c: Config) -> int:
    return -(-shape["M"] // whole(c, "BM")) * -(-shape["N"] // whole(c, "BN"))


def smem_bytes(c: Config, size: int, out_size: int, keeps_last_stage: bool) -> int:
    """Shared memory of a configuration. Older tensor cores hold the last stage in registers."""
    stage = (whole(c, "BM") + whole(c, "BN")) * whole(c, "BK") * size
    staged = stage * (whole(c, "num_stages") - (0 if keeps_last_stage else 1))
    result = whole(c, "BM") * whole(c, "BN") * out_size
    if c["KERNEL"] == "tiles":
        return staged
    if c["KERNEL"] == "tma":                                   # C takes the place of A and B, which are done with
        return max(staged, result) + BARRIERS_BYTES
    least = SPECIALISED_STORE_BYTES if c["KERNEL"] == "specialised" else 0
    return staged + (result if c["STORE"] == "tma" else max(result // 2, least)) + BARRIERS_BYTES


def space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """Five kernels: tiles BM×BN×BK, groups of GM row tiles that share columns in L2, split sums, ways of the epilogue."""
    size, out_size = BYTES[dtype], 2 if dtype == "fp8" else BYTES[dtype]
    most_rows = max(64, power_of_two_at_least(shape["M"]))
    aligned = all(shape[name] * size % TMA_ALIGNMENT == 0 for name in ("K", "N")) and shape["N"] * out_size % TMA_ALIGNMENT == 0

    def has_dtype(c: Config) -> bool:
        return dtype != "fp8" or gpu.capability >= FP8_CAPABILITY

    def has_tma(c: Config) -> bool:
        return c["KERNEL"] == "tiles" or gpu.capability >= (9, 0)

    def is_aligned(c: Config) -> bool:
        return c["KERNEL"] == "tiles" or aligned

    def can_specialise(c: Config) -> bool:
        return c["KERNEL"] != "specialised" or gpu.compute_capability in SPECIALISED_ON

    def fits_registers(c: Config) -> bool:
        warps = 8 if c["KERNEL"] == "specialised" else whole(c, "num_warps")          # two warp groups compute
        plain = c["KERNEL"] == "tiles" and c["SPLIT_K"] == 1
        each = ACCUMULATORS_PER_THREAD if plain else ACCUMULATORS_WITH_LOADS
        return whole(c, "BM") * whole(c, "BN") <= each * 32 * warps

    def fits_smem(c: Config) -> bool:
        return smem_bytes(c, size, out_size, gpu.warpgroup_mma or c["KERNEL"] != "tiles") <= gpu.smem_bytes

    def fits_threads(c: Config) -> bool:
        return 32 * whole(c, "num_warps") <= gpu.threads

    def fits_matrix(c: Config) -> bool:
        return (c["KERNEL"] == "tiles" and c["SPLIT_K"] == 1) or whole(c, "BM") <= most_rows

    def splits_usefully(c: Config) -> bool:
        """Where the tiles alone keep the GPU busy, or a piece would be one block of K, splitting only adds traffic."""
        split = whole(c, "SPLIT_K")
        return split == 1 or (tiles(shape, c) < 2 * gpu.sms and shape["K"] >= 2 * split * whole(c, "BK"))

    def leaves_a_rest(c: Config) -> bool:
        """Fewer tiles than one wave are split-K alone; more than half a wave cannot be split in two."""
        rest = tiles(shape, c) % gpu.sms
        return c["KERNEL"] != "waves and split" or (tiles(shape, c) > gpu.sms and 0 < rest <= gpu.sms // 2)

    def has_a_second_tile(c: Config) -> bool:
        return c["KERNEL"] not in ("persistent", "specialised") or tiles(shape, c) > gpu.sms

    return union(KERNELS, (
        Constraint("fp8 tensor cores: from compute capability 8.9", has_dtype),
        Constraint("TMA: from compute capability 9.0", has_tma),
        Constraint("warp specialisation: Hopper only", can_specialise),
        Constraint("TMA: rows that start at multiples of 16 bytes", is_aligned),
        Constraint("accumulator registers", fits_registers), Constraint("shared memory", fits_smem),
        Constraint("threads per block", fits_threads), Constraint("tile taller than the matrix", fits_matrix),
        Constraint("split-K: enough tiles without, or too few blocks of K", splits_usefully),
        Constraint("persistent: no program has a second tile", has_a_second_tile),
        Constraint("waves and split: nothing left to split", leaves_a_rest)))


def default_config(shape: Shape, dtype: str, gpu: Limits) -> Config:
    """A middling square tile, cut to the matrix: what one writes before tuning."""
    bm = min(128, max(16, power_of_two_at_least(shape["M"])))
    bn = min(128, max(32, power_of_two_at_least(shape["N"])))
    return {"BM": bm, "BN": bn, "BK": 32, "GM": 8, "num_warps": 4, "num_stages": 3, **ABSENT}


def starts(shape: Shape, dtype: str, gpu: Limits) -> tuple[Config, ...]:
    """Published designs: Triton's tutorials 03, 09 and 11 (persistent, TMA), split-K as vLLM and cuBLAS take it for few rows."""
    bk = 128 if dtype == "fp8" else 64
    if shape["M"] <= 64:
        bm = max(16, power_of_two_at_least(shape["M"]))
        short: Config = {"BM": bm, "BN": 64, "BK": 128, "GM": 8, "num_warps": 4, "num_stages": 4, **ABSENT}
        tall: Config = {**short, "BM": 64, "KERNEL": "tma", "num_stages": 5}
        split = power_of_two_at_least(-(-2 * gpu.sms // tiles(shape, short)))
        return tuple({**c, "SPLIT_K": s} for c in (short, tall) for s in dict.fromkeys((split, max(1, split // 2))))
    wide: Config = {"BM": 128, "BN": 256, "BK": bk, "GM": 8, "num_warps": 8, "num_stages": 4, "KERNEL": "persistent",
                    "SPLIT_K": 1, "STORE": "halves"}
    square: Config = {**wide, "BN": 128, "num_warps": 4, "num_stages": 4, "STORE": "tma"}
    return (wide, {**wide, "KERNEL": "specialised", "num_warps": 4, "STORE": "direct"}, {**wide, "KERNEL": "waves and split"},
            {**square, "KERNEL": "tma"}, square, {**square, "KERNEL": "tma", "SPLIT_K": 2, "STORE": "direct"},
            {**square, "KERNEL": "tma", "BM": 64})

"""Products with quantised weights: four bits with a scale for each 128 rows, and fp8 with a scale for each block."""

from __future__ import annotations

from collections.abc import Callable

from tuner.tuning.operators.limits import Limits
from tuner.tuning.operators.matmul import BARRIERS_BYTES, FP8_CAPABILITY, SPECIALISED_ON, TMA_ALIGNMENT, smem_bytes
from tuner.tuning.operators.operator import BYTES, Dim, Operator, Shape, power_of_two_at_least
from tuner.tuning.operators.variants import Only, Values, thread_limit, union_space, whole_number
from tuner.tuning.space import Constraint, Space
from tuner.tuning.trial import Config, Value

GROUP = 128                        # rows of K that share a scale; fp8: the side of a block
ACCUMULATORS_PER_THREAD = 128
_TILES: Values = {"BM": (16, 32, 64, 128), "BN": (32, 64, 128, 256), "GM": (8,), "num_warps": (4, 8), "num_stages": (2, 3, 4, 5)}


def _tile_limits(shape: Shape, gpu: Limits, stage_bytes: Callable[[Config], int]) -> tuple[Constraint, ...]:
    """Return what both products ask of a tile whose loads take `stage_bytes` a stage."""
    most_rows, most_columns = (max(least, power_of_two_at_least(shape[name])) for name, least in (("M", 16), ("N", 32)))

    def fits_registers(c: Config) -> bool:
        computing = {"specialised": 2 * whole_number(c, "BM"), "warp groups": 256}
        threads = computing.get(str(c["KERNEL"]), 32 * whole_number(c, "num_warps"))
        return whole_number(c, "BM") * whole_number(c, "BN") <= ACCUMULATORS_PER_THREAD * threads

    def fits_matrix(c: Config) -> bool:
        return whole_number(c, "BM") <= most_rows and (whole_number(c, "BN") <= most_columns or c["KERNEL"] == "warp groups")

    return (Constraint("accumulator registers", fits_registers),
            Constraint("shared memory", lambda c: whole_number(c, "num_stages") * stage_bytes(c) <= gpu.smem_bytes),
            thread_limit(gpu),
            Constraint("tile larger than the matrix", fits_matrix))


_ABSENT: dict[str, Value] = {"KERNEL": "tiles"}
# a step of BK lies in one group of scales: no value above is right
_INT4: Values = {"KERNEL": ("tiles",), **_TILES, "BK": Only((16, 32, 64)), "SPLIT_K": (1, 2, 4, 8, 16)}
_VECTOR: Values = {**_INT4, "KERNEL": ("vector",), "BM": (1, 2, 4), "BN": (64, 128, 256, 512), "BK": Only((4, 8, 16, 32)),
                   "num_warps": (2, 4, 8), "num_stages": (1, 3, 4), "SPLIT_K": (1, 2, 4, 8, 16, 32)}
_WORDS: Values = {**_INT4, "KERNEL": ("words",), "BM": (16, 32, 64), "BN": (256,), "num_warps": (4,), "num_stages": (2, 3, 4, 5, 6)}
_UNPACKED: Values = {**_INT4, "KERNEL": ("unpacked, tma", "unpacked, persistent", "unpacked, tiles"), "BM": (64, 128, 256),
                     "BN": (64, 128, 256), "BK": (32, 64), "GM": (8, 16), "num_stages": (3, 4, 5), "SPLIT_K": (1,)}
_WARP_GROUPS: Values = {**_INT4, "KERNEL": ("warp groups",), "BM": Only((16, 32, 64, 128, 256)), "BN": Only((128, 256, 512)),
                        "BK": Only((32, 64)), "num_warps": (4,), "num_stages": (3, 4, 6),
                        "SPLIT_K": (1, 2, 3, 4, 6, 8, 10, 12, 13, 16, 20, 24, 32)}
WARP_GROUP_COLUMNS = {16: 512, 32: 512, 64: 512, 128: 256, 256: 128}       # of a tile, by rows of X
WORDS_ALIGNMENT = 16               # columns that rows of packed weights end at a multiple of, for TMA
VECTOR_ROWS = 4                    # of X at most without tensor cores
VECTOR_WORDS = 4                   # of 32 bits × rows of X that a thread has in registers
UNPACKED_ROWS = 64                 # of X at least that weights are unpacked to memory for


def _unpacks(c: Config) -> bool:
    return str(c["KERNEL"]).startswith("unpacked")


def _product_fits(c: Config, dtype: str, gpu: Limits) -> bool:
    """Return whether the plain product that follows the unpacking has its shared memory."""
    if not _unpacks(c):
        return True
    halves = c["KERNEL"] == "unpacked, persistent" and whole_number(c, "BN") > 128
    product: Config = {**c, "KERNEL": str(c["KERNEL"]).removeprefix("unpacked, "), "STORE": "halves" if halves else "tma"}
    used = smem_bytes(product, BYTES[dtype], BYTES[dtype], gpu.warpgroup_mma or c["KERNEL"] != "unpacked, tiles")
    return used <= gpu.smem_bytes


def _words_fill_threads(c: Config) -> bool:
    """Return whether each thread of the vector kernel has whole words of a step, and as many as its registers hold."""
    if c["KERNEL"] != "vector":
        return True
    words, odd = divmod(whole_number(c, "BN") * whole_number(c, "BK"), 128 * whole_number(c, "num_warps"))
    return not odd and 1 <= words <= VECTOR_WORDS // whole_number(c, "BM") and (words == VECTOR_WORDS or c["num_stages"] == 1)


def int4_space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """Return tiles BM × BN, steps of BK packed rows (2·BK of K; of unpacked weights BK), SPLIT_K programs a tile."""

    def stage_bytes(c: Config) -> int:
        if c["KERNEL"] == "warp groups":
            words = 4 * 128 if whole_number(c, "BM") <= 64 else 4 * 64
            return whole_number(c, "BK") * (4 * whole_number(c, "BM") + words)
        if _unpacks(c) or c["KERNEL"] == "vector":
            return 0
        return whole_number(c, "BK") * (2 * whole_number(c, "BM") * BYTES[dtype] + whole_number(c, "BN"))

    def has_tma(c: Config) -> bool:
        if c["KERNEL"] == "unpacked, tiles":
            return gpu.capability < (9, 0)
        return not _unpacks(c) or (gpu.capability >= (9, 0) and shape["N"] * BYTES[dtype] % TMA_ALIGNMENT == 0)

    def has_words(c: Config) -> bool:
        return c["KERNEL"] == "tiles" or _unpacks(c) or shape["N"] % 4 == 0

    def rows_of_kernel(c: Config) -> bool:
        if c["KERNEL"] == "vector":
            return shape["M"] <= VECTOR_ROWS and whole_number(c, "BM") == power_of_two_at_least(shape["M"])
        return not _unpacks(c) or shape["M"] >= UNPACKED_ROWS

    def suits_warp_groups(c: Config) -> bool:
        columns = WARP_GROUP_COLUMNS.get(whole_number(c, "BM"))
        return c["KERNEL"] != "warp groups" or (c["BN"] == columns and shape["N"] % WORDS_ALIGNMENT == 0
                                                and gpu.compute_capability in SPECIALISED_ON)

    def uses_warpgroups(c: Config) -> bool:
        """Return whether the operand can come from registers, and what is unpacked of a step has room beside the sums."""
        fits = whole_number(c, "BM") * whole_number(c, "BK") <= 1024 * (2 if whole_number(c, "BM") < 64 else 1)
        return c["KERNEL"] != "words" or (fits and (gpu.warpgroup_mma or gpu.capability < (9, 0)))

    def splits_usefully(c: Config) -> bool:
        tiles = -(-shape["M"] // whole_number(c, "BM")) * -(-shape["N"] // whole_number(c, "BN"))
        split = whole_number(c, "SPLIT_K")
        if c["KERNEL"] == "vector":
            return split <= shape["K"] // GROUP and (split == 1 or tiles * split <= 16 * gpu.sms)
        if c["KERNEL"] == "warp groups":            # each program takes one part or two
            return split == 1 or (tiles * split <= 2 * gpu.sms and shape["K"] >= 4 * split * whole_number(c, "BK"))
        return split == 1 or (tiles < 2 * gpu.sms and shape["K"] >= 4 * split * whole_number(c, "BK"))

    def has_a_second_tile(c: Config) -> bool:
        tiles = -(-shape["M"] // whole_number(c, "BM")) * -(-shape["N"] // whole_number(c, "BN"))
        return c["KERNEL"] != "unpacked, persistent" or tiles > gpu.sms

    return union_space((_INT4, _VECTOR, _WORDS, _UNPACKED, _WARP_GROUPS), (
        Constraint("rows of X: few for vector, many for unpacked", rows_of_kernel),
        Constraint("columns: whole words of four", has_words),
        Constraint("vector: whole words a thread, and few", _words_fill_threads),
        Constraint("words: tensor cores with an operand in registers", uses_warpgroups),
        Constraint("warp groups: Hopper only, a tile's columns by its rows, rows of 16 columns", suits_warp_groups),
        Constraint("unpacked: TMA where the GPU has it, rows of 16 bytes", has_tma),
        *_tile_limits(shape, gpu, stage_bytes),
        Constraint("shared memory of the plain product", lambda c: _product_fits(c, dtype, gpu)),
        Constraint("split-K: enough tiles without, or too few blocks of K", splits_usefully),
        Constraint("persistent: no program has a second tile", has_a_second_tile)))


def int4_default(shape: Shape, dtype: str, gpu: Limits) -> Config:
    """Return what suits the rows of X (`int4_starts`) where it takes the columns, else a middling tile, cut to the matrix."""
    tile: Config = {**_ABSENT, "BM": min(64, max(16, power_of_two_at_least(shape["M"]))),
                    "BN": min(64, max(32, power_of_two_at_least(shape["N"]))),
                    "GM": 8, "num_warps": 4, "num_stages": 3, "BK": 32, "SPLIT_K": 1}
    suited = int4_starts(shape, dtype, gpu)[1 if shape["M"] > UNPACKED_ROWS else 0]
    narrow = shape["N"] < 256 or shape["N"] * BYTES[dtype] % TMA_ALIGNMENT
    return tile if narrow or gpu.compute_capability != "9.0" else suited


def int4_starts(shape: Shape, dtype: str, gpu: Limits) -> tuple[Config, ...]:
    """Return what suits the rows of X: without tensor cores, words of four columns, unpacked weights; a plain tile beside it."""
    rows = power_of_two_at_least(shape["M"])
    tile: Config = {**_ABSENT, "GM": 8, "num_warps": 4, "num_stages": 4, "BK": 64, "BM": max(16, min(64, rows)), "BN": 64}
    words: Config = {**tile, "KERNEL": "words", "BM": min(32, max(16, rows)), "BN": 256, "BK": 32}
    several = [{**words, "SPLIT_K": _split(shape, gpu, words, programs)} for programs in (2, 4)]
    tall: Config = {**words, "BM": 64, "BK": 16}
    if rows > 32:
        several = [several[0], {**tall, "SPLIT_K": _split(shape, gpu, tall, 2)}, several[1]]
    grouped: Config = {**words, "KERNEL": "warp groups", "BM": max(16, min(128, rows)), "BN": 512 if rows <= 64 else 256}
    if rows > UNPACKED_ROWS:
        wide: Config = {**tile, "KERNEL": "unpacked, persistent", "BM": 128, "BN": 256, "GM": 16, "num_warps": 8, "SPLIT_K": 1}
        square: Config = {**wide, "KERNEL": "unpacked, tma", "BN": 128, "GM": 8, "num_warps": 4}
        old: Config = {**square, "KERNEL": "unpacked, tiles", "BK": 32, "num_stages": 3}
        return (wide, square, {**grouped, "BK": 64, "SPLIT_K": 1}, old, several[1], {**wide, "num_stages": 3})
    if rows <= VECTOR_ROWS:
        vector: Config = {**tile, "KERNEL": "vector", "BM": rows, "BN": 128, "BK": 16 // rows, "num_stages": 1}
        vector_configs = [{**vector, "SPLIT_K": _split(shape, gpu, vector, programs)} for programs in (8, 4)]
        deep = [{**vector_configs[0], "num_stages": 3}] if rows == 1 else []
        return _different((*vector_configs, *deep, several[0]))
    tiles = -(-shape["N"] // 512) * -(-shape["M"] // whole_number(grouped, "BM"))
    parts = [part for part in _WARP_GROUPS["SPLIT_K"] if isinstance(part, int) and tiles * part <= gpu.sms]
    split: Config = {**grouped, "SPLIT_K": max(parts, default=1)}
    return _different((several[0], split, *several[1:], {**tile, "SPLIT_K": min(16, _split(shape, gpu, tile, 2))}))


def _split(shape: Shape, gpu: Limits, c: Config, programs: int) -> int:
    """Return a power of two of parts of K that make about so many programs a multiprocessor."""
    tiles = -(-shape["M"] // whole_number(c, "BM")) * -(-shape["N"] // whole_number(c, "BN"))
    most = 32 if c["KERNEL"] == "vector" else min(16, shape["K"] // (4 * whole_number(c, "BK")) if tiles < 2 * gpu.sms else 1)
    count = min(most, shape["K"] // GROUP, programs * gpu.sms // tiles)
    return 1 << max(0, count.bit_length() - 1)


def _different(configs: tuple[Config, ...]) -> tuple[Config, ...]:
    """Return each of them once."""
    return tuple(config for place, config in enumerate(configs) if config not in configs[:place])


def int4_bytes(shape: Shape, dtype: str) -> int:
    """Return bytes of X, of half a byte a weight, of the scales, and of Y."""
    weights = shape["K"] * shape["N"]
    return BYTES[dtype] * (shape["M"] * (shape["K"] + shape["N"]) + weights // GROUP) + weights // 2


_FP8_ABSENT: dict[str, Value] = {**_ABSENT, "SPLIT_K": 1}
_FP8: Values = {"KERNEL": ("tiles",), **_TILES, "BK": Only((32, 64, 128)), "GM": (1, 8), "SPLIT_K": (1,)}
_FP8_SPLIT: Values = {**_FP8, "BM": (16, 32, 64), "BN": (32, 64, 128), "BK": (128,), "GM": (8,), "SPLIT_K": (2, 4, 8)}
_SPECIALISED: Values = {**_FP8, "KERNEL": ("specialised",), "BM": Only((128, 192)), "BN": Only((64, 128)), "BK": (GROUP,),
                        "GM": (4, 8, 16), "num_warps": (4,), "num_stages": (3, 4, 5, 6)}


def fp8_space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """Return tiles BM × BN, steps of BK of K within a block of scales, SPLIT_K programs a tile; specialised: 64 rows of a tile for
    each warp group."""

    def stage_bytes(c: Config) -> int:
        return whole_number(c, "BK") * (whole_number(c, "BM") + whole_number(c, "BN"))

    def has_room_for_results(c: Config) -> bool:
        """Rows are turned in shared memory before they are stored."""
        turned = 128 * whole_number(c, "BM") + BARRIERS_BYTES
        return c["KERNEL"] != "specialised" or whole_number(c, "num_stages") * stage_bytes(c) + turned <= gpu.smem_bytes

    def splits_usefully(c: Config) -> bool:
        tiles = -(-shape["M"] // whole_number(c, "BM")) * -(-shape["N"] // whole_number(c, "BN"))
        split = whole_number(c, "SPLIT_K")
        return split == 1 or (tiles < 2 * gpu.sms and shape["K"] >= 4 * split * whole_number(c, "BK"))

    return union_space((_FP8, _FP8_SPLIT, _SPECIALISED), (
        Constraint("fp8 tensor cores: from compute capability 8.9", lambda c: gpu.capability >= FP8_CAPABILITY),
        Constraint("warp specialisation: Hopper only",
                   lambda c: c["KERNEL"] != "specialised" or gpu.compute_capability in SPECIALISED_ON),
        *_tile_limits(shape, gpu, stage_bytes), Constraint("shared memory with the results'", has_room_for_results),
        Constraint("split-K: enough tiles without, or too few blocks of K", splits_usefully)))


def fp8_default(shape: Shape, dtype: str, gpu: Limits) -> Config:
    """Return vLLM's default of this product, cut to the matrix."""
    return {**_FP8_ABSENT, "BM": min(64, max(16, power_of_two_at_least(shape["M"]))),
            "BN": min(128, max(32, power_of_two_at_least(shape["N"]))), "GM": 8, "num_warps": 4, "num_stages": 2, "BK": 128}


def fp8_starts(shape: Shape, dtype: str, gpu: Limits) -> tuple[Config, ...]:
    """Return a tile of one block of scales, and short ones with more loads ahead; K split where tiles are few."""
    wide: Config = {**_FP8_ABSENT, "BM": 128, "BN": 128, "GM": 8, "num_warps": 8, "num_stages": 4, "BK": 128}
    specialised: Config = {**wide, "KERNEL": "specialised", "num_warps": 4}
    short: Config = {**wide, "BM": max(16, min(64, power_of_two_at_least(shape["M"]))), "BN": 64, "num_warps": 4, "num_stages": 5}
    split: Config = {**short, "BN": 32, "SPLIT_K": 2}
    if shape["M"] <= 64:
        return short, split, {**split, "SPLIT_K": 4}, {**short, "BN": 32}
    return ({**specialised, "BM": 192}, specialised, wide, {**wide, "BM": 64, "num_warps": 4}, short)


def fp8_bytes(shape: Shape, dtype: str) -> int:
    """Return bytes of A and B, of a float32 scale for each block, and of Y in bf16."""
    rows, columns, steps = shape["M"], shape["N"], shape["K"]
    scales = 4 * (rows + -(-columns // GROUP)) * (steps // GROUP)
    return BYTES[dtype] * (rows + columns) * steps + scales + BYTES["bf16"] * rows * columns


def group_problems(shape: Shape, dtype: str) -> dict[str, str]:
    """Return field → problem where K is not made of whole groups."""
    return {"K": f"K must be a multiple of {GROUP}: so many of its rows share a scale"} if shape["K"] % GROUP else {}


_DIMS = (Dim("M", "rows of X and Y", high=1 << 17), Dim("N", "columns of the weights and Y", high=1 << 17),
         Dim("K", "columns of X, rows of the weights", low=GROUP, high=1 << 17))

INT4_MATMUL = Operator(
    name="int4_matmul", title="Matrix multiplication with 4-bit weights", dims=_DIMS, dtypes=("bf16", "fp16"),
    presets=({"M": 16, "N": 4096, "K": 4096}, {"M": 1, "N": 14336, "K": 4096}, {"M": 4096, "N": 4096, "K": 4096}),
    space=int4_space, default_config=int4_default, starts=int4_starts, together=group_problems,
    flops=lambda s: 2 * s["M"] * s["N"] * s["K"], bytes=int4_bytes,
    kernel_module="tuner.tuning.kernels.quantised_matmul", absent=_ABSENT,
    kernel_names=("int4_matmul", "int4_vector", "int4_words", "int4_unpack", "int4_warp_groups", "int4_sum"),
    tolerance={"bf16": 1e-2, "fp16": 2e-3}, unit="FLOP/s", library="cuBLAS on 16-bit weights",
)

FP8_BLOCK_MATMUL = Operator(
    name="fp8_block_matmul", title="Matrix multiplication, fp8 with a scale for each block", dims=_DIMS, dtypes=("fp8",),
    presets=({"M": 4096, "N": 7168, "K": 2048}, {"M": 64, "N": 7168, "K": 2048}, {"M": 4096, "N": 4096, "K": 4096}),
    space=fp8_space, default_config=fp8_default, starts=fp8_starts, together=group_problems,
    flops=lambda s: 2 * s["M"] * s["N"] * s["K"], bytes=fp8_bytes,
    kernel_module="tuner.tuning.kernels.quantised_matmul", absent=_FP8_ABSENT,
    kernel_names=("fp8_block_matmul", "fp8_block_specialised", "_w8a8_block_fp8_matmul"),
    tolerance={"fp8": 2e-2}, unit="FLOP/s", library="cuBLAS: scaled blocks of fp8, else bf16",
)

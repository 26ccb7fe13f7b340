"""The K largest values of each row and their columns: sampling over a vocabulary, experts of a router."""

from __future__ import annotations

from tuner.tuning.operators.limits import Limits
from tuner.tuning.operators.operator import BYTES, Dim, Operator, Shape, power_of_two_at_least
from tuner.tuning.operators.rowwise import ROWS
from tuner.tuning.operators.variants import Values, thread_limit, union_space, whole_number
from tuner.tuning.space import Constraint, Space
from tuner.tuning.trial import Config, Value

KEYS_PER_THREAD = 32           # that are sorted in registers
COUNTED_PER_THREAD = (2, 16)   # of the kernel that counts
KEYS_AT_ONCE = 2048            # more take a minute to compile: the sort is written out step by step
SORT_STEPS = 32768             # keys of 32 bits × K whose sort compiles in two seconds; those of 64 bits take four times as long
NARROW_COLUMNS = 1 << 16       # that make a key of 32 bits with a value of 16
MOST = 64                      # of a row, for the same reason
PARTS_AT_ONCE = 1024
GROUP = 8                      # columns of which the counting kernel takes the largest
FEW = 16                       # of a row: of more the threshold is faster to find than an order
ABSENT: dict[str, Value] = {"KERNEL": "sorting"}
_SORTING: Values = {"KERNEL": ("sorting",), "BLOCK": (16, 32, 64, 128, 256, 512, 1024, 2048), "ROWS": (1, 2, 4, 8, 16, 32),
                    "SPLIT": (1, 2, 4, 8, 16, 32), "num_warps": (1, 2, 4, 8, 16)}
_THRESHOLD: Values = {"KERNEL": ("threshold",), "BLOCK": (256, 512, 1024, 2048, 4096), "ROWS": (1,),
                      "SPLIT": (1, 2, 4, 8, 16, 32, 64, 128), "num_warps": (2, 4, 8, 16)}


def space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """Return blocks of BLOCK columns of ROWS rows; SPLIT programs share a long row."""
    row, keys = max(16, power_of_two_at_least(shape["C"])), power_of_two_at_least(shape["K"])

    def tile_fits(c: Config) -> bool:
        tile, threads = whole_number(c, "BLOCK") * whole_number(c, "ROWS"), 32 * whole_number(c, "num_warps")
        if c["KERNEL"] == "threshold":
            return COUNTED_PER_THREAD[0] * threads <= tile <= COUNTED_PER_THREAD[1] * threads
        return tile <= min(KEYS_AT_ONCE, KEYS_PER_THREAD * threads)

    def compiles_soon(c: Config) -> bool:
        sorted_at_once = max(whole_number(c, "BLOCK") * whole_number(c, "ROWS"), whole_number(c, "SPLIT") * keys)
        return c["KERNEL"] == "threshold" or sorted_at_once * keys <= _sort_steps(shape, dtype)

    def block_fits(c: Config) -> bool:
        least = GROUP * keys if c["KERNEL"] == "threshold" else max(16, keys)
        return least <= whole_number(c, "BLOCK") <= row

    def rows_of_short_ones(c: Config) -> bool:
        return c["ROWS"] == 1 or whole_number(c, "BLOCK") == row

    def splits_usefully(c: Config) -> bool:
        split = whole_number(c, "SPLIT")
        return split == 1 or (split * whole_number(c, "BLOCK") <= shape["C"] and split * shape["R"] <= 64 * gpu.sms
                              and (c["KERNEL"] == "threshold" or split * keys <= PARTS_AT_ONCE))

    return union_space((_SORTING, _THRESHOLD), (
        thread_limit(gpu), Constraint("keys in registers", tile_fits),
        Constraint("block: K at least, and not beyond the row; a group for each of the K that are counted", block_fits),
        Constraint("a sort that takes long to compile", compiles_soon),
        Constraint("several rows: only whole ones", rows_of_short_ones),
        Constraint("parts: fewer than blocks, and no more than programs wait for", splits_usefully),
        Constraint("more rows than there are", lambda c: whole_number(c, "ROWS") < 2 * shape["R"])))


def _sort_steps(shape: Shape, dtype: str) -> int:
    """Return how many keys × K a sort may have."""
    return SORT_STEPS if BYTES[dtype] == 2 and shape["C"] <= NARROW_COLUMNS else SORT_STEPS // 4


def default_config(shape: Shape, dtype: str, gpu: Limits) -> Config:
    """Return the threshold where K is not small and rows are long, else a row a program in sorted blocks of 1,024 at most."""
    row, keys = max(16, power_of_two_at_least(shape["C"])), power_of_two_at_least(shape["K"])
    if keys > FEW and row >= 2048:
        return _counted(shape, _room(shape, gpu, 2))
    block = max(keys, min(1024, row, _sort_steps(shape, dtype) // keys))
    return {**ABSENT, "BLOCK": block, "ROWS": 1, "SPLIT": 1, "num_warps": 4}


def starts(shape: Shape, dtype: str, gpu: Limits) -> tuple[Config, ...]:
    """Return short rows by the thousand keys; a long row over as many programs as the GPU has room for."""
    row, keys = max(16, power_of_two_at_least(shape["C"])), power_of_two_at_least(shape["K"])
    most = _sort_steps(shape, dtype) // keys
    if row <= 512:
        return ({**ABSENT, "BLOCK": row, "ROWS": min(32, max(1, min(1024, most) // row)), "SPLIT": 1, "num_warps": 4},)
    if keys > FEW:
        several = _room(shape, gpu, 4)
        return tuple(_counted(shape, split) for split in dict.fromkeys((several, max(1, several // 4), _room(shape, gpu, 8))))
    sorting: Config = {**ABSENT, "BLOCK": min(2048, row, most), "ROWS": 1, "SPLIT": min(16, _room(shape, gpu, 2)), "num_warps": 8}
    return (sorting, _counted(shape, _room(shape, gpu, 4)))


def _room(shape: Shape, gpu: Limits, programs: int) -> int:
    """Return a power of two of parts of a row, of two blocks at least, that make about so many programs a multiprocessor."""
    parts = shape["C"] // (2 * min(2048, power_of_two_at_least(shape["C"])))
    count = min(128, parts, programs * gpu.sms // shape["R"])
    return 1 << max(0, count.bit_length() - 1)


def _counted(shape: Shape, split: int) -> Config:
    """Return eight numbers a thread, `split` programs a row."""
    block = min(2048, power_of_two_at_least(shape["C"]))
    return {"KERNEL": "threshold", "BLOCK": block, "ROWS": 1, "SPLIT": split, "num_warps": max(2, block // 256)}


def k_problems(shape: Shape, dtype: str) -> dict[str, str]:
    """Return field → problem where a row is shorter than K."""
    return {"K": f"K may be at most C = {shape['C']}"} if shape["K"] > shape["C"] else {}


TOP_K = Operator(
    name="top_k", title="Largest values of rows (top-k)",
    dims=(ROWS, Dim("C", "columns", high=1 << 19), Dim("K", "how many of each row", high=MOST, exact=True)),
    dtypes=("bf16", "fp16", "fp32"),
    presets=({"R": 8192, "C": 256, "K": 8}, {"R": 4096, "C": 32000, "K": 8}, {"R": 64, "C": 128256, "K": 64}),
    space=space, default_config=default_config, starts=starts, together=k_problems,
    flops=lambda s: s["R"] * s["C"],                          # one comparison of each value at least
    bytes=lambda s, dtype: BYTES[dtype] * s["R"] * s["C"] + 8 * s["R"] * s["K"],
    kernel_module="tuner.tuning.kernels.top_k", absent=ABSENT,
    kernel_names=("top_k_rows", "top_k_parts", "top_k_candidates", "top_k_ranks"),
    tolerance={"bf16": 1e-6, "fp16": 1e-6, "fp32": 1e-6}, unit="B/s", library="PyTorch",
)

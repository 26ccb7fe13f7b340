"""The K largest values of each row and their columns: sampling over a vocabulary, experts of a router."""

from __future__ import annotations

from tuner.operators.limits import Limits
from tuner.operators.operator import BYTES, Dim, Operator, Shape, power_of_two_at_least
from tuner.operators.rowwise import ROWS, thread_limit
from tuner.operators.variants import Values, union_space, whole_number
from tuner.space import Constraint, Space
from tuner.trial import Config

KEYS_PER_THREAD = 32           # that are sorted in registers
KEYS_AT_ONCE = 2048            # more take a minute to compile: the sort is written out step by step
MOST = 64                      # of a row, for the same reason
PARTS_AT_ONCE = 1024


def space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """Return blocks of BLOCK columns of ROWS rows; SPLIT programs share a long row."""
    row, keys = max(16, power_of_two_at_least(shape["C"])), power_of_two_at_least(shape["K"])
    values: Values = {"BLOCK": (16, 32, 64, 128, 256, 512, 1024, 2048), "ROWS": (1, 2, 4, 8, 16, 32),
                      "SPLIT": (1, 2, 4, 8, 16, 32), "num_warps": (1, 2, 4, 8, 16)}

    def tile_fits(c: Config) -> bool:
        tile = whole_number(c, "BLOCK") * whole_number(c, "ROWS")
        return tile <= min(KEYS_AT_ONCE, KEYS_PER_THREAD * 32 * whole_number(c, "num_warps"))

    def block_fits(c: Config) -> bool:
        return max(16, keys) <= whole_number(c, "BLOCK") <= row

    def rows_of_short_ones(c: Config) -> bool:
        return c["ROWS"] == 1 or whole_number(c, "BLOCK") == row

    def splits_usefully(c: Config) -> bool:
        split = whole_number(c, "SPLIT")
        return split == 1 or (split * whole_number(c, "BLOCK") <= shape["C"] and split * keys <= PARTS_AT_ONCE
                              and split * shape["R"] <= 64 * gpu.sms)

    return union_space((values,), (
        thread_limit(gpu), Constraint("keys in registers", tile_fits),
        Constraint("block: K at least, and not beyond the row", block_fits),
        Constraint("several rows: only whole ones", rows_of_short_ones),
        Constraint("parts: fewer than blocks, and no more than programs wait for", splits_usefully),
        Constraint("more rows than there are", lambda c: whole_number(c, "ROWS") < 2 * shape["R"])))


def default_config(shape: Shape, dtype: str, gpu: Limits) -> Config:
    """Return a row a program, in blocks of 1,024 columns at most."""
    row = max(16, power_of_two_at_least(shape["C"]))
    return {"BLOCK": max(min(1024, row), power_of_two_at_least(shape["K"])), "ROWS": 1, "SPLIT": 1, "num_warps": 4}


def starts(shape: Shape, dtype: str, gpu: Limits) -> tuple[Config, ...]:
    """Return short rows by the thousand keys; a long row over as many programs as the GPU has room for."""
    row = max(16, power_of_two_at_least(shape["C"]))
    if row <= 512:
        return ({"BLOCK": row, "ROWS": min(32, max(1, 1024 // row)), "SPLIT": 1, "num_warps": 4},)
    split = min(16, power_of_two_at_least(max(1, 2 * gpu.sms // shape["R"])))
    return ({"BLOCK": min(2048, row), "ROWS": 1, "SPLIT": split, "num_warps": 8},)


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
    kernel_module="tuner.kernels.top_k", kernel_names=("top_k_rows", "top_k_parts"),
    tolerance={"bf16": 1e-6, "fp16": 1e-6, "fp32": 1e-6}, unit="B/s", library="PyTorch",
)

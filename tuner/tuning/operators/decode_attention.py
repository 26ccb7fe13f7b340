"""Decode attention: one new token per sequence against all before it; memory-bound."""

from __future__ import annotations

from tuner.tuning.operators.attention import VALUES_PER_THREAD, head_problems
from tuner.tuning.operators.limits import Limits
from tuner.tuning.operators.operator import BYTES, Dim, Operator, Shape, power_of_two_at_least
from tuner.tuning.operators.variants import thread_limit, union_space, whole_number
from tuner.tuning.space import Constraint, Space
from tuner.tuning.trial import Config

LEAST_ROWS = 16              # of a tensor-core tile: fewer heads per group are filled up
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
WAVES = 8                    # more programs than this many per multiprocessor: splitting further only adds merging


def space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """Return the space: BN keys at a time, SPLITS programs per group of heads, warps, stages."""
    rows = max(LEAST_ROWS, power_of_two_at_least(shape["H"] // shape["KV"]))
    head, size, groups = shape["D"], BYTES[dtype], shape["B"] * shape["KV"]

    def splits_usefully(c: Config) -> bool:
        splits = whole_number(c, "SPLITS")
        return splits == 1 or (groups * splits <= WAVES * gpu.sms and shape["N"] >= splits * whole_number(c, "BN"))

    def fits_registers(c: Config) -> bool:
        return rows * max(whole_number(c, "BN"), head) <= VALUES_PER_THREAD * 32 * whole_number(c, "num_warps")

    def fits_smem(c: Config) -> bool:
        loads = 2 * whole_number(c, "BN") * head * size * max(1, whole_number(c, "num_stages") - 1)
        return loads + rows * head * size <= gpu.smem_bytes

    return union_space(
        ({"BN": (16, 32, 64, 128, 256), "SPLITS": SPLITS, "num_warps": (1, 2, 4, 8),
          "num_stages": (1, 2, 3, 4, 5)},),
        (Constraint("splits: enough programs without, or fewer keys than they take", splits_usefully),
         Constraint("accumulator registers", fits_registers), Constraint("shared memory", fits_smem),
         thread_limit(gpu)))


def default_config(shape: Shape, dtype: str, gpu: Limits) -> Config:
    """Return the configuration without a split."""
    return {"BN": 32, "SPLITS": 1, "num_warps": 4, "num_stages": 2}


def starts(shape: Shape, dtype: str, gpu: Limits) -> tuple[Config, ...]:
    """Return flash decoding in whole waves: one, three and six programs per multiprocessor at most."""
    groups = shape["B"] * shape["KV"]
    once, three, six = (max((count for count in SPLITS if groups * count <= waves * gpu.sms), default=1) for waves in (1, 3, 6))
    tiles = ((three, 64, 4), (three, 32, 4), (once, 128, 8), (once, 64, 4), (six, 64, 4), (six, 32, 4))
    fit = dict.fromkeys(tile for tile in tiles if shape["N"] >= tile[0] * tile[1])
    return tuple({"BN": bn, "SPLITS": count, "num_warps": warps, "num_stages": 3} for count, bn, warps in fit)


DECODE_ATTENTION = Operator(
    name="decode_attention", title="Decode attention: one query token, split keys",
    dims=(Dim("B", "sequences", high=4096), Dim("H", "heads", high=1024),
          Dim("KV", "heads of keys and values, shared by H/KV heads of queries", high=1024, exact=True),
          Dim("N", "tokens in the cache", low=16, high=1 << 20), Dim("D", "head size", exact=True, only=(16, 32, 64, 128, 256))),
    dtypes=("bf16", "fp16"),
    presets=({"B": 16, "H": 32, "KV": 8, "N": 8192, "D": 128}, {"B": 1, "H": 32, "KV": 8, "N": 32768, "D": 128},
             {"B": 64, "H": 32, "KV": 32, "N": 2048, "D": 128}),
    space=space, default_config=default_config,
    flops=lambda s: 4 * s["B"] * s["H"] * s["N"] * s["D"],
    bytes=lambda s, dtype: 2 * BYTES[dtype] * s["B"] * s["D"] * (s["KV"] * s["N"] + s["H"]),
    kernel_module="tuner.tuning.kernels.decode.dense", kernel_names=("decode_attention", "flash_decode"),
    tolerance={"fp16": 5e-3, "bf16": 2e-2}, unit="B/s", starts=starts, together=head_problems,
)

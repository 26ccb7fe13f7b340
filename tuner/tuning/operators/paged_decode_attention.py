"""Decode attention with a paged cache: one new token per sequence, keys and values in pages; memory-bound."""

from __future__ import annotations

from tuner.tuning.operators.attention import head_problems
from tuner.tuning.operators.decode_attention import LEAST_ROWS
from tuner.tuning.operators.limits import Limits
from tuner.tuning.operators.operator import BYTES, Dim, Operator, Shape, power_of_two_at_least
from tuner.tuning.operators.variants import Only, Values, thread_limit, union_space, whole_number
from tuner.tuning.space import Constraint, Space
from tuner.tuning.trial import Config

TILES_PER_THREAD = 140       # of scores and output together; 144 spill (heads of 256, a warp alone)
INDEX_BYTES = 4              # of an entry of the block table, of a length
WAVES = 32                   # programs per multiprocessor at most that a split may make, those of short sequences included
PARTS = (1, 2, 4, 8, 16, 32, 64, 128)         # the kernel adds them up by powers of two
_BLOCKS: Values = {"KERNEL": ("blocks",), "BN": (16, 32, 64, 128), "SPLITS": Only(PARTS), "num_warps": (1, 2, 4, 8),
                   "num_stages": (2, 3, 4, 5, 6)}
_WARPS: Values = {**_BLOCKS, "KERNEL": ("warps",), "BN": (16, 32), "num_warps": (2, 4, 8)}


def lengths(shape: Shape) -> list[int]:
    """Return the tokens of each sequence that inputs are drawn with: ⌈N/B⌉, ⌈2N/B⌉ … N."""
    return [-(-shape["N"] * place // shape["B"]) for place in range(1, shape["B"] + 1)]


def smem_bytes(c: Config, rows: int, head: int, size: int) -> int:
    """Return shared memory of a block: keys and values of the stages ahead, the queries, and what warps meet in."""
    alone = c["KERNEL"] != "blocks"
    keys = whole_number(c, "BN") * (whole_number(c, "num_warps") if alone else 1)
    warps = whole_number(c, "num_warps") if alone else 1
    met = 4 * rows * head * warps                                               # float32, after the loop
    return max(2 * keys * head * size * (whole_number(c, "num_stages") - 1) + rows * (head * warps + 2 * keys) * size, met)


def space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """Return the space of two kernels: BN keys at a time, of each warp in `warps`; SPLITS programs for the longest sequence."""
    rows, head = max(LEAST_ROWS, power_of_two_at_least(shape["H"] // shape["KV"])), shape["D"]

    def splits_usefully(c: Config) -> bool:
        return whole_number(c, "SPLITS") <= _most_splits(shape, gpu, c)

    def fits_registers(c: Config) -> bool:
        sharing = whole_number(c, "num_warps") if c["KERNEL"] == "blocks" else 1
        return rows * (whole_number(c, "BN") + head) <= TILES_PER_THREAD * 32 * sharing

    return union_space((_BLOCKS, _WARPS), (
        Constraint("splits: enough programs without, or fewer keys than they take", splits_usefully),
        Constraint("accumulator registers", fits_registers),
        Constraint("shared memory", lambda c: smem_bytes(c, rows, head, BYTES[dtype]) <= gpu.smem_bytes),
        thread_limit(gpu)))


def _most_splits(shape: Shape, gpu: Limits, c: Config) -> int:
    """Return the largest useful SPLITS: each program has a step of keys, and no multiprocessor more than WAVES programs."""
    step = whole_number(c, "BN") * (whole_number(c, "num_warps") if c["KERNEL"] == "warps" else 1)
    return max(1, min(shape["N"] // step, WAVES * gpu.sms // (shape["B"] * shape["KV"])))


def _split(shape: Shape, gpu: Limits, c: Config, programs: int) -> Config:
    """Return the configuration with a power of two of SPLITS that make about so many programs a multiprocessor."""
    splits = -(-programs * gpu.sms * shape["N"] // (shape["KV"] * sum(lengths(shape))))
    most = min(PARTS[-1], _most_splits(shape, gpu, c))
    return {**c, "SPLITS": min(power_of_two_at_least(splits), 1 << (most.bit_length() - 1))}


def default_config(shape: Shape, dtype: str, gpu: Limits) -> Config:
    """Return small blocks of keys, split so that each multiprocessor has about two programs."""
    return _split(shape, gpu, {"KERNEL": "blocks", "BN": 32, "num_warps": 4, "num_stages": 2}, 2)


def starts(shape: Shape, dtype: str, gpu: Limits) -> tuple[Config, ...]:
    """Return flash decoding with one to eight programs a multiprocessor, warps together and alone."""
    together: Config = {"KERNEL": "blocks", "BN": 64, "num_warps": 4, "num_stages": 3}
    alone: Config = {"KERNEL": "warps", "BN": 16, "num_warps": 4, "num_stages": 3}
    single: Config = {"KERNEL": "blocks", "BN": 16, "num_warps": 1, "num_stages": 5}
    configs = [_split(shape, gpu, kernel, programs) for kernel, programs in (
        (together, 2), ({**single, "BN": 64, "num_stages": 3}, 4), (together, 4), (alone, 2), (single, 8),
        ({**alone, "num_warps": 8}, 1), (alone, 4))]
    return tuple(config for place, config in enumerate(configs) if config not in configs[:place])


def flops(shape: Shape) -> int:
    """Return FLOP of both products over the tokens that there are."""
    return 4 * shape["H"] * shape["D"] * sum(lengths(shape))


def bytes_moved(shape: Shape, dtype: str) -> int:
    """Return bytes: keys and values of the tokens that there are, queries, results, lengths, and the pages' places."""
    tokens = lengths(shape)
    places = sum(-(-length // shape["PAGE"]) for length in tokens) + shape["B"]
    return 2 * BYTES[dtype] * shape["D"] * (shape["KV"] * sum(tokens) + shape["B"] * shape["H"]) + INDEX_BYTES * places


PAGED_DECODE_ATTENTION = Operator(
    name="paged_decode_attention", title="Decode attention with a paged cache: one query token, sequences of different lengths",
    dims=(Dim("B", "sequences", high=4096), Dim("H", "heads", high=1024),
          Dim("KV", "heads of keys and values, shared by H/KV heads of queries", high=1024, exact=True),
          Dim("N", "tokens of the longest sequence", low=16, high=1 << 20), Dim("D", "head size", exact=True, only=(64, 128, 256)),
          Dim("PAGE", "tokens of a page", exact=True, only=(16, 32, 64, 128, 256))),
    dtypes=("bf16", "fp16"),
    presets=({"B": 64, "H": 32, "KV": 8, "N": 8192, "D": 128, "PAGE": 16},
             {"B": 4, "H": 32, "KV": 8, "N": 32768, "D": 128, "PAGE": 16},
             {"B": 256, "H": 64, "KV": 8, "N": 2048, "D": 64, "PAGE": 64}),
    space=space, default_config=default_config, flops=flops, bytes=bytes_moved,
    kernel_module="tuner.tuning.kernels.decode.paged",
    kernel_names=("paged_attn_blocks", "paged_attn_warps", "paged_attention", "unified_attention"),
    tolerance={"fp16": 5e-3, "bf16": 2e-2}, unit="B/s", starts=starts, together=head_problems,
    library="pages gathered by torch, then SDPA with a mask",
)

"""Attention forward in fp8 (e4m3) with a scale for each head, grouped queries; both products on fp8 tensor cores."""

from __future__ import annotations

from dataclasses import replace

from tuner.tuning.operators.attention import BARRIERS_BYTES, GQA_ATTENTION, SPECIALISED_ON, TILES_PER_THREAD, flops, head_problems
from tuner.tuning.operators.limits import Limits
from tuner.tuning.operators.matmul import FP8_CAPABILITY
from tuner.tuning.operators.operator import BYTES, Operator, Shape
from tuner.tuning.operators.variants import Only, Values, thread_limit, tma_limit, union_space, whole_number
from tuner.tuning.space import Constraint, Space
from tuner.tuning.trial import Config

SCALE_BYTES = 4
# ‖out − ref‖ / ‖ref‖. Rounding a weight to three bits changes it by 2⁻⁴ of itself at most, and by 2.65e-2 (rms) where mantissas are
# spread evenly in their logarithm: √(∫₁² m⁻³ dm / (3 ln 2)) / 16. Errors of weights are independent, so that is the part of the
# result that they change. Half as much again leaves room for the sums of the tensor cores, which keep 14 bits, and for bf16.
ERROR = 4e-2
# BN: a product of fp8 takes 32 keys at least, in an order that is written for these
_POINTERS: Values = {"KERNEL": ("two stages",), "BM": (32, 64, 128), "BN": Only((32, 64, 128)), "num_warps": (4, 8),
                     "num_stages": (2, 3, 4)}
_TMA: Values = {**_POINTERS, "KERNEL": ("tma",), "BM": (64, 128, 256), "BN": Only((64, 128, 256))}
_OVERLAPPED: Values = {**_POINTERS, "KERNEL": ("overlapped",), "BM": Only((128, 256)), "BN": Only((64, 128, 256)),
                       "num_warps": (4,), "num_stages": (2, 3, 4, 5)}


def smem_bytes(c: Config, head: int, from_registers: bool) -> int:
    """Return shared memory of a block: Q, K and V of every stage; O where its rows are turned before they are stored.

    `from_registers`: weights are not passed through shared memory.
    """
    rows, keys = whole_number(c, "BM"), whole_number(c, "BN")
    turned = BYTES["bf16"] * rows * head if c["KERNEL"] == "overlapped" else 0
    weights = 0 if from_registers else rows * keys
    return rows * head + 2 * whole_number(c, "num_stages") * keys * head + turned + weights + BARRIERS_BYTES


def space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """Return the space of three kernels: tiles BM × BN, warps, stages of the K and V loads."""
    head = shape["D"]

    def can_overlap(c: Config) -> bool:
        return c["KERNEL"] != "overlapped" or gpu.compute_capability in SPECIALISED_ON

    def fits_registers(c: Config) -> bool:
        """The score tile and the output tile each stay in registers; in `overlapped` weights of the block before, too."""
        if c["KERNEL"] == "overlapped":                     # two warp groups; a weight takes a quarter of a register
            return whole_number(c, "BM") * (5 * whole_number(c, "BN") + 4 * head) <= 4 * TILES_PER_THREAD * 256
        return whole_number(c, "BM") * (whole_number(c, "BN") + head) <= TILES_PER_THREAD * 32 * whole_number(c, "num_warps")

    return union_space((_POINTERS, _TMA, _OVERLAPPED), (
        Constraint("fp8 tensor cores: from compute capability 8.9", lambda c: gpu.capability >= FP8_CAPABILITY),
        tma_limit(gpu, "two stages"),
        Constraint("warp specialisation: Hopper only", can_overlap),
        Constraint("tile registers", fits_registers),
        Constraint("shared memory", lambda c: smem_bytes(c, head, gpu.warpgroup_mma) <= gpu.smem_bytes),
        thread_limit(gpu)))


def default_config(shape: Shape, dtype: str, gpu: Limits) -> Config:
    """Return a square tile that every GPU with fp8 tensor cores runs."""
    return {"KERNEL": "two stages", "BM": 64, "BN": 64, "num_warps": 4, "num_stages": 3}


def starts(shape: Shape, dtype: str, gpu: Limits) -> tuple[Config, ...]:
    """Return short tiles, several of which a multiprocessor holds, and the tiles of FlashAttention 3."""
    short: Config = {"KERNEL": "tma", "BM": 64, "BN": 128, "num_warps": 4, "num_stages": 3}
    wide: Config = {**short, "BM": 128, "num_warps": 8}
    overlapped: Config = {**short, "KERNEL": "overlapped", "BM": 128}
    pointers: Config = {**short, "KERNEL": "two stages", "BN": 64, "num_stages": 4}
    return (short, overlapped, {**short, "BN": 64}, {**overlapped, "BN": 64, "num_stages": 4}, wide, pointers)


def bytes_moved(shape: Shape, dtype: str) -> int:
    """Return bytes: Q, K and V in fp8 with a float32 scale for each head, O in bf16."""
    heads = shape["B"] * (shape["H"] + 2 * shape["KV"])
    tokens = BYTES[dtype] * heads + BYTES["bf16"] * shape["B"] * shape["H"]
    return tokens * shape["N"] * shape["D"] + SCALE_BYTES * heads


FP8_ATTENTION = Operator(
    name="fp8_attention", title="Attention forward in fp8, grouped queries",
    dims=tuple(replace(dim, only=(64, 128)) if dim.name == "D" else dim for dim in GQA_ATTENTION.dims),
    dtypes=("fp8",),
    presets=({"B": 2, "H": 32, "KV": 8, "N": 4096, "D": 128, "causal": 1},
             {"B": 4, "H": 16, "KV": 16, "N": 4096, "D": 128, "causal": 0},
             {"B": 4, "H": 32, "KV": 8, "N": 2048, "D": 64, "causal": 1}),
    space=space, default_config=default_config, flops=flops, bytes=bytes_moved, starts=starts, together=head_problems,
    fills_sm={"KERNEL": ("overlapped",)},
    kernel_module="tuner.tuning.kernels.fp8_attention", kernel_names=("fp8_attn_two_stage", "fp8_attn_tma", "fp8_attn_overlapped"),
    tolerance={"fp8": ERROR}, unit="FLOP/s", library="torch SDPA in bf16",
)

"""Attention forward: softmax(Q Kᵀ / √D) V for B·H heads of N tokens and head size D, online softmax in fp32.

With grouped queries H heads of queries share KV heads of keys and values.
"""

from __future__ import annotations

from tuner.tuning.operators.limits import Limits
from tuner.tuning.operators.matmul import warps_that_multiply
from tuner.tuning.operators.operator import BYTES, Dim, Operator, Shape
from tuner.tuning.operators.variants import Only, Values, thread_limit, tma_limit, union_space, whole_number
from tuner.tuning.space import Constraint, Space
from tuner.tuning.trial import Config, Value

VALUES_PER_THREAD = 256      # fp32 elements of one tile that one thread can hold
TILES_PER_THREAD = 160       # of scores and output together, where no recording says that it runs
OVERLAPPED_PER_THREAD = {8: 192, 12: 160}       # by the warps that compute: of 240 and 160 registers
OVERLAPPED_HEADS = (64, 128)
BARRIERS_BYTES = 1024
SPECIALISED_ON = ("9.0",)
ABSENT: dict[str, Value] = {"KERNEL": "one loop"}

_RECORDED: Values = {"BM": (16, 32, 64, 128, 256), "BN": (16, 32, 64, 128, 256), "num_warps": (2, 4, 8),
                     "num_stages": (1, 2, 3, 4), "KERNEL": ("one loop",)}
_WIDER: Values = {**_RECORDED, "BM": (32, 64, 128, 256), "BN": (32, 64, 128), "num_warps": (4, 8), "num_stages": (2, 3, 4)}
_KERNELS = (_RECORDED, {**_WIDER, "KERNEL": ("two stages",)}, {**_WIDER, "KERNEL": ("tma",), "BM": (64, 128, 256)},
            {**_WIDER, "KERNEL": ("specialised",), "BM": (128,), "num_warps": (4,), "num_stages": (2,)},
            # with more than two stages Triton 3.6 computes nonsense (seen on an H200)
            {**_WIDER, "KERNEL": ("overlapped",), "BM": Only((128, 192, 256)), "BN": Only((64, 128)),
             "num_warps": (4,)})
_SPECIALISED = ("specialised", "overlapped")        # one warp loads, warp groups compute


def smem_bytes(c: Config, head: int, size: int, keeps_last_stage: bool) -> int:
    """Return shared memory of a block: Q, K and V of every stage, O where TMA writes it."""
    query, step = whole_number(c, "BM") * head, 2 * whole_number(c, "BN") * head
    staged = query + (whole_number(c, "num_stages") - (0 if keeps_last_stage else 1)) * step
    extra = query if c["KERNEL"] in _SPECIALISED else 0
    return (staged + extra) * size + (BARRIERS_BYTES if c["KERNEL"] in ("tma", *_SPECIALISED) else 0)


def space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """Return the space of five kernels: tiles BM × BN, warps, stages of the K and V loads."""
    size, head = BYTES[dtype], shape["D"]
    groups = shape.get("KV", shape["H"]) != shape["H"]

    def knows_groups(c: Config) -> bool:
        return c["KERNEL"] != "one loop" or not groups

    def can_specialise(c: Config) -> bool:
        return c["KERNEL"] not in _SPECIALISED or gpu.compute_capability in SPECIALISED_ON

    def can_overlap(c: Config) -> bool:
        return c["KERNEL"] != "overlapped" or head in OVERLAPPED_HEADS

    def fits_registers(c: Config) -> bool:
        """The score tile and the output tile each stay in registers."""
        warps = warps_that_multiply(c) if c["KERNEL"] in _SPECIALISED else whole_number(c, "num_warps")
        threads = 32 * warps
        if c["KERNEL"] == "overlapped":         # scores twice, as weights of the block before too: 16 bits each
            return whole_number(c, "BM") * (2 * whole_number(c, "BN") + head) <= OVERLAPPED_PER_THREAD[warps] * threads
        if c["KERNEL"] == "one loop":
            return whole_number(c, "BM") * max(whole_number(c, "BN"), head) <= VALUES_PER_THREAD * threads
        return whole_number(c, "BM") * (whole_number(c, "BN") + head) <= TILES_PER_THREAD * threads

    def fits_smem(c: Config) -> bool:
        from_smem = gpu.warpgroup_mma and whole_number(c, "BM") >= 64 and whole_number(c, "num_warps") >= 4
        return smem_bytes(c, head, size, from_smem or c["KERNEL"] in ("tma", "specialised")) <= gpu.smem_bytes

    return union_space(_KERNELS, (
        Constraint("grouped queries: not in this kernel", knows_groups),
        tma_limit(gpu, "one loop", "two stages"), Constraint("warp specialisation: Hopper only", can_specialise),
        Constraint("overlapped: heads of 64 and 128", can_overlap), Constraint("accumulator registers", fits_registers),
        Constraint("shared memory", fits_smem), thread_limit(gpu)))


def default_config(shape: Shape, dtype: str, gpu: Limits) -> Config:
    """Return a square-ish tile that fits every GPU of the last five years."""
    kernel = "two stages" if shape.get("KV", shape["H"]) != shape["H"] else "one loop"
    return {"BM": 64, "BN": 32, "num_warps": 4, "num_stages": 2, "KERNEL": kernel}


def starts(shape: Shape, dtype: str, gpu: Limits) -> tuple[Config, ...]:
    """Return the tiles of FlashAttention 2 and 3 and of Triton's tutorial 06."""
    stages = 2 if shape["D"] >= 128 else 3
    wide: Config = {"BM": 128, "BN": 128, "num_warps": 8, "num_stages": stages, "KERNEL": "tma"}
    overlapped: Config = {**wide, "num_warps": 4, "num_stages": 2, "KERNEL": "overlapped"}
    three = ({**overlapped, "BM": 192},) if shape["D"] == 64 else ()
    return (overlapped, *three,
            {**wide, "num_warps": 4, "num_stages": 2, "KERNEL": "specialised"}, wide, {**wide, "BN": 64, "num_stages": 3},
            {**wide, "BM": 64, "BN": 64, "num_warps": 4, "num_stages": 3}, {**wide, "BN": 64, "KERNEL": "two stages"})


def flops(shape: Shape) -> int:
    """Return FLOP: two products of 2·N·N·D per head; a causal mask leaves half."""
    full = 4 * shape["B"] * shape["H"] * shape["N"] ** 2 * shape["D"]
    return full // 2 if shape["causal"] else full


def bytes_moved(shape: Shape, dtype: str) -> int:
    """Return bytes: Q and O of every head, K and V of every KV head."""
    heads = 2 * shape["H"] + 2 * shape.get("KV", shape["H"])
    return BYTES[dtype] * shape["B"] * heads * shape["N"] * shape["D"]


def head_problems(shape: Shape, dtype: str) -> dict[str, str]:
    """Return field → problem where H heads do not share KV heads evenly."""
    return {"KV": f"KV must divide H = {shape['H']}"} if shape["H"] % shape["KV"] else {}


_DIMS = (Dim("B", "batch", high=4096), Dim("H", "heads", high=1024), Dim("N", "tokens", low=16, high=1 << 17),
         Dim("D", "head size", exact=True, only=(16, 32, 64, 128, 256)),
         Dim("causal", "1: each token sees only earlier ones", low=0, exact=True, only=(0, 1)))

ATTENTION = Operator(
    name="attention", title="Attention forward",
    dims=_DIMS, dtypes=("fp16", "bf16"),
    presets=({"B": 4, "H": 32, "N": 2048, "D": 64, "causal": 1}, {"B": 4, "H": 32, "N": 2048, "D": 128, "causal": 1},
             {"B": 16, "H": 16, "N": 512, "D": 64, "causal": 0}),
    space=space, default_config=default_config, flops=flops, bytes=bytes_moved,
    kernel_module="tuner.tuning.kernels.attention", fills_sm={"KERNEL": _SPECIALISED},
    kernel_names=("attn_fwd", "attention", "_attn_fwd", "attn_two_stage", "attn_tma", "attn_specialised",
                  "attn_overlapped"),
    tolerance={"fp16": 5e-3, "bf16": 2e-2}, unit="FLOP/s", absent=ABSENT, starts=starts,
)

GQA_ATTENTION = Operator(
    name="gqa_attention", title="Attention forward, grouped queries",
    dims=(*_DIMS[:2], Dim("KV", "heads of keys and values, shared by H/KV heads of queries", high=1024, exact=True), *_DIMS[2:]),
    dtypes=("bf16", "fp16"),
    presets=({"B": 2, "H": 32, "KV": 8, "N": 4096, "D": 128, "causal": 1},
             {"B": 1, "H": 64, "KV": 8, "N": 8192, "D": 128, "causal": 1}),
    space=space, default_config=default_config, flops=flops, bytes=bytes_moved,
    fills_sm={"KERNEL": _SPECIALISED},
    kernel_module="tuner.tuning.kernels.attention", kernel_names=(),            # the same kernels: their names belong to attention
    tolerance={"fp16": 5e-3, "bf16": 2e-2}, unit="FLOP/s", absent=ABSENT, starts=starts, together=head_problems,
)

"""Attention forward: softmax(Q Kᵀ / √D) V for B·H heads of N tokens and head size D, online softmax in fp32."""

from __future__ import annotations

from tuner.operators.limits import Limits
from tuner.operators.operator import BYTES, Dim, Operator, Shape
from tuner.space import Constraint, Param, Space
from tuner.trial import Config

VALUES_PER_THREAD = 256      # fp32 tile elements one thread can hold


def space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """Tiles of BM queries × BN keys, warps and pipeline stages of the K and V loads."""
    size, head = BYTES[dtype], shape["D"]

    def of(config: Config, name: str) -> int:
        value = config[name]
        return value if isinstance(value, int) else 0

    def fits_registers(c: Config) -> bool:
        """The score tile and the output tile each stay in registers."""
        return of(c, "BM") * max(of(c, "BN"), head) <= VALUES_PER_THREAD * 32 * of(c, "num_warps")

    def fits_smem(c: Config) -> bool:
        query, step = of(c, "BM") * head, 2 * of(c, "BN") * head
        if gpu.warpgroup_mma and of(c, "BM") >= 64 and of(c, "num_warps") >= 4:
            need = query + of(c, "num_stages") * step                  # K and V of every stage stay in shared memory
        else:
            need = query + (of(c, "num_stages") - 1) * step
        return need * size <= gpu.smem_bytes

    def fits_threads(c: Config) -> bool:
        return 32 * of(c, "num_warps") <= gpu.threads

    return Space.enumerate(
        (Param("BM", (16, 32, 64, 128, 256)), Param("BN", (16, 32, 64, 128, 256)), Param("num_warps", (2, 4, 8)),
         Param("num_stages", (1, 2, 3, 4))),
        (Constraint("accumulator registers", fits_registers), Constraint("shared memory", fits_smem),
         Constraint("threads per block", fits_threads)))


def default_config(shape: Shape, dtype: str, gpu: Limits) -> Config:
    """A square-ish tile that fits every GPU of the last five years."""
    return {"BM": 64, "BN": 32, "num_warps": 4, "num_stages": 2}


def flops(shape: Shape) -> int:
    """Two matrix products of 2·N·N·D per head; a causal mask leaves half."""
    full = 4 * shape["B"] * shape["H"] * shape["N"] ** 2 * shape["D"]
    return full // 2 if shape["causal"] else full


ATTENTION = Operator(
    name="attention", title="Attention forward",
    dims=(Dim("B", "batch", high=4096), Dim("H", "heads", high=1024), Dim("N", "tokens", low=16, high=1 << 17),
          Dim("D", "head size", exact=True, only=(16, 32, 64, 128, 256)),
          Dim("causal", "1: each token sees only earlier ones", low=0, exact=True, only=(0, 1))),
    dtypes=("fp16", "bf16"),
    presets=({"B": 4, "H": 32, "N": 2048, "D": 64, "causal": 1}, {"B": 4, "H": 32, "N": 2048, "D": 128, "causal": 1},
             {"B": 16, "H": 16, "N": 512, "D": 64, "causal": 0}),
    space=space, default_config=default_config, flops=flops,
    bytes=lambda s, dtype: 4 * BYTES[dtype] * s["B"] * s["H"] * s["N"] * s["D"],
    kernel_module="tuner.kernels.attention", kernel_names=("attn_fwd", "attention", "_attn_fwd"),
    tolerance={"fp16": 5e-3, "bf16": 2e-2}, unit="FLOP/s",
)

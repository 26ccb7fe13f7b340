"""Which kernels one fused kernel could do: those that touch every element a few times and compute little.

By name, as nothing else in a trace says it. Pointwise kernels, casts, fills, reductions, norms and softmax are what compilers
fuse (TorchInductor: pointwise and reduction nodes; epilogues into Triton GEMMs). A product, convolution or attention can take
what follows into its epilogue, so it may stand first. Collectives, sorts, scans, gathers by index and kernels with names that
say nothing end a run.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache


class Part(IntEnum):
    """A kernel's part in a fusion."""

    OTHER = 0           # ends a run
    POINTWISE = 1       # one element in, one out: elementwise, cast, copy, fill, foreach
    REDUCTION = 2       # norm, softmax, sum, mean: reads rows
    PRODUCT = 3         # may stand first: what follows becomes its epilogue


_PRODUCT = re.compile(r"gemm|matmul|_mm_|nvjet|cutlass|cijk_|xmma|"
                      r"wgrad|dgrad|conv\d?d|implicit_con|winograd|flash|fmha|attention|attn|sdpa", re.I)
_REDUCTION = re.compile(r"softmax|layer_?norm|rms_?norm|group_?norm|batch_?norm|bn_(?:fw|bw)|"
                        r"reduce_kernel|triton_(?:red|per)_|welford|"
                        r"nll_loss|cunn_|gammabeta|grad_input_kernel|ln_(?:fwd|bwd)", re.I)
_POINTWISE = re.compile(r"elementwise|multi_tensor_apply|triton_poi_|pointwise|CatArray|copy_kernel|"
                        r"fill_?kernel|dropout|gelu|silu|relu|"
                        r"bias_(?:add|act)|add_kernel|mul_kernel|cast|adam|sgd|lerp|rotary|rope", re.I)
_NEVER = re.compile(r"nccl|rccl|sort|radix|scan|index(?:_|Select|ing)|gather|scatter|embedding|topk|nonzero|unique", re.I)


@lru_cache(maxsize=65_536)
def part_of(name: str) -> Part:
    if _NEVER.search(name):
        return Part.OTHER
    if _POINTWISE.search(name) and not _PRODUCT.search(name):
        return Part.POINTWISE
    if _REDUCTION.search(name):
        return Part.REDUCTION
    return Part.PRODUCT if _PRODUCT.search(name) else Part.POINTWISE if _POINTWISE.search(name) else Part.OTHER

"""Operators that can be tuned: space, default configuration and cost of each. No torch here.

A new one is one file here, one in tuner/tuning/kernels with the Triton code, inputs and reference, and one line in OPERATORS; a
vendor's own kernels are one record in `vendor`, one module in tuner/tuning/kernels/vendor that lists and launches them, and one
line in VENDORS.
"""

from __future__ import annotations

from tuner.tuning.offered import SOURCES, provide
from tuner.tuning.operators.all_reduce import ALL_REDUCE_RMSNORM
from tuner.tuning.operators.attention import ATTENTION, GQA_ATTENTION
from tuner.tuning.operators.convolution import CONV2D
from tuner.tuning.operators.cross_entropy import CROSS_ENTROPY
from tuner.tuning.operators.decode_attention import DECODE_ATTENTION
from tuner.tuning.operators.fp8_attention import FP8_ATTENTION
from tuner.tuning.operators.grouped_matmul import GROUPED_MATMUL
from tuner.tuning.operators.limits import Limits, limits
from tuner.tuning.operators.matmul import MATMUL, MATMUL_BIAS_ACT
from tuner.tuning.operators.operator import Dim, Operator, Shape
from tuner.tuning.operators.paged_decode_attention import PAGED_DECODE_ATTENTION
from tuner.tuning.operators.quantised_matmul import FP8_BLOCK_MATMUL, INT4_MATMUL
from tuner.tuning.operators.rowwise import ADD_RMSNORM, LAYERNORM, RMSNORM, SOFTMAX
from tuner.tuning.operators.streams import EMBEDDING, ROTARY, ROW_SUM, SILU_MUL, TRANSPOSE
from tuner.tuning.operators.top_k import TOP_K
from tuner.tuning.operators.vendor import CUBLASLT_MATMUL, CUTLASS_GEMM

OPERATORS: dict[str, Operator] = {op.name: op for op in (
    MATMUL, MATMUL_BIAS_ACT, GROUPED_MATMUL, INT4_MATMUL, FP8_BLOCK_MATMUL, CONV2D,
    SOFTMAX, LAYERNORM, RMSNORM, ADD_RMSNORM, ALL_REDUCE_RMSNORM, CROSS_ENTROPY, SILU_MUL, ROW_SUM, TOP_K, TRANSPOSE,
    EMBEDDING, ROTARY,
    ATTENTION, GQA_ATTENTION, FP8_ATTENTION, DECODE_ATTENTION, PAGED_DECODE_ATTENTION)}
VENDORS: dict[str, Operator] = {op.name: op for op in (CUBLASLT_MATMUL, CUTLASS_GEMM)}


def all_operators() -> dict[str, Operator]:
    """Return built-in operators, vendors' and those of enabled packages; built-in names win."""
    offered: dict[str, Operator] = {}
    for operators in SOURCES:
        offered |= operators()
    built_in = {**OPERATORS, **VENDORS}
    return {**built_in, **{name: operator for name, operator in offered.items() if name not in built_in}}


def find(name: str) -> Operator | None:
    """Return the operator of this name; None when nobody offers it."""
    return OPERATORS.get(name) or VENDORS.get(name) or all_operators().get(name)


__all__ = ["OPERATORS", "VENDORS", "Dim", "Limits", "Operator", "Shape", "all_operators", "find", "limits", "provide"]

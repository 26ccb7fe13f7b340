"""What is tuned. An operator says its space, its default configuration and what its work costs; no torch here.

A new one is one file here, one in tuner/kernels with the Triton code, inputs and reference, and one line in OPERATORS.
"""

from __future__ import annotations

from tuner.operators.attention import ATTENTION
from tuner.operators.limits import Limits, limits
from tuner.operators.matmul import MATMUL
from tuner.operators.operator import Dim, Operator, Shape
from tuner.operators.rowwise import LAYERNORM, SOFTMAX

OPERATORS: dict[str, Operator] = {op.name: op for op in (MATMUL, SOFTMAX, LAYERNORM, ATTENTION)}

__all__ = ["OPERATORS", "Dim", "Limits", "Operator", "Shape", "limits"]

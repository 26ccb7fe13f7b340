"""An operator's shape as a person types it, for a kernel whose trace tells none: the same rules, the same numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from profiles.analysis.trace.layer.rules import work_of_call
from profiles.analysis.trace.layer.work import Work
from profiles.base.refused import Refused

# What can be typed: name -> (operator whose rule counts it, the tensors in order, an example).
OPERATORS: dict[str, tuple[str, str, str]] = {
    "mm": ("aten::mm", "A [m, k], B [k, n]", "2048x4096, 4096x12288"),
    "addmm": ("aten::addmm", "bias [n], A [m, k], B [k, n]", "12288, 2048x4096, 4096x12288"),
    "bmm": ("aten::bmm", "A [batch, m, k], B [batch, k, n]", "32x2048x128, 32x128x2048"),
    "linear": ("aten::linear", "input […, k], weight [n, k]", "1x2048x4096, 12288x4096"),
    "attention": ("aten::scaled_dot_product_attention", "Q, K, V [batch, heads, tokens, head size]",
                  "1x32x2048x128, 1x8x2048x128, 1x8x2048x128"),
    "causal attention": ("aten::scaled_dot_product_attention", "Q, K, V [batch, heads, tokens, head size]",
                         "1x32x2048x128, 1x8x2048x128, 1x8x2048x128"),
    "rms norm": ("aten::_fused_rms_norm", "input […, columns]", "2048x4096"),
    "layer norm": ("aten::native_layer_norm", "input […, columns]", "2048x4096"),
    "softmax": ("aten::_softmax", "input […, columns]", "32x2048x2048"),
    "silu and mul": ("vllm::silu_and_mul", "result […, f], input […, 2f]", "2048x11008, 2048x22016"),
    "elementwise": ("aten::add", "every operand", "2048x4096, 2048x4096"),
    "unary": ("aten::relu", "input", "2048x4096"),
    "copy": ("aten::copy_", "target, source", "2048x4096, 2048x4096"),
    "sum": ("aten::sum", "input", "2048x4096"),
    "embedding": ("aten::embedding", "table [rows, columns], indices (counted in the type chosen)", "32000x4096, 2048"),
}
DTYPES = {"fp16": "c10::Half", "bf16": "c10::BFloat16", "fp32": "float", "fp64": "double", "fp8": "c10::Float8_e4m3fn",
          "int8": "signed char"}
MOST_TENSORS, MOST_CHARS, MOST_TYPED = 8, 200, 500
_SHAPE = re.compile(r"\d{1,12}(?:[x×]\d{1,12}){0,7}")


def typed_work(operator: str, dims: str, dtype: str) -> Work:
    """Return the work of one launch as typed. Raises Refused with the reason."""
    if operator not in OPERATORS:
        raise Refused(f"no operator {operator!r}; there are {', '.join(OPERATORS)}")
    if dtype not in DTYPES:
        raise Refused(f"no type {dtype!r}; there are {', '.join(DTYPES)}")
    shapes = shapes_typed(dims)
    name, what, example = OPERATORS[operator]
    concrete = [""] * len(shapes)
    if name.endswith("scaled_dot_product_attention"):
        concrete = ["", "", "", "", "", "True" if operator == "causal attention" else "False"]
    arguments: dict[str, Any] = {"Input Dims": shapes, "Input type": [DTYPES[dtype]] * len(shapes), "Concrete Inputs": concrete}
    work = work_of_call(name, arguments)
    if work is None or (work.flop is None and work.bytes is None):
        raise Refused(f"{operator} needs {what}, as {example}")
    return work


def shapes_typed(dims: str) -> list[list[int]]:
    """"2048x4096, 4096x12288" -> [[2048, 4096], [4096, 12288]]. Raises Refused."""
    parts = [part.strip().replace(" ", "") for part in dims[:MOST_CHARS].split(",") if part.strip()]
    if not parts or len(parts) > MOST_TENSORS or not all(_SHAPE.fullmatch(part) for part in parts):
        raise Refused("shapes are sizes with × or x between, tensors with commas: 2048x4096, 4096x12288")
    return [[int(size) for size in re.split("[x×]", part)] for part in parts]


def typed_works(typed: Mapping[str, Any]) -> dict[str, Work]:
    """Return the work of each kernel that somebody typed; what no longer means any is left out."""
    works = {}
    for kernel, said in list(typed.items())[:MOST_TYPED]:
        try:
            works[kernel] = typed_work(str(said["operator"]), str(said["dims"]), str(said["dtype"]))
        except (Refused, KeyError, TypeError):
            continue
    return works


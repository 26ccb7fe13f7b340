"""What the tuner could tune in place of a kernel: the operator by the kernel's name, the problem by the framework operator
around its launch (`record_shapes=True` of torch.profiler)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from profiles.analysis.core.names import operator_of

Dims = list[Any]
_TYPES = {"c10::BFloat16": "bf16", "BFloat16": "bf16", "c10::Half": "fp16", "Half": "fp16"}


@dataclass(frozen=True)
class Tunable:
    """`operator` "" where none is known by the name; `shape` empty where the trace does not tell it: `why` says why."""

    operator: str
    shape: dict[str, int] = field(default_factory=dict)
    dtype: str = ""
    source: str = ""            # the framework operator that the shape is of
    why: str = ""


def tunable(kernel: str, around: Sequence[tuple[str, dict[str, Any]]]) -> Tunable:
    """Return the operator and problem that the tuner could tune in place of a kernel.

    `around`: names and arguments of the operators around the launch, innermost first.
    """
    operator = operator_of(kernel)
    if not operator:
        return Tunable("", why=f"No operator of the tuner matches this kernel's name; it has {', '.join(_READERS)}.")
    shaped = False
    for name, arguments in around:
        dims, types = as_list(arguments.get("Input Dims")), as_list(arguments.get("Input type"))
        shaped |= bool(dims)
        reader = next((read for word, read in _READERS[operator] if word in name), None)
        shape = reader(dims, as_list(arguments.get("Concrete Inputs"))) if reader else None
        if shape and all(isinstance(value, int) and value >= 0 for value in shape.values()):
            dtype = next((_TYPES[kind] for kind in types if kind in _TYPES), "")
            why = "" if dtype else "The data type is not one that the tuner takes (fp16, bf16): choose one."
            return Tunable(operator, shape, dtype, name, why)
    if shaped:
        return Tunable(operator, why="The operators around the launch have no shape that this operator of the tuner takes.")
    return Tunable(operator, why="The trace holds no input shapes: record with record_shapes=True to have them filled in.")


def as_list(value: Any) -> list[Any]:
    """Return a list, also where the file holds it as a text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return []
    return value if isinstance(value, list) else []


def _of(dims: Dims, at: int, length: int) -> list[int] | None:
    sizes = dims[at] if at < len(dims) else None
    whole = isinstance(sizes, list) and len(sizes) >= length and all(isinstance(each, int) and each > 0 for each in sizes)
    return sizes if whole else None


def _product(first: int) -> Callable[[Dims, Dims], dict[str, int] | None]:
    """A [M, K] at `first`, B [K, N] behind it."""
    def read(dims: Dims, _: Dims) -> dict[str, int] | None:
        a, b = _of(dims, first, 2), _of(dims, first + 1, 2)
        return {"M": a[0], "N": b[1], "K": a[1]} if a and b and len(a) == len(b) == 2 and a[1] == b[0] else None
    return read


def _linear(dims: Dims, _: Dims) -> dict[str, int] | None:
    """Input […, K], weight [N, K]."""
    a, weight = _of(dims, 0, 1), _of(dims, 1, 2)
    return {"M": prod(a[:-1]), "N": weight[0], "K": a[-1]} if a and weight and a[-1] == weight[-1] else None


def _rows(dims: Dims, _: Dims) -> dict[str, int] | None:
    rows = _of(dims, 0, 1)
    return {"R": prod(rows[:-1]), "C": rows[-1]} if rows else None


def _layernorm(dims: Dims, concrete: Dims) -> dict[str, int] | None:
    """The normalised dimensions stand in the second argument."""
    rows, normal = _of(dims, 0, 1), as_list(concrete[1]) if len(concrete) > 1 else []
    if not rows:
        return None
    inner = len(normal) or 1
    return {"R": prod(rows[:-inner]), "C": prod(rows[-inner:])}


def _attention(causal_at: int, heads_second: bool) -> Callable[[Dims, Dims], dict[str, int] | None]:
    """Query [B, H, N, D], or [B, N, H, D]."""
    def read(dims: Dims, concrete: Dims) -> dict[str, int] | None:
        query = _of(dims, 0, 4)
        if not query or len(query) != 4:
            return None
        batch, heads, tokens, size = query if heads_second else (query[0], query[2], query[1], query[3])
        causal = concrete[causal_at] if causal_at < len(concrete) else ""
        return {"B": batch, "H": heads, "N": tokens, "D": size, "causal": int(str(causal).lower() in ("true", "1"))}
    return read


_READERS: dict[str, tuple[tuple[str, Callable[[Dims, Dims], dict[str, int] | None]], ...]] = {
    "matmul": (("aten::addmm", _product(1)), ("aten::_addmm_activation", _product(1)), ("aten::mm", _product(0)),
               ("aten::matmul", _product(0)), ("aten::linear", _linear)),
    "softmax": (("softmax", _rows),),
    "layernorm": (("layer_norm", _layernorm),),
    "rmsnorm": (("rms_norm", _rows),),                     # aten::_fused_rms_norm; vLLM's writes into its first argument
    "add_rmsnorm": (("add_rms_norm", _rows),),
    "silu_mul": (("silu_and_mul", _rows),),                # its first argument is the result
    "attention": (("_scaled_dot_product_flash", _attention(4, True)), ("_scaled_dot_product_cudnn", _attention(6, True)),
                  ("_scaled_dot_product_efficient", _attention(6, True)), ("scaled_dot_product_attention", _attention(5, True)),
                  ("_flash_attention_forward", _attention(8, False))),
}

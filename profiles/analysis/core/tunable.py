"""What the tuner could tune in place of a kernel: the operator by the kernel's name, the problem by the framework operator
around its launch (`record_shapes=True` of torch.profiler). Where operation, type or shape do not fit there is no operator: a job
of another type would answer another question."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from profiles.analysis.core.identity import identity
from profiles.ingest.naming.names import operator_of

Dims = list[Any]
Reader = Callable[[Dims, Dims], dict[str, int] | None]
# operator -> operation as kernels' identities say it
TUNED_OPS = {"matmul": "matmul", "softmax": "softmax", "layernorm": "norm", "rmsnorm": "norm", "add_rmsnorm": "norm",
             "silu_mul": "elementwise", "attention": "attention", "cross_entropy": "", "rotary": "elementwise",
             "embedding": "embedding", "top_k": "sort", "conv2d": "convolution", "int4_matmul": "matmul",
             "fp8_block_matmul": "matmul"}
_OTHER_TYPES = {"matmul": ("bf16", "fp16", "fp8"), "fp8_block_matmul": ("fp8",),
                **dict.fromkeys(("cross_entropy", "embedding", "top_k"), ("bf16", "fp16", "fp32"))}
TYPES = {name: _OTHER_TYPES.get(name, ("bf16", "fp16")) for name in TUNED_OPS}      # that each takes
_TYPES = {"c10::BFloat16": "bf16", "BFloat16": "bf16", "c10::Half": "fp16", "Half": "fp16", "float": "fp32", "double": "fp64",
          "c10::Float8_e4m3fn": "fp8"}


# the tuner's operators compute forward passes; a product of a backward pass is one like any other
_BACKWARD = re.compile(r"backward|bwd|bprop|grad(?![a-z])|fmha_cutlassB", re.IGNORECASE)


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

    `around`: names and arguments of the operators around the launch, innermost first. What they say of the type goes before the
    kernel's name.
    """
    operator = operator_of(kernel)
    if not operator:
        return Tunable("", why=f"No operator of the tuner matches this kernel's name; it has {', '.join(_READERS)}.")
    named = identity(kernel)
    if named.op not in ("", TUNED_OPS[operator]):              # a convolution's name may say gemm
        return Tunable("", why=f"Its name says {named.op}; the tuner's {operator} is another operation.")
    if _BACKWARD.search(kernel):
        return _backward(operator)
    shaped = False
    for name, arguments in around:
        dims, types = as_list(arguments.get("Input Dims")), as_list(arguments.get("Input type"))
        shaped |= bool(dims)
        reader, tensors = next(((reader, tensors) for word, reader, tensors in _READERS[operator] if word in name), (None, ()))
        if reader and _BACKWARD.search(name):
            return _backward(operator)
        shape = reader(dims, as_list(arguments.get("Concrete Inputs"))) if reader else None
        if shape and all(isinstance(value, int) and value >= 0 for value in shape.values()):
            told = {_TYPES.get(types[at], str(types[at])) for at in tensors if at < len(types) and types[at]}
            wrong = sorted(told - set(TYPES[operator])) or (sorted(told) if len(told) > 1 else [])
            if wrong:
                return _other_type(operator, " and ".join(wrong))
            dtype = next(iter(told), "") or named.dtype
            if dtype and dtype not in TYPES[operator]:
                return _other_type(operator, dtype)
            why = "" if dtype else f"The trace does not tell the data type ({', '.join(TYPES[operator])} can be tuned)."
            return Tunable(operator, shape, dtype, name, why)
    if named.dtype and named.dtype not in TYPES[operator]:
        return _other_type(operator, named.dtype)
    if shaped:
        return Tunable(operator, why="The operators around the launch have no shape that this operator of the tuner takes.")
    return Tunable(operator, why="The trace holds no input shapes: record with record_shapes=True to have them filled in.")


def _backward(operator: str) -> Tunable:
    return Tunable("", why=f"It computes a backward pass; the tuner's {operator} is the forward one.")


def _other_type(operator: str, dtype: str) -> Tunable:
    return Tunable("", why=f"It computes in {dtype}; the tuner's {operator} takes {', '.join(TYPES[operator])}.")


def tuned_operator(kernel: str) -> str:
    """Return the operator whose operation and types a kernel's name does not speak against; "" where none is."""
    return tunable(kernel, ()).operator


def is_problem(query: Mapping[str, Any]) -> bool:
    """Tell whether fields of a tune job state operator, type and shape: only then is a job offered."""
    operator, sizes = query.get("operator"), [value for name, value in query.items() if name not in ("operator", "dtype")]
    return operator in TUNED_OPS and query.get("dtype") in TYPES[operator] and bool(sizes) and all(
        isinstance(value, int) for value in sizes)


def as_list(value: Any) -> list[Any]:
    """Return a list, also where the file holds it as a text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return []
    return value if isinstance(value, list) else []


def _of(dims: Dims, index: int, length: int) -> list[int] | None:
    sizes = dims[index] if index < len(dims) else None
    whole = isinstance(sizes, list) and len(sizes) >= length and all(isinstance(size, int) and size > 0 for size in sizes)
    return sizes if whole else None


def _product(first: int) -> Reader:
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


def _attention(causal_at: int, heads_second: bool) -> Reader:
    """Query [B, H, N, D], or [B, N, H, D]."""
    def read(dims: Dims, concrete: Dims) -> dict[str, int] | None:
        query = _of(dims, 0, 4)
        if not query or len(query) != 4:
            return None
        batch, heads, tokens, size = query if heads_second else (query[0], query[2], query[1], query[3])
        causal = concrete[causal_at] if causal_at < len(concrete) else ""
        return {"B": batch, "H": heads, "N": tokens, "D": size, "causal": int(str(causal).lower() in ("true", "1"))}
    return read


def _embedding(dims: Dims, _: Dims) -> dict[str, int] | None:
    """Table [V, C], ids of any shape."""
    table, ids = _of(dims, 0, 2), _of(dims, 1, 1)
    return {"T": prod(ids), "V": table[0], "C": table[1]} if table and ids and len(table) == 2 else None


def _rotary(dims: Dims, concrete: Dims) -> dict[str, int] | None:
    """vLLM's (positions, query [T, H·D], key, D, …)."""
    query, size = _of(dims, 1, 2), _number(concrete, 3)
    if not query or not size or len(query) != 2 or query[1] % size:
        return None
    return {"T": query[0], "H": query[1] // size, "D": size}


def _top_k(dims: Dims, concrete: Dims) -> dict[str, int] | None:
    """(X, K, dimension, largest, sorted): the largest of the last dimension."""
    rows, k = _of(dims, 0, 1), _number(concrete, 1)
    last = rows and (len(concrete) < 3 or str(concrete[2]) in ("", "-1", str(len(rows) - 1)))
    if not rows or not k or not last or (len(concrete) > 3 and str(concrete[3]).lower() in ("false", "0")):
        return None
    return {"R": prod(rows[:-1]), "C": rows[-1], "K": k}


def _convolution(stride_at: int, padding_at: int, dilation_at: int, groups_at: int) -> Reader:
    """Image [B, C, H, W], filters [F, C, side, side]: square ones that touch each channel, and each pixel beside the next."""
    def read(dims: Dims, concrete: Dims) -> dict[str, int] | None:
        image, filters = _of(dims, 0, 4), _of(dims, 1, 4)
        if not image or not filters or len(image) != 4 or len(filters) != 4 or filters[2] != filters[3] or image[1] != filters[1]:
            return None
        stride, padding, dilation = (_same(concrete, position) for position in (stride_at, padding_at, dilation_at))
        if stride is None or padding is None or dilation != 1 or _number(concrete, groups_at) != 1:
            return None
        batch, channels, height, width = image
        return {"B": batch, "H": height, "W": width, "C": channels, "F": filters[0], "KS": filters[2], "S": stride, "P": padding}
    return read


def _number(concrete: Dims, index: int) -> int | None:
    text = str(concrete[index]) if index < len(concrete) else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _same(concrete: Dims, index: int) -> int | None:
    """The number that each direction has: "[1, 1]" is 1."""
    numbers = as_list(concrete[index]) if index < len(concrete) else []
    first = numbers[0] if numbers else None
    return first if isinstance(first, int) and not isinstance(first, bool) and all(number == first for number in numbers) else None


# operator -> (part of the framework operator's name, reader of its shape, arguments whose type the kernel computes in)
_READERS: dict[str, tuple[tuple[str, Reader, tuple[int, ...]], ...]] = {
    "matmul": (("aten::addmm", _product(1), (1, 2)), ("aten::_addmm_activation", _product(1), (1, 2)),
               ("aten::mm", _product(0), (0, 1)), ("aten::matmul", _product(0), (0, 1)), ("aten::linear", _linear, (0, 1))),
    "softmax": (("softmax", _rows, (0,)),),
    "layernorm": (("layer_norm", _layernorm, (0,)),),
    "rmsnorm": (("rms_norm", _rows, (0,)),),                     # aten::_fused_rms_norm; vLLM's writes into its first argument
    "add_rmsnorm": (("add_rms_norm", _rows, (0,)),),
    "silu_mul": (("silu_and_mul", _rows, (0,)),),                # its first argument is the result
    "attention": (("_scaled_dot_product_flash", _attention(4, True), (0,)),
                  ("_scaled_dot_product_cudnn", _attention(6, True), (0,)),
                  ("_scaled_dot_product_efficient", _attention(6, True), (0,)),
                  ("scaled_dot_product_attention", _attention(5, True), (0,)),
                  ("_flash_attention_forward", _attention(8, False), (0,))),
    "cross_entropy": (("cross_entropy_loss", _rows, (0,)),),
    "rotary": (("rotary_embedding", _rotary, (1,)),),
    "embedding": (("aten::embedding", _embedding, (0,)),),
    "top_k": (("aten::topk", _top_k, (0,)),),
    "conv2d": (("aten::cudnn_convolution", _convolution(3, 2, 4, 5), (0, 1)),
               ("aten::_convolution", _convolution(3, 4, 5, 8), (0, 1)), ("aten::convolution", _convolution(3, 4, 5, 8), (0, 1))),
    "int4_matmul": (), "fp8_block_matmul": (),                   # no two engines call them alike
}

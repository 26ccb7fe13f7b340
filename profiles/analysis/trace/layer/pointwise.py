"""Elementwise operators: a result for each element of operands that are broadcast together.

One operation for each function of an element, whatever the hardware needs for it (as DeepSpeed's flops profiler counts), more
where the operator is made of several (`addcmul`: 3). Bytes: each operand once (expanded ones as they lie in memory), the result
once; in place the first operand is read and written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod

from profiles.analysis.trace.layer.work import Call, Tensor, Work, broadcast, sum_bytes, times_text
from profiles.analysis.trace.operators.matmuls import BYTES

# Kernels that Inductor made (Triton): what their recorded arguments say of bytes; operations stay unknown.

# Pointwise, reduction and persistent reduction kernels read and write their arguments whole; what looks up, slices, pads or
# concatenates touches parts of them, and a template (`triton_tem_`) is a product whose sizes are not among its arguments.
_WHOLE = re.compile(r"triton_(?:poi|red|per)_fused_")
_PARTS = re.compile(r"embedding|index|gather|scatter|slice|select|cat(?:_|$)|pad|split|unfold|roll|view_as|convolution|pool"
                    r"|upsample")
MOST_NAME = 400


def fused(call: Call) -> Work | None:
    """Return the least bytes of one generated kernel: each tensor among its arguments once.

    One that is updated in place is read and written; which are is not recorded. None where the name says that it touches parts.
    """
    name = call.name[:MOST_NAME]
    tensors = call.tensors()
    if not _WHOLE.match(name) or _PARTS.search(name) or len(tensors) < 2:
        return None
    largest = max(tensors, key=lambda each: each.elements)
    return Work("fused", None, sum_bytes(tensors), largest.dtype, times_text(largest.shape),
                note="every argument once; operations are not recorded")


# What moves data and computes nothing: embeddings, gathers, scatters, concatenations, caches.


def embedding(call: Call) -> Work | None:
    """Return the work of a look-up: indices read, a row written for each; of rows read no more than the table has."""
    table, indices = call.tensor(0), call.tensor(1)
    if table is None or indices is None or len(table.shape) != 2 or table.size is None:
        return None
    row = table.shape[1] * table.size
    moved = sum_bytes((indices, row * min(table.shape[0], indices.elements), row * indices.elements))
    return Work("movement", 0, moved, table.dtype, f"{indices.elements} of {times_text(table.shape)}",
                note="indices that repeat are read once at best")


def embedding_backward(call: Call) -> Work | None:
    """Return the work of `embedding_dense_backward`: gradient and indices read, a whole table written."""
    gradient, indices, rows = call.tensor(0), call.tensor(1), call.whole(2)
    if gradient is None or indices is None or not gradient.shape or gradient.size is None or not rows or not 0 < rows < 1 << 40:
        return None
    table = rows * gradient.shape[-1] * gradient.size
    return Work("movement", gradient.elements, sum_bytes((gradient, indices, table)), gradient.dtype,
                f"{times_text(gradient.shape)} into {rows} rows")


def gather(call: Call) -> Work | None:
    """Return the work of `gather`: an element read and written for each index."""
    source, index = call.tensor(0), call.tensor(2)
    if source is None or index is None or source.size is None:
        return None
    least = min(source.elements, index.elements)
    return Work("movement", 0, sum_bytes((index, source.size * least, source.size * index.elements)), source.dtype,
                times_text(index.shape))


def index_select(call: Call) -> Work | None:
    source, dim, index = call.tensor(0), call.whole(1), call.tensor(2)
    if source is None or index is None or dim is None or source.size is None or not -len(source.shape) <= dim < len(source.shape):
        return None
    along = source.shape[dim]
    if not along:
        return None
    slab = source.elements // along * source.size
    return Work("movement", 0, sum_bytes((index, slab * min(along, index.elements), slab * index.elements)), source.dtype,
                f"{index.elements} of {times_text(source.shape)}")


def scatter(source_at: int, operations: int) -> Callable[[Call], Work | None]:
    """Return a rule: index and source read, as many elements written where indices say; adding reads them too."""
    def rule(call: Call) -> Work | None:
        index, source = call.tensor(2), call.tensor(source_at)
        if index is None or source is None:
            return None
        moved = sum_bytes((index, source, source, *([source] if operations else [])))
        return Work("movement", operations * source.elements, moved, source.dtype, times_text(source.shape),
                    note="indices that repeat are written once at best" if operations else "")
    return rule


def concatenation(call: Call) -> Work | None:
    """Return the work of `cat` and `stack`: every element read and written once."""
    tensors = call.tensor_list(0)
    if not tensors:
        return None
    elements = sum(tensor.elements for tensor in tensors)
    shown = " + ".join(times_text(tensor.shape) for tensor in tensors[:3]) + (" + …" if len(tensors) > 3 else "")
    return Work("movement", 0, None, "", f"{shown}, {elements} elements", elements=2 * elements)


def cache_write(first: int) -> Callable[[Call], Work | None]:
    """Return a rule: keys (at `first`) and values (behind) read and written into a cache (vLLM `reshape_and_cache_flash`)."""
    def rule(call: Call) -> Work | None:
        keys, values = call.tensor(first), call.tensor(first + 1)
        if keys is None or values is None:
            return None
        return Work("movement", 0, sum_bytes((keys, keys, values, values)), keys.dtype, f"2 × {times_text(keys.shape)}",
                    note="a cache of a narrower type takes less")
    return rule


# operator -> operations for each element of the result
OPERATIONS: dict[str, int] = {
    **dict.fromkeys((
        "add", "sub", "rsub", "mul", "div", "true_divide", "floor_divide", "remainder", "fmod", "pow", "maximum", "minimum",
        "neg", "abs", "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan",
        "tanh", "sigmoid", "relu", "relu6", "clamp", "clamp_min", "clamp_max", "erf", "floor", "ceil", "round", "trunc",
        "sign", "square", "leaky_relu", "hardtanh", "softplus", "elu", "silu", "gelu", "mish", "hardswish", "hardsigmoid",
        "threshold", "bernoulli", "dropout", "threshold_backward", "atan2", "logical_and", "logical_or", "logical_xor",
        "logical_not", "bitwise_and", "bitwise_or", "bitwise_not", "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf",
        "isfinite", "where", "masked_fill", "tril", "triu"), 1),
    **dict.fromkeys(("lerp", "sigmoid_backward", "tanh_backward", "addcmul", "addcdiv"), 3), "native_dropout": 2,
    "native_dropout_backward": 2, "mse_loss": 2, "mse_loss_backward": 3, "silu_backward": 6, "gelu_backward": 10, "glu": 2,
}
_BOOLEAN = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "logical_and", "logical_or", "logical_xor",
                      "logical_not"))
_RANKS = ("bool", "int8", "int16", "int32", "int64", "fp8", "fp16", "bf16", "fp32", "fp64", "complex64", "complex128")
GATED = 5                           # SiLU(a)·b: negate, exp, add, divide, multiply (tuner.tuning.operators.streams)


def pointwise(call: Call) -> Work | None:
    """Return the work of an operator of OPERATIONS."""
    operands = call.tensors()
    shape = broadcast(*(operand.shape for operand in operands)) if operands else None
    if shape is None:
        return None
    dtype = _promoted(operands)
    result = prod(shape)
    if call.is_inplace:
        written: int | None = operands[0].bytes
    else:
        size = 1 if call.base in _BOOLEAN else BYTES.get(dtype)
        written = None if size is None else size * result
    if call.base == "native_dropout":
        written = sum_bytes((written, result))                      # the mask
    return Work("elementwise", OPERATIONS[call.base] * result, sum_bytes((*operands, written)), dtype,
                " and ".join(dict.fromkeys(times_text(operand.shape) for operand in operands if operand.shape)) or "1")


def _promoted(operands: list[Tensor]) -> str:
    """Return the type of the result: the highest of the operands with dimensions, else of all (PyTorch, "Type promotion").

    fp16 with bf16 gives fp32.
    """
    kinds = {operand.dtype for operand in operands if operand.shape} or {operand.dtype for operand in operands}
    if {"fp16", "bf16"} <= kinds:
        return "fp32"
    dtypes = [kind for kind in _RANKS if kind in kinds]
    return dtypes[-1] if dtypes and len(dtypes) == len(kinds) else ""


def unary_gated(call: Call) -> Work | None:
    """Return the work of SiLU(a)·b of rows [a, b] into a result of half their length (vLLM, SGLang `silu_and_mul`).

    Its two tensors come in either order.
    """
    tensors = call.tensors()[:2]
    if len(tensors) != 2:
        if not tensors or tensors[0].size is None:
            return None
        rows = tensors[0]           # it returns the result
        return Work("elementwise", GATED * rows.elements // 2, sum_bytes((rows, rows.elements // 2 * (rows.size or 0))), rows.dtype,
                    times_text(rows.shape))
    out, rows = sorted(tensors, key=lambda each: each.elements)
    if 2 * out.elements != rows.elements:
        return None
    return Work("elementwise", GATED * out.elements, sum_bytes((out, rows)), rows.dtype, times_text(rows.shape))


def copied(call: Call) -> Work | None:
    """Return the work of `copy_`: the source read, the target written; a change of type is no operation."""
    target, source = call.tensor(0), call.tensor(1)
    if target is None or source is None or broadcast(target.shape, source.shape) is None:
        return None
    dtype = source.dtype if source.dtype == target.dtype else f"{source.dtype} to {target.dtype}"
    return Work("movement", 0, sum_bytes((target, source)), dtype, times_text(target.shape))


def filled(call: Call) -> Work | None:
    """Return the work of what only writes its first argument: fill, zero, random numbers."""
    target = call.tensor(0)
    return None if target is None else Work("movement", 0, target.bytes, target.dtype, times_text(target.shape))

"""Norms, softmax, reductions and rotary embedding: what reads rows and computes some operations for each element.

Operations per element are those of `tuner.tuning.operators` (rowwise, norms, streams), counted one each: layer norm 8 (mean,
centre, square, sum, scale, weight, bias, as there), RMS norm 4, with a residual 5, softmax 5 (max, subtract, exp, sum, divide),
SiLU·mul 5. A backward pass counts twice the forward (the convention of DeepSpeed's flops profiler). All are far left of every
ridge: their class and share rest on bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from profiles.analysis.trace.layer.work import Call, Tensor, Work, sum_bytes, times_text

LAYER_NORM, RMS_NORM, ADD_RMS_NORM, BATCH_NORM, SOFTMAX = 8, 4, 5, 8, 5
_FP32_BYTES = 4


def _rows_text(tensor: Tensor) -> str:
    """[16, 559, 1024] -> "8944 × 1024"."""
    return f"{prod(tensor.shape[:-1])} × {tensor.shape[-1]}" if tensor.shape else "1"


def norm(per_element: int, at: int = 0, *, weights: tuple[int, ...] = (), streams: int = 2) -> Callable[[Call], Work | None]:
    """Return a rule: X stands at `at`; it and what is as large move `streams` times, each of `weights` once."""
    def rule(call: Call) -> Work | None:
        x = call.tensor(at)
        if x is None or not x.shape:
            return None
        extra = [tensor for position in weights if (tensor := call.tensor(position)) is not None]
        moved = None if x.size is None else sum_bytes((streams * x.size * x.elements, *extra))
        return Work("norm", per_element * x.elements, moved, x.dtype, _rows_text(x))
    return rule


def norm_backward(per_element: int, weight: int = 5) -> Callable[[Call], Work | None]:
    """Return a rule: gradient and X read, the gradient of X written, weights read and their gradient written."""
    def rule(call: Call) -> Work | None:
        out, x, scale = call.tensor(0), call.tensor(1), call.tensor(weight)
        if out is None or x is None or not x.shape:
            return None
        moved = sum_bytes((out, x, x, *([scale, scale] if scale is not None else [])))
        return Work("norm", 2 * per_element * x.elements, moved, x.dtype, _rows_text(x))
    return rule


def batch_norm(call: Call) -> Work | None:
    """Return the work of a batch norm: X read, Y written; 8 operations per element while training, else scale and shift."""
    x = call.tensor(0)
    if x is None or len(x.shape) < 2:
        return None
    training = call.flag(5)
    moved = sum_bytes((x, x, *(tensor for position in (1, 2, 3, 4) if (tensor := call.tensor(position)) is not None)))
    return Work("norm", (2 if training is False else BATCH_NORM) * x.elements, moved, x.dtype, times_text(x.shape))


def batch_norm_backward(gradient: int, at: int) -> Callable[[Call], Work | None]:
    def rule(call: Call) -> Work | None:
        out, x = call.tensor(gradient), call.tensor(at)
        if out is None or x is None:
            return None
        return Work("norm", 2 * BATCH_NORM * x.elements, sum_bytes((out, x, x)), x.dtype, times_text(x.shape))
    return rule


def softmax(call: Call) -> Work | None:
    x = call.tensor(0)
    if x is None or x.size is None or not x.shape:
        return None
    out = (_FP32_BYTES if call.flag(2) else x.size) * x.elements
    return Work("softmax", SOFTMAX * x.elements, sum_bytes((x, out)), x.dtype, _rows_text(x))


def softmax_backward(call: Call) -> Work | None:
    """Gradient and result read, the gradient of the input written; multiply, sum, subtract, multiply."""
    gradient, result = call.tensor(0), call.tensor(1)
    if gradient is None or result is None:
        return None
    return Work("softmax", 4 * result.elements, sum_bytes((gradient, result, gradient)), result.dtype, _rows_text(result))


def reduction(call: Call) -> Work | None:
    """Return the work of a sum, mean, maximum or norm: one operation per element, the input read, the result written.

    The result's size follows from the dimensions asked for; where they are not recorded, it counts nothing.
    """
    x = call.tensor(0)
    if x is None or x.bytes is None:
        return None
    axes = call.values(1) or ([call.whole(1)] if call.whole(1) is not None else [])
    rank = len(x.shape)
    dims = {axis % rank for axis in axes if type(axis) is int and -rank <= axis < rank} if rank else set()
    left = prod(size for axis, size in enumerate(x.shape) if axis not in dims) if dims else 1
    return Work("reduction", x.elements, x.bytes + left * (x.size or 0), x.dtype,
                times_text(x.shape) + (f" over {', '.join(str(axis) for axis in sorted(dims))}" if dims else ""))


def scan(call: Call) -> Work | None:
    x = call.tensor(0)
    return None if x is None else Work("reduction", x.elements, sum_bytes((x, x)), x.dtype, times_text(x.shape))


def rotary(query: int, positions: int | None, head: int | None = None, cache: int | None = None) -> Callable[[Call], Work | None]:
    """Return a rule for rotary embedding of Q (at `query`) and K (behind it) in place, three operations per element.

    Each is read and written, with a row of cosines and sines for every token (vLLM `rotary_embedding`, SGLang alike).
    """
    def rule(call: Call) -> Work | None:
        q, k = call.tensor(query), call.tensor(query + 1)
        if q is None or len(q.shape) < 2:
            return None
        both = [q, k] if k is not None else [q]
        table, rows = call.tensor(cache) if cache is not None else None, call.tensor(positions) if positions is not None else None
        more: list[Tensor | int | None] = [rows] if rows is not None else []
        if table is not None and rows is not None and len(table.shape) == 2 and table.size is not None:
            more.append(min(rows.elements, table.shape[0]) * table.shape[1] * table.size)
        return Work("elementwise", 3 * sum(tensor.elements for tensor in both), sum_bytes((*both, *both, *more)), q.dtype,
                    " and ".join(times_text(tensor.shape) for tensor in both))
    return rule

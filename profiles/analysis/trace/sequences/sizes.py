"""How large what kernels hand to each other is: from the shapes and types of the operators that launched them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from profiles.analysis.core.frame import Frame, Ints, Rows

MOST_READ = 20_000                  # distinct arguments of operators
_BYTES = {"double": 8, "float": 4, "c10::half": 2, "half": 2, "c10::bfloat16": 2, "bfloat16": 2, "long int": 8, "long": 8, "int": 4,
          "short": 2, "signed char": 1, "unsigned char": 1, "bool": 1, "c10::float8_e4m3fn": 1, "c10::float8_e5m2": 1,
          "c10::complex<float>": 8, "c10::complex<double>": 16, "float64": 8, "float32": 4, "float16": 2, "int64": 8, "int32": 4}


def largest_input_bytes(frame: Frame, kernels: Rows) -> Ints:
    """Return, for each kernel, the size of its operator's largest input, else -1.

    -1 where the trace does not say it (no shapes recorded).
    """
    operator = frame.operator[kernels]
    codes = np.where(operator >= 0, frame["detail"][np.maximum(operator, 0)], -1)
    distinct, place = np.unique(codes, return_inverse=True)
    first = np.full(distinct.size, -1, np.int64)
    first[place[::-1]] = operator[::-1]
    sizes = np.full(distinct.size, -1, np.int64)
    for number, (code, row) in enumerate(zip(distinct.tolist()[:MOST_READ], first.tolist(), strict=False)):
        if code >= 0:
            sizes[number] = _largest(frame.arguments(row))
    return sizes[place] if kernels.size else np.empty(0, np.int64)


def _largest(said: dict[str, Any]) -> int:
    dims, types = said.get("Input Dims"), said.get("Input type")
    if not isinstance(dims, list) or not isinstance(types, list):
        return -1
    sizes = [_bytes(shape, kind) for shape, kind in zip(dims, types, strict=False)]
    return max(sizes, default=-1)


def _bytes(shape: Any, kind: Any) -> int:
    """Of one tensor, of a list of tensors their sum; -1 for what is no tensor."""
    if isinstance(shape, list) and shape and isinstance(shape[0], list):
        parts = [_bytes(each, kind if isinstance(kind, str) else None) for each in shape]
        return sum(part for part in parts if part > 0) or -1
    size = _BYTES.get(str(kind).lower().removeprefix("tensorlist").strip("<> "))
    if size is None or not isinstance(shape, list) or not shape or not all(isinstance(n, int) and 0 <= n < 1 << 40 for n in shape):
        return -1
    total = math.prod(shape) * size
    return total if total < 1 << 50 else -1

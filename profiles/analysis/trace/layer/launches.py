"""The work of every kernel launch: through the operator that launched it, shared out where one call launches several kernels.

A call's work belongs to the call as a whole. Kernels that stand beside a product (copies, split-K reductions, changes of layout, by
name) are "part of" it and have no work of their own; of the others each takes the share that it has in their time, so the work of
all launches sums to that of all calls. Launches of a replayed CUDA graph have no operator: the call that replays is not theirs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from profiles.analysis.core.frame import Frame
from profiles.analysis.core.identity import identity
from profiles.analysis.trace.layer.optimizers import add_parameter_sizes
from profiles.analysis.trace.layer.rules import is_known, work_of_call
from profiles.analysis.trace.layer.work import PRODUCTS, Call, Work
from profiles.analysis.trace.operators.matmuls import BYTES
from profiles.analysis.trace.operators.tensor_cores import on_tensor_cores
from profiles.base.refused import Refused
from profiles.ingest.arrays import Bools, Ints
from profiles.ingest.trace import Category

# An operator's shape as a person types it, for a kernel whose trace tells none: the same rules, the same numbers.

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
    for kernel, entry in list(typed.items())[:MOST_TYPED]:
        try:
            works[kernel] = typed_work(str(entry["operator"]), str(entry["dims"]), str(entry["dtype"]))
        except (Refused, KeyError, TypeError):
            continue
    return works


Floats = npt.NDArray[np.float64]
MOST_ARGUMENTS = 50_000         # distinct (operator, arguments) that are read
CLIMBED = 6                     # operators around one without shapes that are looked at
NONE = -1


@dataclass(frozen=True)
class LaunchWork:
    """Every compute kernel in order of start. `flop` and `bytes` are NaN where unknown, and of what is part of a call."""

    rows: Ints                          # of the frame
    ns: Ints
    call: Ints                          # row of the operator whose work it does, -1: unknown
    work: Ints                          # number into `works`, -1: unknown
    works: list[Work]
    is_part: Bools      # a helper of its call
    is_typed: Bools     # a person typed the operator's shape
    flop: Floats
    bytes: Floats


def launch_work(frame: Frame, typed: Mapping[str, Work] | None = None) -> LaunchWork:
    """Return the work of every compute kernel. `typed`: of kernels (by full name) whose operator the trace does not tell."""
    rows = frame.kernels[frame["category"][frame.kernels] == Category.COMPUTE].astype(np.int64)
    ns = frame["dur_ns"][rows].astype(np.int64)
    call = _calls(frame, rows)
    work, works = _works(frame, call)
    work = add_parameter_sizes(frame, rows, call, work, works)
    names = frame["name"][rows].astype(np.int64)
    is_typed = np.zeros(rows.size, np.bool_)
    for kernel, entry in (typed or {}).items():
        mine = (work < 0) & (names == _code(frame, kernel))
        if mine.any():
            work[mine], is_typed = len(works), is_typed | mine
            call[mine] = NONE
            works.append(entry)
    is_part = _parts(frame, names, work, works) & ~is_typed
    share, is_part = _shares(call, ns, is_part, work)
    flop, moved = _amounts(frame, names, work, works)
    blank = np.where(is_part, np.nan, 1.0)
    return LaunchWork(rows, ns, call, work, works, is_part, is_typed, flop * share * blank, moved * share * blank)


def _code(frame: Frame, name: str) -> int:
    return next((code for code, text in enumerate(frame.names) if text == name), NONE)


def _calls(frame: Frame, rows: Ints) -> Ints:
    """Return the operator of each launch: the innermost around it, or past those with neither shapes nor a rule."""
    call = frame.operator[rows].copy()
    launched = frame.call[rows]
    replays = np.array([code for code, name in enumerate(frame.names) if "GraphLaunch" in name[:60]], np.int64)
    if replays.size:
        of_graph = (launched >= 0) & np.isin(frame["name"][np.maximum(launched, 0)], replays)
        call[of_graph] = NONE
    for _ in range(CLIMBED):
        positions = np.flatnonzero(call >= 0)
        first, kind = frame.number_calls(call[positions])
        if first.size > MOST_ARGUMENTS:
            return np.full(rows.size, NONE, np.int64)
        bare = np.array([_is_bare(frame, int(call[positions[position]])) for position in first.tolist()] or [False], np.bool_)
        moving = positions[bare[kind]] if positions.size else positions
        if not moving.size:
            break
        outer = frame.enclosing(frame.parent[call[moving]], Category.CPU_OP)
        call[moving] = outer
    return call


def _is_bare(frame: Frame, row: int) -> bool:
    """Return whether an operator has neither shapes nor a rule: a wrapper."""
    name = frame.text(row)
    return not is_known(name) and not Call(name, frame.arguments(row)).has_shapes


def _works(frame: Frame, call: Ints) -> tuple[Ints, list[Work]]:
    """Number the work of each launch's operator; each distinct (name, arguments) is read once."""
    work = np.full(call.size, NONE, np.int64)
    positions = np.flatnonzero(call >= 0)
    first, kind = frame.number_calls(call[positions])
    works: list[Work] = []
    of_kind = np.full(max(first.size, 1), NONE, np.int64)
    for index, place in enumerate(first.tolist()[:MOST_ARGUMENTS]):
        row = int(call[positions[place]])
        call_work = work_of_call(frame.text(row), frame.arguments(row))
        if call_work is not None:
            of_kind[index] = len(works)
            works.append(call_work)
    if positions.size:
        work[positions] = of_kind[kind]
    return work, works


def _parts(frame: Frame, names: Ints, work: Ints, works: list[Work]) -> Bools:
    """Return which launches only help a product: by their kernels' names."""
    heavy = np.array([entry.kind in PRODUCTS for entry in works] or [False], np.bool_)
    candidates = (work >= 0) & heavy[np.maximum(work, 0)]
    out = np.zeros(names.size, np.bool_)
    if candidates.any():
        codes, index = np.unique(names[candidates], return_inverse=True)
        beside = np.array([on_tensor_cores(frame.names[code]) == "beside" for code in codes.tolist()], np.bool_)
        out[candidates] = beside[index]
    return out


def _shares(call: Ints, ns: Ints, is_part: Bools, work: Ints) -> tuple[Floats, Bools]:
    """Return each launch's share of its call's work, and which are parts: where every kernel of a call is one, none is."""
    share = np.ones(call.size)
    positions = np.flatnonzero((call >= 0) & (work >= 0))
    if not positions.size:
        return share, is_part
    codes, index = np.unique(call[positions], return_inverse=True)
    index = index.reshape(-1)
    mains = np.bincount(index, ~is_part[positions], codes.size)
    is_part = is_part.copy()
    is_part[positions] &= mains[index] > 0
    own = ~is_part[positions]
    total = np.bincount(index[own], np.maximum(ns[positions][own], 1), codes.size)
    share[positions] = np.where(own, np.maximum(ns[positions], 1) / np.maximum(total[index], 1), 0.0)
    return share, is_part


def _amounts(frame: Frame, names: Ints, work: Ints, works: list[Work]) -> tuple[Floats, Floats]:
    """FLOP and bytes of each launch's call. Lists have no type in the file: the kernel's name may state it."""
    flop = np.array([np.nan if entry.flop is None else float(entry.flop) for entry in works] + [np.nan])
    moved = np.array([np.nan if entry.bytes is None else float(entry.bytes) for entry in works] + [np.nan])
    bytes_of_launch = moved[work]
    untyped = np.array([entry.bytes is None and entry.elements is not None for entry in works] + [False], np.bool_)[work]
    if untyped.any():
        codes, index = np.unique(names[untyped], return_inverse=True)
        size = np.array([_element_bytes(frame.names[code]) or np.nan for code in codes.tolist()])
        elements = np.array([float(entry.elements or 0) for entry in works] + [np.nan])
        bytes_of_launch = bytes_of_launch.copy()
        bytes_of_launch[untyped] = elements[work[untyped]] * size[index.reshape(-1)]
    return flop[work], bytes_of_launch


def _element_bytes(kernel: str) -> int | None:
    dtype = identity(kernel).dtype
    if dtype.endswith("-byte"):
        return int(dtype.removesuffix("-byte"))
    return BYTES.get(dtype)


def gpu_of_rows(frame: Frame, rows: Ints) -> tuple[Ints, list[str]]:
    """Return the model of the GPU that each row ran on, a number into the names; "" is unknown."""
    named = {device.index: device.name for device in frame.devices}
    only = next(iter(named.values())) if len(set(named.values())) == 1 else ""
    devices, index = np.unique(frame["device"][rows], return_inverse=True)
    names = [named.get(int(gpu), only) or only for gpu in devices.tolist()]
    models = list(dict.fromkeys(names)) or [""]
    place = np.array([models.index(name) for name in names] or [0], np.int64)
    return (place[index.reshape(-1)] if rows.size else np.empty(0, np.int64)), models


def precision_of(work: Work, kernel: str) -> str:
    """Return the precision (of `gpus.PRECISIONS`) whose ceiling holds for a kernel, "" where the type does not say.

    Products: the tensor cores of their type. FP32 ones by the kernel's name: TF32 unless it names CUDA cores, so that where it says
    nothing the share is rather too small. All else computes in FP32 on CUDA cores, FP64 in FP64 (ATen's `opmath_type`).
    """
    dtype = work.dtype.split(" ")[0]
    if work.kind not in PRODUCTS:
        return {"fp64": "fp64", "complex128": "fp64"}.get(dtype, "fp32")
    if dtype in ("fp32", "complex64"):
        return "fp32" if on_tensor_cores(kernel) == "no" else "tf32_tensor"
    if dtype in ("fp64", "complex128"):
        return "fp64" if on_tensor_cores(kernel) == "no" else "fp64_tensor"
    return f"{dtype}_tensor" if dtype in ("fp16", "bf16", "fp8", "int8") else ""

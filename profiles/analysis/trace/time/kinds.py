"""What limits a kernel, told from its name and, where the trace has them, from its operator's shapes.

Three regimes: "Making Deep Learning Go Brrrr From First Principles" (Horace He, 2022): arithmetic (*compute*), moving
data between DRAM and the SMs (*memory*), everything else (*overhead*). A trace has no counters, so a kernel's regime is
an inference. KINDS says what is inferred from names; for matrix products with recorded shapes the roofline model decides
(Williams et al., 2009): arithmetic intensity against the GPU's ridge point, dense peak rate over DRAM bandwidth. What
nothing tells is "unknown" and is never guessed. Counters (`ncu`) decide per kernel; the roofline page shows them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from profiles.analysis.core import gpus
from profiles.analysis.core.frame import ASKED_CHARS, Frame
from profiles.ingest.arrays import Bools, Rows, stable_order
from profiles.ingest.naming.bands import BANDS
from profiles.ingest.naming.names import words_for_search

SMALL_NS = int(1_000 * BANDS["kernel_us"].limits[0])      # a shorter kernel is mostly start, ramp and tail
MOST_NAMES = 5_000             # kernels that are told apart, the most time first: the others are unknown
MOST_SHAPES = 20_000            # distinct (operator, arguments) that are looked into
REGIMES = COMPUTE, MEMORY, UNKNOWN = "compute", "memory", "unknown"

# (what it is, regime, pattern on the words of the kernel's name in lower case): the first that is found decides.
KINDS: tuple[tuple[str, str, re.Pattern[str]], ...] = tuple((what, regime, re.compile(pattern)) for what, regime, pattern in (
    # What Inductor fuses pointwise or into a reduction multiplies no matrices, whichever operators it names itself after
    # (torch/_inductor/codegen/triton.py: "poi", "per" and "red"; templates that multiply are "tem").
    ("elementwise", MEMORY, r"^triton_poi_fused"),
    ("normalisation and softmax", MEMORY, r"^triton_(?:per|red)_fused\w*(?:softmax|layer_norm|rms_norm|group_norm|batch_norm)"),
    ("reduction", MEMORY, r"^triton_(?:per|red)_fused"),
    ("matrix times vector", MEMORY, r"gemv|gevm|gemmk1"),
    ("splits and transforms around matrix products", MEMORY, r"splitkreduce|nchwtonhwc|nhwctonchw|im2col|col2im|"
                                                             r"generate_winograd|winograd.*transform|cask.*transform"),
    ("normalisation and softmax", MEMORY, r"softmax|layer_?norm|rms_?norm|group_?norm|batch_?norm|gammabeta|"
                                              r"bn_(fw|bw)|\bln_(fwd|bwd)"),
    ("matrix product", COMPUTE, r"gemm|matmul|cijk_|nvjet|cublas|xmma|triton_tem.*mm|_mm_kernel|\bmma\b|wgmma|cutlass.*tensorop"),
    ("convolution", COMPUTE, r"conv(?!ert)|winograd|wgrad|dgrad|fprop|implicit_|scudnn|miopensp3"),
    ("attention", COMPUTE, r"flash|fmha|attention|attn|sdpa"),
    ("optimizer and many tensors at once", MEMORY, r"multi_tensor|foreach|adam|\bsgd"),
    ("reduction", MEMORY, r"reduce|argmax|argmin|\bsum|mean|triton_red|triton_per|cumsum|scan"),
    ("elementwise", MEMORY, r"elementwise|pointwise|triton_poi|unrolled|vectorized|activation|silu|gelu|relu|dropout|"
                            r"rotary|rope|fill|where|masked|cast|convert|quant|\b(add|mul|sub|div|copy|scal)(_|\b)"),
    ("copies, gathers and sorts", MEMORY, r"copy|transpose|permute|cat_?array|catarr|concat|index|gather|scatter|embedding|"
                                         r"slice|bounds_check|\bsort|radix|topk|pool|upsample|interpolate|reshape"),
))
_PRODUCTS = {"aten::mm": 2, "aten::addmm": 3, "aten::bmm": 2, "aten::baddbmm": 3, "aten::_scaled_mm": 2}
_BYTES = {"float": 4, "double": 8, "c10::Half": 2, "c10::BFloat16": 2, "signed char": 1, "unsigned char": 1,
          "c10::Float8_e4m3fn": 1, "c10::Float8_e5m2": 1}
_PEAK = {"float": ("tf32_tensor", "fp32"), "double": ("fp64_tensor", "fp64"), "c10::Half": ("fp16_tensor",),
         "c10::BFloat16": ("bf16_tensor",), "signed char": ("int8_tensor",), "c10::Float8_e4m3fn": ("fp8_tensor",),
         "c10::Float8_e5m2": ("fp8_tensor",)}


@lru_cache(maxsize=4_096)
def kind_of(name: str) -> tuple[str, str]:
    """Return (what it is, regime) of a kernel by the words in its name.

    A parameter's type (`fbgemm::Tensor`) says nothing of the kernel.
    """
    lowered = words_for_search(name)[:ASKED_CHARS].lower()
    return next(((what, regime) for what, regime, pattern in KINDS if pattern.search(lowered)), ("of unknown kind", UNKNOWN))


def intensity(operator: str, dims: Sequence[Any], types: Sequence[Any]) -> tuple[float, str] | None:
    """Return (FLOP per byte, element type) of a matrix product.

    2·m·n·k over reading both operands and writing the result once.
    """
    count = _PRODUCTS.get(operator)
    if count is None or len(dims) < count or len(types) < count:
        return None
    left, right = dims[count - 2], dims[count - 1]
    kind, size = types[count - 2], _BYTES.get(str(types[count - 2]))
    if size is None or not all(isinstance(shape, list) and len(shape) >= 2 and all(isinstance(n, int) and n > 0 for n in shape)
                               for shape in (left, right)):
        return None
    m, k, n = left[-2], left[-1], right[-1]
    if right[-2] != k:
        return None
    return 2 * m * n * k / (size * (m * k + k * n + m * n)), str(kind)


def ridge(gpu_name: str, element: str) -> float | None:
    """Return the FLOP per byte at which a GPU's dense peak meets its DRAM bandwidth.

    Of an element type (`analysis.gpus`).
    """
    gpu = gpus.lookup(gpu_name)
    peak = next((gpu.peaks[name] for name in _PEAK.get(element, ()) if name in gpu.peaks), None) if gpu else None
    return peak / gpu.dram_bytes_s if gpu and peak else None


def regimes(frame: Frame, rows: Rows, gpu_name: str) -> npt.NDArray[np.int8]:
    """Regime of each of some kernels: 0 compute, 1 memory, 2 unknown (numbers of REGIMES)."""
    codes = frame["name"][rows]
    distinct, at = np.unique(codes, return_inverse=True)
    number = {regime: i for i, regime in enumerate(REGIMES)}
    names = [frame.names[code] if code >= 0 else "" for code in distinct.tolist()]
    if len(names) > MOST_NAMES:
        for i in stable_order(-np.bincount(at, frame["dur_ns"][rows]))[MOST_NAMES:].tolist():
            names[i] = ""
    kinds = [kind_of(name) for name in names]
    out = np.array([number[regime] for _, regime in kinds], np.int8)[at]
    products = np.array([what == "matrix product" for what, _ in kinds], np.bool_)[at]
    return _by_shapes(frame, rows, gpu_name, out, products) if products.any() and gpus.lookup(gpu_name) else out


def _by_shapes(frame: Frame, rows: Rows, gpu_name: str, out: npt.NDArray[np.int8],
               products: Bools) -> npt.NDArray[np.int8]:
    operator = frame.operator[rows]
    asked = np.flatnonzero(products & (operator >= 0))
    first, at = frame.number_calls(operator[asked])
    verdict = np.full(first.size, -1, np.int8)
    for i, where in enumerate(first.tolist()[:MOST_SHAPES]):
        row = int(operator[asked[where]])
        said: Mapping[str, Any] = frame.arguments(row)
        ratio = intensity(frame.text(row), said.get("Input Dims") or (), said.get("Input type") or ())
        limit = ridge(gpu_name, ratio[1]) if ratio else None
        if ratio and limit:
            verdict[i] = 0 if ratio[0] >= limit else 1
    known = verdict[at] >= 0
    out = out.copy()
    out[asked[known]] = verdict[at][known]
    return out

"""Three bottleneck classes: what share of wall time a GPU computes, moves memory, or does neither (overhead).

"Making Deep Learning Go Brrrr From First Principles" (Horace He, 2022) names the three. PARTS tile the wall time of a GPU
and each part belongs to one class; kernels of unknown kind are a class of their own, for nobody knows theirs, and the
recording's edges are of none. The class with the most time is what holds the GPU back.

What limits a kernel, told from its name and, where the trace has them, from its operator's shapes.

Three regimes: "Making Deep Learning Go Brrrr From First Principles" (Horace He, 2022): arithmetic (*compute*), moving
data between DRAM and the SMs (*memory*), everything else (*overhead*). A trace has no counters, so a kernel's regime is
an inference. KINDS says what is inferred from names; for matrix products with recorded shapes the roofline model decides
(Williams et al., 2009): arithmetic intensity against the GPU's ridge point, dense peak rate over DRAM bandwidth. What
nothing tells is "unknown" and is never guessed. Counters (`ncu`) decide per kernel; the roofline page shows them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from profiles.analysis.core import gpus, intervals
from profiles.analysis.core.frame import ASKED_CHARS, Frame
from profiles.analysis.core.intervals import Intervals
from profiles.analysis.core.sentences import pct_of
from profiles.analysis.trace.time.idle import CAUSES, Idle
from profiles.analysis.trace.time.tiling import DeviceWork, Tiling, in_turn, tiling
from profiles.ingest.arrays import Bools, Floats, Rows, stable_order
from profiles.ingest.naming.bands import BANDS
from profiles.ingest.naming.names import words_for_search
from profiles.ingest.trace import Category

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
    distinct, indexes = np.unique(codes, return_inverse=True)
    number = {regime: i for i, regime in enumerate(REGIMES)}
    names = [frame.names[code] if code >= 0 else "" for code in distinct.tolist()]
    if len(names) > MOST_NAMES:
        for i in stable_order(-np.bincount(indexes, frame["dur_ns"][rows]))[MOST_NAMES:].tolist():
            names[i] = ""
    kinds = [kind_of(name) for name in names]
    out = np.array([number[regime] for _, regime in kinds], np.int8)[indexes]
    products = np.array([what == "matrix product" for what, _ in kinds], np.bool_)[indexes]
    return _by_shapes(frame, rows, gpu_name, out, products) if products.any() and gpus.lookup(gpu_name) else out


def _by_shapes(frame: Frame, rows: Rows, gpu_name: str, out: npt.NDArray[np.int8],
               products: Bools) -> npt.NDArray[np.int8]:
    operator = frame.operator[rows]
    positions = np.flatnonzero(products & (operator >= 0))
    first, groups = frame.number_calls(operator[positions])
    verdict = np.full(first.size, -1, np.int8)
    for i, where in enumerate(first.tolist()[:MOST_SHAPES]):
        row = int(operator[positions[where]])
        arguments: Mapping[str, Any] = frame.arguments(row)
        ratio = intensity(frame.text(row), arguments.get("Input Dims") or (), arguments.get("Input type") or ())
        limit = ridge(gpu_name, ratio[1]) if ratio else None
        if ratio and limit:
            verdict[i] = 0 if ratio[0] >= limit else 1
    has_verdict = verdict[groups] >= 0
    out = out.copy()
    out[positions[has_verdict]] = verdict[groups][has_verdict]
    return out


CLASSES = ("compute", "memory", "overhead", "unknown")


@dataclass(frozen=True)
class Part:
    label: str
    of: str                 # its class, "" of what belongs to none
    meaning: str


PARTS: dict[str, Part] = {
    "compute": Part("arithmetic", "compute", "a kernel of 10 µs and more that computes: matrix products, convolutions, attention"),
    "memory": Part("memory traffic", "memory", "a kernel of 10 µs and more that moves data: elementwise, reductions, copies"),
    "unknown": Part("kernels of unknown kind", "unknown", "a kernel of 10 µs and more whose name says nothing of what limits it"),
    "small": Part("small kernels", "overhead", "only kernels under 10 µs run: start, ramp and tail"),
    "communication": Part("exposed communication", "overhead", "a collective runs and nothing computes"),
    "transfers": Part("exposed transfers", "overhead", "copies and sets, and no kernel runs"),
    **{cause: Part(label, "" if cause == "edges" else "overhead", meaning) for cause, (label, meaning) in CAUSES.items()},
}
KERNEL_PARTS = ("compute", "memory", "unknown", "small")


@dataclass(frozen=True)
class Kernels:
    """The computing kernels of a GPU: rows, and the number of each one's regime in REGIMES."""

    rows: Rows
    regime: npt.NDArray[np.int8]


def kernels_of(frame: Frame, work: DeviceWork) -> Kernels:
    rows = work.rows[frame["category"][work.rows] == Category.COMPUTE]
    return Kernels(rows, regimes(frame, rows, work.name))


def parts_of(frame: Frame, work: DeviceWork, kernels: Kernels, idle: Idle) -> Tiling:
    """Return the wall time of one GPU by PARTS.

    Where kernels overlap, the one that stands first in PARTS has the time.
    """
    rows, regime = kernels.rows, kernels.regime
    small = frame["dur_ns"][rows] < SMALL_NS
    start, end = frame["start_ns"][rows], frame.end_ns[rows]
    sets: dict[str, Intervals] = {}
    for number, name in enumerate(REGIMES):
        mine = (regime == number) & ~small
        sets[name] = intervals.union(start[mine], end[mine])
    sets["small"] = intervals.union(start[small], end[small])
    return tiling({**in_turn(sets), "communication": work.exposed["communication"], "transfers": work.exposed["memory"],
                   **idle.causes})


@dataclass(frozen=True)
class KernelTime:
    """A computing kernel's launches of one regime (one name has two where shapes decide)."""

    name: str
    regime: str
    launches: int
    ns: int                 # summed durations
    small_ns: int           # of these in launches under SMALL_NS
    counted_ns: int         # of these in longer launches that began in windows that count


def kernel_times(frame: Frame, devices: Sequence[tuple[Kernels, Intervals]]) -> list[KernelTime]:
    """Return the kernels that the classes rest on, the most time first.

    `devices`: with each GPU's kernels the windows that count.
    """
    groups: dict[tuple[int, int], Floats] = {}
    for kernels, windows in devices:
        dur = frame["dur_ns"][kernels.rows]
        key = frame["name"][kernels.rows].astype(np.int64) << 2 | kernels.regime
        distinct, indexes = np.unique(key, return_inverse=True)
        start, small = frame["start_ns"][kernels.rows], dur < SMALL_NS
        counts = intervals.covered_before(windows, start + 1) > intervals.covered_before(windows, start)
        sums = [np.bincount(indexes, weights, distinct.size) for weights in (
            np.ones(dur.size), dur, np.where(small, dur, 0), np.where(counts & ~small, dur, 0))]
        for code, values in zip(distinct.tolist(), np.stack(sums).T, strict=True):
            groups[code >> 2, code & 3] = groups.get((code >> 2, code & 3), np.zeros(4)) + values
    times = [KernelTime(frame.names[code] if code >= 0 else "", REGIMES[regime], *(int(value) for value in values.tolist()))
             for (code, regime), values in groups.items()]
    return sorted(times, key=lambda each: (-each.ns, each.name))


@dataclass(frozen=True)
class Verdict:
    """`bound` is the class with the most time, "" where there is no time. Times in ns, summed over GPUs."""

    bound: str
    total_ns: int           # of all classes: shares are of it
    classes: dict[str, int]
    parts: dict[str, int]

    def pct(self, name: str) -> float:
        """Return the share of a class."""
        return pct_of(self.classes[name], self.total_ns)

    def part_pct(self, name: str) -> float:
        return pct_of(self.parts[name], self.total_ns)


def verdict(parts: Mapping[str, int]) -> Verdict:
    """Return the verdict on the ns of every part."""
    classes = {name: sum(ns for part, ns in parts.items() if PARTS[part].of == name) for name in CLASSES}
    total = sum(classes.values())
    return Verdict(max(classes, key=lambda name: classes[name]) if total else "", total, classes, dict(parts))

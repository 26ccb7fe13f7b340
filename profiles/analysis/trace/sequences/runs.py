"""Runs of kernels that could be one kernel, and what that would save.

A run stands on one stream: kernels that can be fused, one directly behind the other, nothing else between them and no gap
longer than CLOSE_NS; a product may stand first. Runs of more than LONGEST kernels are cut at their period where they have
one (an optimizer that does the same for every parameter), else every LONGEST.

Saved by fusing a run of n kernels, per time it occurs:

- launches: n − 1;
- bytes: what one part hands to the next is no longer written and read: 2 × its size (a part: kernels of one name directly
  after each other, which work on different tensors: foreach, chunks). A trace does not hold the sizes of outputs, so the
  smaller of the largest inputs of the two operators at that border is taken; unknown without shapes;
- GPU time: bytes / the GPU's DRAM bandwidth as its maker states it, at most Σ d − the longest part, which the fused kernel
  still has to do. Where bytes are unknown, that bound alone;
- gaps: the time between its kernels in which the stream had nothing to do.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any

import numpy as np

from profiles.analysis.core import gpus
from profiles.analysis.core.frame import Frame
from profiles.analysis.trace.launching.calls import in_graph
from profiles.analysis.trace.launching.order import order_of
from profiles.ingest.arrays import Array, Bools, Floats, Ints, Rows, stable_order

# ---- how large what kernels hand to each other is ----
# From the shapes and types of the operators that launched them.

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
        parts = [_bytes(part, kind if isinstance(kind, str) else None) for part in shape]
        return sum(part for part in parts if part > 0) or -1
    size = _BYTES.get(str(kind).lower().removeprefix("tensorlist").strip("<> "))
    if size is None or not isinstance(shape, list) or not shape or not all(isinstance(n, int) and 0 <= n < 1 << 40 for n in shape):
        return -1
    total = math.prod(shape) * size
    return total if total < 1 << 50 else -1


# ---- which kernels one fused kernel could do ----
# Those that touch every element a few times and compute little.
# By name, as nothing else in a trace says it. Pointwise kernels, casts, fills, reductions, norms and softmax are what compilers
# fuse (TorchInductor: pointwise and reduction nodes; epilogues into Triton GEMMs). A product, convolution or attention can take
# what follows into its epilogue, so it may stand first. Collectives, sorts, scans, gathers by index and kernels with names that
# say nothing end a run.

class Part(IntEnum):
    """A kernel's part in a fusion."""

    OTHER = 0           # ends a run
    POINTWISE = 1       # one element in, one out: elementwise, cast, copy, fill, foreach
    REDUCTION = 2       # norm, softmax, sum, mean: reads rows
    PRODUCT = 3         # may stand first: what follows becomes its epilogue


_PRODUCT = re.compile(r"gemm|matmul|_mm_|nvjet|cutlass|cijk_|xmma|"
                      r"wgrad|dgrad|conv\d?d|implicit_con|winograd|flash|fmha|attention|attn|sdpa", re.I)
_REDUCTION = re.compile(r"softmax|layer_?norm|rms_?norm|group_?norm|batch_?norm|bn_(?:fw|bw)|"
                        r"reduce_kernel|triton_(?:red|per)_|welford|"
                        r"nll_loss|cunn_|gammabeta|grad_input_kernel|ln_(?:fwd|bwd)", re.I)
_POINTWISE = re.compile(r"elementwise|multi_tensor_apply|triton_poi_|pointwise|CatArray|copy_kernel|"
                        r"fill_?kernel|dropout|gelu|silu|relu|"
                        r"bias_(?:add|act)|add_kernel|mul_kernel|cast|adam|sgd|lerp|rotary|rope", re.I)
_NEVER = re.compile(r"nccl|rccl|sort|radix|scan|index(?:_|Select|ing)|gather|scatter|embedding|topk|nonzero|unique", re.I)


@lru_cache(maxsize=65_536)
def part_of(name: str) -> Part:
    if _NEVER.search(name):
        return Part.OTHER
    if _POINTWISE.search(name) and not _PRODUCT.search(name):
        return Part.POINTWISE
    if _REDUCTION.search(name):
        return Part.REDUCTION
    return Part.PRODUCT if _PRODUCT.search(name) else Part.POINTWISE if _POINTWISE.search(name) else Part.OTHER


# ---- runs of kernels ----

CLOSE_NS = 200_000
LONGEST = 24
PERIODS = 16
MOST = 300


@dataclass(frozen=True)
class Candidate:
    """One sequence of kernels that could be one; sums over all of its runs."""

    names: tuple[int, ...]
    runs: int
    total_ns: int
    gaps_ns: int                    # idle stream between its kernels
    launches_saved: int
    saved_bytes: int | None         # None: the trace holds no shapes
    saved_ns: int                   # of GPU time, without the gaps
    bound: str                      # "bytes" | "time": what the estimate rests on
    in_graphs: int                  # runs that a graph launch owns: fusing saves them no launch calls
    example: int                    # row of the frame: first kernel of the first run
    example_end: int                # row of its last kernel


@dataclass(frozen=True)
class _Cut:
    """Kernels stream by stream, cut into runs."""

    rows: Rows
    code: Array
    start_ns: Ints
    end_ns: Ints
    first: Ints                     # position of each run's first kernel
    length: Ints


def candidates(frame: Frame) -> list[Candidate]:
    """Return sequences of kernels that could be one, most saved time first."""
    cut = _cut_runs(frame)
    if not cut.first.size:
        return []
    inputs = largest_input_bytes(frame, cut.rows)
    border = cut.code[1:] != cut.code[:-1]                               # behind each kernel but the last
    between = np.minimum(inputs[1:], inputs[:-1])
    gaps = np.maximum(cut.start_ns[1:] - cut.end_ns[:-1], 0)
    last = cut.first + cut.length - 1
    dur = cut.end_ns - cut.start_ns
    total = _sums(dur, cut.first, cut.length)
    gap, moved = _inner(gaps, cut), 2 * _inner(np.where(border, np.maximum(between, 0), 0), cut)
    unknown = _inner(((between < 0) & border).astype(np.int64), cut) > 0
    rate = _dram_bytes_s(frame, cut.rows)[cut.first]
    by_time = total - _longest_part(dur, cut)
    saved = np.where(unknown | (rate <= 0), by_time, np.minimum(moved / np.maximum(rate, 1) * 1e9, by_time)).astype(np.int64)
    unknown |= rate <= 0
    graph = _graph_rows(frame, cut.rows)[cut.first]
    groups = _signatures(cut)
    candidates = []
    order = stable_order(groups)
    for members in np.split(order, np.flatnonzero(np.diff(groups[order])) + 1):
        member = int(members[0])
        span = slice(int(cut.first[member]), int(last[member]) + 1)
        some_unknown = bool(unknown[members].any())
        candidates.append((int(saved[members].sum()), members, span, some_unknown))
    candidates.sort(key=lambda candidate: -candidate[0] - int(gap[candidate[1]].sum()))
    return [Candidate(
        tuple(cut.code[span].tolist()), members.size, int(total[members].sum()), int(gap[members].sum()),
        int((cut.length[members] - 1).sum()), None if some else int(moved[members].sum()), worth, "time" if some else "bytes",
        int(np.count_nonzero(graph[members])), int(cut.rows[span.start]), int(cut.rows[span.stop - 1]))
        for worth, members, span, some in candidates[:MOST]]


def _cut_runs(frame: Frame) -> _Cut:
    order = order_of(frame)
    rows = stable_order(order.track)
    code, start, end, track = order.name[rows], order.start_ns[rows], order.end_ns[rows], order.track[rows]
    used, place = np.unique(code, return_inverse=True)
    parts = np.array([int(part_of(frame.names[number])) for number in used.tolist()] or [0], np.int8)[place]
    parts[~order.is_kernel[rows]] = Part.OTHER
    fits = (parts == Part.POINTWISE) | (parts == Part.REDUCTION)
    joined = np.zeros(rows.size, np.bool_)                                # goes on the run of the kernel before
    close = (track[1:] == track[:-1]) & (start[1:] - end[:-1] <= CLOSE_NS)
    joined[1:] = fits[1:] & (fits[:-1] | (parts[:-1] == Part.PRODUCT)) & close
    first = np.flatnonzero(~joined)
    length = np.diff(np.r_[first, rows.size])
    first, length = first[length > 1], length[length > 1]
    first, length = _split_long_runs(code, first, length)
    return _Cut(order.rows[rows], code, start, end, first, length)


def _split_long_runs(code: Array, first: Ints, length: Ints) -> tuple[Ints, Ints]:
    """Long runs in pieces of their period."""
    short = length <= LONGEST
    firsts, lengths = [first[short]], [length[short]]
    for begin, size in zip(first[~short].tolist(), length[~short].tolist(), strict=True):
        step = _period(code[begin:begin + size])
        starts = np.arange(begin, begin + size, step)
        sizes = np.minimum(step, begin + size - starts)
        firsts.append(starts[sizes > 1])
        lengths.append(sizes[sizes > 1])
    return np.concatenate(firsts), np.concatenate(lengths)


def _period(code: Array) -> int:
    """Length after which a run repeats itself (for the most part), the shortest of 2 to PERIODS; LONGEST where it does not."""
    for step in range(2, PERIODS + 1):
        if np.count_nonzero(code[step:] == code[:-step]) >= 0.9 * (code.size - step):
            return step
    return LONGEST


def _signatures(cut: _Cut) -> Ints:
    """A number per run, equal where the names are equal in the same order (64-bit polynomial of mixed codes)."""
    with np.errstate(over="ignore"):
        mixed = (cut.code.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        signatures = np.zeros(cut.first.size, np.uint64)
        for step in range(LONGEST):
            inside = cut.length > step
            value = mixed[np.minimum(cut.first + step, cut.code.size - 1)]
            signatures = np.where(inside, signatures * np.uint64(0xBF58476D1CE4E5B9) + value, signatures)
    return np.unique(signatures, return_inverse=True)[1].astype(np.int64)


def _sums(values: Ints, first: Ints, length: Ints) -> Ints:
    total = np.r_[0, np.cumsum(values)]
    return np.asarray(total[first + length] - total[first])


def _longest_part(dur: Ints, cut: _Cut) -> Ints:
    """For each run the largest sum of durations of kernels of one name directly after each other."""
    longest = np.zeros(cut.first.size, np.int64)
    part = np.zeros(cut.first.size, np.int64)
    for step in range(LONGEST):
        inside = cut.length > step
        positions = cut.first[inside] + step
        same = (cut.code[positions] == cut.code[positions - 1]) & (step > 0)
        part[inside] = np.where(same, part[inside], 0) + dur[positions]
        longest = np.maximum(longest, part)
    return longest


def _inner(values: Ints, cut: _Cut) -> Ints:
    """Sum over the borders within each run: border i stands behind kernel i."""
    return _sums(np.r_[values, 0], cut.first, cut.length - 1)


def _dram_bytes_s(frame: Frame, rows: Rows) -> Floats:
    """The maker's DRAM bandwidth of each kernel's GPU, 0 where the GPU is not in the table."""
    rates = {device.index: gpu.dram_bytes_s for device in frame.devices if (gpu := gpus.lookup(device.name))}
    device = frame["device"][rows]
    bandwidths = np.zeros(rows.size)
    for index, rate in rates.items():
        bandwidths[device == index] = rate
    return bandwidths


def _graph_rows(frame: Frame, rows: Rows) -> Bools:
    order = order_of(frame)
    owned = np.zeros(frame.rows, np.bool_)
    owned[order.rows[in_graph(order)]] = True
    return owned[rows]

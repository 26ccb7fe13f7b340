"""Kernels too short for their launches, and what a CUDA graph would win back of the gaps before them.

A kernel below SHORT_NS (10 µs) costs the host about as much to launch as the GPU takes to run it: 2-10 µs a call. Where the
host cannot run ahead, the GPU stands idle before it. A graph launches all of its nodes with one call, so those gaps shrink
to what stands between kernels that were queued in time: `kept_gap_ns`, the median of exactly these gaps in this trace.

Won back = for every kernel launched on its own (no graph node), the part of the GPU's idle time before it in which its launch
call had not returned, less `kept_gap_ns`. Gaps longer than GAP_NS and gaps in which the host waited for the GPU are left out:
a graph does not take away data loading or synchronisation. It is an upper bound: a graph needs fixed shapes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profiles.analysis.core import intervals
from profiles.analysis.core.frame import Ints
from profiles.analysis.trace.launching.calls import is_wait
from profiles.analysis.trace.launching.graphs import in_graph
from profiles.analysis.trace.launching.order import Order
from profiles.ingest.naming.bands import BANDS

SHORT_NS = int(1_000 * BANDS["kernel_us"].limits[0])
GAP_NS = 200_000
ENOUGH = 20                         # queued kernels, for a median of their gaps


@dataclass(frozen=True)
class ShortKernels:
    is_short: npt.NDArray[np.bool_]     # per piece of GPU work
    won_ns: Ints                        # per piece of GPU work: what a graph would win back before it
    kept_gap_ns: float | None           # None: too few kernels were queued in time


def short_kernels(order: Order) -> ShortKernels:
    short = order.is_kernel & (order.dur_ns < SHORT_NS)
    kept = kept_gap_ns(order)
    own = order.is_kernel & order.has_call & ~in_graph(order)
    candidate = own & (order.late_ns > 0) & (order.gap_ns <= GAP_NS)
    waits = np.flatnonzero(is_wait(order.frame))
    waited = intervals.union(order.frame["start_ns"][waits], order.frame.end_ns[waits])
    rows = np.flatnonzero(candidate)
    during = intervals.overlap_ns(waited, order.gap_start_ns[rows], order.start_ns[rows]) > 0
    won = np.zeros(order.rows.size, np.int64)
    won[rows] = np.where(during, 0, np.maximum(order.late_ns[rows] - round(kept or 0), 0))
    return ShortKernels(short, won, kept)


def kept_gap_ns(order: Order) -> float | None:
    """Return the median gap between kernels where launching kept ahead, or None.

    The next was launched before the one ahead of it on the stream ended.
    """
    queued = order.is_kernel & order.has_call & (order.queued_ns > 0)
    gaps = (order.start_ns - order.free_ns)[queued]
    return float(np.median(gaps)) if gaps.size >= ENOUGH else None

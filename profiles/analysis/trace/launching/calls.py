"""Calls into the CUDA (HIP) runtime and driver: which take long, and which far longer than usual.

An outlier is a call longer than OUTLIER_NS (50 µs, the cut-off of Holistic Trace Analysis for launch calls) and than TIMES
(10) times the median of its own name. Calls that wait for the GPU on purpose (synchronisations, blocking copies) are none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.frame import Frame, once_a_frame
from profiles.analysis.trace.launching.graphs import in_graph
from profiles.analysis.trace.launching.order import Groups, Order, group_values
from profiles.ingest.arrays import Bools, Ints, Rows, stable_order
from profiles.ingest.naming.bands import BANDS
from profiles.ingest.trace import Category

OUTLIER_NS = 50_000
TIMES = 10
WAIT = re.compile(r"Synchronize|StreamWaitValue|^(?:cuda|hip)Memcpy(?:2D|3D)?(?!.*Async)|^cuMemcpy[DH]to[DH]_v2|"
                  r"^cuCtxSynchronize|^(?:cuda|hip)Free(?:_v\d+)?$|WaitExternal")

_PAGEABLE = re.compile("ageable")


def codes_matching(frame: Frame, pattern: re.Pattern[str], rows: Rows) -> Bools:
    """Return whether the pattern occurs in the name of each of `rows`.

    Each distinct name is looked at once.
    """
    used, place = np.unique(frame["name"][rows], return_inverse=True)
    fits = np.array([code >= 0 and bool(pattern.search(frame.names[code])) for code in used.tolist()] or [False], np.bool_)
    return fits[place] if rows.size else np.empty(0, np.bool_)


@once_a_frame
def is_wait(frame: Frame) -> Bools:
    """Return, for each row, whether it is a runtime call that waits for the GPU on purpose."""
    rows = frame.of(Category.RUNTIME)
    mask = np.zeros(frame.rows, np.bool_)
    mask[rows[codes_matching(frame, WAIT, rows)]] = True
    return mask


@dataclass(frozen=True)
class Calls:
    groups: Groups                      # by name of the call
    waits: Bools        # of each group: does the call wait on purpose?
    outliers: Rows                      # rows of the frame, the longest first
    excess_ns: Ints                     # of each outlier: beyond the median of its name


def runtime_calls(frame: Frame) -> Calls:
    rows = frame.of(Category.RUNTIME)
    code, dur = frame["name"][rows], frame["dur_ns"][rows]
    groups = group_values(code, dur)
    waits = is_wait(frame)
    median = groups.p50[np.searchsorted(groups.code, code)]
    far = (dur > OUTLIER_NS) & (dur > TIMES * median) & ~waits[rows]
    # a copy from pageable memory is named like any other and waits on purpose: its work ended within the call, or its name says it
    ended = np.zeros(frame.rows, np.bool_)
    copied = frame.of(Category.MEMCPY, Category.MEMSET)
    copied = copied[frame.call[copied] >= 0]
    blocks = (frame.end_ns[copied] <= frame.end_ns[frame.call[copied]]) | codes_matching(frame, _PAGEABLE, copied)
    ended[frame.call[copied[blocks]]] = True
    at = np.flatnonzero(far & ~ended[rows])
    at = at[stable_order(-dur[at])]
    group_waits = np.zeros(groups.code.size, np.bool_)
    group_waits[np.searchsorted(groups.code, code[waits[rows]])] = True
    return Calls(groups, group_waits, rows[at], (dur[at] - median[at]).astype(np.int64))


# Kernels too short for their launches, and what a CUDA graph would win back of the gaps before them.
#
# A kernel below SHORT_NS (10 µs) costs the host about as much to launch as the GPU takes to run it: 2-10 µs a call. Where the
# host cannot run ahead, the GPU stands idle before it. A graph launches all of its nodes with one call, so those gaps shrink
# to what stands between kernels that were queued in time: `kept_gap_ns`, the median of exactly these gaps in this trace.
#
# Won back = for every kernel launched on its own (no graph node), the part of the GPU's idle time before it in which its launch
# call had not returned, less `kept_gap_ns`. Gaps longer than GAP_NS and gaps in which the host waited for the GPU are left out:
# a graph does not take away data loading or synchronisation. It is an upper bound: a graph needs fixed shapes.

SHORT_NS = int(1_000 * BANDS["kernel_us"].limits[0])
GAP_NS = 200_000
ENOUGH = 20                         # queued kernels, for a median of their gaps


@dataclass(frozen=True)
class ShortKernels:
    is_short: Bools     # per piece of GPU work
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

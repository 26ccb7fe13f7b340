"""Calls into the CUDA (HIP) runtime and driver, and the graphs that they launch.

An outlier is a call longer than OUTLIER_NS (50 µs, the cut-off of Holistic Trace Analysis for launch calls) and than TIMES
(10) times the median of its own name. Calls that wait for the GPU on purpose (synchronisations, blocking copies) are none.

A graph launch is one runtime call that owns several pieces of GPU work (same correlation id). Launches of the same names in
the same order are replays of one graph; a node is a place in that order. Node numbers of the file (`graph node id` of
Kineto, `graphNodeId` of Nsight Systems) are shown where it has them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profiles.analysis.core import intervals
from profiles.analysis.core.frame import Frame, once_a_frame
from profiles.analysis.core.sentences import plural
from profiles.analysis.trace.launching.order import Groups, Order, group_values
from profiles.ingest.arrays import Bools, Int32, Ints, Rows, stable_order
from profiles.ingest.naming.bands import BANDS
from profiles.ingest.trace import Category
from profiles.ingest.windows import MISSING

LAUNCH = re.compile(r"GraphLaunch")
MOST_GRAPHS, MOST_NODES = 40, 600
_NODE_ID = ("graph node id", "graph node", "original graph node")


def in_graph(order: Order) -> Bools:
    """Return, for each piece of GPU work, whether a graph launch owns it."""
    frame, launches = order.frame, np.flatnonzero(order.has_call)
    codes = frame["name"][order.call[launches]]
    graph = [code for code in np.unique(codes).tolist() if code >= 0 and LAUNCH.search(frame.names[code])]
    mask = np.zeros(order.rows.size, np.bool_)
    mask[launches[np.isin(codes, graph)]] = True
    return mask


@dataclass(frozen=True)
class Node:
    """One place in a graph: what ran for it in all replays."""

    name: int                           # code of its name
    node_id: str                        # as the file numbers it, "" where it does not
    count: int
    total_ns: int
    example: int                        # row of the frame


@dataclass(frozen=True)
class Graph:
    """Replays of one graph."""

    label: str                          # "A", "B", …, the most time first
    nodes: list[Node]
    node_count: int
    replays: int
    wall_ns: int                        # from first start to last end, summed over replays
    busy_ns: int                        # of that: some node ran
    work_ns: int                        # summed durations: more than busy where branches run side by side
    call_ns: int                        # time of the launch calls
    example: int                        # row of the first launch call


def graphs(order: Order) -> list[Graph]:
    """Return the graphs that were launched, most time first."""
    rows = np.flatnonzero(in_graph(order))
    if not rows.size:
        return []
    rows = rows[stable_order(order.call[rows])]
    calls, first, count = np.unique(order.call[rows], return_index=True, return_counts=True)
    # nodes of parallel branches start in changing order: which names ran, and how often, tells the graph
    signature = np.stack((np.add.reduceat(_mix_codes(order.name[rows]), first).view(np.int64), count))
    _, which = np.unique(signature, axis=1, return_inverse=True)
    which = which.reshape(-1)
    of_row = np.repeat(which, count)
    wall = np.maximum.reduceat(order.end_ns[rows], first) - np.minimum.reduceat(order.start_ns[rows], first)
    walls = np.bincount(which, weights=wall)
    return [_graph(order, _label(number), rows[of_row == graph], calls[which == graph], int(wall[which == graph].sum()))
            for number, graph in enumerate(stable_order(-walls)[:MOST_GRAPHS].tolist())]


def _mix_codes(codes: Int32) -> npt.NDArray[np.uint64]:
    """A 64-bit mix of each code (splitmix64): sums of them tell multisets of names apart."""
    with np.errstate(over="ignore"):
        x = (codes.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: npt.NDArray[np.uint64] = x ^ (x >> np.uint64(31))
        return mixed


def _label(number: int) -> str:
    return chr(65 + number) if number < 26 else f"{chr(64 + number // 26)}{chr(65 + number % 26)}"


def _graph(order: Order, label: str, rows: Ints, calls: Ints, wall_ns: int) -> Graph:
    """`rows`: positions of all work of all replays; `calls`: rows of the launch calls."""
    replays = calls.size
    # replays as a table, a row each: nodes by name, then by start; the n-th launch of a name is one node in all of them
    table = rows[np.lexsort((order.start_ns[rows], order.name[rows], order.call[rows]))].reshape(replays, -1)
    sums = order.dur_ns[table].sum(0)
    place = stable_order(order.start_ns[table[0]])[:MOST_NODES]
    nodes = [Node(int(order.name[table[0, column]]), _node_id(order, int(table[0, column])), replays, int(sums[column]),
                  int(order.rows[table[0, column]])) for column in place.tolist()]
    busy = intervals.union(order.start_ns[rows], order.end_ns[rows]).length_ns
    return Graph(label, nodes, table.shape[1], replays, wall_ns, busy, int(sums.sum()),
                 int(order.frame["dur_ns"][calls].sum()), int(calls[0]))


def _node_id(order: Order, position: int) -> str:
    arguments = order.frame.arguments(int(order.rows[position]))
    return next((str(arguments[key])[:40] for key in _NODE_ID if key in arguments), "")


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
    outliers = np.flatnonzero(far & ~ended[rows])
    outliers = outliers[stable_order(-dur[outliers])]
    group_waits = np.zeros(groups.code.size, np.bool_)
    group_waits[np.searchsorted(groups.code, code[waits[rows]])] = True
    return Calls(groups, group_waits, rows[outliers], (dur[outliers] - median[outliers]).astype(np.int64))


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
    graph_gap_ns = kept_gap_ns(order)
    own = order.is_kernel & order.has_call & ~in_graph(order)
    candidate = own & (order.late_ns > 0) & (order.gap_ns <= GAP_NS)
    waits = np.flatnonzero(is_wait(order.frame))
    waited = intervals.union(order.frame["start_ns"][waits], order.frame.end_ns[waits])
    rows = np.flatnonzero(candidate)
    during = intervals.overlap_ns(waited, order.gap_start_ns[rows], order.start_ns[rows]) > 0
    won = np.zeros(order.rows.size, np.int64)
    won[rows] = np.where(during, 0, np.maximum(order.late_ns[rows] - round(graph_gap_ns or 0), 0))
    return ShortKernels(short, won, graph_gap_ns)


def kept_gap_ns(order: Order) -> float | None:
    """Return the median gap between kernels where launching kept ahead, or None.

    The next was launched before the one ahead of it on the stream ended.
    """
    queued = order.is_kernel & order.has_call & (order.queued_ns > 0)
    gaps = (order.start_ns - order.free_ns)[queued]
    return float(np.median(gaps)) if gaps.size >= ENOUGH else None


def why_no_calls(frame: Frame) -> str:
    """Return a sentence's end and what to do: "it holds no runtime calls with correlation ids. Record …"

    For traces in which no GPU work has a known launch call.
    """
    calls = frame.of(Category.RUNTIME)
    if not calls.size:
        return ("it holds no runtime calls with correlation ids. Record the CUDA runtime, too (`ProfilerActivity.CPU`, "
                "`nsys profile -t cuda`).")
    numbered = int(np.count_nonzero(~_without_id(frame, calls)))
    if not numbered:
        return f"it holds {plural(calls.size, 'runtime call')} without correlation ids. Keep their arguments when you cut a trace."
    beside = plural(numbered, "runtime call")
    without = int(np.count_nonzero(_without_id(frame, frame.work)))
    if without:
        what = "its GPU work" if without == frame.work.size else f"{plural(without, 'piece')} of its GPU work"
        return f"{what} without a correlation id (0 is none), beside {beside} with one. The profiler wrote no link: record again."
    return f"no correlation id of its GPU work is among those of {beside}. Record the launches and the GPU in one session."


def _without_id(frame: Frame, rows: Rows) -> Bools:
    ids = frame["correlation"][rows]
    missing: Bools = (ids == MISSING) | (ids == 0)
    return missing

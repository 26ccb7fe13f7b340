"""Launch calls and the GPU work that they made: calls without work, work that begins before its call."""

from __future__ import annotations

import re

import numpy as np

from profiles.analysis.core.columns import match
from profiles.analysis.core.digest import Digest
from profiles.analysis.core.frame import Frame
from profiles.ingest.arrays import Bools, Ints
from profiles.ingest.trace import KERNELS, Category, Doubt, Trace
from profiles.ingest.windows import MISSING

# cudaLaunchKernel, cudaLaunchKernelExC, cuLaunchCooperativeKernel, hipExtModuleLaunchKernel, …: each launches one kernel
LAUNCH_CALL = re.compile(r"(?:cuda|cu|hip)(?:Ext)?(?:Module)?Launch(?:Cooperative)?Kernel")
GRAPH_CALL = re.compile(r"(?:cuda|cu|hip)GraphLaunch")         # each launches the kernels of a graph
_CAPTURE_BEGIN, _CAPTURE_END = (re.compile(rf"(?:cuda|cu|hip)Stream{word}Capture") for word in ("Begin", "End"))
_ONE_TABLE = ("nsys-stats", "rocprof-csv")      # formats of which a file holds one table: calls or work, never both
CLOCK_NS = 1_000                        # times of older files are whole microseconds
_AT_END_NS = 1_000_000                  # how long the host's records may go on behind the GPU's, where the recording was cut
_FIELDS = ("correlation", "start_ns", "end_ns", "track", "name")



def find_launches_without_work(digest: Digest, trace: Trace) -> Doubt | None:
    """Find launch calls, of kernels and of graphs, whose work is not in the file.

    Calls that record a kernel into a graph (stream capture) launch nothing. Calls whose work had not run when the recording ended
    are no loss: they come after the last call with work, while the GPU was still busy. Kernels without a correlation id may be
    those of calls: as many calls are not counted. Some versions of ROCm give the kernels of a graph ids of their own: where kernels
    are there whose call is not known, launches of graphs are not counted.
    """
    if trace.format in _ONE_TABLE:
        return None
    calls = _launch_calls(digest)
    work, start = digest.work, calls["start_ns"]
    if not start.size:
        return None
    has_work = (match(calls["correlation"], work["correlation"]) >= 0) & (calls["correlation"] != MISSING)
    lost = ~has_work
    if work["start_ns"].size:
        if (digest.call < 0).any():
            lost &= ~_are(digest, calls["name"], GRAPH_CALL)
        lost &= (calls["correlation"] != MISSING) & ~_nested_in_known(calls, has_work) & ~_not_run_yet(digest, start, has_work)
    count = int(np.count_nonzero(lost)) - int(np.count_nonzero(
        (work["correlation"] == MISSING) & np.isin(work["category"], [int(kind) for kind in KERNELS])))
    if count <= 0:
        return None
    return Doubt("launch_without_work", count, int(start.size), int(start[lost].min()), int(start[lost].max()))


def find_work_before_call(digest: Digest, trace: Trace) -> Doubt | None:
    """Find GPU work that begins more than CLOCK_NS before its launch call: clocks of host and GPU that disagree."""
    start, has_call = digest.work["start_ns"], digest.call >= 0
    early = has_call & (start < digest.call_start_ns - CLOCK_NS)
    if not early.any():
        return None
    ahead_ns = (digest.call_start_ns - start)[early]
    return Doubt("work_before_call", int(np.count_nonzero(early)), int(np.count_nonzero(has_call)), int(start[early].min()),
                 int(start[early].max()), ns=int(ahead_ns.max()))


def count_launch_calls(frame: Frame) -> int:
    """Return how many calls launch a kernel or a graph, as far as their names say."""
    return int(frame.rows_by_name(lambda name: bool(LAUNCH_CALL.match(name) or GRAPH_CALL.match(name)), Category.RUNTIME).size)


def _launch_calls(digest: Digest) -> dict[str, Ints]:
    """Launch calls outside of captures, in order of time."""
    names = digest.names
    kernels, graphs, begins, ends = (np.array([*(bool(pattern.match(name)) for name in names), False], np.bool_)
                                     for pattern in (LAUNCH_CALL, GRAPH_CALL, _CAPTURE_BEGIN, _CAPTURE_END))
    launches = kernels | graphs
    parts, opened, closed = [], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for part in digest.calls():
        parts.append({field: part[field][launches[part["name"]]].astype(np.int64) for field in _FIELDS})
        opened.append(part["start_ns"][begins[part["name"]]])
        closed.append(part["end_ns"][ends[part["name"]]])
    calls = {field: np.concatenate([part[field] for part in parts] or [np.empty(0, np.int64)]) for field in _FIELDS}
    captured = _in_captures(calls["start_ns"], np.concatenate(opened), np.sort(np.concatenate(closed)))
    return {field: values[~captured] for field, values in calls.items()}


def _are(digest: Digest, codes: Ints, pattern: re.Pattern[str]) -> Bools:
    """For each code of a name whether the name begins so."""
    used, place = np.unique(codes, return_inverse=True)
    return np.array([name >= 0 and bool(pattern.match(digest.names[name])) for name in used.tolist()] or [False], np.bool_)[place]


def _in_captures(time: Ints, begin_ns: Ints, end_ns: Ints) -> Bools:
    """For each time whether a capture is open: more have begun than ended. One that began before the recording has an end alone.

    Captures hold for all threads: autograd's own threads launch into the one that captures.
    """
    before = max(0, end_ns.size - begin_ns.size)
    opened = np.searchsorted(begin_ns, time, side="right") + before
    return np.asarray(opened > np.searchsorted(end_ns, time, side="right"), np.bool_)


def _nested_in_known(calls: dict[str, Ints], has_work: Bools) -> Bools:
    """Calls of the driver that a runtime call makes (or the other way round): the work has the id of one of the two."""
    order = np.lexsort((calls["start_ns"], calls["track"]))
    track, start, end = (calls[field][order] for field in ("track", "start_ns", "end_ns"))
    out = np.zeros(order.size, np.bool_)
    for first, last in zip(*_runs(track), strict=True):
        reach = np.maximum.accumulate(end[first:last])
        group = np.cumsum(np.concatenate(([True], start[first + 1:last] >= reach[:-1]))) - 1
        group_has_work = np.bincount(group, weights=has_work[order[first:last]]) > 0
        out[order[first:last]] = group_has_work[group]
    return out


def _runs(values: Ints) -> tuple[list[int], list[int]]:
    """Return where runs of one value begin and end."""
    first = np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1]))[:values.size])
    return first.tolist(), np.append(first, values.size)[1:].tolist()


def _not_run_yet(digest: Digest, start: Ints, has_work: Bools) -> Bools:
    """Calls at the end of a recording that stopped while the GPU was busy: their work would begin behind it."""
    if not has_work.any():
        return np.zeros(start.size, np.bool_)
    end_ns = digest.work["start_ns"] + digest.work["dur_ns"]
    last_end_ns, longest_ns = int(end_ns.max()), int(digest.work["dur_ns"].max())
    if digest.wall[1] - last_end_ns > max(_AT_END_NS, longest_ns):
        return np.zeros(start.size, np.bool_)
    at_end: Bools = (start > start[has_work].max()) & (start < last_end_ns)
    return at_end

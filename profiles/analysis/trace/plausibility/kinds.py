"""The table of what can be in doubt.

A new kind is a row of it: a reader of files adds its `Doubt`, or `find` finds it in the trace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from profiles.analysis.core.digest import Digest, digest_of
from profiles.analysis.core.sentences import pct_of, pct_text, plural, time_text
from profiles.analysis.trace.plausibility.launches import find_launches_without_work, find_work_before_call
from profiles.ingest.arrays import Bools, Ints, stable_order
from profiles.ingest.naming.names import short_name
from profiles.ingest.trace import KERNELS, Doubt, Trace

# Kernels of one stream that cannot be: inside another kernel of the stream, or there twice.

MOST_NAMES = 50                         # kernels that a doubt lists
_TOLERANCE_NS = 1_000                   # times of older files are rounded to microseconds
_MOST_PROGRAMMATIC = 2                  # kernels that may run within another one by programmatic launch

_SAME = ("start_ns", "dur_ns", "name", "correlation")


def find_kernels_inside_kernel(digest: Digest, trace: Trace) -> Doubt | None:
    """Find kernels that run whole within an earlier kernel of their own stream: its duration cannot be.

    Not counted: exact duplicates, branches of a graph (they may share a stream's number), and up to two kernels of calls that can
    ask for programmatic launch (`LaunchKernelEx`).
    """
    rows = _kernels(digest)
    rows = rows[~_repeated(digest, rows)]
    by_start = np.lexsort((-digest.work["dur_ns"][rows], digest.work["start_ns"][rows], digest.work["track"][rows]))
    rows = rows[by_start]
    track, start = digest.work["track"][rows].astype(np.int64), digest.work["start_ns"][rows]
    end = start + digest.work["dur_ns"][rows]
    cover = _covering(track, start, end)
    inside = (cover >= 0) & (end <= end[cover]) & (start < end[cover] - _TOLERANCE_NS)
    for pattern, most in (("GraphLaunch", None), ("LaunchKernelEx", _MOST_PROGRAMMATIC)):
        fits = inside & _called(digest, rows, pattern)
        many = np.bincount(cover[inside], minlength=rows.size) > (most if most is not None else rows.size)
        inside &= ~fits | many[cover]
    if not inside.any():
        return None
    covers = np.unique(cover[inside])
    dur = digest.work["dur_ns"][rows]
    return Doubt("kernel_inside_kernel", int(np.count_nonzero(inside)), int(rows.size), int(start[covers].min()),
                 int(start[inside].max()), ns=int(dur[covers].sum()), of_ns=int(dur.sum()),
                 names=_names(digest, rows[covers]), by=int(covers.size))


def find_duplicates(digest: Digest, trace: Trace) -> Doubt | None:
    """Find GPU work that is in the file twice: same stream, start, duration, name and correlation id."""
    rows = np.flatnonzero((digest.work["dur_ns"] > 0) & ~digest.work["instant"])
    again = rows[_repeated(digest, rows)]
    if not again.size:
        return None
    start, dur = digest.work["start_ns"], digest.work["dur_ns"]
    return Doubt("duplicates", int(again.size), int(rows.size), int(start[again].min()), int(start[again].max()),
                 ns=int(dur[again].sum()), of_ns=int(dur[rows].sum()),
                 names=_names(digest, again[np.isin(digest.work["category"][again], [int(kind) for kind in KERNELS])]))


def _kernels(digest: Digest) -> Ints:
    work = digest.work
    return np.flatnonzero(np.isin(work["category"], [int(kind) for kind in KERNELS]) & ~work["instant"] & (work["dur_ns"] > 0))


def _repeated(digest: Digest, rows: Ints) -> Bools:
    """For each of `rows`, which are in order of start, whether the very same is there before it."""
    out = np.zeros(rows.size, np.bool_)
    start = digest.work["start_ns"][rows]
    tied = np.concatenate((start[1:] == start[:-1], [False])) if rows.size else out
    tied[1:] |= tied[:-1].copy()
    positions = np.flatnonzero(tied)
    if positions.size:
        columns = [digest.work[name][rows[positions]].astype(np.int64) for name in ("track", *_SAME)]
        order = np.lexsort(columns)
        same = np.ones(positions.size - 1, np.bool_)
        for column in columns:
            same &= column[order][1:] == column[order][:-1]
        out[positions[order[1:][same]]] = True
    return out


def _covering(track: Ints, start: Ints, end: Ints) -> Ints:
    """Of kernels by stream and start: the earlier one of the stream that ends last, -1 where there is none."""
    out = np.full(track.size, -1, np.int64)
    if not track.size:
        return out
    first = np.flatnonzero(np.concatenate(([True], track[1:] != track[:-1])))
    for low, high in zip(first.tolist(), [*first[1:].tolist(), track.size], strict=True):
        reach = np.maximum.accumulate(end[low:high])
        leads = np.concatenate(([True], end[low + 1:high] > reach[:-1]))
        longest = np.maximum.accumulate(np.where(leads, np.arange(low, high), low))
        out[low + 1:high] = longest[:-1]
    return out


def _called(digest: Digest, rows: Ints, part: str) -> Bools:
    """For each of `rows` whether the name of its launch call contains `part`."""
    code = digest.call_name[rows]
    used, place = np.unique(code, return_inverse=True)
    fits = np.array([name >= 0 and part in digest.names[name] for name in used.tolist()] or [False], np.bool_)
    return fits[place] if rows.size else np.empty(0, np.bool_)


def _names(digest: Digest, rows: Ints) -> list[str]:
    """Return the names of kernels, the most time first."""
    used, place = np.unique(digest.work["name"][rows], return_inverse=True)
    time = np.bincount(place, weights=digest.work["dur_ns"][rows], minlength=used.size)
    return [digest.names[used[index]] for index in stable_order(-time)[:MOST_NAMES].tolist() if used[index] >= 0]


# What findings rest on (`withhold.RESTS`), and doubts affect.
GPU_TIME, IDLE, CALLS, COUNTS = "gpu_time", "idle", "calls", "counts"
LEAST_PCT = 1.0                         # of launches or of time: less is in the report, and touches no result


@dataclass(frozen=True)
class Kind:
    """One kind of doubt.

    `tell` says it in one sentence without its full stop, names in backticks; `weigh` returns how much of the whole is in doubt, in
    per cent; `affects` is what must not be built on while it touches the result.
    """

    name: str
    label: str                          # of its row in the report
    tell: Callable[[Doubt], str]
    weigh: Callable[[Doubt], float]
    affects: frozenset[str]
    find: Callable[[Digest, Trace], Doubt | None] | None = None


def _of_count(doubt: Doubt) -> float:
    return pct_of(doubt.count, doubt.of or doubt.count)


def _of_time(doubt: Doubt) -> float:
    return pct_of(doubt.ns or 0, doubt.of_ns or 0)


def _whole(doubt: Doubt) -> float:
    return 100.0


def _nothing(doubt: Doubt) -> float:
    return 0.0


def _tell_launches(doubt: Doubt) -> str:
    if doubt.count == doubt.of:
        return (f"{plural(doubt.count, 'launch call')} and no GPU record of {'it' if doubt.count == 1 else 'them'}: the profiler "
                "lost the work or did not record it, and GPU time is not known")
    share = pct_text(_of_count(doubt))
    return (f"{share} of the launches have no GPU record ({doubt.count:,} of {doubt.of:,}): shares of GPU time and idle time "
            "are not reliable")


def _tell_early(doubt: Doubt) -> str:
    share = pct_text(_of_count(doubt))
    return (f"{share} of the GPU work begins before the call that launches it ({doubt.count:,} of {doubt.of:,}, by up to "
            f"{time_text(doubt.ns or 0)}): the clocks of host and GPU disagree, and why the GPU was idle is not known")


def _tell_inside(doubt: Doubt) -> str:
    many = (doubt.by or 1) > 1
    name = f" (`{short_name(doubt.names[0])}`{' and others' if many else ''})" if doubt.names else ""
    own, whole = doubt.ns or 0, doubt.of_ns or 0
    return (f"{plural(doubt.by or 1, 'kernel')}{name} {'cover' if many else 'covers'} {plural(doubt.count, 'other')} of the same "
            f"stream: {'their durations are' if many else 'its duration is'} in doubt, {time_text(own)} of {time_text(whole)} of "
            f"kernel time (without {'them' if many else 'it'} {time_text(whole - own)})")


def _tell_duplicates(doubt: Doubt) -> str:
    return (f"{plural(doubt.count, 'record')} of GPU work {'is' if doubt.count == 1 else 'are'} in the file twice "
            f"({time_text(doubt.ns or 0)} of {time_text(doubt.of_ns or 0)}): launches and sums of kernel time are too large")


def _tell_cap(doubt: Doubt) -> str:
    after = f" after {time_text(doubt.last_ns)}" if doubt.last_ns is not None else ""
    return (f"The file holds {doubt.count:,} events, the most that its exporter writes: what came{after} is probably not in it")


def _tell_no_table(doubt: Doubt) -> str:
    if not doubt.count:
        return "The export has no table of kernels: GPU work was not recorded"
    return (f"{plural(doubt.count, 'launch call')}, and the export has no table of kernels: GPU work was lost or not recorded, "
            "and GPU time is not known")


def _tell_second(doubt: Doubt) -> str:
    more = (doubt.by or 1) - 1
    traces = f"{more + 1} more traces" if more else "a second trace"
    return (f"The file holds {traces} of {plural(doubt.count, 'record')} behind the first ({doubt.where}): "
            f"{'they are' if more else 'it is'} not read, all numbers are of the first")


def _tell_rest(doubt: Doubt) -> str:
    return (f"Behind the end of the trace lies the rest of another file ({plural(doubt.count, 'record')}, {doubt.where}): "
            "it is no part of this trace")


ALL = frozenset({GPU_TIME, IDLE, CALLS, COUNTS})
KINDS: dict[str, Kind] = {kind.name: kind for kind in (
    Kind("no_kernel_table", "launch calls, and no table of kernels", _tell_no_table,
         lambda doubt: 100.0 if doubt.count else 0.0, ALL),
    Kind("launch_without_work", "launch calls without GPU work", _tell_launches, _of_count, frozenset({GPU_TIME, IDLE, COUNTS}),
         find_launches_without_work),
    Kind("kernel_inside_kernel", "kernels inside a kernel of their own stream", _tell_inside, _of_time, frozenset({GPU_TIME, IDLE}),
         find_kernels_inside_kernel),
    Kind("duplicates", "records of GPU work that are there twice", _tell_duplicates, _of_time, frozenset({GPU_TIME, COUNTS}),
         find_duplicates),
    Kind("work_before_call", "GPU work that begins before its call", _tell_early, _of_count, frozenset({CALLS}),
         find_work_before_call),
    Kind("cap", "events up to the exporter's limit", _tell_cap, _whole, frozenset()),
    Kind("second_document", "records of a second trace in the file, not read", _tell_second, _whole, frozenset()),
    Kind("rest_of_another_file", "records of another file behind the end", _tell_rest, _nothing, frozenset()),
)}


# Every doubt about a trace, in words, into its integrity report.


def examine(trace: Trace) -> None:
    """Complete `trace.integrity.plausibility`: what readers noted, what the trace itself shows, the weightiest kind first."""
    digest = digest_of(trace)
    doubts = [_complete(doubt, trace) for doubt in trace.integrity.plausibility if doubt.kind in KINDS]
    doubts += [doubt for kind in KINDS.values() if kind.find and (doubt := kind.find(digest, trace))]
    lost = next((doubt for doubt in doubts if doubt.kind == "launch_without_work"), None)
    for place, doubt in enumerate(doubts):
        if doubt.kind == "no_kernel_table" and lost:
            doubts[place] = replace(doubt, count=lost.count, of=lost.of, first_ns=lost.first_ns, last_ns=lost.last_ns)
    order = list(KINDS)
    trace.integrity.plausibility = [_said(doubt) for doubt in sorted(doubts, key=lambda each: order.index(each.kind))]


def _complete(doubt: Doubt, trace: Trace) -> Doubt:
    """A reader knows no times of what it counted as a whole: then they are the trace's own."""
    if doubt.kind == "cap":
        return replace(doubt, first_ns=0, last_ns=_last_start(trace))
    return doubt


def _last_start(trace: Trace) -> int:
    last = 0
    for window in trace.windows():
        if len(window):
            last = max(last, int(window.columns["start_ns"].max()))
    return last


def _said(doubt: Doubt) -> Doubt:
    kind = KINDS[doubt.kind]
    return replace(doubt, label=kind.label, sentence=kind.tell(doubt), touches=kind.weigh(doubt) >= LEAST_PCT)

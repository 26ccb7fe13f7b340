"""The table of what can be in doubt.

A new kind is a row of it: a reader of files adds its `Doubt`, or `find` finds it in the trace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from profiles.analysis.core.digest import Digest
from profiles.analysis.core.sentences import pct_of, pct_text, plural, time_text
from profiles.analysis.trace.plausibility.launches import find_launches_without_work, find_work_before_call
from profiles.analysis.trace.plausibility.streams import find_duplicates, find_kernels_inside_kernel
from profiles.ingest.naming.names import short_name
from profiles.ingest.trace import Doubt, Trace

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

"""Why a GPU was idle: every ns of it under one of six causes, and what the launching thread did meanwhile.

A gap ends with a piece of GPU work; the call that launched it (same correlation id) divides the gap. Until that call had
returned nothing was queued, so the host was late; from then on the work was launched and had not started. That is
Holistic Trace Analysis' *host wait* and *kernel wait* (`get_idle_time_breakdown`), here per GPU instead of per stream and
cut at the moment instead of decided per gap. The host's part divides further, by what its thread was in:

- data_loading: inside a slice that loads data (DATA below);
- synchronisation: inside a call that waits for the GPU, or in a gap that began during one: the queue ran empty on purpose;
- host_slow: everything else, so Python, operators and launch calls themselves.

Before a GPU's first work the same holds from the start of the first step on, if the file marks steps; the rest of that
time and all after the last work is the recording's `edges`, for nothing says why. Nor does it where no launch call is in
the file (`other`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.frame import Frame
from profiles.analysis.core.intervals import Intervals, select
from profiles.analysis.core.nesting import SYNC_CALLS, SYNC_WORDS
from profiles.analysis.trace.time.tiling import DeviceWork, in_turn
from profiles.ingest.arrays import Ints, Rows, stable_order
from profiles.ingest.trace import Category

MOST_THREADS = 256              # that are looked into: what the others launched late is the host's
CAUSES: dict[str, tuple[str, str]] = {          # name -> (what people read, what it means)
    "host_slow": ("host too slow", "nothing was queued, and the host was in its own code: Python, operators, launch calls"),
    "synchronisation": ("synchronisation", "nothing was queued, because the host had waited for the GPU"),
    "data_loading": ("data loading", "nothing was queued, and the host loaded data"),
    "kernel_wait": ("waiting for a kernel", "the next work was launched and had not started: launch latency or a dependency"),
    "other": ("cause unknown", "the trace has no launch call for what came next"),
    "edges": ("before and after", "before the first and after the last GPU work, outside of steps: the recording's edges"),
}
# Names of slices in which data is loaded: PyTorch's DataLoader, torch.utils.data, NVIDIA DALI, tf.data, common range names.
DATA = re.compile(r"dataloader|torch/utils/data/|data[ _-]?load|load(ing)?[ _-]?(the[ _-])?(data|batch)|"
                  r"(get|next|fetch|prepare)[ _-]?batch|"
                  r"^#* ?(data|dataload|input|batch) ?#*$|dali::|iteratorgetnext|iterator::", re.IGNORECASE)


@dataclass(frozen=True)
class Idle:
    """Idle time of one GPU. `causes` are disjoint and cover every gap. Arrays are per gap, in order of time."""

    gaps: Intervals
    causes: dict[str, Intervals]
    after: Ints             # row of the work that ends the gap, -1 after the last
    thread: Ints            # track of the call that launched it, -1: not known
    late_ns: Ints           # of the gap: until that call had returned


@dataclass(frozen=True)
class HostRows:
    """Rows of the slices that idle time is divided by, of all threads."""

    waits: Rows
    loading: Rows


def host_rows(frame: Frame) -> HostRows:
    return HostRows(frame.rows_by_name(is_wait, Category.RUNTIME),
                    frame.rows_by_name(lambda name: bool(DATA.search(name)), Category.CPU_OP, Category.PYTHON, Category.ANNOTATION))


def busiest(threads: Ints) -> list[int]:
    """The threads that end the most gaps: no program launches from more than these."""
    numbers, count = np.unique(threads, return_counts=True)
    return sorted(numbers[stable_order(-count)[:MOST_THREADS]].tolist())


def is_wait(name: str) -> bool:
    """Tell by its name whether a runtime call waits for the GPU."""
    return name in SYNC_CALLS or any(word in name.lower() for word in SYNC_WORDS)


def idle_of(frame: Frame, work: DeviceWork, host: HostRows, begin_ns: int, end_ns: int, known_ns: int | None = None) -> Idle:
    """Return every gap of a GPU in a window of time, its ns by cause.

    `known_ns`: from when on the host's part in the gap before the first work is known (the start of the first step).
    """
    gaps = _cut(intervals.gaps(work.busy, begin_ns, end_ns), known_ns)
    at = np.searchsorted(frame["start_ns"][work.rows], gaps.end_ns)
    ended = at < work.rows.size
    after = np.where(ended, work.rows[np.minimum(at, work.rows.size - 1)], -1)
    inside = ended & ((gaps.start_ns > begin_ns) if known_ns is None or work.span[0] <= known_ns else (gaps.start_ns >= known_ns))
    call = np.where(ended, frame.call[after], -1)
    known = inside & (call >= 0)
    returned = np.where(known, np.clip(frame.end_ns[call], gaps.start_ns, gaps.end_ns), gaps.end_ns)
    thread = np.where(call >= 0, frame["track"][call], -1).astype(np.int64)
    causes = {"host_slow": intervals.EMPTY, "synchronisation": intervals.EMPTY, "data_loading": intervals.EMPTY,
              "kernel_wait": select(returned, gaps.end_ns, known), "other": select(gaps.start_ns, gaps.end_ns, inside & ~known),
              "edges": select(gaps.start_ns, gaps.end_ns, ~inside)}
    looked = busiest(thread[known])
    unread = known & ~np.isin(thread, looked)
    causes["host_slow"] = select(gaps.start_ns, returned, unread)
    for track in looked:
        mine = known & (thread == track)
        late = select(gaps.start_ns, returned, mine)
        waited = track_cover(frame, track, host.waits)
        drained = mine & (intervals.covered_before(waited, gaps.start_ns + 1) > intervals.covered_before(waited, gaps.start_ns))
        parts = in_turn({
            "data_loading": intervals.intersect(late, track_cover(frame, track, host.loading)),
            "synchronisation": intervals.join(intervals.intersect(late, waited), select(gaps.start_ns, returned, drained)),
            "host_slow": late})
        for name, part in parts.items():
            causes[name] = intervals.join(causes[name], part)
    return Idle(gaps, causes, after, thread, np.where(known, returned - gaps.start_ns, 0))


def _cut(gaps: Intervals, at_ns: int | None) -> Intervals:
    """The first gap in two, where a moment lies within it."""
    if at_ns is None or not gaps.start_ns.size or not gaps.start_ns[0] < at_ns < gaps.end_ns[0]:
        return gaps
    return Intervals(np.r_[gaps.start_ns[:1], at_ns, gaps.start_ns[1:]], np.r_[at_ns, gaps.end_ns])


def track_cover(frame: Frame, track: int, rows: Rows) -> Intervals:
    """Return what some slices cover on one track."""
    mine = rows[frame["track"][rows] == track]
    return intervals.union(frame["start_ns"][mine], frame.end_ns[mine])

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

What the launching threads did while a GPU was idle: ns of each gap under the innermost slice of that moment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.digest import SYNC_CALLS, SYNC_WORDS
from profiles.analysis.core.frame import Frame
from profiles.analysis.core.intervals import Intervals, select
from profiles.analysis.trace.time.tiling import DeviceWork, Tiling, in_turn, tiling
from profiles.ingest.arrays import Ints, Rows, stable_order, sums_by
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
    positions = np.searchsorted(frame["start_ns"][work.rows], gaps.end_ns)
    ended = positions < work.rows.size
    after = np.where(ended, work.rows[np.minimum(positions, work.rows.size - 1)], -1)
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


NOTHING = ""                # no slice at all: code that the profiler did not see
MOST_NAMES = 8              # of each cause; the rest is one row
MOST_OF_THREAD = 5_000      # names of one thread and cause, the most time first; the rest is one name
OTHERS = -2
COUNTED = " counted"        # ends the labels of what lies in windows that count
_OF_HOST = ("host_slow", "synchronisation", "data_loading", "edges")


@dataclass(frozen=True)
class Activity:
    """Time of one cause under one name. `name` "" is time in no slice."""

    cause: str
    name: str
    ns: int
    slices: int
    counted_ns: int = 0         # of it in the windows that count


def activity(frame: Frame, idle: Idle, windows: Intervals = intervals.EMPTY) -> list[Activity]:
    """Return what threads did while GPUs were idle: by cause, then the most time first.

    The ns of a cause add up to the cause's own, where its thread is known. `windows` are what counts in averages.
    """
    spent: dict[tuple[str, int], tuple[int, int, int]] = {}
    for track in busiest(idle.thread[idle.thread >= 0]):
        tiles = _of_thread(idle, track, windows)
        for (label, code), (ns, count) in _by_name(frame, tiles, track).items():
            cause = tiles.labels[label].removesuffix(COUNTED)
            before = spent.get((cause, code), (0, 0, 0))
            counted_ns = ns if tiles.labels[label].endswith(COUNTED) else 0
            spent[cause, code] = before[0] + ns, before[1] + count, before[2] + counted_ns
    activities = [Activity(cause, frame.names[code] if code >= 0 else "names with less time" if code == OTHERS else NOTHING, *sums)
             for (cause, code), sums in spent.items() if sums[0] > 0]
    return sorted(activities, key=lambda each: (_OF_HOST.index(each.cause), -each.ns, each.name))


def _of_thread(idle: Idle, track: int, windows: Intervals) -> Tiling:
    """The gaps that end with work which a thread launched, cut by cause and by whether they count."""
    mine = idle.thread == track
    gaps = Intervals(idle.gaps.start_ns[mine], idle.gaps.end_ns[mine])
    pieces = {}
    for cause in _OF_HOST:
        whole = intervals.intersect(idle.causes[cause], gaps)
        pieces[cause + COUNTED] = intervals.intersect(whole, windows)
        pieces[cause] = intervals.without(whole, pieces[cause + COUNTED])
    return tiling(pieces)


def _by_name(frame: Frame, tiles: Tiling, track: int) -> dict[tuple[int, int], tuple[int, int]]:
    """(label, name) -> (ns, slices): time within a slice less that within the slices it directly contains."""
    if not tiles.start_ns.size:
        return {}
    rows = frame.rows_of_track(track)
    first, last = int(tiles.start_ns[0]), int(tiles.end_ns.max())
    rows = rows[(frame["start_ns"][rows] < last) & (frame.end_ns[rows] > first) & ~frame["instant"][rows]]
    inside = tiles.within(frame["start_ns"][rows], frame.end_ns[rows])
    above = _places(frame, rows, frame.parent[rows])
    own = inside.copy()
    for label in range(len(tiles.labels)):
        own[label] -= sums_by(above[above >= 0], inside[label][above >= 0], rows.size)
    code = frame["name"][rows] + 1
    out: dict[tuple[int, int], tuple[int, int]] = {}
    total = tiles.sums()
    for label, name in enumerate(tiles.labels):
        mine = np.flatnonzero(own[label] > 0)
        ns = sums_by(code[mine], own[label][mine])
        count = np.bincount(code[mine])
        order = np.flatnonzero(ns)
        order = order[stable_order(-ns[order])]
        for i in order[:MOST_OF_THREAD].tolist():
            out[label, i - 1] = int(ns[i]), int(count[i])
        if order.size > MOST_OF_THREAD:
            out[label, OTHERS] = int(ns[order[MOST_OF_THREAD:]].sum()), int(count[order[MOST_OF_THREAD:]].sum())
        outside = total[name] - int(inside[label][above < 0].sum())
        if outside > 0:
            out[label, -1] = outside, 0
    return out


def _places(frame: Frame, rows: Rows, wanted: Ints) -> Ints:
    """Where each of some rows of the frame stands among `rows` (ascending), -1 where it does not."""
    if rows.size * 8 > frame.rows:
        place = np.full(frame.rows + 1, -1, np.int64)           # the last is that of -1
        place[rows] = np.arange(rows.size)
        return place[wanted]
    positions = np.minimum(np.searchsorted(rows, wanted), max(rows.size - 1, 0))
    return np.where(rows[positions] == wanted, positions, -1) if rows.size else np.full(wanted.size, -1)


def innermost(frame: Frame, track: int, start_ns: int, end_ns: int) -> tuple[int, int]:
    """Return (row, ns) of a thread's slice with the most time of its own in a window.

    (-1, 0) where none is.
    """
    rows = frame.rows_of_track(track)
    first, last = np.searchsorted(frame["start_ns"][rows], (start_ns, end_ns)).tolist()
    open_then = frame.path(int(rows[first - 1])) if first else []           # what is open at a moment contains what began last
    rows = np.r_[np.array(open_then[::-1], np.intp), rows[first:last]]
    rows = rows[(frame.end_ns[rows] > start_ns) & ~frame["instant"][rows]]
    if not rows.size:
        return -1, 0
    inside: Ints = np.minimum(frame.end_ns[rows], end_ns) - np.maximum(frame["start_ns"][rows], start_ns)
    above = _places(frame, rows, frame.parent[rows])
    own = inside - sums_by(above[above >= 0], inside[above >= 0], rows.size)
    best = int(np.argmax(own))
    return int(rows[best]), int(own[best])


def largest_activities(activities: list[Activity]) -> list[Activity]:
    """The names with the most time of each cause, and "the rest" of it."""
    out: list[Activity] = []
    by_cause: Mapping[str, list[Activity]] = {cause: [entry for entry in activities if entry.cause == cause] for cause in _OF_HOST}
    for cause, mine in by_cause.items():
        rest = mine[MOST_NAMES:]
        out += mine[:MOST_NAMES]
        if rest:
            out.append(Activity(cause, f"{len(rest)} other names", sum(entry.ns for entry in rest),
                                sum(entry.slices for entry in rest)))
    return out

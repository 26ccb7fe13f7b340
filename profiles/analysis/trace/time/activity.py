"""What the launching threads did while a GPU was idle: ns of each gap under the innermost slice of that moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.frame import Frame
from profiles.analysis.core.intervals import Intervals
from profiles.analysis.trace.time.idle import Idle, busiest
from profiles.analysis.trace.time.tiling import Tiling, tiling
from profiles.ingest.arrays import Ints, Rows, stable_order, sums_by

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
    at = np.minimum(np.searchsorted(rows, wanted), max(rows.size - 1, 0))
    return np.where(rows[at] == wanted, at, -1) if rows.size else np.full(wanted.size, -1)


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
    by_cause: Mapping[str, list[Activity]] = {cause: [each for each in activities if each.cause == cause] for cause in _OF_HOST}
    for cause, mine in by_cause.items():
        rest = mine[MOST_NAMES:]
        out += mine[:MOST_NAMES]
        if rest:
            out.append(Activity(cause, f"{len(rest)} other names", sum(each.ns for each in rest),
                                sum(each.slices for each in rest)))
    return out

"""At which depth of its track a slice is drawn: nested where it lies within another, in a free lane below where slices
partly overlap. Never dropped: Perfetto's viewer lost such slices for a year (google/perfetto #6284).

The depth of a slice follows from those that began before it alone, so that a trace can be laid out window by window:

- where slices nest, the depth is the number of slices that are open;
- a slice that ends after one it began in (it *overflows*) takes the lowest lane that is free, below the innermost slice
  that encloses it; so do all that begin before it and everything that began after it has ended.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profiles.ingest.arrays import Array, Bools, Int32, Ints, stable_order
from profiles.ingest.windows import Window

MAX_DEPTH = 32_000
_LOOKED_AT = 64              # lanes from the lowest upwards that are searched for a free one: a hostile file has thousands


@dataclass
class _Open:
    """Slices that have not ended where a window ends, by track and lane."""

    track: Ints
    end: Ints
    nominal_end: Ints              # without the 1 ns that a slice of no duration is given
    lane: Ints

    def until(self, time_ns: int) -> _Open:
        """Return those that are still open at a moment."""
        keep = self.end > time_ns
        return _Open(self.track[keep], self.end[keep], self.nominal_end[keep], self.lane[keep])


def _none() -> _Open:
    return _Open(*(np.empty(0, np.int64) for _ in range(4)))


class Depths:
    """Lays out windows in order of time."""

    def __init__(self) -> None:
        self.overflowed = 0                          # slices that went to overflow lanes
        self._open = _none()
        self._until: dict[int, int] = {}             # tracks whose lanes hold overlapping slices: until when

    def add(self, window: Window) -> npt.NDArray[np.int16]:
        """Return the depth of every slice of the window.

        Two slices of one track and depth never overlap; instants lie at the depth of the innermost slice around them.
        """
        columns = window.columns
        track, start, dur = columns["track"].astype(np.int64), columns["start_ns"], columns["dur_ns"]
        spans = np.flatnonzero(~columns["instant"])
        rows = _Rows(self._open, track[spans], start[spans], dur[spans], int(start.min(initial=window.end_ns)), window.end_ns)
        lane = rows.nested_lanes()
        self.overflowed += _settle(rows, lane, self._until)
        out = np.zeros(track.size, np.int64)
        fresh = rows.source >= 0
        out[spans[rows.source[fresh]]] = lane[fresh]
        marks = np.flatnonzero(columns["instant"])
        if marks.size:
            out[marks] = rows.around(track[marks], start[marks])
        self._open = rows.open_at_end(lane, window.next_ns)
        self._until = {number: until for number, until in self._until.items() if until > window.next_ns}
        return np.minimum(out, MAX_DEPTH).astype(np.int16)


class _Rows:
    """The spans of a window behind those still open, by track, start and length."""

    def __init__(self, before: _Open, track: Ints, start: Ints, dur: Ints, first_ns: int, end_ns: int) -> None:
        self.window_end = end_ns
        before = before.until(first_ns)
        old = before.track.size
        begin = first_ns - 1                                    # what is open began before
        all_track = np.concatenate((before.track, track))
        all_start = np.concatenate((np.full(old, begin), start))
        all_end = np.concatenate((before.end, start + np.maximum(dur, 1)))
        nominal = np.concatenate((before.nominal_end, start + dur))
        self._tracks, number = np.unique(all_track, return_inverse=True)
        self._base, self._span = begin, end_ns - begin + 2
        self._times: Ints | None = None
        if float(self._tracks.size) * self._span >= 2.0**62:    # too far apart for int64: ranks keep the order
            self._times = _distinct(all_start, np.minimum(all_end, end_ns), np.minimum(nominal, end_ns))
            self._span = self._times.size + 2
        position = self._at(all_start) + number * self._span
        order = np.lexsort((-all_end, position))
        if old:                                                 # those open stay in the order of their lanes
            order = np.concatenate((order[order < old], order[order >= old]))
            order = order[stable_order(position[order])]
        self.at, self.number = position[order], number[order]
        self.closing = self._at(all_end)[order] + self.number * self._span
        self.closing_nominal = self._at(nominal)[order] + self.number * self._span
        self.track, self.start, self.end, self.nominal = all_track[order], all_start[order], all_end[order], nominal[order]
        self.source = order - old                               # row of the window; below 0: was open before
        self.lane = np.concatenate((before.lane, np.full(track.size, -1)))[order]
        self.count = np.arange(order.size) - np.searchsorted(np.sort(self.closing), self.at, side="right")

    def _at(self, time_ns: Ints) -> Ints:
        """Times on the window's own axis; beyond its end they are all the same."""
        inside = np.minimum(time_ns, self.window_end)
        return inside - self._base if self._times is None else np.searchsorted(self._times, inside)

    def nested_lanes(self) -> Ints:
        """Return lanes as if all were nested: how many are open at the start.

        Those open before keep theirs.
        """
        return np.where(self.lane >= 0, self.lane, self.count)

    def parents(self) -> Ints:
        """Return, for each row, the last one before it that is one deeper in count, else -1.

        On its track.
        """
        n = self.count.size
        by_count = stable_order(self.count)
        key = self.count[by_count] * np.int64(n) + by_count     # ascending: count, then position
        before = np.searchsorted(key, (self.count - 1) * np.int64(n) + np.arange(n)) - 1
        parent = by_count[np.maximum(before, 0)]
        good = (self.count > 0) & (before >= 0) & (self.number[parent] == self.number)
        return np.where(good, parent, -1)

    def around(self, track: Ints, time_ns: Ints) -> Ints:
        """Depth of the innermost slice open at a moment, at most; 0 where none is."""
        place = np.minimum(np.searchsorted(self._tracks, track), max(self._tracks.size - 1, 0))
        if not self._tracks.size:
            return np.zeros(track.size, np.int64)
        has_track = self._tracks[place] == track
        if self._times is None:
            moment = self._at(time_ns) + place * self._span
        else:                                                   # between the ranks of known times
            moment = np.searchsorted(self._times, time_ns, side="right") - 1 + place * self._span
        opened = np.searchsorted(self.at, moment, side="right")
        closed = np.searchsorted(np.sort(self.closing_nominal), moment, side="right")
        return np.where(has_track, np.maximum(opened - closed - 1, 0), 0)

    def open_at_end(self, lane: Ints, next_ns: int) -> _Open:
        """Return what is still open where the next window begins, by track and lane."""
        rows = np.flatnonzero((self.end > next_ns) & (lane <= MAX_DEPTH))
        rows = rows[np.lexsort((lane[rows], self.number[rows]))]
        return _Open(self.track[rows], self.end[rows], self.nominal[rows], lane[rows])


def _settle(rows: _Rows, lane: Ints, until: dict[int, int]) -> int:
    """Give lanes to slices that overlap and to all near them, in place; returns how many overflowed."""
    parent = rows.parents()
    fresh = rows.source >= 0
    first = fresh & (rows.count > 0) & ((parent < 0) | (rows.end > rows.end[np.maximum(parent, 0)]))
    if until:
        tracks = np.array(sorted(until), np.int64)
        first |= fresh & np.isin(rows.track, tracks) & (rows.start < np.array([until[key] for key in tracks.tolist()], np.int64)[
            np.minimum(np.searchsorted(tracks, rows.track), tracks.size - 1)])
    done = overflowed = 0
    for position in np.flatnonzero(first).tolist():
        if position >= done:
            done, count = _place(rows, lane, parent, position, until)
            overflowed += count
    return overflowed


def _place(rows: _Rows, lane: Ints, parent: Ints, first: int, until: dict[int, int]) -> tuple[int, int]:
    """Lanes from `first` on, one by one, until all that began since have ended. Returns where that is and how many
    overflowed."""
    track = int(rows.track[first])
    base, ends, reach = _opening(rows, lane, parent, first, until.get(track))
    position, overflowed = first, 0
    stop = int(np.searchsorted(rows.number, rows.number[first], side="right"))
    block_rows = 8                                                   # most clashes are of two slices, some of thousands
    while position < stop:
        block, block_rows = slice(position, min(position + block_rows, stop)), min(4 * block_rows, 4096)
        placed: list[int] = []
        for start, end in zip(rows.start[block].tolist(), rows.end[block].tolist(), strict=True):
            if start >= reach:
                break
            reach = max(reach, end)
            chosen, over = _lane(ends, start, end)
            overflowed += over
            placed.append(chosen + base)
        lane[position:position + len(placed)] = placed
        position += len(placed)
        if len(placed) < block.stop - block.start:
            break
    until[track] = reach
    return position, overflowed


def _opening(rows: _Rows, lane: Ints, parent: Ints, first: int, reach: int | None) -> tuple[int, list[int], int]:
    """Number of the first lane that is looked at, the ends in it and those below, and until when they matter."""
    start = int(rows.start[first])
    if reach is not None and reach > start:                     # the window began among overlapping slices
        mine = np.flatnonzero((rows.number[:first] == rows.number[first]) & (rows.end[:first] > start))
        end_by_lane = {int(lane[row]): int(rows.end[row]) for row in mine.tolist()}
    else:
        reach, end_by_lane, row = int(rows.end[first]), {}, int(parent[first])
        while row >= 0 and len(end_by_lane) < _LOOKED_AT:
            end_by_lane[int(lane[row])] = int(rows.end[row])
            row = int(parent[row])
    top = max(end_by_lane, default=-1) + 1
    base = max(0, top - _LOOKED_AT)
    return base, [end_by_lane.get(number, 0) for number in range(base, top)], reach


def _lane(ends: list[int], start: int, end: int) -> tuple[int, bool]:
    """The lowest free lane below the innermost slice that encloses [start, end), and whether that is not the next one."""
    while ends and ends[-1] <= start:
        ends.pop()
    top = len(ends)
    lowest = max(0, top - _LOOKED_AT)
    inside = top - 1
    while inside >= lowest and not (ends[inside] > start and ends[inside] >= end):
        inside -= 1
    chosen = inside + 1
    while chosen < top and ends[chosen] > start:
        chosen += 1
    if chosen == top:
        ends.append(end)
    else:
        ends[chosen] = end
    return chosen, chosen != inside + 1


def _distinct(*values: Ints) -> Ints:
    """Sorted, each once (np.unique hashes, which is slower for times: nearly all differ)."""
    ordered = np.sort(np.concatenate(values))
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))] if ordered.size else ordered


def depths(track: Int32, start_ns: Ints, dur_ns: Ints,
           instant: Bools) -> tuple[npt.NDArray[np.int16], int]:
    """Return the depth of every slice of a whole trace, and how many overflowed.

    Slices come in any order.
    """
    order = stable_order(start_ns)
    arrays: dict[str, Array] = {"track": track, "start_ns": start_ns, "dur_ns": dur_ns, "instant": instant}
    columns = {name: values[order] for name, values in arrays.items()}
    laid = Depths()
    out = np.zeros(track.size, np.int16)
    if track.size:
        out[order] = laid.add(Window(columns, int(start_ns.max()) + 1))
    return out, laid.overflowed

"""The slices of an area of the timeline, a window of time after the other, so that memory does not grow with the area."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from profiles.ingest.arrays import Array, Bools
from profiles.store.area_columns import Key, column
from profiles.store.timeline import Timeline

Rows = dict[str, Array]
WINDOW_ROWS = 400_000           # slices that begin in a window, about
_BASE = ("track", "start_ns", "dur_ns", "instant")


@dataclass(frozen=True)
class Area:
    """What is asked about: [start_ns, end_ns) of some tracks (None: all), and which of the slices there."""

    start_ns: int
    end_ns: int
    tracks: tuple[int, ...] | None = None
    where: tuple[tuple[str, Key], ...] = ()     # (column, value's key): slices of a row of a table
    least_ns: int | None = None                 # duration within [least_ns, most_ns)
    most_ns: int | None = None

    def mask(self, timeline: Timeline) -> Bools:
        """Track number -> is it of the area."""
        mask = np.zeros(len(timeline.tracks), np.bool_)
        mask[range(len(timeline.tracks)) if self.tracks is None else list(self.tracks)] = True
        return mask

    def on(self, tracks: Bools) -> Area:
        """Return the same time on other tracks, every slice of them."""
        return Area(self.start_ns, self.end_ns, tuple(np.flatnonzero(tracks).tolist()))


@dataclass(frozen=True)
class Window:
    """Slices that overlap [start_ns, end_ns) as columns, by "slice" (their id), with "begin" and "end" clipped to the area."""

    start_ns: int
    end_ns: int
    done: float                 # share of the area's windows behind this one, 0-1
    rows: Rows
    first: Bools    # the window counts it: a slice that reaches over several is in each of them

    @property
    def counted_rows(self) -> Rows:
        return {name: values[self.first] for name, values in self.rows.items()}

    def clip_times(self) -> tuple[Array, Array]:
        """Return begin and end of each slice within the window."""
        return np.maximum(self.rows["begin"], self.start_ns), np.minimum(self.rows["end"], self.end_ns)


def windows(timeline: Timeline, area: Area, names: tuple[str, ...] = (), rows: int = WINDOW_ROWS) -> Iterator[Window]:
    """Yield the area's slices with their `names` (stored columns, of arguments too).

    Always at least one window.
    """
    needed = tuple(dict.fromkeys((*_BASE, *names, *(name for key, _ in area.where for name in column(key).needs))))
    drawn = tuple(name for name in needed if name in timeline.slices.names)
    said = tuple(name for name in needed if name not in drawn)
    mask = area.mask(timeline)
    cuts = timeline.cuts(area.start_ns, area.end_ns, rows)
    for number, (start, end) in enumerate(cuts):
        parts = [_part(timeline, area, mask, span, (start, end), (drawn, said)) for span in timeline.ranges(start, end)]
        part = _none(timeline, needed) if not parts else {
            name: np.concatenate([each[name] for each in parts]) for name in (*needed, "slice")}
        part["begin"] = np.maximum(part["start_ns"], area.start_ns)
        part["end"] = np.maximum(np.minimum(part["start_ns"] + part["dur_ns"], area.end_ns), part["begin"])
        first = part["start_ns"] >= start if number else np.ones(part["slice"].size, np.bool_)
        yield Window(start, end, (number + 1) / len(cuts), part, first)


def _part(timeline: Timeline, area: Area, mask: Bools, span: tuple[int, int], window: tuple[int, int],
          names: tuple[tuple[str, ...], tuple[str, ...]]) -> Rows:
    """Slices of one range of stored rows that overlap the window and that the area asks for."""
    lo, hi = span
    drawn, said = names
    part = timeline.slices.read_uncached(lo, hi, drawn)
    # an instant, and a slice of no length, is where it is; others are on [start, end)
    keep = mask[part["track"]] & (part["start_ns"] < window[1]) & (part["start_ns"] + np.maximum(part["dur_ns"], 1) > window[0])
    if area.least_ns is not None:
        keep &= part["dur_ns"] >= area.least_ns
    if area.most_ns is not None:
        keep &= part["dur_ns"] < area.most_ns
    if not keep.any():
        said_part = {name: timeline.arguments.read(0, 0, (name,))[name] for name in said}
        return {**{name: values[:0] for name, values in part.items()}, **said_part, "slice": np.empty(0, np.int64)}
    if said:
        part |= timeline.arguments.read_uncached(lo, hi, said)
    part = {name: values[keep] for name, values in part.items()} | {"slice": np.flatnonzero(keep) + lo}
    for name, key in area.where:
        same = column(name).equal(timeline, part, key)
        part = {name: values[same] for name, values in part.items()}
    return part


def _none(timeline: Timeline, names: tuple[str, ...]) -> Rows:
    empty = {name: (timeline.slices if name in timeline.slices.names else timeline.arguments).read(0, 0,
                                                                                                   (name,))[name] for name in names}
    return {**empty, "slice": np.empty(0, np.int64)}


def whole(timeline: Timeline) -> Area:
    """Return the whole trace: its last instant lies at its end."""
    return Area(0, int(timeline.document["end_ns"]) + 1)

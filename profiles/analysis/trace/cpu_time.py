"""Where the time of a trace without GPU work went: by name, with what lies within taken out, and by thread.

Self time is a slice's duration less that of the slices directly within it (one level deeper on the same track, inside
its begin and end). A slice that only partly overlaps another lies in none. Sums over threads are time of threads, not of
the wall clock.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from profiles.ingest.arrays import Array, stable_order
from profiles.ingest.trace import SummaryTable, Trace, summary_columns, with_rows

BY_NAME = "CPU time by name"
ROWS = 500                       # of each table
_LEVELS = 1024                   # of nesting at which self time is told apart
_BY_NAME = summary_columns("Name: text | Slices: count | Self: ns | Share: pct | Total: ns | Mean: ns")
_BY_TRACK = summary_columns("Thread: text | Process: text | Slices: count | Busy: ns | Of the trace: pct")
_CHAINS = summary_columns("Name: text | Slices: count | Total: ns | Mean: ns")


class _Rows(NamedTuple):
    """Spans by track, start and depth."""

    track: Array
    start: Array
    end: Array
    depth: Array
    name: Array
    new: Array            # of this window, not carried over

    def take(self, rows: Array) -> _Rows:
        return _Rows(*(column[rows] for column in self))


def tables(trace: Trace) -> list[SummaryTable]:
    """Return CPU time by name, by thread, and asynchronous slices by name.

    Only tables that have rows.
    """
    sums = _Sums(trace)
    carried: _Rows | None = None
    for window in trace.parts.windows():
        rows = sums.rows(window.columns)
        sums.add(rows, carried)
        both = rows if carried is None else _Rows(*(np.concatenate(pair) for pair in zip(carried, rows, strict=True)))
        still = both.take(np.flatnonzero(both.end > window.next_ns))
        carried = still._replace(new=np.zeros(still.new.size, np.bool_))
    return with_rows((sums.by_name(), sums.by_track(), sums.chains()))


class _Sums:
    def __init__(self, trace: Trace) -> None:
        self._trace, self._names = trace, trace.parts.names
        self._thread = np.array([track.kind == "thread" for track in trace.tracks] or [False], np.bool_)
        names, tracks = len(self._names), self._thread.size
        self._count, self._total, self._inner, self._chain, self._chained = (np.zeros(names) for _ in range(5))
        self._slices, self._busy = np.zeros(tracks), np.zeros(tracks)
        self._until = np.full(tracks, np.iinfo(np.int64).min)        # how far each track is counted as busy

    def rows(self, columns: dict[str, Array]) -> _Rows:
        spans = np.flatnonzero(~columns["instant"])
        start = columns["start_ns"][spans]
        return _Rows(columns["track"][spans], start, start + columns["dur_ns"][spans], columns["depth"][spans].astype(np.int64),
                     columns["name"][spans], np.ones(spans.size, np.bool_))

    def add(self, rows: _Rows, carried: _Rows | None) -> None:
        thread = self._thread[rows.track]
        n = self._count.size
        for chosen, count, total in ((thread, self._count, self._total), (~thread, self._chain, self._chained)):
            count += np.bincount(rows.name[chosen], minlength=n)
            total += np.bincount(rows.name[chosen], (rows.end - rows.start)[chosen], n)
        own = rows.take(np.flatnonzero(thread))
        self._slices += np.bincount(own.track, minlength=self._slices.size)
        self._union(own)
        if carried is not None:
            earlier = carried.take(np.flatnonzero(self._thread[carried.track]))
            own = _Rows(*(np.concatenate(pair) for pair in zip(earlier, own, strict=True)))
        self._within(own.take(np.lexsort((own.depth, own.start, own.track))))

    def _union(self, rows: _Rows) -> None:
        """Busy time of every thread: the outermost slices of each, once where they overlap."""
        by_track = stable_order(rows.track)             # once for all: each thread's rows lie together
        occurring, begins = np.unique(rows.track[by_track], return_index=True)
        beyonds = np.append(begins, by_track.size)[1:]
        for track, begin, beyond in zip(occurring.tolist(), begins.tolist(), beyonds.tolist(), strict=True):
            chosen = by_track[begin:beyond]
            start, end = rows.start[chosen], np.maximum.accumulate(rows.end[chosen])         # windows are ordered by start
            before = np.maximum(np.concatenate(([self._until[track]], end[:-1])), self._until[track])
            self._busy[track] += int(np.maximum(end - np.maximum(start, before), 0).sum())
            self._until[track] = max(self._until[track], int(end[-1]))

    def _within(self, rows: _Rows) -> None:
        """Take the duration of every slice from what it lies in."""
        order = stable_order(rows.depth)                # within a depth still by track and start
        bounds = np.searchsorted(rows.depth[order], np.arange(min(int(rows.depth.max(initial=0)), _LEVELS) + 2))
        for depth in range(1, bounds.size - 1):
            above, here = order[bounds[depth - 1]:bounds[depth]], order[bounds[depth]:bounds[depth + 1]]
            here = here[rows.new[here]]
            if not above.size or not here.size:
                continue
            at = np.searchsorted(above, here) - 1
            parent = above[np.maximum(at, 0)]
            inside = (at >= 0) & (rows.track[parent] == rows.track[here]) & (rows.end[here] <= rows.end[parent])
            self._inner += np.bincount(rows.name[parent[inside]], (rows.end - rows.start)[here[inside]], self._inner.size)

    def by_name(self) -> SummaryTable:
        own = self._total - self._inner
        whole = float(own.sum()) or 1.0
        occurring = np.flatnonzero(self._count)
        top = occurring[stable_order(-own[occurring])][:ROWS]
        rows: list[list[Any]] = [[self._names[i], int(self._count[i]), int(own[i]), 100 * own[i] / whole, int(self._total[i]),
                                  self._total[i] / self._count[i]] for i in top.tolist()]
        return SummaryTable(BY_NAME, _BY_NAME, rows, "Self: without the slices within. Share: of the self time of all "
                            "threads." + _of(occurring.size))

    def by_track(self) -> SummaryTable:
        wall = max(self._trace.parts.end_ns, 1)
        occurring = np.flatnonzero(self._slices)
        top = occurring[stable_order(-self._busy[occurring])][:ROWS]
        tracks = self._trace.tracks
        rows: list[list[Any]] = [[tracks[i].name, tracks[i].group, int(self._slices[i]), int(self._busy[i]),
                                  100 * self._busy[i] / wall] for i in top.tolist()]
        return SummaryTable("CPU time by thread", _BY_TRACK, rows,
                            "Busy: while any slice of the thread was open." + _of(occurring.size))

    def chains(self) -> SummaryTable:
        occurring = np.flatnonzero(self._chain)
        top = occurring[stable_order(-self._chained[occurring])][:ROWS]
        rows: list[list[Any]] = [[self._names[i], int(self._chain[i]), int(self._chained[i]), self._chained[i] / self._chain[i]]
                                 for i in top.tolist()]
        return SummaryTable("Other slices by name", _CHAINS, rows,
                            "Asynchronous work and marks of the profiler: no time of a thread." + _of(occurring.size))


def _of(count: int) -> str:
    return f" The {ROWS} of most time, of {count:,}." if count > ROWS else ""

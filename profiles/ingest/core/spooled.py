"""Slices on disk as windows in order of time: gathered from sorted runs, put on the trace's clock, laid out in depths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise

import numpy as np

from profiles.ingest.arrays import Int32, stable_order
from profiles.ingest.core.clock import Clock
from profiles.ingest.core.lanes import Depths
from profiles.ingest.core.spool import Columns, Run, Runs
from profiles.ingest.trace import Integrity
from profiles.ingest.windows import Window

WINDOW_ROWS = 131_072
OVERLAPPING = "overlapping slices were moved to overflow lanes"


class SpooledSlices:
    """`profiles.ingest.windows.Slices` of a builder's runs. `place`: final number of every provisional track."""

    def __init__(self, runs: Runs, clock: Clock, place: Int32, names: list[str], details: Sequence[str],
                 devices: list[int], integrity: Integrity) -> None:
        self._runs, self._clock, self._place, self._integrity = runs, clock, place, integrity
        self.names, self.details, self.devices = names, details, devices
        self.rows = sum(run.rows for run in runs.runs)
        self._counted = False
        self.misplaced = 0
        self._bounds = [self._near(run) for run in runs.runs]       # rows of each run whose times stand
        self.end_ns = max((self._end(run, *bounds) for run, bounds in zip(runs.runs, self._bounds, strict=True)), default=0)

    def _end(self, run: Run, low: int, high: int) -> int:
        if not low and high == run.rows:
            return run.last_end - self._clock.zero
        starts, durations = self._runs.column(run, "start_ns"), self._runs.column(run, "dur_ns")
        return int((self._clock.move(starts) + durations).max())

    def _near(self, run: Run) -> tuple[int, int]:
        low = 0 if run.starts[0] >= self._clock.low else self._runs.row(run, self._clock.low)
        high = run.rows if run.last_start <= self._clock.high else self._runs.row(run, self._clock.high + 1)
        self.misplaced += low + run.rows - high
        return low, high

    def windows(self) -> Iterator[Window]:
        """Yield all slices, laid out.

        What overlaps is counted into the integrity report, once.
        """
        laid = Depths()
        for columns, end_ns, more in self._gather():
            columns["track"] = self._place[columns["track"]]
            window = Window(columns, end_ns, more)
            columns["depth"] = laid.add(window)
            yield window
        if not self._counted:
            self._integrity.repair(OVERLAPPING, laid.overflowed)
            self._counted = True

    def _gather(self) -> Iterator[tuple[Columns, int, bool]]:
        """Columns ordered by time, the time behind the last, and whether more rows begin at that last time."""
        held: list[Columns] = []
        held_rows = 0
        for part in self._odd():
            held.append(part)
            held_rows += part["start_ns"].size
            if held_rows > WINDOW_ROWS:                             # a hostile file: all of them begin at one moment
                held_rows -= held[0]["start_ns"].size
                yield self._together([held.pop(0)], True)
        cursors = [low for low, _ in self._bounds]
        for edge in self._edges():
            parts, held = held, []
            cuts: list[tuple[Run, int, int]] = []
            for number, run in enumerate(self._runs.runs):
                last = self._bounds[number][1]
                first = cursors[number]
                if first < last and (edge is None or run.starts[0] < edge):
                    cursors[number] = last if edge is None or run.last_start < edge else min(last, self._runs.row(run, edge))
                    cuts += [(run, a, b) for a, b in _cut(first, cursors[number])]
            yield from self._split_window(parts, cuts)

    def _split_window(self, parts: list[Columns], cuts: list[tuple[Run, int, int]]) -> Iterator[tuple[Columns, int, bool]]:
        """As one window; as several, read one by one, where far more rows than wanted begin at one moment."""
        rows = sum(part["start_ns"].size for part in parts) + sum(b - a for _, a, b in cuts)
        if rows > 4 * WINDOW_ROWS and len(self._moments(parts, cuts)) == 1:
            left = len(parts) + len(cuts)
            for part in chain(parts, (self._runs.read(*cut) for cut in cuts)):
                left -= 1
                yield self._together([part], left > 0)
        elif rows:
            yield self._together(parts + [self._runs.read(*cut) for cut in cuts], False)

    def _moments(self, parts: list[Columns], cuts: list[tuple[Run, int, int]]) -> set[int]:
        """First and last starts of pieces that are each ordered by start."""
        ends = [*parts, *(self._runs.read(run, row, row + 1) for run, a, b in cuts for row in (a, b - 1))]
        return {int(time) for part in ends for time in (part["start_ns"][0], part["start_ns"][-1])}

    def _together(self, parts: list[Columns], more: bool) -> tuple[Columns, int, bool]:
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        start = self._clock.move(columns["start_ns"])
        if (start[1:] < start[:-1]).any():
            order = stable_order(start)
            columns, start = {name: values[order] for name, values in columns.items()}, start[order]
        columns["start_ns"] = start
        return columns, int(start[-1]) + 1, more

    def _odd(self) -> Iterator[Columns]:
        """Rows whose times do not stand: they begin where the trace does."""
        for run, (low, high) in zip(self._runs.runs, self._bounds, strict=True):
            for first, last in (*_cut(0, low), *_cut(high, run.rows)):
                yield self._runs.read(run, first, last)

    def _edges(self) -> list[int | None]:
        """Times between windows of about WINDOW_ROWS rows; None stands for the end."""
        starts = [run.starts for run in self._runs.runs]
        if not starts:
            return []
        begin = np.concatenate(starts)
        weight = np.concatenate([np.full(run.starts.size, run.stride) for run in self._runs.runs])
        order = stable_order(begin)
        begin, filled = begin[order], np.cumsum(weight[order])
        wanted = np.arange(WINDOW_ROWS, int(filled[-1]), WINDOW_ROWS)
        times = begin[np.searchsorted(filled, wanted, side="right").clip(0, begin.size - 1)]
        inside = times[(times > self._clock.low) & (times <= self._clock.high)]
        # one moment at which more than a window begins gets a window of its own
        lasting = inside[:-1][inside[1:] == inside[:-1]]
        return [*np.unique(np.concatenate((inside, lasting + 1))).tolist(), None]


def _cut(first: int, last: int) -> list[tuple[int, int]]:
    return list(pairwise([*range(first, last, WINDOW_ROWS), last])) if last > first else []



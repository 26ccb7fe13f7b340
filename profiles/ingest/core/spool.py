"""Rows on disk between the two passes of an ingest: sorted runs, written once and read by row ranges.

A run is some 200,000 rows ordered by start, column by column as raw numbers. What only GPU work has is kept for the rows
that have any of it. Nothing is mapped into memory: mapped pages count as resident.

Slices on disk as windows in order of time: gathered from sorted runs, put on the trace's clock, laid out in depths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np

from profiles.ingest.arrays import Int32, Ints, stable_order
from profiles.ingest.core.clock import Clock, Times
from profiles.ingest.core.lanes import Depths
from profiles.ingest.scratch import Column, Spool
from profiles.ingest.trace import Integrity
from profiles.ingest.windows import MISSING, MISSING32, Window

RUN_ROWS = 196_608
STRIDE = 1024                       # rows between two known starts of a run
Columns = dict[str, Column]
DENSE: dict[str, Any] = {"start_ns": np.int64, "dur_ns": np.int64, "name": np.int32, "category": np.uint8, "track": np.int32,
                         "instant": np.bool_, "correlation": np.int64, "external_id": np.int64, "detail": np.int32}
SPARSE: dict[str, Any] = {
    "device": np.int32, "stream": np.int64, "grid_x": np.int32, "grid_y": np.int32, "grid_z": np.int32, "block_x": np.int32,
    "block_y": np.int32, "block_z": np.int32, "registers_per_thread": np.int32, "smem_bytes": np.int64,
    "occupancy_pct": np.float32, "bytes": np.int64}
ABSENT: dict[str, Any] = {name: np.nan if kind is np.float32 else MISSING32 if kind is np.int32 else MISSING
                          for name, kind in SPARSE.items()}
_ROW = "row"                        # of the sparse columns: to which row of the run each belongs


def narrow(values: Column) -> Int32:
    """int64 numbers as int32; what does not fit is unknown."""
    fits = (values > MISSING32) & (values < 2**31)
    return np.where(fits, values, MISSING32).astype(np.int32)


@dataclass
class Run:
    """Where one run's columns lie. `starts`: of every STRIDE-th row."""

    rows: int
    at: dict[str, int]
    sparse_before: Ints     # rows with GPU columns before every STRIDE-th row, and in all
    starts: Ints
    stride: int
    last_start: int
    last_end: int                   # greatest start + duration
    zeros: int                      # rows that begin at exactly 0
    least_other: int | None         # first start that is not 0


class Runs:
    """All runs of one trace. `write` may be called from another thread than the rest, one call at a time."""

    def __init__(self) -> None:
        self.spool = Spool()
        self.runs: list[Run] = []

    def write(self, columns: Columns) -> None:
        """Write rows of DENSE and SPARSE columns, in any order."""
        start = columns["start_ns"]
        if start.size > 1 and (start[1:] < start[:-1]).any():
            order = stable_order(start)
            columns = {name: values[order] for name, values in columns.items()}
            start = columns["start_ns"]
        present = np.zeros(start.size, np.bool_)
        for name in SPARSE:
            present |= ~np.isnan(columns[name]) if name == "occupancy_pct" else columns[name] != ABSENT[name]
        rows = np.flatnonzero(present).astype(np.int32)
        offset_by_name = {name: self.spool.write(columns[name].astype(kind, copy=False)) for name, kind in DENSE.items()}
        offset_by_name |= {name: self.spool.write(columns[name][rows].astype(kind, copy=False)) for name, kind in SPARSE.items()}
        offset_by_name[_ROW] = self.spool.write(rows)
        stride = min(STRIDE, max(1, start.size // 64))
        before = np.searchsorted(rows, np.arange(0, start.size + STRIDE, STRIDE))
        zeros = slice(*np.searchsorted(start, [0, 1]).tolist())
        other = start[0] if zeros.start else start[zeros.stop] if zeros.stop < start.size else None
        self.runs.append(Run(start.size, offset_by_name, before, start[::stride].copy(), stride, int(start[-1]),
                             int((start + columns["dur_ns"]).max()), zeros.stop - zeros.start,
                             None if other is None else int(other)))

    def read(self, run: Run, first: int, last: int) -> Columns:
        """Return the rows [first, last) of a run."""
        n = last - first
        out = {name: self.spool.read(run.at[name] + first * np.dtype(kind).itemsize, n, kind) for name, kind in DENSE.items()}
        rows, a, b = self._sparse(run, first, last)
        for name, kind in SPARSE.items():
            out[name] = np.full(n, ABSENT[name], kind)
            if rows.size:
                out[name][rows] = self.spool.read(run.at[name] + a * np.dtype(kind).itemsize, b - a, kind)
        return out

    def column(self, run: Run, name: str) -> Column:
        """Return a dense column of a whole run."""
        return self.spool.read(run.at[name], run.rows, DENSE[name])

    def _sparse(self, run: Run, first: int, last: int) -> tuple[Int32, int, int]:
        """Which of the rows [first, last) have GPU columns (counted from `first`), and where among all that have."""
        a, b = int(run.sparse_before[first // STRIDE]), int(run.sparse_before[-(-last // STRIDE)])
        rows = self.spool.read(run.at[_ROW] + a * 4, b - a, np.int32)
        lo, hi = np.searchsorted(rows, [first, last]).tolist()
        return rows[lo:hi] - first, a + lo, a + hi

    def row(self, run: Run, time_ns: int) -> int:
        """First row of a run that begins at or after a time."""
        block = int(np.searchsorted(run.starts, time_ns, side="left"))
        if block == 0:
            return 0
        first = (block - 1) * run.stride
        last = min(run.rows, first + run.stride)
        starts = self.spool.read(run.at["start_ns"] + first * 8, last - first, np.int64)
        return first + int(np.searchsorted(starts, time_ns, side="left"))

    def times(self) -> Times | None:
        """Return what is known of the starts."""
        if not self.runs:
            return None
        others = [run.least_other for run in self.runs if run.least_other is not None]
        return Times(min(int(run.starts[0]) for run in self.runs), max(run.last_start for run in self.runs),
                     np.concatenate([run.starts for run in self.runs]),
                     np.concatenate([np.full(run.starts.size, run.stride) for run in self.runs]),
                     sum(run.zeros for run in self.runs), min(others, default=None))

    def least(self, run: Run, low: int, high: int) -> int | None:
        """First start of a run within both."""
        if run.last_start < low:
            return None
        row = self.row(run, low)
        start = int(self.spool.read(run.at["start_ns"] + row * 8, 1, np.int64)[0])
        return start if start <= high else None


# What a builder has not written yet: batches until they make a run, which another thread then sorts and writes.

_PAGE_BITS = 13
_MAX_PAGES = 1 << 16                    # of 1 kB


class Spill:
    """Takes batches of columns; `finish` gives the runs. At most one run waits while one is written."""

    def __init__(self) -> None:
        self.correlations = Numbers()
        self._runs = Runs()
        self._batches: list[Columns] = []
        self._rows = 0
        self._pool: ThreadPoolExecutor | None = None
        self._writing: Future[None] | None = None

    def add(self, batch: Columns) -> None:
        self._batches.append(batch)
        self._rows += batch["start_ns"].size
        if self._rows >= RUN_ROWS:
            self._pool = self._pool or ThreadPoolExecutor(1, thread_name_prefix="spool")
            self._wait()
            self._writing = self._pool.submit(self._write, self._take())

    def _take(self) -> list[Columns]:
        batches, self._batches, self._rows = self._batches, [], 0
        return batches

    def _write(self, batches: list[Columns]) -> None:
        columns = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
        batches.clear()
        self.correlations.add(columns["correlation"])
        self._runs.write(columns)

    def _wait(self) -> None:
        if self._writing is not None:
            self._writing.result()
            self._writing = None

    def finish(self) -> Runs:
        self._wait()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        if self._batches:
            self._write(self._take())
        return self._runs


class Numbers:
    """A set of int64 ids in a few bytes per thousand: pages of bits. Ids of more than _MAX_PAGES pages are not remembered
    (a set that is too small leaves out flows that could have been left out, never others)."""

    def __init__(self) -> None:
        self._pages: dict[int, np.ndarray[tuple[int], np.dtype[np.uint8]]] = {}

    def add(self, ids: Ints) -> None:
        ids = np.unique(ids)
        page = ids >> _PAGE_BITS
        first = np.flatnonzero(np.concatenate((page[:1] == page[:1], page[1:] != page[:-1])))
        for lo, hi in zip(first.tolist(), [*first.tolist()[1:], ids.size], strict=True):
            number = int(page[lo])
            if number not in self._pages:
                if len(self._pages) >= _MAX_PAGES:
                    continue
                self._pages[number] = np.zeros(1 << (_PAGE_BITS - 3), np.uint8)
            bit = ids[lo:hi] & ((1 << _PAGE_BITS) - 1)
            np.bitwise_or.at(self._pages[number], bit >> 3, (1 << (bit & 7)).astype(np.uint8))

    def hold(self, ids: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Return which of `ids` are in the set."""
        distinct, inverse = np.unique(ids, return_inverse=True)
        is_member = np.zeros(distinct.size, np.bool_)
        page = distinct >> _PAGE_BITS
        for number in np.unique(page).tolist():
            if number in self._pages:
                rows = np.flatnonzero(page == number)
                bit = distinct[rows] & ((1 << _PAGE_BITS) - 1)
                is_member[rows] = (self._pages[number][bit >> 3] >> (bit & 7)) & 1 == 1
        return is_member[inverse]


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
        backlog: list[Columns] = []
        held_rows = 0
        for part in self._odd():
            backlog.append(part)
            held_rows += part["start_ns"].size
            if held_rows > WINDOW_ROWS:                             # a hostile file: all of them begin at one moment
                held_rows -= backlog[0]["start_ns"].size
                yield self._together([backlog.pop(0)], True)
        cursors = [low for low, _ in self._bounds]
        for edge in self._edges():
            parts, backlog = backlog, []
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
        row_counts = np.arange(WINDOW_ROWS, int(filled[-1]), WINDOW_ROWS)
        times = begin[np.searchsorted(filled, row_counts, side="right").clip(0, begin.size - 1)]
        inside = times[(times > self._clock.low) & (times <= self._clock.high)]
        # one moment at which more than a window begins gets a window of its own
        lasting = inside[:-1][inside[1:] == inside[:-1]]
        return [*np.unique(np.concatenate((inside, lasting + 1))).tolist(), None]


def _cut(first: int, last: int) -> list[tuple[int, int]]:
    return list(pairwise([*range(first, last, WINDOW_ROWS), last])) if last > first else []

"""Rows on disk between the two passes of an ingest: sorted runs, written once and read by row ranges.

A run is some 200,000 rows ordered by start, column by column as raw numbers. What only GPU work has is kept for the rows
that have any of it. Nothing is mapped into memory: mapped pages count as resident.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from profiles.ingest.clock import Times
from profiles.trace import TraceError
from profiles.windows import MISSING, MISSING32

RUN_ROWS = 196_608
STRIDE = 1024                       # rows between two known starts of a run
Column = npt.NDArray[Any]
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


def narrow(values: Column) -> npt.NDArray[np.int32]:
    """int64 numbers as int32; what does not fit is unknown."""
    fits = (values > MISSING32) & (values < 2**31)
    return np.where(fits, values, MISSING32).astype(np.int32)


class Spool:
    """A file without a name: it is gone with the process, however that ends."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="ridgepoint-spool-", buffering=0)    # noqa: SIM115  (lives as long as this)
        self._end = 0

    def write(self, values: Column) -> int:
        """Returns where the values begin. Raises TraceError when the disk is full."""
        at = self._end
        view = memoryview(np.ascontiguousarray(values).view(np.uint8).data).cast("B") if values.size else memoryview(b"")
        try:
            while view:
                done = self._put(view)
                view = view[done or 0:]
                self._end += done or 0
        except OSError as error:
            raise TraceError("temporary folder", f"cannot be written ({error.strerror or error})",
                             "An ingest needs room for about a quarter of the unpacked file: free some, or set TMPDIR.") from error
        return at

    def _put(self, view: memoryview) -> int | None:
        return self._file.write(view)

    def read(self, at: int, count: int, kind: Any) -> Column:
        """`count` values of a kind from a position on."""
        size = count * np.dtype(kind).itemsize
        parts, got = [], 0
        while got < size:
            part = os.pread(self._file.fileno(), size - got, at + got)
            if not part:
                raise OSError("the spool ends before its rows")
            parts.append(part)
            got += len(part)
        return np.frombuffer(parts[0] if len(parts) == 1 else b"".join(parts), kind)

    def close(self) -> None:
        self._file.close()


@dataclass
class Run:
    """Where one run's columns lie. `starts`: of every STRIDE-th row."""

    rows: int
    at: dict[str, int]
    sparse_before: npt.NDArray[np.int64]     # rows with GPU columns before every STRIDE-th row, and in all
    starts: npt.NDArray[np.int64]
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
        """Rows of DENSE and SPARSE columns, in any order."""
        start = columns["start_ns"]
        if start.size > 1 and (start[1:] < start[:-1]).any():
            order = np.argsort(start, kind="stable")
            columns = {name: values[order] for name, values in columns.items()}
            start = columns["start_ns"]
        present = np.zeros(start.size, np.bool_)
        for name in SPARSE:
            present |= ~np.isnan(columns[name]) if name == "occupancy_pct" else columns[name] != ABSENT[name]
        rows = np.flatnonzero(present).astype(np.int32)
        at = {name: self.spool.write(columns[name].astype(kind, copy=False)) for name, kind in DENSE.items()}
        at |= {name: self.spool.write(columns[name][rows].astype(kind, copy=False)) for name, kind in SPARSE.items()}
        at[_ROW] = self.spool.write(rows)
        stride = min(STRIDE, max(1, start.size // 64))
        before = np.searchsorted(rows, np.arange(0, start.size + STRIDE, STRIDE))
        zeros = slice(*np.searchsorted(start, [0, 1]).tolist())
        other = start[0] if zeros.start else start[zeros.stop] if zeros.stop < start.size else None
        self.runs.append(Run(start.size, at, before, start[::stride].copy(), stride, int(start[-1]),
                             int((start + columns["dur_ns"]).max()), zeros.stop - zeros.start,
                             None if other is None else int(other)))

    def read(self, run: Run, first: int, last: int) -> Columns:
        """Rows [first, last) of a run."""
        n = last - first
        out = {name: self.spool.read(run.at[name] + first * np.dtype(kind).itemsize, n, kind) for name, kind in DENSE.items()}
        rows, a, b = self._sparse(run, first, last)
        for name, kind in SPARSE.items():
            out[name] = np.full(n, ABSENT[name], kind)
            if rows.size:
                out[name][rows] = self.spool.read(run.at[name] + a * np.dtype(kind).itemsize, b - a, kind)
        return out

    def column(self, run: Run, name: str) -> Column:
        """A dense column of a whole run."""
        return self.spool.read(run.at[name], run.rows, DENSE[name])

    def _sparse(self, run: Run, first: int, last: int) -> tuple[npt.NDArray[np.int32], int, int]:
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
        """What is known of the starts."""
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


class Records:
    """Fixed records of one kind on disk, in parts of which each is sorted as the caller likes."""

    def __init__(self, kind: npt.DTypeLike) -> None:
        self.kind = np.dtype(kind)
        self.rows = 0
        self.parts: list[tuple[int, int]] = []          # where, how many
        self._spool: Spool | None = None

    def write(self, part: Column) -> None:
        if part.size:
            self._spool = self._spool or Spool()
            self.parts.append((self._spool.write(part.view(np.uint8)), part.size))
            self.rows += part.size

    def read(self, number: int, first: int = 0, last: int | None = None) -> Column:
        at, rows = self.parts[number]
        last = rows if last is None else last
        if self._spool is None or last <= first:
            return np.empty(0, self.kind)
        return self._spool.read(at + first * self.kind.itemsize, last - first, self.kind)

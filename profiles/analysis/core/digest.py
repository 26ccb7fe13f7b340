"""What the analyses need of a trace, gathered in one pass over its windows: GPU work as arrays, the host's side on disk.

In memory: all GPU work (some 100 bytes each), the runtime calls that launched it, steps and waits. On disk: one record per
CPU slice, read back in pieces by what asks for it. So memory follows the GPU's launches, not the trace's size.

CPU slices of a trace, window by window, as the records that the host's analyses read: what each is, and within what.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from profiles.analysis.core.columns import NONE, match
from profiles.ingest.arrays import Array, Ints, Rows, stable_order
from profiles.ingest.scratch import Records
from profiles.ingest.trace import GPU_WORK, Category, Trace
from profiles.ingest.windows import MISSING, MISSING32, Window

NO_KIND = 255
HOST_ROW = np.dtype([
    ("start_ns", np.int64), ("end_ns", np.int64), ("track", np.int32), ("name", np.int32),
    ("kind", np.uint8), ("within", np.uint8),       # kinds of the slice and of the one around it; NO_KIND: none of the host's
    ("under_operator", np.bool_),                   # an operator encloses it
    ("outermost", np.int32),                        # name of the outermost operator around it, -1: none
])
SYNC_WORDS = ("synchronize",)               # cudaStreamSynchronize, hipDeviceSynchronize, cuCtxSynchronize …
SYNC_CALLS = ("cudaMemcpy", "hipMemcpy", "cuMemcpyDtoH_v2", "cuMemcpyHtoD_v2")     # the blocking copies


class Nesting:
    """Remembers the slices that are still open where a window ends."""

    WAIT, RUNTIME, OPERATOR, ANNOTATION, PROFILER = range(5)
    _KINDS = {Category.RUNTIME: RUNTIME, Category.CPU_OP: OPERATOR, Category.PYTHON: ANNOTATION,
              Category.ANNOTATION: ANNOTATION, Category.OVERHEAD: PROFILER}

    def __init__(self, names: list[str]) -> None:
        self._waits = np.array([name in SYNC_CALLS or any(word in name.lower() for word in SYNC_WORDS) for name in names]
                               or [False], np.bool_)
        self._kind = np.full(256, NO_KIND, np.uint8)
        for category, kind in self._KINDS.items():
            self._kind[category] = kind
        self._open = np.empty(0, HOST_ROW)
        self._open_lane = np.empty(0, np.int64)

    def add(self, columns: dict[str, Array], rows: Rows, next_ns: int) -> Array:
        """Return HOST_ROW records of some slices of a window.

        Those of later windows do not begin before `next_ns`.
        """
        kind = self._kind[columns["category"][rows]]
        kind[columns["instant"][rows]] = NO_KIND
        kind[(kind == self.RUNTIME) & self._waits[columns["name"][rows]]] = self.WAIT
        old = self._open.size
        out = np.empty(old + rows.size, HOST_ROW)
        out[:old] = self._open
        new = out[old:]
        new["start_ns"], new["name"], new["track"], new["kind"] = (
            columns["start_ns"][rows], columns["name"][rows], columns["track"][rows], kind)
        new["end_ns"] = columns["start_ns"][rows] + columns["dur_ns"][rows]
        new["within"], new["under_operator"], new["outermost"] = NO_KIND, False, -1
        fresh = columns["track"][rows].astype(np.int64) << 16 | columns["depth"][rows].astype(np.int64)
        lane = np.concatenate((self._open_lane, fresh))
        host = np.flatnonzero(out["kind"] != NO_KIND)
        self._within(out, host, host[_parents(lane[host], out["start_ns"][host], out["end_ns"][host])], old)
        lasting = host[out["end_ns"][host] >= next_ns]
        self._open, self._open_lane = out[lasting], lane[lasting]
        return out[old:]

    def _within(self, out: Array, host: Rows, parent: Rows, old: int) -> None:
        """What encloses each, by following parents in doubling strides. `parent` is the row itself where there is none."""
        fresh = (host >= old) & (parent != host)
        pointer = np.full(out.size, -1, np.int64)
        pointer[host[fresh]] = parent[fresh]
        mine = host[fresh]
        above = out["kind"][parent[fresh]]
        out["within"][mine] = above
        operator = above == self.OPERATOR
        out["under_operator"][mine] = operator
        out["outermost"][mine] = np.where(operator, out["name"][parent[fresh]], -1)
        while mine.size:
            to = pointer[mine]
            under = out["under_operator"][to].copy()
            name, further = out["outermost"][to].copy(), pointer[to]
            out["under_operator"][mine] |= under
            out["outermost"][mine] = np.where(name >= 0, name, out["outermost"][mine])
            pointer[mine] = further
            mine = mine[further >= 0]


def _parents(lane: Ints, start_ns: Ints, end_ns: Ints) -> Rows:
    """Of every slice the one a depth above on its track (lane - 1) that encloses it; itself where there is none."""
    n = lane.size
    itself = np.arange(n)
    if not n:
        return itself
    lanes, number = np.unique(lane, return_inverse=True)
    times = np.sort(start_ns)
    time = np.searchsorted(times, start_ns)                     # ranks: lanes and times fit one number
    key = number * np.int64(n) + time
    order = stable_order(key)
    above = np.minimum(np.searchsorted(lanes, lane - 1), lanes.size - 1)
    position = np.searchsorted(key[order], above * np.int64(n) + time, side="right") - 1
    parent = order[np.maximum(position, 0)]
    good = (position >= 0) & (lane[parent] == lane - 1) & (lane & 0xFFFF > 0) & (end_ns[parent] >= end_ns)
    return np.where(good, parent, itself)


STEP = re.compile(r"ProfilerStep#(\d+)$")
_WORK = [int(kind) for kind in GPU_WORK]
_WALL = [*_WORK, int(Category.RUNTIME), int(Category.CPU_OP), int(Category.PYTHON), int(Category.ANNOTATION)]
_CALL = [("correlation", np.int64), ("start_ns", np.int64), ("end_ns", np.int64), ("track", np.int32), ("name", np.int32)]
SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers_per_thread", "smem_bytes")
_COLUMNS = ("start_ns", "dur_ns", "name", "category", "track", "device", "instant", "correlation", *SHAPE, "occupancy_pct", "bytes")


class Digest:
    """`add` every window in order, then `finish`."""

    def __init__(self, trace: Trace) -> None:
        self.names = trace.parts.names
        self.device_names = {device.index: device.name for device in trace.devices}
        self.host = Records(HOST_ROW)                   # every slice that is no GPU work, in order of time
        self.waits: Array = np.empty(0, HOST_ROW)       # of these the waits for the GPU
        self.work: dict[str, Array] = {}                # columns of all GPU work, by start; device -1: unknown
        # of each work's launch call; track and name NONE: no call known
        self.call_start_ns = self.call_end_ns = self.call_track = self.call_name = np.empty(0, np.int64)
        self._nesting = Nesting(self.names)
        self._step_names = np.array([bool(STEP.match(name)) for name in self.names] or [False], np.bool_)
        self._work: list[dict[str, Array]] = []
        self._calls = Records(_CALL)
        self._steps: list[Array] = []
        self._waits: list[Array] = []
        self._wall: list[tuple[int, int] | None] = [None, None]     # of what makes wall time; of everything

    def add(self, window: Window) -> None:
        columns = window.columns
        category, start = columns["category"], columns["start_ns"]
        end = start + columns["dur_ns"]
        real = ~columns["instant"]
        for number, mask in enumerate((real & np.isin(category, _WALL), real)):
            if mask.any():
                wall = self._wall[number] or (int(start[mask].min()), 0)
                self._wall[number] = min(wall[0], int(start[mask].min())), max(wall[1], int(end[mask].max()))
        is_work = np.isin(category, _WORK)
        if is_work.any():
            self._work.append({name: columns[name][is_work] for name in _COLUMNS})
        calls = np.flatnonzero(category == Category.RUNTIME)
        record = np.empty(calls.size, _CALL)
        for name, values in (("correlation", columns["correlation"]), ("start_ns", start), ("end_ns", end),
                             ("track", columns["track"]), ("name", columns["name"])):
            record[name] = values[calls]
        self._calls.write(record)
        steps = np.flatnonzero((category == Category.ANNOTATION) & self._step_names[columns["name"]])
        if steps.size:
            names, tracks = (columns[column][steps].astype(np.int64) for column in ("name", "track"))
            self._steps.append(np.stack([start[steps], end[steps], names, tracks]))
        rows = self._nesting.add(columns, np.flatnonzero(~is_work), window.next_ns)
        self.host.write(rows)
        self._waits.append(rows[rows["kind"] == Nesting.WAIT])

    def finish(self) -> None:
        parts, self._work = self._work, []
        self.work = {name: np.concatenate([part.pop(name) for part in parts]) if parts else np.empty(0, np.int64)
                     for name in _COLUMNS}
        self.work["device"] = np.where(self.work["device"] == MISSING32, -1, self.work["device"])
        self.work["instant"] = self.work["instant"].astype(np.bool_)
        self.waits = np.concatenate(self._waits) if self._waits else self.waits
        self._waits = []
        calls = self._launching()
        at = match(self.work["correlation"], calls["correlation"])
        known, place = at >= 0, np.maximum(at, 0)
        for name, missing in (("start_ns", 0), ("end_ns", 0), ("track", NONE), ("name", NONE)):
            column = calls[name].astype(np.int64)
            setattr(self, f"call_{name}", np.where(known, column[place], missing) if column.size else np.full(at.size, missing))
        self.call = at                                  # number of the launching call, NONE where it is not known

    def _launching(self) -> Array:
        """The runtime calls whose correlation id some GPU work has, in order of time."""
        ids = self.work["correlation"]
        ids = np.sort(ids[ids != MISSING])         # not made unique: of millions of ids that takes seconds
        calls = []
        for part in self.calls():
            position = np.minimum(np.searchsorted(ids, part["correlation"]), max(ids.size - 1, 0))
            calls.append(part[ids[position] == part["correlation"]] if ids.size else part[:0])
        return np.concatenate(calls) if calls else np.empty(0, _CALL)

    def calls(self) -> Iterator[Array]:
        """Yield the runtime calls, in order of time.

        Fields: correlation (MISSING: none), start_ns, end_ns, track, name.
        """
        for number in range(len(self._calls.parts)):
            yield self._calls.read(number)

    @property
    def wall(self) -> tuple[int, int]:
        """First start and last end of everything that is not a mark or the profiler's own."""
        return self._wall[0] or self._wall[1] or (0, 0)

    def steps(self) -> list[tuple[str, int, int]]:
        """Return (name, start, end) of every ProfilerStep#N, in order of start."""
        return [(self.names[name], start, end) for part in self._steps for start, end, name, _ in part.T.tolist()]

    def step_tracks(self) -> list[int]:
        """Return the track of each of `steps`: whose steps they are."""
        return [track for part in self._steps for track in part[3].tolist()]

    def host_rows(self) -> Iterator[Array]:
        """Yield `host` in pieces."""
        for number in range(len(self.host.parts)):
            yield self.host.read(number)


def digest_of(trace: Trace, also: Callable[[Window], Any] | None = None,
              tell: Callable[[str, int, int], None] | None = None) -> Digest:
    """Return the trace's digest, which is made once.

    `also` is shown every window in the same pass; `tell` is told the phase and how far it is.
    """
    digest = trace.digest
    if isinstance(digest, Digest) and also is None:
        return digest
    result = digest if isinstance(digest, Digest) else Digest(trace)
    done = 0
    for window in trace.windows():
        if also:
            also(window)
        if result is not digest:
            result.add(window)
        done += len(window)
        if tell:
            tell("analysing", done, trace.parts.rows)
    if result is not digest:
        result.finish()
    trace.digest = result
    return result

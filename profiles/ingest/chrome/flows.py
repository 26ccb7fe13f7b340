"""Flow arrows of a Chrome trace, both versions: which slice each end belongs to, and which ends belong together.

Version 1 (s, t, f) binds to the slice around the record's time, an `f` without bp "e" to the next slice that begins.
Version 2 (bind_id, flow_in, flow_out) binds to the slice that carries it. Ends are moved to the start of their slice, so
that a flow is found from the slice.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from profiles.ingest.arrays import Array, Bools, Ints, Rows, stable_order
from profiles.ingest.chrome.lanes import ChromeLanes
from profiles.ingest.chrome.records import Index, Piece
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.columns import Ids
from profiles.ingest.trace import FLOWS, Trace

END = np.dtype([("id", "<i8"), ("time", "<i8"), ("kind", "<i4"), ("track", "<i4"), ("is_end", "?"), ("following", "?")])
_LEVELS = 512                    # of nesting that are searched for the slice around an end
_YES = (True, "true", 1)


class Flows:
    """Gathers ends; `finish` hands them to the builder, and `bind` moves them to their slices afterwards."""

    def __init__(self) -> None:
        self._kinds = Ids()
        self._rows: list[tuple[int, int, int, int, bool, bool]] = []
        self._parts: list[Array] = []

    def of_slices(self, here: Piece, rows: Index, lanes: ChromeLanes) -> None:
        """Version 2."""
        if not here.extras:
            return
        for row, event, extra in zip(rows.tolist(), here.events(rows), here.extra(rows), strict=True):
            if extra.bind_id is None or event.ph == "E":
                continue
            for flow, is_end in ((extra.flow_in, True), (extra.flow_out, False)):
                if flow in _YES:
                    self._add(hash(("bind", str(extra.bind_id))), str(event.cat or "flow"), here, row, is_end, False)
        self._settle(lanes)

    def records(self, here: Piece, rows: Index, lanes: ChromeLanes) -> None:
        """Version 1. A step (t) ends one arrow and begins the next."""
        for row, event, extra in zip(rows.tolist(), here.events(rows), here.extra(rows), strict=True):
            key = hash((str(event.cat), str(event.name), str(event.id)))
            kind = str(event.cat or event.name or "flow")
            if event.ph != "s":
                self._add(key, kind, here, row, True, event.ph == "f" and extra.bp != "e")
            if event.ph != "f":
                self._add(key, kind, here, row, False, False)
        self._settle(lanes)

    def add(self, keys: list[int], kind: str, here: Piece, rows: Index, is_end: Bools, lanes: ChromeLanes) -> None:
        """Ends that slices name in their arguments."""
        for key, row, end in zip(keys, rows.tolist(), is_end.tolist(), strict=True):
            self._add(key, kind, here, row, end, False)
        self._settle(lanes)

    def _add(self, key: int, kind: str, here: Piece, at: int, is_end: bool, following: bool) -> None:
        self._rows.append((key, int(here.start[at]), self._kinds[kind[:200]], int(here.lane[at]), is_end, following))

    def _settle(self, lanes: ChromeLanes) -> None:
        if self._rows:
            part = np.array(self._rows, END)
            part["track"] = lanes.ends(part["track"])
            self._parts.append(part)
            self._rows = []

    def finish(self, builder: TraceBuilder) -> None:
        """Hand all ends to the builder; flows are numbered from 1."""
        if not self._parts:
            return
        ends = np.concatenate(self._parts)
        _, number = np.unique(ends["id"], return_inverse=True)
        kinds = np.array([str(value) for value in self._kinds.values_in_order], object)
        # whether an end binds to the slice that follows is carried in the lowest bit until `bind`
        builder.add_flows((number.astype(np.int64) + 1) * 2 + ends["following"], kinds[ends["kind"]].tolist(),
                          ends["track"], ends["time"], ends["is_end"])


def bind(trace: Trace) -> None:
    """Move the ends of `trace.flows` to the start of the slices they belong to.

    One pass over the trace's windows.
    """
    flows = trace.flows
    if not flows.num_rows:
        return
    raw, track, time = (flows[name].to_numpy() for name in ("flow", "track", "time_ns"))
    following, moved = (raw & 1).astype(np.bool_), time.copy()
    order = stable_order(time)
    on, done = np.unique(track), 0
    pending = np.empty(0, np.intp)                           # ends that wait for the next slice of their track
    carried = _Slices.none()
    for window in trace.parts.windows():
        here = _Slices.of(window.columns, on)
        settled = int(np.searchsorted(time[order], window.next_ns))
        batch, done = order[done:settled], settled
        _around(here.and_with(carried), batch[~following[batch]], track, time, moved)
        pending = np.concatenate((pending, batch[following[batch]]))
        nearest = here.after(track[pending], time[pending])
        moved[pending[nearest >= 0]] = here.start[nearest[nearest >= 0]]
        pending = pending[nearest < 0]
        carried = here.and_with(carried).open_at(window.next_ns)
    rest = order[done:]
    _around(carried, rest[~following[rest]], track, time, moved)
    trace.flows = pa.table([pa.array(raw >> 1), flows["kind"], flows["track"], pa.array(moved), flows["is_end"]], schema=FLOWS)


class _Slices(NamedTuple):
    """Slices by track and start."""

    track: Array
    start: Array
    end: Array
    depth: Array

    @staticmethod
    def none() -> _Slices:
        return _Slices(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int16))

    @staticmethod
    def of(columns: dict[str, Array], on: Array) -> _Slices:
        rows = np.flatnonzero(np.isin(columns["track"], on) & ~columns["instant"])
        start = columns["start_ns"][rows]
        end = start + np.maximum(columns["dur_ns"][rows], 1)
        return _Slices(columns["track"][rows], start, end, columns["depth"][rows])._sort()

    def _sort(self) -> _Slices:
        return self._take(np.lexsort((self.start, self.track)))

    def _take(self, rows: Array) -> _Slices:
        return _Slices(*(column[rows] for column in self))

    def and_with(self, other: _Slices) -> _Slices:
        return _Slices(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))._sort()

    def open_at(self, time_ns: int) -> _Slices:
        return self._take(np.flatnonzero(self.end > time_ns))

    def at_depth(self, depth: int) -> _Slices:
        return self._take(np.flatnonzero(self.depth == depth))

    def after(self, track: Array, time: Array) -> Rows:
        """The first slice of each track that begins at a time or later; -1 where there is none."""
        return self._search(track, time, "left", 0)

    def before(self, track: Array, time: Array) -> Rows:
        """The last slice of each track that begins at a time or earlier; -1 where there is none."""
        return self._search(track, time, "right", -1)

    def _search(self, track: Array, time: Array, side: str, step: int) -> Rows:
        out = np.full(track.size, -1, np.intp)
        for number in np.unique(track).tolist():
            first, stop = np.searchsorted(self.track, [number, number + 1]).tolist()
            rows = np.flatnonzero(track == number)
            place = first + np.searchsorted(self.start[first:stop], time[rows], side=side) + step   # type: ignore[call-overload]
            out[rows] = np.where((place >= first) & (place < stop), place, -1)
        return out


def _around(slices: _Slices, ends: Array, track: Array, time: Array,
            moved: Ints) -> None:
    """Move `ends` to the innermost of `slices` around them. Of one track and depth no two overlap."""
    if not ends.size:
        return
    for depth in np.unique(slices.depth)[:_LEVELS].tolist():
        level = slices.at_depth(depth)
        nearest = level.before(track[ends], time[ends])
        inside = (nearest >= 0) & (time[ends] < level.end[nearest])
        moved[ends[inside]] = level.start[nearest[inside]]

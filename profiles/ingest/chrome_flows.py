"""Flow arrows of a Chrome trace, both versions: which slice each end belongs to, and which ends belong together.

Version 1 (s, t, f) binds to the slice around the record's time, an `f` without bp "e" to the next slice that begins.
Version 2 (bind_id, flow_in, flow_out) binds to the slice that carries it. Ends are moved to the start of their slice, so
that a flow is found from the slice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from profiles.ingest.build import TraceBuilder
from profiles.ingest.chrome_lanes import ChromeLanes
from profiles.ingest.chrome_records import Index, Piece
from profiles.ingest.columns import Ids
from profiles.trace import FLOWS, Trace

END = np.dtype([("id", "<i8"), ("time", "<i8"), ("kind", "<i4"), ("track", "<i4"), ("is_end", "?"), ("following", "?")])
_LEVELS = 512                    # of nesting that are searched for the slice around an end
_YES = (True, "true", 1)


class Flows:
    """Gathers ends; `finish` hands them to the builder, and `bind` moves them to their slices afterwards."""

    def __init__(self) -> None:
        self._kinds = Ids()
        self._rows: list[tuple[int, int, int, int, bool, bool]] = []
        self._parts: list[npt.NDArray[Any]] = []

    def of_slices(self, here: Piece, rows: Index, lanes: ChromeLanes) -> None:
        """Version 2."""
        if not here.extras:
            return
        for at, event, extra in zip(rows.tolist(), here.events(rows), here.extra(rows), strict=True):
            if extra.bind_id is None or event.ph == "E":
                continue
            for wanted, is_end in ((extra.flow_in, True), (extra.flow_out, False)):
                if wanted in _YES:
                    self._add(hash(("bind", str(extra.bind_id))), str(event.cat or "flow"), here, at, is_end, False)
        self._settle(lanes)

    def records(self, here: Piece, rows: Index, lanes: ChromeLanes) -> None:
        """Version 1. A step (t) ends one arrow and begins the next."""
        for at, event, extra in zip(rows.tolist(), here.events(rows), here.extra(rows), strict=True):
            key = hash((str(event.cat), str(event.name), str(event.id)))
            kind = str(event.cat or event.name or "flow")
            if event.ph != "s":
                self._add(key, kind, here, at, True, event.ph == "f" and extra.bp != "e")
            if event.ph != "f":
                self._add(key, kind, here, at, False, False)
        self._settle(lanes)

    def add(self, keys: list[int], kind: str, here: Piece, rows: Index, is_end: npt.NDArray[np.bool_], lanes: ChromeLanes) -> None:
        """Ends that slices name in their arguments."""
        for key, at, end in zip(keys, rows.tolist(), is_end.tolist(), strict=True):
            self._add(key, kind, here, at, end, False)
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
        """All ends to the builder; flows are numbered from 1."""
        if not self._parts:
            return
        ends = np.concatenate(self._parts)
        _, number = np.unique(ends["id"], return_inverse=True)
        kinds = np.array([str(value) for value in self._kinds.values_in_order], object)
        # whether an end binds to the slice that follows is carried in the lowest bit until `bind`
        builder.add_flows((number.astype(np.int64) + 1) * 2 + ends["following"], kinds[ends["kind"]].tolist(),
                          ends["track"], ends["time"], ends["is_end"])


def bind(trace: Trace) -> None:
    """Move the ends of `trace.flows` to the start of the slices they belong to, in place."""
    flows = trace.flows
    if not flows.num_rows:
        return
    raw, track, time = (flows[name].to_numpy() for name in ("flow", "track", "time_ns"))
    following, moved = (raw & 1).astype(np.bool_), time.copy()
    slices = trace.slices.filter(pc.and_(pc.is_in(trace.slices["track"], pa.array(np.unique(track))),
                                         pc.invert(trace.slices["instant"])))
    on, start, dur, depth = (slices[name].to_numpy() for name in ("track", "start_ns", "dur_ns", "depth"))
    order = np.lexsort((start, on))
    keys = _Keys(on[order], start[order])
    at = keys.place(track[following], time[following], "left")
    moved[following] = np.where(keys.same(at, track[following]), keys.start(at), time[following])
    found = np.full(time.size, -1, np.int64)
    for level in np.unique(depth)[:_LEVELS].tolist():        # of a track and depth no two slices overlap
        rows = np.flatnonzero(depth[order] == level)
        inner = _Keys(on[order][rows], start[order][rows])
        at = inner.place(track, time, "right") - 1
        length = dur[order][rows][np.clip(at, 0, rows.size - 1)]
        inside = inner.same(at, track) & (time < inner.start(at) + np.maximum(length, 1))
        found[inside] = inner.start(at)[inside]
    taken = ~following & (found >= 0)
    moved[taken] = found[taken]
    trace.flows = pa.table([pa.array(raw >> 1), flows["kind"], flows["track"], pa.array(moved), flows["is_end"]], schema=FLOWS)


class _Keys:
    """Slices ordered by track and start, to be searched for both at once."""

    def __init__(self, track: npt.NDArray[np.int32], start: npt.NDArray[np.int64]) -> None:
        self._track, self._start = track, start
        self._tracks, self._first = np.unique(track, return_index=True)

    def place(self, track: npt.NDArray[np.int32], time: npt.NDArray[np.int64], side: str) -> npt.NDArray[np.int64]:
        """Where (track, time) would stand among the slices of its track."""
        out = np.full(track.size, self._start.size, np.int64)
        for number, first, stop in zip(self._tracks.tolist(), self._first.tolist(),
                                       [*self._first.tolist()[1:], self._start.size], strict=True):
            rows = np.flatnonzero(track == number)
            if rows.size:
                out[rows] = first + np.searchsorted(self._start[first:stop], time[rows], side=side)  # type: ignore[call-overload]
        return out

    def same(self, at: npt.NDArray[np.int64], track: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        """Is the slice at a place one of that track?"""
        inside = (at >= 0) & (at < self._start.size)
        return inside & (self._track[np.clip(at, 0, max(self._start.size - 1, 0))] == track) if self._start.size else inside

    def start(self, at: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return self._start[np.clip(at, 0, self._start.size - 1)] if self._start.size else np.zeros(at.size, np.int64)

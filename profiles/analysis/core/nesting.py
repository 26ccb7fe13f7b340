"""CPU slices of a trace, window by window, as the records that the host's analyses read: what each is, and within what."""

from __future__ import annotations

import numpy as np

from profiles.ingest.arrays import Array, Ints, Rows, stable_order
from profiles.ingest.trace import Category

NONE = 255
HOST_ROW = np.dtype([
    ("start_ns", np.int64), ("end_ns", np.int64), ("track", np.int32), ("name", np.int32),
    ("kind", np.uint8), ("within", np.uint8),       # kinds of the slice and of the one around it; NONE: none of the host's
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
        self._kind = np.full(256, NONE, np.uint8)
        for category, kind in self._KINDS.items():
            self._kind[category] = kind
        self._open = np.empty(0, HOST_ROW)
        self._open_lane = np.empty(0, np.int64)

    def add(self, columns: dict[str, Array], rows: Rows, next_ns: int) -> Array:
        """Return HOST_ROW records of some slices of a window.

        Those of later windows do not begin before `next_ns`.
        """
        kind = self._kind[columns["category"][rows]]
        kind[columns["instant"][rows]] = NONE
        kind[(kind == self.RUNTIME) & self._waits[columns["name"][rows]]] = self.WAIT
        old = self._open.size
        out = np.empty(old + rows.size, HOST_ROW)
        out[:old] = self._open
        new = out[old:]
        new["start_ns"], new["name"], new["track"], new["kind"] = (
            columns["start_ns"][rows], columns["name"][rows], columns["track"][rows], kind)
        new["end_ns"] = columns["start_ns"][rows] + columns["dur_ns"][rows]
        new["within"], new["under_operator"], new["outermost"] = NONE, False, -1
        fresh = columns["track"][rows].astype(np.int64) << 16 | columns["depth"][rows].astype(np.int64)
        lane = np.concatenate((self._open_lane, fresh))
        host = np.flatnonzero(out["kind"] != NONE)
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
    at = np.searchsorted(key[order], above * np.int64(n) + time, side="right") - 1
    parent = order[np.maximum(at, 0)]
    good = (at >= 0) & (lane[parent] == lane - 1) & (lane & 0xFFFF > 0) & (end_ns[parent] >= end_ns)
    return np.where(good, parent, itself)

"""At which depth of its track a slice is drawn: nested where it lies within another, in an overflow lane where slices
partly overlap. Never dropped: Perfetto's viewer lost such slices for a year (google/perfetto #6284)."""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
MAX_DEPTH = 32_000
_ROUNDS = 12


def depths(track: npt.NDArray[np.int32], start_ns: Int64, dur_ns: Int64,
           instant: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.int16], int]:
    """Depth of every slice (int16, any input order) and how many went to overflow lanes.

    Two slices of one track and depth never overlap. Instants lie at the depth of the innermost slice around them.
    """
    out = np.zeros(track.size, np.int64)
    spans = np.flatnonzero(~instant)
    if not spans.size:
        return out.astype(np.int16), 0
    start, end = _apart(track[spans], start_ns[spans], dur_ns[spans])
    order = np.lexsort((-end, start))
    start, end, tracks = start[order], end[order], track[spans][order]
    depth = np.zeros(order.size, np.int64)
    base = np.zeros(int(track.max()) + 1, np.int64)         # first free depth of every track
    rest = np.arange(order.size)
    overflowed = 0
    for round_number in range(_ROUNDS + 1):
        if round_number == _ROUNDS:
            found, spilled = _first_fit(start[rest], end[rest]), np.zeros(rest.size, np.bool_)
        else:
            found, spilled = _nest(start[rest], end[rest])
        kept = rest[~spilled]
        depth[kept] = found[~spilled] + base[tracks[kept]]
        if round_number == 0:
            overflowed = int(np.count_nonzero(spilled))
        if not spilled.any():
            break
        np.maximum.at(base, tracks[kept], depth[kept] + 1)
        rest = rest[spilled]
    out[spans[order]] = depth
    _place_instants(out, track, start_ns, instant, spans, dur_ns)
    return np.minimum(out, MAX_DEPTH).astype(np.int16), overflowed


def _apart(track: npt.NDArray[np.int32], start_ns: Int64, dur_ns: Int64) -> tuple[Int64, Int64]:
    """Starts and ends moved so that tracks follow one another in time: all of them nest in one pass.

    A slice of no duration counts as 1 ns long, so that it has a place of its own.
    """
    end_ns = start_ns + np.maximum(dur_ns, 1)
    first = np.full(int(track.max()) + 1, np.iinfo(np.int64).max)
    last = np.full(first.size, np.iinfo(np.int64).min)
    np.minimum.at(first, track, start_ns)
    np.maximum.at(last, track, end_ns)
    used = last > first
    span = np.where(used, last - np.where(used, first, 0), 0)
    if float(span.astype(np.float64).sum()) < 2.0**62:
        shift = np.where(used, np.concatenate(([0], np.cumsum(span)[:-1])) - np.where(used, first, 0), 0)
        return start_ns + shift[track], end_ns + shift[track]
    times = np.unique(np.concatenate((start_ns, end_ns)))   # too far apart for int64: ranks keep the order
    offset = track.astype(np.int64) * times.size
    return np.searchsorted(times, start_ns) + offset, np.searchsorted(times, end_ns) + offset


def _nest(start: Int64, end: Int64) -> tuple[Int64, npt.NDArray[np.bool_]]:
    """Depths as if all nested (input ordered by start, longest first), and which slices contradict that."""
    n = start.size
    depth = np.arange(n) - np.searchsorted(np.sort(end), start, side="right")     # how many are open at the start
    by_depth = np.argsort(depth, kind="stable")
    sorted_start, sorted_end, sorted_depth = start[by_depth], end[by_depth], depth[by_depth]
    spilled = np.zeros(n, np.bool_)
    clash = (sorted_depth[1:] == sorted_depth[:-1]) & (sorted_start[1:] < sorted_end[:-1])
    spilled[by_depth[1:][clash]] = True
    parent = _parents(depth, by_depth, sorted_depth)
    inner = np.flatnonzero(depth > 0)
    spilled[inner[end[inner] > end[parent[inner]]]] = True
    return depth, spilled


def _parents(depth: Int64, by_depth: Int64, sorted_depth: Int64) -> Int64:
    """For every slice the last one before it that is one level up (0 where there is none)."""
    n = depth.size
    key = sorted_depth * np.int64(n) + by_depth                                   # ascending: depth, then position
    wanted = (depth - 1) * np.int64(n) + np.arange(n)
    found = np.searchsorted(key, wanted) - 1
    return by_depth[np.maximum(found, 0)]


def _first_fit(start: Int64, end: Int64) -> Int64:
    """Each slice in the lowest lane that is free: for what no nesting explains. One heap step per slice."""
    lanes = np.zeros(start.size, np.int64)
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    opened = 0
    for i, (begin, finish) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, opened = opened, opened + 1
        lanes[i] = lane
        heapq.heappush(busy, (finish, lane))
    return lanes


def _place_instants(out: Int64, track: npt.NDArray[np.int32], start_ns: Int64, instant: npt.NDArray[np.bool_],
                    spans: npt.NDArray[np.intp], dur_ns: Int64) -> None:
    """Instants one below the deepest slice that is open then, at most (their track's slices are counted, not nested)."""
    marks = np.flatnonzero(instant)
    if not marks.size:
        return
    times = np.unique(np.concatenate((start_ns[spans], start_ns[spans] + dur_ns[spans], start_ns[marks])))
    stride = np.int64(times.size + 1)
    lane = track.astype(np.int64) * stride
    starts = np.sort(lane[spans] + np.searchsorted(times, start_ns[spans]))
    ends = np.sort(lane[spans] + np.searchsorted(times, start_ns[spans] + dur_ns[spans]))
    at = lane[marks] + np.searchsorted(times, start_ns[marks])
    opened = np.searchsorted(starts, at, side="right") - np.searchsorted(starts, lane[marks])
    closed = np.searchsorted(ends, at, side="right") - np.searchsorted(ends, lane[marks])
    out[marks] = np.maximum(opened - closed - 1, 0)

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
        kept, found = (rest, _first_fit(start[rest], end[rest])) if round_number == _ROUNDS else _settle(start, end, rest)
        depth[kept] = found + base[tracks[kept]]
        if kept.size == rest.size:
            break
        np.maximum.at(base, tracks[kept], depth[kept] + 1)
        rest = np.setdiff1d(rest, kept, assume_unique=True)
        overflowed = overflowed or rest.size
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
    times = _distinct(start_ns, end_ns)                     # too far apart for int64: ranks keep the order
    offset = track.astype(np.int64) * times.size
    return np.searchsorted(times, start_ns) + offset, np.searchsorted(times, end_ns) + offset


def _settle(start: Int64, end: Int64, rows: Int64) -> tuple[Int64, Int64]:
    """Those of `rows` that nest once the others are taken out, and their depths."""
    for round_number in range(_ROUNDS):
        depth, against = _nest(start[rows], end[rows])
        spilled = against >= 0
        if not spilled.any():
            return rows, depth
        if round_number < _ROUNDS - 4:                      # what clashes with a slice that goes may yet fit
            spilled &= ~spilled[np.maximum(against, 0)]
        rows = rows[~spilled]
    return rows, _first_fit(start[rows], end[rows])


def _nest(start: Int64, end: Int64) -> tuple[Int64, Int64]:
    """Depths as if all nested (input ordered by start, longest first), and for every slice that contradicts it the
    earlier one it contradicts (-1: none)."""
    n = start.size
    depth = np.arange(n) - np.searchsorted(np.sort(end), start, side="right")     # how many are open at the start
    by_depth = np.argsort(depth, kind="stable")
    sorted_start, sorted_end, sorted_depth = start[by_depth], end[by_depth], depth[by_depth]
    against = np.full(n, -1, np.int64)
    inner = np.flatnonzero(depth > 0)
    parent = _parents(depth, by_depth, sorted_depth)[inner]
    beyond = end[inner] > end[parent]
    against[inner[beyond]] = parent[beyond]
    clash = np.flatnonzero((sorted_depth[1:] == sorted_depth[:-1]) & (sorted_start[1:] < sorted_end[:-1]))
    against[by_depth[clash + 1]] = by_depth[clash]
    return depth, against


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


def _distinct(*values: Int64) -> Int64:
    """Sorted, each once (np.unique hashes, which is slower for times: nearly all differ)."""
    ordered = np.sort(np.concatenate(values))
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))]


def _place_instants(out: Int64, track: npt.NDArray[np.int32], start_ns: Int64, instant: npt.NDArray[np.bool_],
                    spans: npt.NDArray[np.intp], dur_ns: Int64) -> None:
    """Instants one below the deepest slice that is open then, at most (their track's slices are counted, not nested)."""
    marks = np.flatnonzero(instant)
    if not marks.size:
        return
    times = _distinct(start_ns[spans], start_ns[spans] + dur_ns[spans], start_ns[marks])
    stride = np.int64(times.size + 1)
    lane = track.astype(np.int64) * stride
    starts = np.sort(lane[spans] + np.searchsorted(times, start_ns[spans]))
    ends = np.sort(lane[spans] + np.searchsorted(times, start_ns[spans] + dur_ns[spans]))
    at = lane[marks] + np.searchsorted(times, start_ns[marks])
    opened = np.searchsorted(starts, at, side="right") - np.searchsorted(starts, lane[marks])
    closed = np.searchsorted(ends, at, side="right") - np.searchsorted(ends, lane[marks])
    out[marks] = np.maximum(opened - closed - 1, 0)

"""What recorded synchronisations waited for: CPU calls for GPU work, and GPU work for work of another stream."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.columns import match, rows_by_value
from profiles.analysis.core.frame import Frame
from profiles.analysis.trace.launching.calls import codes_matching, is_wait, runtime_calls
from profiles.analysis.trace.launching.order import NEVER, Order
from profiles.ingest.arrays import Ints, Rows, stable_order
from profiles.ingest.trace import Category
from profiles.ingest.windows import MISSING, MISSING32

EMPTY = np.empty(0, np.intp)
TRIES = 16                          # pieces of work that are looked at, from the last to end backwards


def last_end_before(end_ns: Ints, by_ns: Ints, fits: Ints, before: Ints, members: Rows) -> Ints:
    """Return, for each moment, the member that ended last by then, else -1.

    Its end is ≤ `by_ns` and its `fits` (a time) < `before`.

    `end_ns` and `fits` are columns of all work, `members` the positions asked about. Of the members that ended last, TRIES are
    looked at.
    """
    last = np.full(by_ns.size, -1, np.int64)
    if not members.size or not by_ns.size:
        return last
    order = members[stable_order(end_ns[members])]
    position = np.searchsorted(end_ns[order], by_ns, side="right") - 1
    left = np.arange(by_ns.size)
    for _ in range(TRIES):
        left = left[position[left] >= 0]
        if not left.size:
            break
        candidate = order[position[left]]
        good = fits[candidate] < before[left]
        last[left[good]] = candidate[good]
        left = left[~good]
        position[left] -= 1
    return last


_RECORD = "wait_on_cuda_event_record_corr_id"
_EVENT, _STREAM_WAIT = re.compile("event sync", re.I), re.compile("stream wait event", re.I)
_STREAM = re.compile("stream sync", re.I)
_COPY = re.compile("Memcpy|Memset")
BUSY, RETURN_NS = 0.9, 10_000
_MOVED = 1_000_000              # Kineto of 2026 moves "Stream Sync" to a lane of stream + 1,000,000


@dataclass(frozen=True)
class Waits:
    """Calls that GPU work let go on. Arrays of one length, in order of the calls' ends."""

    call: Rows                      # row of the frame
    work: Ints                      # position of the work in the order


@dataclass(frozen=True)
class _Syncs:
    """`cuda_sync` records: the call of each, and the work that its event or stream stood for (-1: not said)."""

    rows: Rows
    call: Ints
    source: Ints
    stream: Ints                    # track that the call waited for, -1: not said


def syncs(order: Order) -> _Syncs:
    frame = order.frame
    rows = np.flatnonzero(frame["category"] == Category.SYNC)
    calls = np.flatnonzero((frame["category"] == Category.RUNTIME) & (frame["correlation"] != MISSING))
    position = match(frame["correlation"][rows], frame["correlation"][calls])
    call = np.where(position >= 0, calls[np.maximum(position, 0)], -1) if calls.size else np.full(rows.size, -1, np.int64)
    record, stream = _stated_ids(frame, rows)
    own_ids = frame["correlation"][rows]            # of several ranks: whose ids these are stands in the upper half
    record = np.where((record != MISSING) & (own_ids > 0), record + (np.maximum(own_ids, 0) >> 32 << 32), record)
    track = _tracks(frame, rows, stream)
    given = match(record, frame["correlation"][calls])
    recorded_ns = np.where(given >= 0, frame["start_ns"][calls[np.maximum(given, 0)]], NEVER) if calls.size else np.full(rows.size,
        NEVER)
    is_event = codes_matching(frame, _EVENT, rows) | codes_matching(frame, _STREAM_WAIT, rows)
    source = np.full(rows.size, -1, np.int64)
    event_rows = np.flatnonzero(is_event & (track >= 0) & (recorded_ns > NEVER))
    source[event_rows] = last_work_given(order, track[event_rows], recorded_ns[event_rows])
    own = _tracks(frame, rows, frame["stream"][rows] % _MOVED)
    waited = np.where(codes_matching(frame, _STREAM, rows), own, -1)
    return _Syncs(rows, call, source, np.where(is_event, track, waited))


def _stated_ids(frame: Frame, rows: Rows) -> tuple[Ints, Ints]:
    """Correlation id of the record call and number of its stream, MISSING where a record does not say them."""
    codes, place = np.unique(frame["detail"][rows], return_inverse=True)
    first = np.zeros(codes.size, np.intp)
    first[place[::-1]] = rows[::-1]
    record, stream = (np.full(codes.size, MISSING, np.int64) for _ in range(2))
    for number, row in enumerate(first.tolist()):
        arguments = frame.arguments(row)
        for values, key in ((record, _RECORD), (stream, "wait_on_stream")):
            value = arguments.get(key)
            if isinstance(value, int) and 0 <= value < 2**62:
                values[number] = value
    return record[place], stream[place]


def _tracks(frame: Frame, rows: Rows, stream: Ints) -> Ints:
    """Track of a stream by its number, on the GPU of the record; -1 where there is none."""
    by_number = {(track.device, track.stream): number for number, track in enumerate(frame.tracks) if track.kind == "stream"}
    device = frame["device"][rows]
    pairs, place = np.unique(np.stack((device.astype(np.int64), stream)), axis=1, return_inverse=True)
    numbers = [by_number.get((None if gpu == MISSING32 else gpu, number), -1) for gpu, number in pairs.T.tolist()]
    return np.array(numbers, np.int64)[place.reshape(-1)] if rows.size else np.empty(0, np.int64)


def _given_to(order: Order) -> dict[int, Rows]:
    """Return, by track, the positions of the work whose call is known, ascending."""
    launches = np.flatnonzero(order.has_call)
    return {track: launches[rows] for track, rows in rows_by_value(order.track[launches]).items()}


def last_work_given(order: Order, track: Ints, by_ns: Ints) -> Ints:
    """The work that a stream was given last before a moment; -1 where there is none."""
    last = np.full(track.size, -1, np.int64)
    given_to = _given_to(order)
    for track_index, queries in rows_by_value(track).items():
        mine = given_to.get(track_index, EMPTY)
        if mine.size:
            launch_ns = order.frame["start_ns"][order.call[mine]]
            ranked = stable_order(launch_ns)
            position = np.searchsorted(launch_ns[ranked], by_ns[queries], side="right") - 1
            last[queries] = np.where(position >= 0, mine[ranked[np.maximum(position, 0)]], -1)
    return last


def cpu_waits(order: Order, recorded: _Syncs, ranks: Ints) -> Waits:
    """Return every call of the host that some work let go on.

    Work that ended after the call began, and before it returned.
    """
    frame = order.frame
    calls = np.flatnonzero(is_wait(frame))
    target = np.full(calls.size, -1, np.int64)
    start, end = frame["start_ns"][calls], frame.end_ns[calls]
    by_call = stable_order(recorded.call)
    position = np.minimum(np.searchsorted(recorded.call[by_call], calls), max(by_call.size - 1, 0))
    has = (recorded.call[by_call[position]] == calls) if by_call.size else np.zeros(calls.size, np.bool_)
    source = np.where(has, recorded.source[by_call[position]], -1) if by_call.size else target
    stream = np.where(has, recorded.stream[by_call[position]], -1) if by_call.size else target
    rank_of_call, rank_of_work = ranks[frame["track"][calls]], ranks[order.track]
    on_track = rows_by_value(order.track)
    for each, recorded_of in rows_by_value(stream).items():
        if each >= 0:
            asked = recorded_of[source[recorded_of] < 0]
            target[asked] = last_end_before(order.end_ns, end[asked], order.call_start_ns, start[asked], on_track.get(each, EMPTY))
    for rank in np.unique(rank_of_call).tolist():
        asked = np.flatnonzero((rank_of_call == rank) & (stream < 0) & (source < 0))
        members = np.flatnonzero((rank_of_work == rank) & order.has_call)
        target[asked] = last_end_before(order.end_ns, end[asked], order.call_start_ns, start[asked], members)
    target = np.where(source >= 0, source, target)
    # copies that block their call: their own work ended within it
    own = np.flatnonzero(order.has_call & np.isin(order.category, [int(Category.MEMCPY), int(Category.MEMSET)]))
    call = order.call[own]
    inside = (order.end_ns[own] <= frame.end_ns[call]) & (order.end_ns[own] > frame["start_ns"][call]) & codes_matching(frame,
        _COPY, call)
    blocked, behind = _blocking_calls(order, ranks)
    calls, target = np.r_[calls, call[inside], blocked], np.r_[target, own[inside], behind]
    start, end = frame["start_ns"][calls], frame.end_ns[calls]
    ended = np.where(target >= 0, order.end_ns[np.maximum(target, 0)], NEVER) if order.rows.size else np.full(calls.size, NEVER)
    good = np.flatnonzero((target >= 0) & (ended > start) & (ended <= end))
    good = good[stable_order(end[good])]
    return Waits(calls[good], target[good])


def _blocking_calls(order: Order, ranks: Ints) -> tuple[Rows, Ints]:
    """(call, position of the work whose end let it go on) of calls that wait though their name does not say so."""
    frame = order.frame
    calls = runtime_calls(frame).outliers
    start, end = frame["start_ns"][calls], frame.end_ns[calls]
    target = np.full(calls.size, -1, np.int64)
    rank_of_call, rank_of_work = ranks[frame["track"][calls]], ranks[order.track]
    for rank in np.unique(rank_of_call).tolist():
        queries, members = np.flatnonzero(rank_of_call == rank), np.flatnonzero(rank_of_work == rank)
        busy = intervals.union(order.start_ns[members], order.end_ns[members])
        worked = intervals.overlap_ns(busy, start[queries], end[queries]) >= BUSY * (end[queries] - start[queries])
        queries = queries[worked]
        target[queries] = last_end_before(order.end_ns, end[queries], order.call_start_ns, start[queries], members)
    near = (target >= 0) & (end - order.end_ns[target] <= RETURN_NS) if order.rows.size else np.zeros(calls.size, np.bool_)
    return calls[near], target[near]


def stream_waits(order: Order, recorded: _Syncs) -> tuple[Ints, Ints]:
    """Return (position of work, position of the work of another stream that it waits for).

    The next work given to the waiting stream after `cudaStreamWaitEvent`.
    """
    frame = order.frame
    rows = np.flatnonzero(codes_matching(frame, _STREAM_WAIT, recorded.rows) & (recorded.source >= 0) & (recorded.call >= 0))
    track, asked_ns = frame["track"][recorded.rows[rows]].astype(np.int64), frame["start_ns"][recorded.call[rows]]
    target = np.full(rows.size, -1, np.int64)
    given_to = _given_to(order)
    for track_index, queries in rows_by_value(track).items():
        mine = given_to.get(track_index, EMPTY)
        if mine.size:
            launch_ns = frame["start_ns"][order.call[mine]]
            ranked = stable_order(launch_ns)
            position = np.searchsorted(launch_ns[ranked], asked_ns[queries], side="left")
            target[queries] = np.where(position < mine.size, mine[ranked[np.minimum(position, mine.size - 1)]], -1)
    has_target = target >= 0
    return target[has_target], recorded.source[rows[has_target]]

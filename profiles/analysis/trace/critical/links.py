"""What every piece of GPU work waited for last before it started: one link each, and where threads were let go on.

Candidates, the latest binds (as Holistic Trace Analysis builds its graph, `critical_path_analysis.py`, but with the moment
of each dependency instead of a queue length):

- STREAM: the work before it on its stream had ended (stream order);
- EVENT: the work of another stream that an event stood for had ended (`cudaStreamWaitEvent`);
- GRAPH: a node of the same graph launch had ended (graphs do not say their edges: the last to end is taken);
- LAUNCH: its launch call had returned (a blocking copy: had begun);
- INFERRED: none of these explains a gap of more than INFER_NS, and work of another stream of the same GPU had ended at most
  INFER_NS before: an event that the file does not hold (Kineto records them only with `enable_cuda_sync_events`).

A collective of several ranks whose clocks can be compared also waits within itself: until the last rank comes. `meets` is
that rank's kernel, `meets_ns` when it started.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.columns import rows_by_value
from profiles.analysis.core.frame import Frame
from profiles.analysis.trace.communication.collectives import collectives_of
from profiles.analysis.trace.communication.meetings import meetings_of
from profiles.analysis.trace.critical.waits import cpu_waits, stream_waits, syncs
from profiles.analysis.trace.launching.calls import in_graph
from profiles.analysis.trace.launching.order import NEVER, Order, order_of
from profiles.ingest.arrays import Bools, Ints, Rows, stable_order
from profiles.ingest.trace import Category

INFER_NS = 8_000
MEET_NS = 20_000                    # a rank that comes later than this is waited for
HAND_OVER_NS = 50_000               # a thread that does nothing for longer may have waited for another one
NOTHING, STREAM, EVENT, GRAPH, LAUNCH, INFERRED = range(6)


@dataclass(frozen=True)
class Jumps:
    """Moments at which a thread went on because of something else, in order of time. `work` -1: of `track` at `to_ns`."""

    at_ns: list[int]
    call: list[int]                 # row of the call that waited, -1: handed over by another thread
    work: list[int]
    track: list[int]
    to_ns: list[int]


class Links:
    """Of one frame. Positions are those of the launch order."""

    def __init__(self, frame: Frame) -> None:
        self.frame, self.order = frame, order_of(frame)
        self.rank_names, self.ranks = _ranks(frame, self.order)             # names; number by track
        order, synchronisations = self.order, syncs(self.order)
        self.waits = cpu_waits(order, synchronisations, self.ranks)
        n = order.rows.size
        self.kind, self.time = np.full(n, NOTHING, np.int8), np.full(n, NEVER, np.int64)
        self.source = np.full(n, -1, np.int64)
        self._take(LAUNCH, np.where(order.has_call, self._submit_times_ns(), NEVER), self.source)
        blocker = last_before(order)
        self._take(STREAM, np.where(blocker >= 0, np.minimum(order.end_ns[blocker], order.start_ns), NEVER), blocker)
        self._graph()
        target, source = stream_waits(order, synchronisations)
        late = stable_order(order.end_ns[source])              # of several events the last is written last
        by_event = np.full(n, -1, np.int64)
        by_event[target[late]] = source[late]
        by_event[by_event >= np.arange(n)] = -1                             # it began later: the file contradicts itself
        self._take(EVENT, np.where(by_event >= 0, np.minimum(order.end_ns[by_event], order.start_ns), NEVER), by_event)
        self._infer()
        self.meets, self.meets_ns = self._meetings()

    def _meetings(self) -> tuple[Ints, Ints]:
        """Position of the kernel of the rank that came last, and its start; -1 where nobody came MEET_NS later."""
        order, frame = self.order, self.frame
        meets, meets_ns = np.full(order.rows.size, -1, np.int64), np.full(order.rows.size, NEVER, np.int64)
        alignment = frame.metadata.get("alignment") or {}
        if len(self.rank_names) < 2 or alignment.get("rule") == "none":
            return meets, meets_ns
        launches = collectives_of(frame)
        if launches.on_host or not launches.rows.size:
            return meets, meets_ns
        met = meetings_of(launches)
        known = np.flatnonzero(met.of >= 0)
        late = met.late[met.of[known]]
        waits = (launches.start_ns[late] - launches.start_ns[known] > MEET_NS) & (launches.start_ns[late] < launches.end_ns[known])
        place = np.searchsorted(order.rows, launches.rows)
        meets[place[known[waits]]], meets_ns[place[known[waits]]] = place[late[waits]], launches.start_ns[late[waits]]
        return meets, meets_ns

    def _take(self, kind: int, time: Ints, source: Ints) -> None:
        """What comes later in this order wins where it is as late."""
        better = (time >= self.time) & (time > NEVER)
        self.kind[better], self.time[better], self.source[better] = kind, time[better], source[better]

    def _submit_times_ns(self) -> Ints:
        """When the host had done its part: the call had returned; of a call that waits for its own work, had begun."""
        order = self.order
        blocking = np.zeros(self.frame.rows, np.bool_)
        own = self.waits.call == order.call[self.waits.work] if self.waits.work.size else np.empty(0, np.bool_)
        blocking[self.waits.call[own]] = True
        return np.where(blocking[np.maximum(order.call, 0)], order.call_start_ns, order.call_end_ns)

    def _graph(self) -> None:
        order = self.order
        rows = np.flatnonzero(in_graph(order))
        if not rows.size:
            return
        # per launch: ends and starts in order of time; at each start the last end so far
        time, call = np.r_[order.end_ns[rows], order.start_ns[rows]], np.r_[order.call[rows], order.call[rows]]
        who, ends = np.r_[rows, rows], np.r_[np.ones(rows.size, np.int64), np.zeros(rows.size, np.int64)]
        sorted_ = np.lexsort((1 - ends, time, call))
        last = np.where(ends[sorted_] == 1, np.arange(sorted_.size), -1)
        first = np.maximum.accumulate(np.where(np.r_[True, call[sorted_][1:] != call[sorted_][:-1]], np.arange(sorted_.size), 0))
        last = np.maximum.accumulate(last)
        asks = (ends[sorted_] == 0) & (last >= first)
        source = np.full(order.rows.size, -1, np.int64)
        source[who[sorted_][asks]] = who[sorted_][last[asks]]
        source[source >= np.arange(source.size)] = -1
        self._take(GRAPH, np.where(source >= 0, order.end_ns[source], NEVER), source)

    def _infer(self) -> None:
        """Only where nothing recorded explains the gap."""
        order = self.order
        asks = np.flatnonzero(order.start_ns - self.time > INFER_NS)
        for device in np.unique(order.device[asks]).tolist():
            mine = asks[order.device[asks] == device]
            members = np.flatnonzero(order.device == device)
            ordered = members[stable_order(order.end_ns[members])]
            position = np.searchsorted(order.end_ns[ordered], order.start_ns[mine], side="right") - 1
            source = ordered[np.maximum(position, 0)]
            good = (position >= 0) & (source < mine) & (order.end_ns[source] > self.time[mine]) & (
                (order.start_ns[mine] - order.end_ns[source] <= INFER_NS) | (self.kind[mine] == NOTHING))
            mine, source = mine[good], source[good]
            self.kind[mine], self.time[mine], self.source[mine] = INFERRED, order.end_ns[source], source

    @cached_property
    def by_track(self) -> Rows:
        """Return the positions stream by stream, in order of start."""
        return stable_order(self.order.track)

    @cached_property
    def place(self) -> Ints:
        """Place of each position in `by_track`."""
        place = np.empty(self.by_track.size, np.int64)
        place[self.by_track] = np.arange(self.by_track.size)
        return place

    @cached_property
    def chain(self) -> Ints:
        """Return, for each place, the first place of its chain.

        A chain is work that followed, each bound by its stream's order alone.
        """
        return self._chain(np.zeros(self.by_track.size, np.bool_))

    @cached_property
    def chain_to_meeting(self) -> Ints:
        """Return `chain`, cut at collectives that waited for another rank."""
        return self._chain(self.meets[self.by_track] >= 0)

    def _chain(self, heads: Bools) -> Ints:
        linked = np.zeros(self.by_track.size, np.bool_)
        linked[1:] = (self.kind[self.by_track[1:]] == STREAM) & (self.source[self.by_track[1:]] == self.by_track[:-1])
        return np.maximum.accumulate(np.where(linked & ~heads, 0, np.arange(linked.size)))

    @cached_property
    def jumps(self) -> dict[int, Jumps]:
        """Return, by thread, the moments at which something else let it go on."""
        frame, waits = self.frame, self.waits
        hands = self._hand_overs()
        track = np.r_[frame["track"][waits.call].astype(np.int64), hands[0]]
        columns = [np.r_[frame.end_ns[waits.call], hands[1]], np.r_[waits.call, np.full(hands[0].size, -1)],
                   np.r_[waits.work, np.full(hands[0].size, -1)], np.r_[np.full(waits.call.size, -1), hands[2]],
                   np.r_[self.order.end_ns[waits.work], hands[3]]]
        by_thread = {}
        for thread, mine in rows_by_value(track).items():
            mine = mine[stable_order(columns[0][mine])]
            by_thread[thread] = Jumps(*(column[mine].tolist() for column in columns))
        return by_thread

    @cached_property
    def activity(self) -> dict[int, intervals.Intervals]:
        """Return, by launching thread, when it was in an operator or a runtime call."""
        frame, order = self.frame, self.order
        rows = frame.of(Category.CPU_OP, Category.RUNTIME)
        track = frame["track"][rows]
        launching = np.unique(frame["track"][order.call[order.has_call]]).tolist()
        return {each: intervals.union(frame["start_ns"][rows[track == each]], frame.end_ns[rows[track == each]])
                for each in launching[:256]}

    def _hand_overs(self) -> tuple[Ints, Ints, Ints, Ints]:
        """(thread, moment it went on, thread that was active last before, until when): a thread that was in no operator for
        HAND_OVER_NS while another one, which also launches work, was: autograd's thread and the one that called it."""
        parts: list[tuple[Ints, ...]] = []
        for rank in np.unique(self.ranks[list(self.activity)]).tolist() if self.activity else []:
            threads = [track for track in self.activity if self.ranks[track] == rank]
            if len(threads) < 2:
                continue
            ends = np.concatenate([self.activity[track].end_ns for track in threads])
            owner = np.repeat(threads, [self.activity[track].end_ns.size for track in threads])
            order = stable_order(ends)
            ends, owner = ends[order], owner[order]
            for track in threads:
                mine = self.activity[track]
                begins, idle_from = mine.start_ns, np.r_[NEVER, mine.end_ns[:-1]]
                at = np.searchsorted(ends, begins, side="right") - 1
                other = owner[np.maximum(at, 0)]
                good = (at >= 0) & (other != track) & (begins - idle_from > HAND_OVER_NS) & (ends[np.maximum(at, 0)] > idle_from)
                parts.append((np.full(int(good.sum()), track), begins[good], other[good], ends[at[good]]))
        if not parts:
            empty = np.empty(0, np.int64)
            return empty, empty, empty, empty
        return tuple(np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True))  # type: ignore[return-value]


def _ranks(frame: Frame, order: Order) -> tuple[list[str], Ints]:
    """Whose each track is: a rank's, or where the file names none, a process's that launched GPU work (its threads, and the
    streams that it launched most on)."""
    labels, number_of_track = frame.rank_numbers
    if len(labels) <= 1:
        call = order.call[order.has_call]
        thread, stream = frame["track"][call], order.track[order.has_call]
        groups = [frame.tracks[track].group for track in np.unique(thread).tolist()]
        names = {group: index for index, group in enumerate(dict.fromkeys(groups))}
        if len(names) > 1:
            number = np.array([names.get(track.group, 0) for track in frame.tracks], np.int64)
            return list(names), most_votes(stream, number[thread], number)
    return labels or [""], number_of_track


def last_before(order: Order) -> Ints:
    """Return the work that ended last among those before each on its stream.

    Positions; -1 for the first.
    """
    by_track = stable_order(order.track)
    last = np.full(order.rows.size, -1, np.int64)
    first = np.flatnonzero(np.r_[True, order.track[by_track][1:] != order.track[by_track][:-1]]) if by_track.size else np.empty(0,
        np.intp)
    for lo, hi in zip(first.tolist(), np.append(first, by_track.size)[1:].tolist(), strict=True):
        ends = order.end_ns[by_track[lo:hi]]
        best = np.maximum.accumulate(np.where(ends >= np.maximum.accumulate(ends), np.arange(hi - lo), 0))
        last[by_track[lo + 1:hi]] = by_track[lo + best[:-1]]
    return last


def most_votes(of: Ints, who: Ints, otherwise: Ints) -> Ints:
    """Return for each number of `of` (an index into `otherwise`) whom most pairs name, the first of several; else `otherwise`.

    Only the pairs that occur are counted: a table of both has the square of what a hostile file names.
    """
    pairs, votes = np.unique(np.stack((of.astype(np.int64), who.astype(np.int64))), axis=1, return_counts=True)
    order = np.lexsort((-pairs[1], votes, pairs[0]))
    out = otherwise.copy()
    out[pairs[0][order]] = pairs[1][order]          # of each the last one stays
    return out

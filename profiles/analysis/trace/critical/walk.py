"""From the end of a window backwards along what bound each moment: the critical path, without a gap and without overlap.

On the GPU the path covers a piece of work back to its start, then the time until what it had waited for last, and goes on
there. On a thread it covers everything back to the last call that GPU work let go on (then it goes on in that work), or to
the moment another thread handed over. So every ns of the window belongs to exactly one segment, and the segments' lengths
add up to the window (backward replay, Böhme et al., "Scalable Critical-Path Based Performance Analysis", IPDPS 2012).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profiles.analysis.core.frame import Ints
from profiles.analysis.trace.critical.links import EVENT, GRAPH, INFERRED, LAUNCH, NOTHING, STREAM, Links

# kinds of segments: GPU work by category below 10
CPU, LAUNCHING, BETWEEN, DEPENDENCY, RETURNING, HANDED, UNEXPLAINED, BEFORE = 10, 11, 12, 13, 14, 15, 16, 17
UNEXPLAINED_NS = 50_000             # from a returned launch call to the start, with nothing that explains it
_GAP = {LAUNCH: LAUNCHING, STREAM: BETWEEN, EVENT: DEPENDENCY, GRAPH: DEPENDENCY, INFERRED: DEPENDENCY, NOTHING: BEFORE}
_COLUMNS = ("kind", "row", "track", "start_ns", "end_ns")


@dataclass(frozen=True)
class Path:
    """Segments in order of time; arrays of one length. `row`: the work, the call that waited, or the work that a wait
    belongs to; -1 for stretches of a thread. `track`: where it is drawn."""

    start_ns: int
    end_ns: int
    kind: npt.NDArray[np.int64]
    row: Ints
    track: Ints
    from_ns: Ints
    to_ns: Ints
    inferred: int                   # links that the file does not state

    @property
    def length_ns(self) -> Ints:
        return self.to_ns - self.from_ns


def walk(links: Links, start_ns: int, end_ns: int, work: int = -1, track: int = -1, across: bool = False) -> Path:
    """Return the path back from `end_ns` to `start_ns`.

    It ends in `work` (a position), or on the thread `track`. `across`: from a collective that waited on to the rank that it waited
    for.
    """
    walker = _Walker(links, start_ns, across)
    walker.go(work, track, end_ns)
    chunks = walker.chunks
    columns = [np.concatenate([chunk[i] for chunk in chunks]) if chunks else np.empty(0, np.int64) for i in range(5)]
    kind, row, on, lo, hi = columns
    keep = hi > lo
    order = np.flatnonzero(keep)[np.argsort(lo[keep], kind="stable")]
    return Path(start_ns, end_ns, kind[order], row[order], on[order], lo[order], hi[order], walker.inferred)


class _Walker:
    def __init__(self, links: Links, stop_ns: int, across: bool) -> None:
        self.links, self.order, self.stop, self.across = links, links.order, stop_ns, across
        self.chain = links.chain_to_meeting if across else links.chain
        self.chunks: list[tuple[Ints, ...]] = []
        self.inferred = 0

    def go(self, work: int, track: int, now: int) -> None:
        # every turn goes to an earlier link or jump; the bound ends what a contradictory file might turn into a circle
        for _ in range(2 * (self.order.rows.size + sum(len(each.at_ns) for each in self.links.jumps.values())) + 10):
            if now <= self.stop:
                return
            if work >= 0:
                work, track, now = self.on_gpu(work, now)
            elif track >= 0:
                work, track, now = self.on_thread(track, now)
            else:
                self.add(BEFORE, -1, -1, self.stop, now)
                return
        self.add(BEFORE, -1, -1, self.stop, now)

    def add(self, kind: int, row: int, track: int, lo: int, hi: int) -> None:
        if hi > max(lo, self.stop):
            self.chunks.append(tuple(np.array([value], np.int64) for value in (kind, row, track, max(lo, self.stop), hi)))

    def on_gpu(self, work: int, now: int) -> tuple[int, int, int]:
        """Follow a chain of work of one stream back to what its first piece waited for."""
        links, order = self.links, self.order
        at = int(links.place[work])
        first = int(self.chain[at])
        span = links.by_track[first:at + 1]
        first += int(np.searchsorted(order.start_ns[span], self.stop,
                                     side="right")) - 1 if order.start_ns[span[0]] < self.stop else 0
        span = links.by_track[first:at + 1]
        rows, start = order.rows[span], order.start_ns[span]
        until = np.minimum(order.end_ns[span], np.r_[start[1:], now])       # work may overlap the next of its stream
        until[-1] = now
        meets = int(links.meets[span[0]]) if self.across else -1
        if meets >= 0 and int(links.meets_ns[span[0]]) < until[0]:
            start[0] = links.meets_ns[span[0]]
        else:
            meets = -1
        track = order.track[span]
        kinds = order.category[span].astype(np.int64)
        self.chunk(kinds, rows, track, start, until)
        self.chunk(np.full(span.size - 1, BETWEEN), rows[1:], track[1:], until[:-1], start[1:])
        head, begun = int(span[0]), int(start[0])
        if meets >= 0:
            return meets, -1, begun
        kind, time, source = int(links.kind[head]), int(links.time[head]), int(links.source[head])
        if kind == NOTHING:
            return -1, -1, begun
        gap = _GAP[kind] if kind != LAUNCH or begun - time <= UNEXPLAINED_NS else UNEXPLAINED
        self.add(gap, int(rows[0]), int(track[0]), time, begun)
        self.inferred += kind == INFERRED
        if kind == LAUNCH:
            return -1, int(order.frame["track"][order.call[head]]), time
        return source, -1, time

    def chunk(self, kind: Ints, row: Ints, track: Ints, lo: Ints, hi: Ints) -> None:
        if row.size:
            self.chunks.append((kind, row, track, np.maximum(lo, self.stop), hi))

    def on_thread(self, track: int, now: int) -> tuple[int, int, int]:
        """Follow a thread back to where GPU work let it go on, or another thread handed over."""
        jumps = self.links.jumps.get(track)
        at = bisect_right(jumps.at_ns, now) - 1 if jumps else -1
        if jumps is None or at < 0:
            self.add(CPU, -1, track, self.stop, now)
            return -1, -1, self.stop
        moment, to = jumps.at_ns[at], jumps.to_ns[at]
        self.add(CPU, -1, track, moment, now)
        if jumps.call[at] >= 0:
            self.add(RETURNING, jumps.call[at], track, to, moment)
            return jumps.work[at], -1, to
        self.add(HANDED, -1, track, to, moment)
        return -1, jumps.track[at], to


def ends(links: Links, rank: int) -> tuple[int, int, int]:
    """Return the (work, thread, moment) that ends a rank's run.

    The last piece of work to end, or the thread that launches most.
    """
    order = links.order
    mine = np.flatnonzero(links.ranks[order.track] == rank)
    if not mine.size:
        return -1, -1, 0
    last = int(mine[np.argmax(order.end_ns[mine])])
    ended = int(order.end_ns[last])
    threads = [track for track in links.activity if links.ranks[track] == rank]
    for track in threads:
        until = int(links.activity[track].end_ns[-1]) if links.activity[track].end_ns.size else 0
        if until > ended:
            last, ended, thread = -1, until, track
    return (last, -1, ended) if last >= 0 else (-1, thread, ended)

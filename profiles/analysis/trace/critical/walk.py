"""From the end of a window backwards along what bound each moment: the critical path, without a gap and without overlap.

On the GPU the path covers a piece of work back to its start, then the time until what it had waited for last, and goes on
there. On a thread it covers everything back to the last call that GPU work let go on (then it goes on in that work), or to
the moment another thread handed over. So every ns of the window belongs to exactly one segment, and the segments' lengths
add up to the window (backward replay, Böhme et al., "Scalable Critical-Path Based Performance Analysis", IPDPS 2012).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.columns import rows_by_value
from profiles.analysis.core.frame import Frame
from profiles.analysis.core.intervals import Intervals
from profiles.analysis.trace.critical.links import EVENT, GRAPH, INFERRED, LAUNCH, NOTHING, STREAM, Links
from profiles.ingest.arrays import Ints, stable_order
from profiles.ingest.trace import Category

# kinds of segments: GPU work by category below 10
CPU, LAUNCHING, BETWEEN, DEPENDENCY, RETURNING, HANDED, UNEXPLAINED, BEFORE = 10, 11, 12, 13, 14, 15, 16, 17
UNEXPLAINED_NS = 50_000             # from a returned launch call to the start, with nothing that explains it
_GAP = {LAUNCH: LAUNCHING, STREAM: BETWEEN, EVENT: DEPENDENCY, GRAPH: DEPENDENCY, INFERRED: DEPENDENCY, NOTHING: BEFORE}


@dataclass(frozen=True)
class Path:
    """Segments in order of time; arrays of one length. `row`: the work, the call that waited, or the work that a wait
    belongs to; -1 for stretches of a thread. `track`: where it is drawn."""

    start_ns: int
    end_ns: int
    kind: Ints
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
    order = np.flatnonzero(keep)[stable_order(lo[keep])]
    return Path(start_ns, end_ns, kind[order], row[order], on[order], lo[order], hi[order], walker.inferred)


class _Walker:
    def __init__(self, links: Links, stop_ns: int, across: bool) -> None:
        self.links, self.order, self.stop, self.across = links, links.order, stop_ns, across
        self.chain = links.chain_to_meeting if across else links.chain
        self.chunks: list[tuple[Ints, ...]] = []
        self.inferred = 0

    def go(self, work: int, track: int, now: int) -> None:
        # every turn goes to an earlier link or jump; the bound ends what a contradictory file might turn into a circle
        for _ in range(2 * (self.order.rows.size + sum(len(jump.at_ns) for jump in self.links.jumps.values())) + 10):
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
        position = int(links.place[work])
        first = int(self.chain[position])
        span = links.by_track[first:position + 1]
        first += int(np.searchsorted(order.start_ns[span], self.stop,
                                     side="right")) - 1 if order.start_ns[span[0]] < self.stop else 0
        span = links.by_track[first:position + 1]
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
        index = bisect_right(jumps.at_ns, now) - 1 if jumps else -1
        if jumps is None or index < 0:
            self.add(CPU, -1, track, self.stop, now)
            return -1, -1, self.stop
        moment, to = jumps.at_ns[index], jumps.to_ns[index]
        self.add(CPU, -1, track, moment, now)
        if jumps.call[index] >= 0:
            self.add(RETURNING, jumps.call[index], track, to, moment)
            return jumps.work[index], -1, to
        self.add(HANDED, -1, track, to, moment)
        return -1, jumps.track[index], to


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


# A critical path as the timeline draws it: its segments in a window, few enough for a picture.

MOST = 3000                         # segments that are given one by one
PIXELS = 1500
WORDS = {CPU: "host", LAUNCHING: "launch latency", BETWEEN: "between kernels", DEPENDENCY: "waits for another stream",
         RETURNING: "return from wait", HANDED: "between threads", UNEXPLAINED: "not explained", BEFORE: "not explained"}


def path_segments(frame: Frame, path: Path, start_ns: int, end_ns: int) -> dict[str, Any]:
    """Return a critical path in a window as segments for the timeline.

    `segments`: [track, depth, start_ns, end_ns, what, slice or null] in order of time, `exact` true; of more than MOST the
    stretches that the path covers on each track, closer than a pixel joined.
    """
    inside = np.flatnonzero((path.from_ns < end_ns) & (path.to_ns > start_ns) & (path.track >= 0))
    if inside.size <= MOST:
        row = path.row[inside]
        has_row = row >= 0
        depth = np.where(has_row, frame["depth"][np.maximum(row, 0)], 0)
        ids = np.where(has_row, frame["id"][np.maximum(row, 0)], -1)
        return {"exact": True, "segments": [
            [track, deep, lo, hi, WORDS.get(kind, "GPU"), slice_id if slice_id >= 0 else None]
            for track, deep, lo, hi, kind, slice_id in zip(path.track[inside].tolist(), depth.tolist(),
                                                           path.from_ns[inside].tolist(),
                                                           path.to_ns[inside].tolist(), path.kind[inside].tolist(), ids.tolist(),
                                                           strict=True)]}
    pixel = max(1, (end_ns - start_ns) // PIXELS)
    segments = []
    for track, places in rows_by_value(path.track[inside]).items():
        mine = inside[places]
        joined = intervals.union(path.from_ns[mine], path.to_ns[mine] + pixel)
        what = "host" if frame.tracks[track].kind == "thread" else "GPU"
        segments += [[track, 0, lo, hi - pixel, what, None] for lo,
                     hi in zip(joined.start_ns.tolist(), joined.end_ns.tolist(), strict=True)]
    return {"exact": False, "segments": sorted(segments, key=lambda segment: segment[2])}


# What a critical path consists of: its time by kind, by kernel and by what threads did. All of it adds up to the window.


@dataclass(frozen=True)
class Kind:
    """One kind of time on a path, as pages show it."""

    key: str                        # in numbers: "<key>_ns"
    label: str
    side: str                       # "gpu" | "cpu" | "wait"
    means: str


KINDS: tuple[Kind, ...] = (
    Kind("compute", "GPU compute", "gpu", "a computing kernel ran: a faster kernel ends the run sooner"),
    Kind("communication", "communication", "gpu", "a collective ran: its transfer, or its wait for other ranks"),
    Kind("memory", "copies and sets", "gpu", "a copy or set ran that the path had to wait for"),
    Kind("operator", "CPU operators", "cpu", "a thread was in a framework operator, outside runtime calls: the host is the limit"),
    Kind("runtime", "runtime calls", "cpu", "a thread was in the CUDA runtime, for the most part launching"),
    Kind("outside", "outside operators", "cpu", "a thread was in neither: Python, data loading, the program's own code"),
    Kind("launch", "launch latency", "wait", "from the returned launch call to the start of its work"),
    Kind("between", "between kernels", "wait", "from the end of a piece of work to the start of the next on its stream"),
    Kind("dependency", "waits for another stream", "wait", "from the end of what an event or graph node waited for to the start"),
    Kind("returning", "return from waits", "wait", "from the end of the work that a synchronisation waited for to its return"),
    Kind("handed", "between threads", "wait",
         "from the last operator of one thread to the first of the one that went on: a hand-over, or "
         "the program's own code"),
    Kind("unexplained", "not explained", "wait",
         "launched long before, the stream was free, and no record says what it waited for"),
)
_OF_SEGMENT = {int(Category.COMPUTE): "compute", int(Category.COMMUNICATION): "communication", int(Category.MEMCPY): "memory",
               int(Category.MEMSET): "memory", LAUNCHING: "launch", BETWEEN: "between", DEPENDENCY: "dependency",
               RETURNING: "returning", HANDED: "handed", UNEXPLAINED: "unexplained", BEFORE: "unexplained"}


class Shares:
    """Sums over paths of one frame."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self._busy: dict[int, tuple[Intervals, Intervals]] = {}

    def by_kind(self, path: Path) -> dict[str, int]:
        """ns by `Kind.key`; the sum is the window."""
        sums = {kind.key: 0 for kind in KINDS}
        length = path.length_ns
        for kind in np.unique(path.kind).tolist():
            if kind != CPU:
                sums[_OF_SEGMENT[kind]] += int(length[path.kind == kind].sum())
        for track, mine in _by_thread(path).items():
            lo, hi = path.from_ns[mine], path.to_ns[mine]
            runtime, both = self._thread(track)
            in_runtime, in_both = (int(intervals.overlap_ns(cover, lo, hi).sum()) for cover in (runtime, both))
            sums["runtime"] += in_runtime
            sums["operator"] += in_both - in_runtime
            sums["outside"] += int((hi - lo).sum()) - in_both
        return sums

    def _thread(self, track: int) -> tuple[Intervals, Intervals]:
        """When a thread was in runtime calls; in runtime calls or operators."""
        if track not in self._busy:
            frame = self.frame
            mine = frame.rows_of_track(track)
            mine = mine[~frame["instant"][mine]]
            start, end, kind = frame["start_ns"][mine], frame.end_ns[mine], frame["category"][mine]
            calls, both = kind == Category.RUNTIME, np.isin(kind, [int(Category.RUNTIME), int(Category.CPU_OP)])
            self._busy[track] = intervals.union(start[calls], end[calls]), intervals.union(start[both], end[both])
        return self._busy[track]

    def by_slice(self, path: Path) -> tuple[Ints, Ints]:
        """Return (rows, ns): the time on the path that belongs to each CPU slice itself.

        Without the slices within it.
        """
        frame, own = self.frame, np.zeros(self.frame.rows, np.int64)
        kinds = [int(category) for category in (Category.CPU_OP, Category.RUNTIME, Category.PYTHON, Category.ANNOTATION)]
        for track, mine in _by_thread(path).items():
            stretches = Intervals(path.from_ns[mine], path.to_ns[mine])
            rows = frame.rows_of_track(track)
            rows = rows[~frame["instant"][rows] & np.isin(frame["category"][rows], kinds)]
            inclusive = intervals.overlap_ns(stretches, frame["start_ns"][rows], frame.end_ns[rows])
            rows, inclusive = rows[inclusive > 0], inclusive[inclusive > 0]
            np.add.at(own, rows, inclusive)
            around = frame.parent[rows]
            inner = (around >= 0) & np.isin(frame["category"][np.maximum(around, 0)], kinds)
            np.subtract.at(own, around[inner], inclusive[inner])
        owners = np.flatnonzero(own > 0)
        return owners, own[owners]


def _by_thread(path: Path) -> dict[int, Ints]:
    """Return the stretches of a path on each thread that it takes, in their order."""
    stretches = np.flatnonzero(path.kind == CPU)
    return {track: stretches[places] for track, places in rows_by_value(path.track[stretches]).items()}

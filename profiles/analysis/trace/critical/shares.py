"""What a critical path consists of: its time by kind, by kernel and by what threads did. All of it adds up to the window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.columns import rows_by_value
from profiles.analysis.core.frame import Frame, Ints
from profiles.analysis.core.intervals import Intervals
from profiles.analysis.trace.critical.walk import BEFORE, BETWEEN, CPU, DEPENDENCY, HANDED, LAUNCHING, RETURNING, UNEXPLAINED, Path
from profiles.ingest.trace import Category


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
            in_runtime, in_both = (int(intervals.overlap_ns(each, lo, hi).sum()) for each in (runtime, both))
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
        kinds = [int(each) for each in (Category.CPU_OP, Category.RUNTIME, Category.PYTHON, Category.ANNOTATION)]
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

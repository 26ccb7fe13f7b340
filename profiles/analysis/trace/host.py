"""Why a GPU stood idle, seen from the host: was the next kernel launched too late, and what did its thread do then?

A gap ends with a piece of GPU work; the call that launched it (same correlation id) tells the two causes apart. Until
that call had returned, nothing was queued: the host was late (*starved*). From then on the work was queued but did not
start: launch latency or a dependency (*queued*). Times are ns since trace start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from profiles.analysis.core.columns import NONE
from profiles.analysis.core.digest import NO_KIND, Digest, Nesting, digest_of
from profiles.ingest.arrays import Bools, Int32, Ints, stable_order
from profiles.ingest.trace import Trace


@dataclass(frozen=True)
class Gaps:
    """Idle gaps of one GPU, in time order; arrays of one length."""

    start_ns: Ints
    end_ns: Ints
    starved_ns: Ints        # of the gap: before the launch call of what came next had returned
    track: Ints             # thread of that launch call; -1 where no call is known

    @property
    def idle_ns(self) -> int:
        return int((self.end_ns - self.start_ns).sum())


@dataclass(frozen=True)
class Activity:
    """What the launching threads did while nothing was queued: ns by kind, and by operator (largest first)."""

    starved_ns: int = 0
    synchronising_ns: int = 0
    runtime_ns: int = 0                 # other runtime calls: launches, allocations, copies
    operator_ns: int = 0                # inside framework operators, outside runtime calls
    outside_ns: int = 0                 # in neither: Python, data loading, the optimizer's own code
    profiler_ns: int = 0                # the profiler's own overhead
    names: dict[str, int] = field(default_factory=dict)      # outermost operators


@dataclass(frozen=True)
class Syncs:
    """Calls in which the host waits for the GPU."""

    count: int
    waited_ns: int
    drained_ns: int                     # starved idle time in gaps that began while the host waited
    callers: dict[str, int]             # outermost operator around the call -> calls; "" where there is none
    calls: dict[str, int]               # runtime call -> calls


class Host:
    """The CPU side of a trace, for all rules."""

    def __init__(self, trace: Trace | Digest) -> None:
        self.digest = trace if isinstance(trace, Digest) else digest_of(trace)
        work = self.digest.work
        self.work = np.flatnonzero(~work["instant"])           # rows of the GPU work, in order of start
        self.start_ns: Ints = work["start_ns"]
        self.end_ns: Ints = self.start_ns + work["dur_ns"]

    def gaps(self, device: int, start_ns: int, end_ns: int) -> Gaps:
        """Return the gaps of one GPU within the window.

        The time before its first and after its last work is included, but starved by nobody: what came before the trace began is
        not known.
        """
        rows = self.work[self.digest.work["device"][self.work] == device]
        last = np.maximum.accumulate(np.r_[start_ns, self.end_ns[rows]])
        gap = np.flatnonzero(self.start_ns[rows] > last[:-1])
        begins, ends = last[:-1][gap], self.start_ns[rows[gap]]
        has_call = (begins > start_ns) & (self.digest.call[rows[gap]] >= 0)
        returned = np.where(has_call, self.digest.call_end_ns[rows[gap]], begins)
        starved = np.clip(np.minimum(returned, ends) - begins, 0, None)
        track = np.where(has_call, self.digest.call_track[rows[gap]], NONE)
        if last[-1] < end_ns:           # after the last work: nothing was launched any more
            begins, ends = np.r_[begins, last[-1]], np.r_[ends, end_ns]
            starved, track = np.r_[starved, 0], np.r_[track, NONE]
        return Gaps(begins, ends, starved, track)

    def activity(self, gaps: Gaps) -> Activity:
        """Return what the launching threads did in the starved part of `gaps`."""
        return self.activities([gaps])[0]

    def activities(self, each: Sequence[Gaps]) -> list[Activity]:
        """Return `activity` of several GPUs, in one pass over the CPU's slices."""
        tallies = [_Sum(gaps) for gaps in each]
        if any(tally.total for tally in tallies):
            for rows in self.digest.host_rows():
                for tally in tallies:
                    tally.add(rows)
        return [tally.result(self.digest.names) for tally in tallies]

    def syncs(self, gaps: Gaps) -> Syncs:
        """Return the host's waits inside an operator or a step, and the idle time they cause.

        That is the idle time of gaps that began during one.
        """
        waits, names = self.digest.waits, self.digest.names
        if not waits.size:
            return Syncs(0, 0, 0, {}, {})
        start, end = waits["start_ns"], waits["end_ns"]
        begun = np.searchsorted(start, gaps.start_ns, side="right") - 1      # the last wait that began before the gap
        during = (begun >= 0) & (gaps.start_ns <= np.maximum.accumulate(end)[np.maximum(begun, 0)])
        return Syncs(waits.size, int((end - start).sum()), int(gaps.starved_ns[during].sum()),
                     _counts(waits["outermost"], names), _counts(waits["name"], names))


class _Sum:
    """What the threads that starve one GPU spend the starved time in, added up piece by piece."""

    def __init__(self, gaps: Gaps) -> None:
        starved = np.flatnonzero(gaps.starved_ns > 0)
        self.starved = _Starved(gaps.track[starved], gaps.start_ns[starved], gaps.starved_ns[starved])
        self.total = int(gaps.starved_ns[starved].sum())
        self.kinds = np.zeros(NO_KIND + 1, np.int64)
        self.names: dict[int, int] = {}

    def add(self, piece: npt.NDArray[np.void]) -> None:
        """Add a piece: time within a slice less that within the slices it encloses."""
        rows = piece[piece["kind"] != NO_KIND]
        rows = rows[self.starved.has_thread(rows["track"])]
        rows = rows[stable_order(rows["track"])]
        inclusive = self.starved.before(rows["track"], rows["end_ns"]) - self.starved.before(rows["track"], rows["start_ns"])
        np.add.at(self.kinds, rows["kind"], inclusive)
        np.subtract.at(self.kinds, rows["within"], inclusive)
        outermost = (rows["kind"] == Nesting.OPERATOR) & ~rows["under_operator"] & (inclusive > 0)
        for code, ns in zip(rows["name"][outermost].tolist(), inclusive[outermost].tolist(), strict=True):
            self.names[code] = self.names.get(code, 0) + ns

    def result(self, names: Sequence[str]) -> Activity:
        wait, runtime, operator, _, profiler = self.kinds[:5].tolist()
        outside = self.total - wait - runtime - operator - profiler
        largest = sorted(self.names.items(), key=lambda pair: -pair[1])[:20]
        return Activity(self.total, wait, runtime, operator, max(0, outside), profiler, {names[code]: ns for code, ns in largest})


def _counts(codes: Int32, names: Sequence[str]) -> dict[str, int]:
    """How often each name occurs ("" for -1), in order of first sight."""
    distinct, first, count = np.unique(codes, return_index=True, return_counts=True)
    return {names[distinct[i]] if distinct[i] >= 0 else "": int(count[i]) for i in np.argsort(first).tolist()}


class _Starved:
    """Disjoint intervals of several threads, asked for all threads at once.

    `track`, `start_ns`, `length_ns`: of one thread ordered by start. A place is thread and moment in one number, the moment
    counted in starts: a pass for each thread would cost threads times slices.
    """

    def __init__(self, track: Ints, start_ns: Ints, length_ns: Ints) -> None:
        order = stable_order(track)
        self._start_ns, self._length_ns = start_ns[order], length_ns[order]
        self._moments = np.unique(start_ns)
        self._threads, self._first = np.unique(track[order], return_index=True)
        self._place = self._at(track[order], self._start_ns)
        self._sum_ns = np.r_[0, np.cumsum(self._length_ns)]

    def has_thread(self, track: Ints) -> Bools:
        return np.isin(track, self._threads)

    def before(self, track: Ints, time_ns: Ints) -> Ints:
        """Return the length of a thread's intervals before each time; the threads are among those of the intervals."""
        last = np.searchsorted(self._place, self._at(track, time_ns), side="right") - 1
        first = self._first[np.searchsorted(self._threads, track)]
        inside = np.minimum(time_ns - self._start_ns[last], self._length_ns[last])
        covered: Ints = np.where(last >= first, self._sum_ns[last] - self._sum_ns[first] + inside, 0)
        return covered

    def _at(self, track: Ints, time_ns: Ints) -> Ints:
        moment = np.searchsorted(self._moments, time_ns, side="right")
        return np.searchsorted(self._threads, track) * (self._moments.size + 1) + moment

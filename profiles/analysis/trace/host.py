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

from profiles.analysis.core.correlate import NONE
from profiles.analysis.core.digest import Digest, digest_of
from profiles.analysis.core.nesting import NONE as NO_KIND
from profiles.analysis.core.nesting import Nesting
from profiles.ingest.trace import Trace

Ints = npt.NDArray[np.int64]


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
        known = (begins > start_ns) & (self.digest.call[rows[gap]] >= 0)
        returned = np.where(known, self.digest.call_end_ns[rows[gap]], begins)
        starved = np.clip(np.minimum(returned, ends) - begins, 0, None)
        track = np.where(known, self.digest.call_track[rows[gap]], NONE)
        if last[-1] < end_ns:           # after the last work: nothing was launched any more
            begins, ends = np.r_[begins, last[-1]], np.r_[ends, end_ns]
            starved, track = np.r_[starved, 0], np.r_[track, NONE]
        return Gaps(begins, ends, starved, track)

    def activity(self, gaps: Gaps) -> Activity:
        """Return what the launching threads did in the starved part of `gaps`."""
        return self.activities([gaps])[0]

    def activities(self, each: Sequence[Gaps]) -> list[Activity]:
        """Return `activity` of several GPUs, in one pass over the CPU's slices."""
        made = [_Sum(gaps) for gaps in each]
        if any(one.starved for one in made):
            for rows in self.digest.host_rows():
                for one in made:
                    one.add(rows)
        return [one.result(self.digest.names) for one in made]

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
        self.starved: dict[int, tuple[Ints, Ints]] = {}
        for track in np.unique(gaps.track[gaps.starved_ns > 0]).tolist():
            mine = (gaps.track == track) & (gaps.starved_ns > 0)
            self.starved[track] = gaps.start_ns[mine], gaps.start_ns[mine] + gaps.starved_ns[mine]
        self.total = sum(int((ends - begins).sum()) for begins, ends in self.starved.values())
        self.kinds = np.zeros(NO_KIND + 1, np.int64)
        self.names: dict[int, int] = {}

    def add(self, piece: npt.NDArray[np.void]) -> None:
        """Add a piece: time within a slice less that within the slices it encloses."""
        for track, (begins, ends) in self.starved.items():
            rows = piece[(piece["track"] == track) & (piece["kind"] != NO_KIND) & (piece["end_ns"] > begins[0])
                         & (piece["start_ns"] < ends[-1])]
            inclusive = _covered_before(begins, ends, rows["end_ns"]) - _covered_before(begins, ends, rows["start_ns"])
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


def _counts(codes: npt.NDArray[np.int32], names: Sequence[str]) -> dict[str, int]:
    """How often each name occurs ("" for -1), in order of first sight."""
    distinct, first, count = np.unique(codes, return_index=True, return_counts=True)
    return {names[distinct[i]] if distinct[i] >= 0 else "": int(count[i]) for i in np.argsort(first).tolist()}


def _covered_before(begins: Ints, ends: Ints, time_ns: Ints) -> Ints:
    """Length of the disjoint, ordered intervals before each time."""
    lengths = np.r_[0, np.cumsum(ends - begins)]
    at = np.searchsorted(begins, time_ns, side="right")
    last = np.maximum(at - 1, 0)
    partial = np.where(at > 0, np.minimum(time_ns, ends[last]) - begins[last], 0)
    covered: Ints = np.where(at > 0, lengths[last] + partial, 0)
    return covered

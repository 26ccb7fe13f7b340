"""Why a GPU stood idle, seen from the host: was the next kernel launched too late, and what did its thread do then?

A gap ends with a piece of GPU work; the call that launched it (same correlation id) tells the two causes apart. Until
that call had returned, nothing was queued: the host was late (*starved*). From then on the work was queued but did not
start: launch latency or a dependency (*queued*). Times are ns since trace start.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from profiles.analysis.correlate import NONE, launch_calls
from profiles.analysis.kernels import dictionary, numbers
from profiles.trace import GPU_WORK, Category, Trace

Ints = npt.NDArray[np.int64]
HOST = (Category.RUNTIME, Category.CPU_OP, Category.PYTHON, Category.ANNOTATION, Category.OVERHEAD)
SYNC_WORDS = ("synchronize",)               # cudaStreamSynchronize, hipDeviceSynchronize, cuCtxSynchronize …
SYNC_CALLS = ("cudaMemcpy", "hipMemcpy", "cuMemcpyDtoH_v2", "cuMemcpyHtoD_v2")     # the blocking copies
NO_ROWS = np.empty(0, np.int64)


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
    """The CPU side of a trace as arrays over all its slices, built once for all rules."""

    def __init__(self, trace: Trace) -> None:
        slices = trace.slices
        self.start_ns: Ints = numbers(slices, "start_ns")
        self.end_ns: Ints = self.start_ns + numbers(slices, "dur_ns")
        self.category, self.device = numbers(slices, "category"), numbers(slices, "device")
        self.track: Ints = numbers(slices, "track").astype(np.int64)
        self.name, self.names = dictionary(slices, "name")
        self.is_sync = np.array([name in SYNC_CALLS or any(word in name.lower() for word in SYNC_WORDS)
                                 for name in self.names] or [False], bool)       # by name id
        self.calls: Ints = launch_calls(trace)
        real = ~numbers(slices, "instant").astype(bool)
        self.work = np.flatnonzero(real & np.isin(self.category, [int(each) for each in GPU_WORK]))
        self.work = self.work[np.argsort(self.start_ns[self.work], kind="stable")]
        self.cpu = np.flatnonzero(real & np.isin(self.category, [int(each) for each in HOST]))
        depth = numbers(slices, "depth")
        self.parent = _parents(self.cpu, self.start_ns, self.end_ns, self.track, depth)
        self.under_operator = np.zeros(len(depth), bool)       # an operator encloses the slice
        for level in np.unique(depth[self.cpu])[1:].tolist():
            rows = self.cpu[(depth[self.cpu] == level) & (self.parent[self.cpu] >= 0)]
            above = self.parent[rows]
            self.under_operator[rows] = self.under_operator[above] | (self.category[above] == Category.CPU_OP)

    def gaps(self, device: int, start_ns: int, end_ns: int) -> Gaps:
        """Gaps of one GPU within the window. The time before its first and after its last work is included, but starved
        by nobody: what came before the trace began is not known."""
        rows = self.work[self.device[self.work] == device]
        last = np.maximum.accumulate(np.r_[start_ns, self.end_ns[rows]])
        gap = np.flatnonzero(self.start_ns[rows] > last[:-1])
        begins, ends = last[:-1][gap], self.start_ns[rows[gap]]
        call = np.where(begins > start_ns, self.calls[rows[gap]], NONE)
        known = call >= 0
        returned = np.where(known, self.end_ns[np.maximum(call, 0)], begins)
        starved = np.clip(np.minimum(returned, ends) - begins, 0, None)
        track = np.where(known, self.track[np.maximum(call, 0)], NONE)
        if last[-1] < end_ns:           # after the last work: nothing was launched any more
            begins, ends = np.r_[begins, last[-1]], np.r_[ends, end_ns]
            starved, track = np.r_[starved, 0], np.r_[track, NONE]
        return Gaps(begins, ends, starved, track)

    def activity(self, gaps: Gaps) -> Activity:
        """What the launching threads did in the starved part of `gaps`."""
        kinds = dict.fromkeys(("sync", "runtime", "operator", "annotation", "profiler"), 0)
        names: dict[str, int] = {}
        total = 0
        for track in np.unique(gaps.track[gaps.starved_ns > 0]).tolist():
            mine = (gaps.track == track) & (gaps.starved_ns > 0)
            begins, ends = gaps.start_ns[mine], gaps.start_ns[mine] + gaps.starved_ns[mine]
            total += int((ends - begins).sum())
            self._add_track(track, begins, ends, kinds, names)
        outside = total - sum(kinds.values()) + kinds["annotation"]
        largest = dict(sorted(names.items(), key=lambda pair: -pair[1])[:20])
        return Activity(total, kinds["sync"], kinds["runtime"], kinds["operator"], max(0, outside), kinds["profiler"],
                        largest)

    def _add_track(self, track: int, begins: Ints, ends: Ints, kinds: dict[str, int], names: dict[str, int]) -> None:
        rows = self.cpu[(self.track[self.cpu] == track) & (self.end_ns[self.cpu] > begins[0])
                        & (self.start_ns[self.cpu] < ends[-1])]
        inclusive = np.zeros(len(self.start_ns), np.int64)
        inclusive[rows] = _covered(begins, ends, self.end_ns[rows]) - _covered(begins, ends, self.start_ns[rows])
        own = inclusive.copy()
        nested = rows[self.parent[rows] >= 0]
        np.subtract.at(own, self.parent[nested], inclusive[nested])
        category, sync = self.category[rows], self.is_sync[self.name[rows]]
        runtime = category == Category.RUNTIME
        operator = category == Category.CPU_OP
        annotation = np.isin(category, (Category.ANNOTATION, Category.PYTHON))
        for kind, chosen in (("sync", runtime & sync), ("runtime", runtime & ~sync), ("operator", operator),
                             ("annotation", annotation), ("profiler", category == Category.OVERHEAD)):
            kinds[kind] += int(own[rows[chosen]].sum())
        outermost = rows[operator & ~self.under_operator[rows] & (inclusive[rows] > 0)]
        for code, ns in zip(self.name[outermost].tolist(), inclusive[outermost].tolist(), strict=True):
            names[self.names[code]] = names.get(self.names[code], 0) + ns

    def syncs(self, gaps: Gaps) -> Syncs:
        """Waits of the host inside an operator or a step, and the idle time of gaps that began during one."""
        rows = self.cpu[(self.category[self.cpu] == Category.RUNTIME) & self.is_sync[self.name[self.cpu]]]
        start, end = self.start_ns[rows], self.end_ns[rows]
        callers: dict[str, int] = {}
        calls: dict[str, int] = {}
        for row in rows.tolist():
            caller = self._outermost_operator(row)
            callers[caller] = callers.get(caller, 0) + 1
            calls[self.names[self.name[row]]] = calls.get(self.names[self.name[row]], 0) + 1
        if not len(rows):
            return Syncs(0, 0, 0, {}, {})
        begun = np.searchsorted(start, gaps.start_ns, side="right") - 1      # the last wait that began before the gap
        during = (begun >= 0) & (gaps.start_ns <= np.maximum.accumulate(end)[np.maximum(begun, 0)])
        return Syncs(len(rows), int((end - start).sum()), int(gaps.starved_ns[during].sum()), callers, calls)

    def _outermost_operator(self, row: int) -> str:
        found = ""
        while (row := int(self.parent[row])) >= 0:
            if self.category[row] == Category.CPU_OP:
                found = self.names[self.name[row]]
        return found

    def launch_delays_ns(self) -> Ints:
        """From the begin of the launch call to the start of the work, for work whose call is known."""
        rows = self.work[self.calls[self.work] >= 0]
        delays: Ints = np.maximum(self.start_ns[rows] - self.start_ns[self.calls[rows]], 0)
        return delays

    def launch_call_ns(self) -> Ints:
        """Duration of the runtime calls that launched something."""
        call = np.unique(self.calls[self.work])
        call = call[call >= 0]
        durations: Ints = self.end_ns[call] - self.start_ns[call]
        return durations


def _parents(cpu: Ints, start_ns: Ints, end_ns: Ints, track: Ints, depth: Ints) -> Ints:
    """Row of the slice one depth above that encloses each CPU slice; -1 elsewhere."""
    parent = np.full(len(start_ns), NONE, np.int64)
    order = cpu[np.lexsort((start_ns[cpu], depth[cpu], track[cpu]))]
    key = track[order].astype(np.int64) << 20 | depth[order].astype(np.int64)
    begins = np.flatnonzero(np.r_[True, key[1:] != key[:-1]]) if len(order) else NO_ROWS
    groups = dict(zip(key[begins].tolist(), np.split(order, begins[1:]), strict=True)) if len(order) else {}
    for one, here in groups.items():
        above = groups.get(one - 1)
        if above is None or not one & 0xFFFFF:
            continue
        at = np.searchsorted(start_ns[above], start_ns[here], side="right") - 1
        found = above[np.maximum(at, 0)]
        parent[here] = np.where((at >= 0) & (end_ns[found] >= end_ns[here]), found, NONE)
    return parent


def _covered(begins: Ints, ends: Ints, time_ns: Ints) -> Ints:
    """Length of the disjoint, ordered intervals before each time."""
    lengths = np.r_[0, np.cumsum(ends - begins)]
    at = np.searchsorted(begins, time_ns, side="right")
    last = np.maximum(at - 1, 0)
    partial = np.where(at > 0, np.minimum(time_ns, ends[last]) - begins[last], 0)
    covered: Ints = np.where(at > 0, lengths[last] + partial, 0)
    return covered

"""Where the time of each GPU went: compute, exposed communication, exposed memory traffic and idle add up to wall time.

Wall time runs from the first to the last slice of anything (CPU or GPU; the profiler's own overhead and marks aside)
and is the same for all GPUs of a trace. Compute counts whenever a computing kernel runs; communication is *exposed*
while no kernel computes, memory traffic while neither computes nor communicates. `..._overlapped_ns` is the rest of
each. Holistic Trace Analysis measures from the first to the last GPU slice instead: `span_ns` and `idle_in_span_ns`
(it also cuts all times to whole µs, counts `cuda_sync` records as work and by default leaves the last step out).

Where the time of a trace without GPU work went: by name, with what lies within taken out, and by thread.

Self time is a slice's duration less that of the slices directly within it (one level deeper on the same track, inside
its begin and end). A slice that only partly overlaps another lies in none. Sums over threads are time of threads, not of
the wall clock.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, TypedDict

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.digest import STEP, Digest, digest_of
from profiles.analysis.core.intervals import Intervals, overlap_ns, union
from profiles.ingest.arrays import Array, Bools, Ints, Rows, stable_order
from profiles.ingest.trace import Category, SummaryTable, Trace, summary_columns, with_rows
from profiles.ingest.windows import MISSING

BY_NAME = "CPU time by name"
ROWS = 500                       # of each table
_LEVELS = 1024                   # of nesting at which self time is told apart
_BY_NAME = summary_columns("Name: text | Slices: count | Self: ns | Share: pct | Total: ns | Mean: ns")
_BY_TRACK = summary_columns("Thread: text | Process: text | Slices: count | Busy: ns | Of the trace: pct")
_CHAINS = summary_columns("Name: text | Slices: count | Total: ns | Mean: ns")


class _Rows(NamedTuple):
    """Spans by track, start and depth."""

    track: Array
    start: Array
    end: Array
    depth: Array
    name: Array
    new: Array            # of this window, not carried over

    def take(self, rows: Array) -> _Rows:
        return _Rows(*(column[rows] for column in self))


def tables(trace: Trace) -> list[SummaryTable]:
    """Return CPU time by name, by thread, and asynchronous slices by name.

    Only tables that have rows.
    """
    sums = _Sums(trace)
    carried: _Rows | None = None
    for window in trace.parts.windows():
        rows = sums.rows(window.columns)
        sums.add(rows, carried)
        both = rows if carried is None else _Rows(*(np.concatenate(pair) for pair in zip(carried, rows, strict=True)))
        still = both.take(np.flatnonzero(both.end > window.next_ns))
        carried = still._replace(new=np.zeros(still.new.size, np.bool_))
    return with_rows((sums.by_name(), sums.by_track(), sums.chains()))


class _Sums:
    def __init__(self, trace: Trace) -> None:
        self._trace, self._names = trace, trace.parts.names
        self._thread = np.array([track.kind == "thread" for track in trace.tracks] or [False], np.bool_)
        names, tracks = len(self._names), self._thread.size
        self._count, self._total, self._inner, self._chain, self._chained = (np.zeros(names) for _ in range(5))
        self._slices, self._busy = np.zeros(tracks), np.zeros(tracks)
        self._until = np.full(tracks, np.iinfo(np.int64).min)        # how far each track is counted as busy

    def rows(self, columns: dict[str, Array]) -> _Rows:
        spans = np.flatnonzero(~columns["instant"])
        start = columns["start_ns"][spans]
        return _Rows(columns["track"][spans], start, start + columns["dur_ns"][spans], columns["depth"][spans].astype(np.int64),
                     columns["name"][spans], np.ones(spans.size, np.bool_))

    def add(self, rows: _Rows, carried: _Rows | None) -> None:
        thread = self._thread[rows.track]
        n = self._count.size
        for chosen, count, total in ((thread, self._count, self._total), (~thread, self._chain, self._chained)):
            count += np.bincount(rows.name[chosen], minlength=n)
            total += np.bincount(rows.name[chosen], (rows.end - rows.start)[chosen], n)
        own = rows.take(np.flatnonzero(thread))
        self._slices += np.bincount(own.track, minlength=self._slices.size)
        self._union(own)
        if carried is not None:
            earlier = carried.take(np.flatnonzero(self._thread[carried.track]))
            own = _Rows(*(np.concatenate(pair) for pair in zip(earlier, own, strict=True)))
        self._within(own.take(np.lexsort((own.depth, own.start, own.track))))

    def _union(self, rows: _Rows) -> None:
        """Busy time of every thread: the outermost slices of each, once where they overlap."""
        by_track = stable_order(rows.track)             # once for all: each thread's rows lie together
        occurring, begins = np.unique(rows.track[by_track], return_index=True)
        beyonds = np.append(begins, by_track.size)[1:]
        for track, begin, beyond in zip(occurring.tolist(), begins.tolist(), beyonds.tolist(), strict=True):
            chosen = by_track[begin:beyond]
            start, end = rows.start[chosen], np.maximum.accumulate(rows.end[chosen])         # windows are ordered by start
            before = np.maximum(np.concatenate(([self._until[track]], end[:-1])), self._until[track])
            self._busy[track] += int(np.maximum(end - np.maximum(start, before), 0).sum())
            self._until[track] = max(self._until[track], int(end[-1]))

    def _within(self, rows: _Rows) -> None:
        """Take the duration of every slice from what it lies in."""
        order = stable_order(rows.depth)                # within a depth still by track and start
        bounds = np.searchsorted(rows.depth[order], np.arange(min(int(rows.depth.max(initial=0)), _LEVELS) + 2))
        for depth in range(1, bounds.size - 1):
            above, here = order[bounds[depth - 1]:bounds[depth]], order[bounds[depth]:bounds[depth + 1]]
            here = here[rows.new[here]]
            if not above.size or not here.size:
                continue
            position = np.searchsorted(above, here) - 1
            parent = above[np.maximum(position, 0)]
            inside = (position >= 0) & (rows.track[parent] == rows.track[here]) & (rows.end[here] <= rows.end[parent])
            self._inner += np.bincount(rows.name[parent[inside]], (rows.end - rows.start)[here[inside]], self._inner.size)

    def by_name(self) -> SummaryTable:
        own = self._total - self._inner
        whole = float(own.sum()) or 1.0
        occurring = np.flatnonzero(self._count)
        top = occurring[stable_order(-own[occurring])][:ROWS]
        rows: list[list[Any]] = [[self._names[i], int(self._count[i]), int(own[i]), 100 * own[i] / whole, int(self._total[i]),
                                  self._total[i] / self._count[i]] for i in top.tolist()]
        return SummaryTable(BY_NAME, _BY_NAME, rows, "Self: without the slices within. Share: of the self time of all "
                            "threads." + _of(occurring.size))

    def by_track(self) -> SummaryTable:
        wall = max(self._trace.parts.end_ns, 1)
        occurring = np.flatnonzero(self._slices)
        top = occurring[stable_order(-self._busy[occurring])][:ROWS]
        tracks = self._trace.tracks
        rows: list[list[Any]] = [[tracks[i].name, tracks[i].group, int(self._slices[i]), int(self._busy[i]),
                                  100 * self._busy[i] / wall] for i in top.tolist()]
        return SummaryTable("CPU time by thread", _BY_TRACK, rows,
                            "Busy: while any slice of the thread was open." + _of(occurring.size))

    def chains(self) -> SummaryTable:
        occurring = np.flatnonzero(self._chain)
        top = occurring[stable_order(-self._chained[occurring])][:ROWS]
        rows: list[list[Any]] = [[self._names[i], int(self._chain[i]), int(self._chained[i]), self._chained[i] / self._chain[i]]
                                 for i in top.tolist()]
        return SummaryTable("Other slices by name", _CHAINS, rows,
                            "Asynchronous work and marks of the profiler: no time of a thread." + _of(occurring.size))


def _of(count: int) -> str:
    return f" The {ROWS} of most time, of {count:,}." if count > ROWS else ""


__all__ = ["STEP", "Breakdown", "DeviceTime", "StepTime", "breakdown"]

LONGEST = 10                     # gaps that are listed
MAX_DEVICES = 64         # broken down one by one; a node has 8 or 16


class NamedTime(TypedDict):
    name: str
    ns: int


class Gap(TypedDict):
    """A time in which a GPU had no work: what came next, for how long the host was late, and what the CPU did meanwhile."""

    start_ns: int
    end_ns: int
    dur_ns: int
    next: str | None
    host_late_ns: int | None
    cpu: list[NamedTime]


@dataclass(frozen=True)
class DeviceTime:
    """One GPU. compute_ns + communication_ns + memory_ns + idle_ns == wall_ns, exactly."""

    index: int
    name: str
    wall_ns: int
    busy_ns: int                         # union of all work
    idle_ns: int
    compute_ns: int
    communication_ns: int                # exposed
    memory_ns: int                       # exposed
    communication_overlapped_ns: int
    memory_overlapped_ns: int
    span_ns: int                         # first to last GPU work
    idle_in_span_ns: int
    launches: int
    kernel_ns: int                       # summed durations: larger than busy where streams overlap
    idle_causes: dict[str, int] = field(default_factory=dict)      # ns: host_late, queued, unknown, before_and_after
    longest_gaps: list[Gap] = field(default_factory=list)


@dataclass(frozen=True)
class StepTime:
    """One ProfilerStep#N: what the GPUs did between its CPU start and end (any GPU busy counts as busy)."""

    name: str
    start_ns: int
    end_ns: int
    busy_ns: int
    idle_ns: int
    compute_ns: int
    communication_ns: int
    memory_ns: int


@dataclass(frozen=True)
class Breakdown:
    start_ns: int
    wall_ns: int
    devices: list[DeviceTime]
    steps: list[StepTime]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Work:
    """Busy time of one GPU (or of all): unions that contain each other."""

    compute: Intervals
    kernels: Intervals                   # compute and communication
    busy: Intervals
    communication: Intervals
    memory: Intervals


def breakdown(trace: Trace) -> Breakdown:
    """Every device that worked, and every step."""
    digest = digest_of(trace)
    wall_start, wall_end = digest.wall
    real = ~digest.work["instant"]
    category, start = digest.work["category"], digest.work["start_ns"]
    dur, device = digest.work["dur_ns"], digest.work["device"]
    end = start + dur
    devices, longest = [], _Longest(digest)
    for index in np.unique(device[real])[:MAX_DEVICES].tolist():
        rows = np.flatnonzero(real & (device == index))
        work = _work(category[rows], start[rows], end[rows])
        causes = _idle(digest, rows, work, wall_start, wall_end, longest)
        devices.append(_device(index, digest.device_names.get(index, ""), category[rows], dur[rows], work, wall_start, wall_end,
                               causes, longest.of_last))
    longest.fill()
    everything = _work(category[real], start[real], end[real])
    return Breakdown(wall_start, wall_end - wall_start, devices, _steps(digest, everything))


def _work(category: Array, start: Ints, end: Ints) -> _Work:
    def of(*kinds: Category) -> Intervals:
        mask = np.isin(category, [int(kind) for kind in kinds])
        return intervals.union(start[mask], end[mask])

    compute, communication = of(Category.COMPUTE), of(Category.COMMUNICATION)
    memory = of(Category.MEMCPY, Category.MEMSET)
    kernels = intervals.join(compute, communication)
    return _Work(compute, kernels, intervals.join(kernels, memory), communication, memory)


def _device(index: int, name: str, category: Array, dur: Ints, work: _Work, start_ns: int,
            end_ns: int, causes: dict[str, int], longest: list[Gap]) -> DeviceTime:
    busy, compute, kernels = work.busy.length_ns, work.compute.length_ns, work.kernels.length_ns
    span = int(work.busy.end_ns[-1] - work.busy.start_ns[0]) if work.busy.start_ns.size else 0
    launched = np.isin(category, [int(Category.COMPUTE), int(Category.COMMUNICATION)])
    return DeviceTime(
        index=index, name=name, wall_ns=end_ns - start_ns, busy_ns=busy, idle_ns=end_ns - start_ns - busy,
        compute_ns=compute, communication_ns=kernels - compute, memory_ns=busy - kernels,
        communication_overlapped_ns=work.communication.length_ns - (kernels - compute),
        memory_overlapped_ns=work.memory.length_ns - (busy - kernels),
        span_ns=span, idle_in_span_ns=span - busy, launches=int(np.count_nonzero(launched)),
        kernel_ns=int(dur[launched].sum()), idle_causes=causes, longest_gaps=longest)


def _steps(digest: Digest, work: _Work) -> list[StepTime]:
    steps = digest.steps()
    first, last = (np.array([step[i] for step in steps], np.int64) for i in (1, 2))
    busy, compute, kernels = (intervals.overlap_ns(part, first, last) for part in (work.busy, work.compute, work.kernels))
    return [StepTime(name, start, end, int(busy[i]), int(end - start - busy[i]), int(compute[i]), int(kernels[i] - compute[i]),
                 int(busy[i] - kernels[i])) for i, (name, start, end) in enumerate(steps)]


def _idle(digest: Digest, rows: Rows, work: _Work, start_ns: int, end_ns: int,
          longest: _Longest) -> dict[str, int]:
    """Idle time by cause; the longest gaps go to `longest`.

    The work that ends a gap was launched by a call: until that call ended the host was late; from then on the work was
    queued and waited (launch latency, or another stream's or copy's result).
    """
    gaps = intervals.gaps(work.busy, start_ns, end_ns)
    begins = digest.work["start_ns"][rows]                      # rows are in order of start
    position = np.searchsorted(begins, gaps.end_ns)
    inside = (position < begins.size) & (gaps.start_ns > start_ns)
    after = rows[np.minimum(position, begins.size - 1)]
    called = inside & (digest.call[after] >= 0)
    length = gaps.end_ns - gaps.start_ns
    late = np.where(called, np.clip(digest.call_end_ns[after] - gaps.start_ns, 0, length), 0)
    longest.take(gaps, length, after, inside, called, late)
    return {
        "host_late_ns": int(late.sum()), "queued_ns": int((length - late)[called].sum()),
        "unknown_ns": int(length[inside & ~called].sum()), "before_and_after_ns": int(length[~inside].sum()),
    }


class _Longest:
    """The longest gaps of every GPU, and what the launching threads did in them: one pass over the CPU's slices."""

    def __init__(self, digest: Digest) -> None:
        self._found = digest
        self._asked: list[tuple[int, Gap, dict[int, int]]] = []      # thread, gap, ns by name
        self.of_last: list[Gap] = []

    def take(self, gaps: Intervals, length: Ints, after: Rows, inside: Bools,
             called: Bools, late: Ints) -> None:
        names, name = self._found.names, self._found.work["name"]
        self.of_last = []
        for i in stable_order(-length)[:LONGEST].tolist():
            gap: Gap = {
                "start_ns": int(gaps.start_ns[i]), "end_ns": int(gaps.end_ns[i]), "dur_ns": int(length[i]),
                "next": names[name[after[i]]] if inside[i] else None,
                "host_late_ns": int(late[i]) if called[i] else None, "cpu": []}
            self.of_last.append(gap)
            if called[i]:
                self._asked.append((int(self._found.call_track[after[i]]), gap, {}))

    def fill(self, most: int = 3) -> None:
        """The names with the most time within each gap (nested ones each in full)."""
        for rows in self._found.host_rows() if self._asked else ():
            for track, gap, total in self._asked:
                mine = rows[(rows["start_ns"] < gap["end_ns"]) & (rows["end_ns"] > gap["start_ns"]) & (rows["track"] == track)]
                overlap = np.minimum(mine["end_ns"], gap["end_ns"]) - np.maximum(mine["start_ns"], gap["start_ns"])
                for code, ns in zip(mine["name"].tolist(), overlap.tolist(), strict=True):
                    total[code] = total.get(code, 0) + ns
        for _, gap, total in self._asked:
            ordered = sorted(total.items(), key=lambda pair: (-pair[1], pair[0]))[:most]
            gap["cpu"] = [{"name": self._found.names[code], "ns": ns} for code, ns in ordered if ns > 0]


# What a trace holds that is kept and yet remarkable, counted into its integrity report.


def remark(trace: Trace) -> None:
    """Count remarkable GPU work into the integrity report.

    Work that nothing launched, that took no time, that began outside every step (where there are steps).
    """
    digest, integrity = digest_of(trace), trace.integrity
    work = digest.work
    has_id, launched = work["correlation"] != MISSING, digest.call >= 0
    integrity.remark("GPU work without a correlation id", int(np.count_nonzero(~has_id)))
    integrity.remark("GPU work whose launch call is not in the file", int(np.count_nonzero(has_id & ~launched)))
    integrity.remark("GPU work of no duration", int(np.count_nonzero(work["dur_ns"] == 0)))
    devices = np.unique(work["device"])
    integrity.remark(f"GPUs beyond the {MAX_DEVICES} that are broken down", max(0, devices.size - MAX_DEVICES))
    steps = digest.steps()
    if steps:
        start, end = (np.array([step[i] for step in steps], np.int64) for i in (1, 2))
        inside = overlap_ns(union(start, end), work["start_ns"], work["start_ns"] + 1)
        integrity.remark("GPU work that began outside every step", int(np.count_nonzero(inside == 0)))

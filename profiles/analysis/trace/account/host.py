"""What a launching thread was doing at each moment, and which GPU was idle for it.

A gap of a GPU ends with a piece of work; until the call that launched it had returned, nothing was queued (the rule of
`trace.time.idle`). That late part is divided by what the launching thread was in, the first of HOST that covers a moment.

Synchronisation is told from a slow host by what it costs (`delays`): had the host not waited, it would have launched for as long as
it waited. So of the idle time from one wait to the next, in operators and code that nothing else explains, as much belongs to the
wait as the host spent in it; the rest the host needs anyway. What keeps the host from launching while the GPU still works (it loads
data, compiles, writes a file) costs as much later.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.frame import Frame, once_a_frame
from profiles.analysis.core.intervals import EMPTY, Intervals
from profiles.analysis.trace.launching.calls import runtime_calls
from profiles.analysis.trace.time.idle import DATA, is_wait, track_cover
from profiles.analysis.trace.time.steps import COMPILATION, NO_COMPILATION
from profiles.analysis.trace.time.tiling import devices, in_turn
from profiles.ingest.arrays import Ints, Rows, stable_order, sums_by
from profiles.ingest.trace import Category

# Idle time that something earlier on the host is to blame for.
#
# A wait for the GPU leaves nothing queued: had the host not waited, it would have launched for as long as it waited, so of the idle
# time that nothing else explains until the next wait the first part, as long as the wait was, is its. A stall (data is loaded, code
# compiled) may pass while the GPU works off what is queued. That costs nothing yet, but the host is that much later from then on:
# idle time that nothing else explains belongs to the stalls since the last wait, the earliest first, as long as they were hidden.
# At the next wait the host catches up: it would have waited for the GPU all the same.


def delayed(generic: Intervals, waits: Mapping[str, Intervals], stalls: Mapping[str, Intervals],
            idle: Mapping[str, Intervals]) -> dict[str, Intervals]:
    """Return, by cause, what of `generic` idle time a wait or a stall of the same thread is to blame for; disjoint.

    `waits` and `stalls`: when the thread was in each, by cause. `idle`: idle time that each has already, because it lies in it.
    """
    if not generic.start_ns.size:
        return {}
    causes = [*waits, *stalls]
    sets = [*waits.values(), *stalls.values()]
    ends = np.concatenate([spans.end_ns for spans in sets])
    hidden = [wait.end_ns - wait.start_ns for wait in waits.values()] + [
        stall.end_ns - stall.start_ns - intervals.overlap_ns(idle.get(cause, EMPTY), stall.start_ns, stall.end_ns)
        for cause, stall in stalls.items()]
    order = stable_order(ends)
    kind = np.repeat(np.arange(len(sets)), [spans.start_ns.size for spans in sets])[order]
    until = intervals.covered_before(generic, np.append(ends[order], generic.end_ns[-1]))       # of generic time
    spans_by_set = _taken(until.tolist(), kind.tolist(), np.concatenate(hidden)[order].tolist(), len(waits))
    return {causes[number]: stretches(generic, *(np.array(column, np.int64) for column in zip(*mine, strict=True)))
            for number, mine in spans_by_set.items()}


def _taken(until: list[int], kind: list[int], hidden: list[int], waits: int) -> dict[int, list[tuple[int, int]]]:
    """By kind the parts of generic time [from, to) that it is to blame for. `until`: generic time before the end of each, and in
    all. Kinds below `waits` are waits."""
    owed: deque[list[int]] = deque()        # [kind, ns left], the earliest first
    out: dict[int, list[tuple[int, int]]] = {}
    for number, cause in enumerate(kind):
        if cause < waits:
            owed.clear()
        if hidden[number] > 0:
            owed.append([cause, hidden[number]])
        start, end = until[number], until[number + 1]
        while owed and start < end:
            ns = min(owed[0][1], end - start)
            out.setdefault(owed[0][0], []).append((start, start + ns))
            start += ns
            owed[0][1] -= ns
            if not owed[0][1]:
                owed.popleft()
    return out


def stretches(pieces: Intervals, first: Ints, last: Ints) -> Intervals:
    """Return the parts [first, last) of the time that `pieces` cover, counted from their begin; ascending, disjoint."""
    ends = np.cumsum(pieces.end_ns - pieces.start_ns)
    starts = ends - (pieces.end_ns - pieces.start_ns)
    a, b = np.searchsorted(ends, first, side="right"), np.searchsorted(starts, last)
    count = np.maximum(b - a, 0)
    part = np.repeat(np.arange(first.size), count)
    piece = a[part] + np.arange(part.size) - np.repeat(np.cumsum(count) - count, count)
    begin, end = np.maximum(first[part], starts[piece]), np.minimum(last[part], ends[piece])
    shift = pieces.start_ns[piece] - starts[piece]
    return intervals.union(begin + shift, end + shift)


BUSY = 0.9                          # of a blocked launch a GPU works at least
LATENCY_NS = 10_000                 # a launch that took longer to start than this waited for something
MOST_NAMES = 50                     # of one cause on one thread
_HOST = (Category.CPU_OP, Category.PYTHON, Category.ANNOTATION)
_ANY = (*_HOST, Category.RUNTIME)
ALLOCATION = re.compile(r"^(?:cuda|hip)(?:Malloc|Free|HostAlloc|HostRegister|HostUnregister)(?!.*Async)|^cuMem(?:Alloc|Free|"
                        r"Create|Map|Unmap|Release|SetAccess|AddressReserve|HostAlloc)(?!.*Async)|^hipMem(?:Create|Map|Unmap)")
_FREES = re.compile(r"^(?:cuda|hip)(?:Free|HostUnregister)(?!.*Async)|^cuMemFree(?!.*Async)")
GARBAGE = re.compile(r"(?<![a-z0-9_])(?:python[ _]?)?gc(?![a-z0-9])|garbage[ _-]?collect|(?:function|method) collect\b",
                     re.IGNORECASE)
_FUNCTION = re.compile(r"\(\d+\): ")
FILES = re.compile(r"torch/serialization\.py|torch\.save|\bsave_(?:checkpoint|state)|write_checkpoint|distributed/checkpoint/|"
                   r"safetensors.*save|checkpoint[ _-]?(?:save|write|sav)|built-in (?:function|method) (?:open|write|fsync)\b",
                   re.IGNORECASE)
RANKS = re.compile(r"^(?:gloo|mpi):|c10d::(?:monitored_)?barrier|distributed_c10d\.py\(\d+\): (?:monitored_)?barrier",
                   re.IGNORECASE)
_FRAMES = re.compile(r"ProfilerStep#|^PyTorch Profiler", re.IGNORECASE)       # ranges that say nothing of what happens in them


def _compiles(name: str) -> bool:
    return bool(COMPILATION.search(name)) and not NO_COMPILATION.search(name)


def _finds(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda name: bool(pattern.search(name))


def _collects_garbage(name: str) -> bool:
    """A Python function that is named like it ("file.py(12): collect_garbage") may do more: what it calls says when it does."""
    return bool(GARBAGE.search(name)) and not _FUNCTION.search(name)


# What a thread can be in: cause, what fits by name, categories; the first that covers a moment has it.
HOST: tuple[tuple[str, Callable[[str], bool], tuple[Category, ...]], ...] = (
    ("data_loading", _finds(DATA), _HOST),
    ("compilation", _compiles, _ANY),
    ("garbage_collection", _collects_garbage, _HOST),
    ("file_io", _finds(FILES), _HOST),
    ("rank_sync", _finds(RANKS), _HOST),
    ("allocation", _finds(ALLOCATION), (Category.RUNTIME,)),
)
GENERIC = ("host_launch", "host_code")
DELAYED = (*GENERIC, "launch_latency")              # what a host that were earlier would not let happen
# What keeps the host from launching, whether or not the GPU still has work.
STALLS = ("data_loading", "compilation", "garbage_collection", "file_io")
ALWAYS = Intervals(np.array([0], np.int64), np.array([np.iinfo(np.int64).max], np.int64))
_NO_ROWS: Rows = np.empty(0, np.intp)


@dataclass(frozen=True)
class Thread:
    """A launching thread: what it was in, as disjoint sets of intervals by cause; what no set covers is "host_code"."""

    track: int
    sets: dict[str, Intervals]
    waits: dict[str, Intervals]         # by cause: calls in which the host waits for the GPU


@once_a_frame
def pageable_rows(frame: Frame) -> Rows:
    """Copies from or to pageable host memory, as profilers name them."""
    return frame.rows_by_name(lambda name: "ageable" in name, Category.MEMCPY)


class Host:
    """The CPU side of a frame; each thread is looked at once."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self._threads: dict[int, Thread] = {}
        self._lanes: dict[tuple[int, tuple[Category, ...]], tuple[Rows, Ints, Ints, Ints]] = {}

    @cached_property
    def rows(self) -> dict[str, Rows]:
        """Rows of each special state, of all threads."""
        frame = self.frame
        found = {cause: frame.rows_by_name(fits, *kinds) for cause, fits, kinds in HOST}
        found["pageable_copies"] = np.unique(frame.call[self._pageable][frame.call[self._pageable] >= 0])
        found["synchronisation"] = np.setdiff1d(frame.rows_by_name(is_wait, Category.RUNTIME), found["pageable_copies"])
        found["queue_full"], loading = self._long_launches
        found["compilation"] = np.union1d(found["compilation"], loading)
        found["profiler"] = frame.of(Category.OVERHEAD)
        found["host_launch"] = frame.of(Category.CPU_OP, Category.RUNTIME)
        return found

    @cached_property
    def _rows_by_track(self) -> dict[str, dict[int, Rows]]:
        return {cause: self._by_track(rows) for cause, rows in self.rows.items()}

    def _by_track(self, rows: Rows) -> dict[int, Rows]:
        track = self.frame["track"][rows]
        order = stable_order(track)
        numbers, first = np.unique(track[order], return_index=True)
        return dict(zip(numbers.tolist(), np.split(rows[order], first[1:]), strict=True)) if numbers.size else {}

    def _cover(self, rows: Rows) -> Intervals:
        return intervals.union(self.frame["start_ns"][rows], self.frame.end_ns[rows])

    @cached_property
    def _pageable(self) -> Rows:
        return pageable_rows(self.frame)

    @cached_property
    def _long_launches(self) -> tuple[Rows, Rows]:
        """Launch calls far longer than usual: those blocked by a full queue (a GPU was busy all the time), and those that loaded
        code (the first launch of a kernel; CUDA_MODULE_LOADING=LAZY is the default since CUDA 12.2)."""
        frame = self.frame
        calls = runtime_calls(frame).outliers
        calls = np.sort(calls[np.isin(frame["name"][calls], self._launching_codes)])
        start, end = frame["start_ns"][calls], frame.end_ns[calls]
        blocked = np.zeros(calls.size, np.bool_)
        for work in devices(frame) if calls.size else []:
            blocked |= intervals.overlap_ns(work.busy, start, end) >= BUSY * (end - start)
        kernel_rows = frame.kernels[frame.call[frame.kernels] >= 0]
        first = kernel_rows[np.unique(frame["name"][kernel_rows], return_index=True)[1]]
        return calls[blocked], calls[~blocked & np.isin(calls, frame.call[first])]

    @cached_property
    def _launching_codes(self) -> Ints:
        names = self.frame.names
        used = np.unique(self.frame["name"][self.frame.of(Category.RUNTIME)]).tolist()
        return np.array([code for code in used if code >= 0 and re.search(r"Launch", names[code])], np.int64)

    def thread(self, track: int) -> Thread:
        """What one thread was in."""
        if track not in self._threads:
            covers = {cause: self._cover(rows.get(track, _NO_ROWS)) for cause, rows in self._rows_by_track.items()}
            order = [*(cause for cause, _, _ in HOST), "pageable_copies", "queue_full", "synchronisation", "profiler",
                     "host_launch"]
            sets = in_turn({cause: covers[cause] for cause in order})
            freed = track_cover(self.frame, track, self._freeing)
            waits = {"synchronisation": sets["synchronisation"], "pageable_copies": sets["pageable_copies"],
                     "allocation": intervals.intersect(sets["allocation"], freed)}
            self._threads[track] = Thread(track, sets, waits)
        return self._threads[track]

    @cached_property
    def _freeing(self) -> Rows:
        """Calls that free memory: they wait until the GPU has done all its work."""
        return self.frame.rows_by_name(lambda name: bool(_FREES.search(name)), Category.RUNTIME)

    def divide(self, late: Intervals, latency: Intervals, track: int, known_only: bool = False) -> dict[str, Intervals]:
        """Divide late time by what a thread was in, and `latency`: time in which what it launched was about to start.

        `known_only`: time in no slice is "outside", not the host's code.
        """
        thread = self.thread(track)
        parts = {cause: intervals.intersect(late, spans) for cause, spans in thread.sets.items()}
        rest = intervals.without(late, intervals.join(*thread.sets.values()))
        if known_only:
            inside = track_cover(self.frame, track, self._told)
            parts["host_code"], parts["outside"] = intervals.intersect(rest, inside), intervals.without(rest, inside)
        else:
            parts["host_code"] = rest
        parts["launch_latency"] = latency
        return parts if known_only else self._after_delays(parts, thread)

    @cached_property
    def _told(self) -> Rows:
        """Rows of what a person or Python named; the step itself says nothing."""
        return self.frame.rows_by_name(lambda name: not _FRAMES.search(name), Category.PYTHON, Category.ANNOTATION)

    def _after_delays(self, parts: dict[str, Intervals], thread: Thread) -> dict[str, Intervals]:
        """Move from the generic causes to the waits and the stalls before them as much as those delayed the host."""
        generic = intervals.join(*(parts[cause] for cause in DELAYED))
        moved = delayed(generic, thread.waits, {cause: thread.sets[cause] for cause in STALLS}, parts)
        if not moved:
            return parts
        delays = intervals.join(*moved.values())
        parts = {cause: intervals.without(part, delays) if cause in DELAYED else part for cause, part in parts.items()}
        return parts | {cause: intervals.join(parts[cause], delay) for cause, delay in moved.items()}

    def names(self, cause: str, where: Intervals, track: int) -> list[tuple[str, int]]:
        """What a cause's time on a thread was in: (name, ns), the most time first; "" is time in no slice."""
        if not where.start_ns.size:
            return []
        if cause in GENERIC:
            return self._own(where, track, *(((Category.CPU_OP,), (Category.RUNTIME,)) if cause == "host_launch" else
                                             ((Category.PYTHON, Category.ANNOTATION),)))
        if cause == "synchronisation":
            return self._callers(where, track)
        rows = self.rows.get(cause)
        if rows is None:
            return []
        return self._whole(where, track, rows) or self._whole(ALWAYS, track, rows)     # what follows a stall lies in none of it

    def _whole(self, where: Intervals, track: int, rows: Rows) -> list[tuple[str, int]]:
        """Time within the slices of a state, by name; of nested ones the outermost has it."""
        frame = self.frame
        mine = rows[frame["track"][rows] == track]
        if not mine.size:
            return []
        reach = np.maximum.accumulate(np.r_[-1, frame.end_ns[mine]])[:-1]
        mine = mine[frame.end_ns[mine] > reach]                     # rows are in order of start: what lies within another goes
        inside = intervals.overlap_ns(where, frame["start_ns"][mine], frame.end_ns[mine])
        return _by_name(frame, mine, inside)

    def _own(self, where: Intervals, track: int, *kinds: tuple[Category, ...]) -> list[tuple[str, int]]:
        """Time within the innermost slices of the first of some kinds, what lies in none of these within those of the next."""
        frame, named, left = self.frame, [], where
        for categories in kinds:
            if not left.start_ns.size:
                break
            rows, start, end, around = self._nested(track, categories)
            mine = np.flatnonzero((start < left.end_ns[-1]) & (end > left.start_ns[0]))
            inside, above = intervals.overlap_ns(left, start[mine], end[mine]), around[mine]
            own = inside - sums_by(above[above >= 0], inside[above >= 0], rows.size)[mine]
            named += [pair for pair in _by_name(frame, rows[mine], own) if not _FRAMES.search(pair[0])]
            left = intervals.without(left, intervals.union(start[mine], end[mine]))
        rest = where.length_ns - sum(ns for _, ns in named)
        return named + ([("", rest)] if rest > 0 else [])

    def _nested(self, track: int, kinds: tuple[Category, ...]) -> tuple[Rows, Ints, Ints, Ints]:
        """Return a thread's rows of some kinds with start, end, and the place among them of the next one around each, -1: none."""
        if (track, kinds) not in self._lanes:
            frame, rows = self.frame, self.frame.rows_of_track(track)
            rows = rows[np.isin(frame["category"][rows], [int(kind) for kind in kinds]) & ~frame["instant"][rows]]
            above = frame.enclosing(frame.parent[rows], *kinds)
            around = np.where(above >= 0, np.searchsorted(rows, above), -1)
            self._lanes[track, kinds] = rows, frame["start_ns"][rows], frame.end_ns[rows], around
        return self._lanes[track, kinds]

    def _callers(self, where: Intervals, track: int) -> list[tuple[str, int]]:
        """The operator around the wait that each stretch follows or lies in, else the waiting call itself."""
        frame = self.frame
        rows = self.rows["synchronisation"]
        rows = rows[frame["track"][rows] == track]
        if not rows.size:
            return []
        position = np.maximum(np.searchsorted(frame["start_ns"][rows], where.end_ns, side="left") - 1, 0)
        around = _outermost(frame, rows, (Category.CPU_OP,))
        caller = np.where(around >= 0, around, rows)[position]
        return _by_name(frame, caller, where.end_ns - where.start_ns)


def _outermost(frame: Frame, rows: Rows, kinds: tuple[Category, ...]) -> Ints:
    """The outermost slice of some kinds around each row, -1 where there is none."""
    best = np.full(rows.size, -1, np.int64)
    current = frame.enclosing(rows.astype(np.int64), *kinds)
    while (current >= 0).any():
        best = np.where(current >= 0, current, best)
        above = np.where(current >= 0, frame.parent[np.maximum(current, 0)], -1)
        current = frame.enclosing(above, *kinds)
    return best


def _by_name(frame: Frame, rows: Ints, ns: Ints) -> list[tuple[str, int]]:
    if not rows.size:
        return []
    codes, place = np.unique(frame["name"][rows], return_inverse=True)
    total = sums_by(place, ns)
    order = stable_order(-total)[:MOST_NAMES]
    return [(frame.names[int(codes[i])] if codes[i] >= 0 else "", int(total[i])) for i in order.tolist() if total[i] > 0]

"""Needed and done: every nanosecond of the GPU's time as the least that the work needs, what is slower, what need not be, or idle.

The least time of a launch is that of its operator's shapes at the ceilings (`trace.layer`); pointwise work that could live in a
product needs none of its own. What kinds claim is no need; what would take its place is. All parts of a GPU add up to its time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.frame import Frame
from profiles.analysis.core.intervals import Intervals
from profiles.analysis.trace.launching.order import order_of
from profiles.analysis.trace.needed.facts import Avoidable, Facts, Kind, facts_of
from profiles.analysis.trace.needed.table import KINDS
from profiles.analysis.trace.time.steps import Steps, steps_of
from profiles.analysis.trace.time.tiling import DeviceWork, devices
from profiles.ingest.arrays import Bools, Ints, stable_order
from profiles.ingest.trace import Category

# What a run would take if some launches were shorter or gone: the recorded graph played again.
#
# The GPU's work runs in the order of its launch calls. A piece starts when its stream is free and its launch has been called, and
# then as much later as it did in the recording: latency, and what it waited for else. A call that waits for the GPU returns when
# the GPU is done. Played without a change, every start is the recorded one. After Zhu, Phanishayee and Pekhimenko, "Daydream:
# Accurately Estimating the Efficacy of Optimizations for DNN Training" (USENIX ATC 2020), section 4.

MOST_HOST_NS = 300_000              # of one launch: what is longer is no operator's own work
_WAITS = re.compile(r"^cu(?:da)?(?:Device|Stream|Ctx|Event)Synchronize|^hip(?:Device|Stream|Event)Synchronize")


@dataclass(frozen=True)
class Change:
    """`ns`: row of the frame -> its new length. `host_ns`: row -> host time that goes with it. `gone`: windows of host time, start
    and end in ns, in which launches that `ns` does not name go, and calls wait for nothing."""

    ns: Mapping[int, int] = field(default_factory=dict)
    host_ns: Mapping[int, int] = field(default_factory=dict)
    gone: Sequence[tuple[int, int]] = ()


class Recording:
    """The launches of a trace as numbers, in order of their calls; made once, played often."""

    def __init__(self, frame: Frame) -> None:
        order = order_of(frame)
        by_call = stable_order(order.call_start_ns)
        self.rows: Ints = np.asarray(order.rows)[by_call].astype(np.int64)
        self.call: Ints = order.call_start_ns[by_call]
        self.waits = _waits(frame)
        self.host_ns = _launch_ns(self.call, self.waits)
        self.host_of = dict(zip(self.rows.tolist(), self.host_ns.tolist(), strict=True))
        self.call_of = dict(zip(self.rows.tolist(), self.call.tolist(), strict=True))
        self._work = list(zip(self.rows.tolist(), order.track[by_call].tolist(), order.device[by_call].tolist(),
                              order.start_ns[by_call].tolist(), order.end_ns[by_call].tolist(), self.call.tolist(), strict=True))

    def saved_ns(self, change: Change) -> int:
        """Return by how much the last piece of work ends earlier."""
        free, recorded_free, done, recorded_done = (dict[int, int]() for _ in range(4))
        shift, wait, waits, ns, host_ns = 0, 0, self.waits, change.ns, change.host_ns
        inside = _inside(self.call, change.gone).tolist()
        skipped = _inside(np.array([start for start, _ in waits], np.int64), change.gone).tolist()
        for (row, stream, device, start, end, call), is_gone in zip(self._work, inside, strict=True):
            while wait < len(waits) and waits[wait][0] <= call:
                returned = waits[wait]
                shift = shift + returned[1] - returned[0] if skipped[wait] else _returned(returned, shift, done, recorded_done)
                wait += 1
            length = ns.get(row, 0 if is_gone else end - start)
            before = recorded_free.get(stream, call)
            recorded_free[stream], recorded_done[device] = max(end, before), max(end, recorded_done.get(device, end))
            if length > 0 or not (is_gone or row in ns):        # what has no length is not launched
                mine = max(free.get(stream, call - shift), call - shift) + start - max(before, call)
                free[stream] = mine + length
                done[device] = max(done.get(device, mine + length), mine + length)
            shift += host_ns.get(row, self.host_of[row] if is_gone and row not in ns else 0)
        return max((recorded_done[device] - done.get(device, 0) for device in done), default=0)


def _returned(wait: tuple[int, int], shift: int, done: Mapping[int, int], recorded_done: Mapping[int, int]) -> int:
    """Return how much earlier the host goes on after a call that waits for the GPU."""
    start, end = wait
    recorded = max((each for each in recorded_done.values() if each <= end), default=start)
    waited_until = max(done.values(), default=start - shift) if recorded > start else start - shift
    return end - (max(start - shift, waited_until) + end - max(start, recorded))


def _inside(times: Ints, windows: Sequence[tuple[int, int]]) -> Bools:
    """Return which times lie in one of some windows, which do not overlap."""
    if not windows or not times.size:
        return np.zeros(times.size, np.bool_)
    start, end = np.array(sorted(windows), np.int64).T
    at = np.searchsorted(start, times, side="right") - 1
    inside: Bools = (at >= 0) & (times <= end[np.maximum(at, 0)])
    return inside


def _waits(frame: Frame) -> list[tuple[int, int]]:
    rows = frame.rows_by_name(lambda name: bool(_WAITS.match(name)), Category.RUNTIME)
    return list(zip(frame["start_ns"][rows].tolist(), frame.end_ns[rows].tolist(), strict=True))


def _launch_ns(call: Ints, waits: list[tuple[int, int]]) -> Ints:
    """Return the host time that each launch takes: until the next launch call, without waits for the GPU, MOST_HOST_NS at most."""
    if not call.size:
        return np.empty(0, np.int64)
    until = np.append(call[1:], call[-1])
    spent = until - call
    if waits:
        start, end = np.array(waits, np.int64).T
        total = np.concatenate([[0], np.cumsum(end - start)])
        spent = spent - (total[np.searchsorted(start, until)] - total[np.searchsorted(start, call)])
    return np.clip(spent, 0, MOST_HOST_NS)


MOST_STEPS = 1_000                  # whose times are kept
NEEDED, SLOWER, NOT_KNOWN, COMMUNICATION, COPIES, IDLE = "needed", "slower", "not_known", "communication", "copies", "idle"
PARTS = {
    NEEDED: "needed, at the ceilings", SLOWER: "needed, slower than its ceiling", NOT_KNOWN: "kernels whose work is not known",
    COMMUNICATION: "communication", COPIES: "copies and sets", IDLE: "the GPU is idle"}


@dataclass(frozen=True)
class Claim:
    """What one kind claims in a trace. Times of the whole trace, ns."""

    kind: Kind
    found: tuple[Avoidable, ...]
    launches: int
    takes_ns: int
    stays_ns: tuple[int, int]           # least, most
    gain_ns: tuple[int, int]            # least, most: the run shorter, host and GPU played again

    @property
    def gone_ns(self) -> int:
        """Return the GPU time that goes, in the middle."""
        return self.takes_ns - sum(self.stays_ns) // 2

    @property
    def is_region(self) -> bool:
        return any(one.is_region for one in self.found)

    @property
    def worth_ns(self) -> int:
        """Return the GPU time that goes, of a region the middle of what the run gets shorter."""
        return max(self.gone_ns, sum(self.gain_ns) // 2 if self.is_region else 0)

    @property
    def certain(self) -> bool:
        return all(each.certain for each in self.found)


@dataclass(frozen=True)
class GpuNeeds:
    """One GPU within its window. `parts` add up to `wall_ns`: those of PARTS, and kinds by their names."""

    gpu: int
    label: str
    model: str
    wall_ns: int
    steps: int                          # 0: none are known
    parts: dict[str, int]
    flop: float
    launches: int
    step_ns: tuple[int, ...] = ()       # of each step on the CPU, as the Time page has it
    tail_ns: int = 0                    # within `wall_ns`: work of the last step that ran on behind its end on the CPU


@dataclass(frozen=True)
class Needs:
    gpus: tuple[GpuNeeds, ...]
    claims: tuple[Claim, ...]           # the most GPU time that goes first
    facts: Facts | None
    has_shapes: bool = False
    rows: Ints = field(default_factory=lambda: np.empty(0, np.int64))     # of the frame: all GPU work, GPU after GPU
    took_ns: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # of each within the steps; together a GPU's busy time
    least_ns: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # of each; together a GPU's part NEEDED
    unknown_ns: Ints = field(default_factory=lambda: np.empty(0, np.int64))   # of each whose work is not known: NOT_KNOWN


def is_known(least_ns: int, unknown_ns: int, took_ns: int) -> bool:
    """Return whether a least time can be said: kernels of unknown work take no tenth of the time."""
    return bool(least_ns) and 10 * unknown_ns <= took_ns


def needs_of(frame: Frame, given: Mapping[str, Any] | None = None) -> Needs:
    """Return what a trace needed and did besides. Without compute kernels it is empty."""
    facts = facts_of(frame, given)
    if facts is None:
        return Needs((), (), None)
    works = devices(frame)
    steps = steps_of(frame, works)
    claims = _claims(facts, Recording(frame))
    every = [each for work in works if (each := _gpu(frame, facts, work, steps, claims)) is not None]
    rows, took_ns, least_ns, unknown_ns = (np.concatenate([np.empty(0, np.int64), *(each[at] for each in every)])
                                           for at in (1, 2, 3, 4))
    return Needs(tuple(gpu for gpu, *_ in every), tuple(sorted(claims, key=lambda claim: (-claim.gone_ns, claim.kind.name))), facts,
                 facts.has_shapes, rows, took_ns, least_ns, unknown_ns)


def _claims(facts: Facts, recording: Recording) -> list[Claim]:
    claims = []
    for kind in KINDS:
        found = []
        for one in kind.find(facts):
            left = [position for position in dict.fromkeys(one.positions) if not facts.taken[position]]
            if len(left) == len(set(one.positions)) and (left or one.rows):
                facts.taken[left] = True
                found.append(one)
        if found:
            claims.append(_claim(facts, recording, kind, found, facts.frame.wall[1] - facts.frame.wall[0]))
    return claims


def _claim(facts: Facts, recording: Recording, kind: Kind, found: Sequence[Avoidable], wall_ns: int) -> Claim:
    takes = sum(facts.total_ns(list(one.positions)) for one in found) + sum(_copied_ns(facts, one) for one in found)
    stays = tuple(round(sum(one.stays_ns[at] for one in found)) for at in (0, 1))
    # Without the profiler, which slows the host, the GPU may be what holds the run back: at most all of its time goes.
    bounds = [takes - stays[at] + (wall_ns if any(one.is_region for one in found) else _host_ns(facts, recording, found, at))
              for at in (0, 1)]
    most, least = (min(bounds[at], max(0, recording.saved_ns(_change(facts, recording, found, at)))) for at in (0, 1))
    return Claim(kind, tuple(found), sum(len(one.positions) + len(one.rows) for one in found), takes, (stays[0], stays[1]),
                 (min(least, most), max(most, least, takes - stays[0])))


def _copied_ns(facts: Facts, one: Avoidable) -> int:
    return int(facts.frame["dur_ns"][list(one.rows)].sum()) if one.rows else 0


def _host_ns(facts: Facts, recording: Recording, found: Sequence[Avoidable], at: int) -> int:
    """Return the host time that goes with the launches: `at` 0 at most, 1 at least. Of a copy the call itself, which may block."""
    launched = sum(round(one.host_shares[1 - at] * recording.host_of.get(row, 0))
                   for one in found for row in facts.every.rows[list(one.positions)].tolist())
    calls = np.unique([call for one in found for row in one.rows if (call := int(facts.frame.call[row])) >= 0]).astype(np.int64)
    blocked = int(facts.frame["dur_ns"][calls].sum()) if at == 0 else 0
    return int(launched) + blocked


def _change(facts: Facts, recording: Recording, found: Sequence[Avoidable], at: int) -> Change:
    """Return the recording's change: `at` 0 the most that goes, 1 the least."""
    ns, host, gone = dict[int, int](), dict[int, int](), list[tuple[int, int]]()
    for one in found:
        positions, stays = list(one.positions), one.stays_ns[at]
        rows = facts.every.rows[positions].tolist()
        share = one.host_shares[1 - at]
        host |= {row: round(share * recording.host_of.get(row, 0)) for row in [*rows, *one.rows]}
        ns |= dict.fromkeys(one.rows, 0)
        if one.is_region:
            ns |= dict.fromkeys(rows, 0) | {rows[0]: max(1, round(stays))}
            calls = [recording.call_of[row] for row in rows if row in recording.call_of]
            if calls and at == 0:
                gone.append((min(calls), max(calls)))
            continue
        scale = stays / max(1, facts.total_ns(positions))
        ns |= {row: round(scale * length) for row, length in zip(rows, facts.ns[positions].tolist(), strict=True)}
    return Change(ns, host, gone)


def _gpu(frame: Frame, facts: Facts, work: DeviceWork, steps: Steps,
         claims: Sequence[Claim]) -> tuple[GpuNeeds, Ints, Ints, Ints, Ints] | None:
    """Return one GPU's needs, its rows of the frame, and of each within the steps: time, least time, time of unknown work, ns."""
    rows = work.rows
    start, end = frame["start_ns"][rows].astype(np.int64), frame.end_ns[rows].astype(np.int64)
    spans = [span for span in steps.spans if span.rank in (work.rank, "")]
    window = _window(frame, rows, start, end, *(np.array([getattr(span, name) for span in spans], np.int64)
                                                for name in ("start_ns", "end_ns")))
    if not window.length_ns:
        return None
    portion = exclusive_ns(start, end, window)
    position = np.full(frame.rows, -1, np.int64)
    position[facts.every.rows] = np.arange(facts.every.rows.size)
    place = position[rows]
    parts = dict.fromkeys(PARTS, 0)
    category = frame["category"][rows]
    parts[COMMUNICATION] = int(portion[category == Category.COMMUNICATION].sum())
    parts[COPIES] = int(portion[np.isin(category, [int(Category.MEMCPY), int(Category.MEMSET)])].sum())
    mine = np.flatnonzero(place >= 0)
    ns = np.zeros(facts.every.rows.size, np.int64)
    ns[place[mine]] = portion[mine]
    has_copies = any(one.rows for claim in claims for one in claim.found)
    copied = dict(zip(rows.tolist(), portion.tolist(), strict=True)) if has_copies else {}
    left = np.ones(ns.size, np.bool_)
    least_ns = np.zeros(ns.size, np.int64)
    for claim in claims:
        for one in claim.found:
            positions = np.array(list(one.positions), np.int64)
            left[positions] = False
            inside = int(ns[positions].sum())
            moved = sum(copied.get(row, 0) for row in one.rows)
            parts[COPIES] -= moved
            whole = max(1, facts.total_ns(positions.tolist()))
            least, most = (min(inside, round(each * inside / whole)) for each in one.stays_ns)
            middle = (least + most) // 2
            least_ns[positions] = _shared_out(least, ns[positions])
            parts[SLOWER] += middle - least
            parts[claim.kind.name] = parts.get(claim.kind.name, 0) + moved + inside - middle
    floors = facts.floor_ns
    helper = np.array([item.is_part for item in facts.items])[facts.item]
    known = left & ~np.isnan(floors)
    least_ns[known] = np.minimum(floors[known].round().astype(np.int64), ns[known])
    parts[NEEDED] = int(least_ns.sum())
    parts[SLOWER] += int((ns - least_ns)[known].sum()) + int(ns[left & ~known & helper].sum())
    unknown_ns = np.where(left & ~known & ~helper, ns, 0)
    parts[NOT_KNOWN] = int(unknown_ns.sum())
    parts[IDLE] = window.length_ns - int(portion.sum())
    flop = facts.every.flop[(ns > 0) & left]
    least_of_row, unknown_of_row = np.zeros(rows.size, np.int64), np.zeros(rows.size, np.int64)
    least_of_row[mine], unknown_of_row[mine] = least_ns[place[mine]], unknown_ns[place[mine]]
    return (GpuNeeds(work.index, work.label, work.name, window.length_ns, len(spans), parts, float(np.nansum(flop)),
                    int((ns > 0).sum()), tuple(span.end_ns - span.start_ns for span in spans[:MOST_STEPS]),
                    int(window.end_ns.max()) - max(span.end_ns for span in spans) if spans else 0),
            rows.astype(np.int64), portion, least_of_row, unknown_of_row)


def _shared_out(total: int, ns: Ints) -> Ints:
    """Return `total` ns over launches in proportion to their times, no more than each of them has; they add up to it."""
    until = np.cumsum(ns, dtype=np.int64)
    whole = int(until[-1]) if until.size else 0
    if not whole:
        return np.zeros(ns.size, np.int64)
    # whole numbers of any size: a product of two times in ns leaves 63 bits after some seconds
    reached = np.array([total * each // whole for each in until.tolist()], np.int64)
    return np.diff(reached, prepend=0)


def _window(frame: Frame, rows: Ints, start: Ints, end: Ints, step_start: Ints, step_end: Ints) -> Intervals:
    """Return the steps, and what the last one launched runs behind it; without steps from the GPU's first to its last work."""
    if not rows.size:
        return intervals.EMPTY
    if not step_start.size:
        return Intervals(start.min(keepdims=True), end.max(keepdims=True))
    finish = int(step_end.max())
    call = frame.call[rows]
    called = np.where(call >= 0, frame["start_ns"][np.maximum(call, 0)], start)
    until = int(end[(called >= step_start.min()) & (called <= finish)].max(initial=finish))
    return intervals.union(np.append(step_start, finish), np.append(step_end, until))


def exclusive_ns(start: Ints, end: Ints, window: Intervals) -> Ints:
    """Return of each interval, in order of start, what no interval before it covers, within a window; together their union."""
    order = stable_order(start)
    reached = np.maximum.accumulate(end[order])
    begin = np.maximum(start[order], np.concatenate([start[order][:1], reached[:-1]]))
    out = np.zeros(start.size, np.int64)
    out[order] = np.maximum(0, _passed_ns(window, reached) - _passed_ns(window, begin))
    return out


def _passed_ns(window: Intervals, times: Ints) -> Ints:
    """Return how much of a window has passed at some times."""
    length = window.end_ns - window.start_ns
    before = np.concatenate([[0], np.cumsum(length)])
    at = np.searchsorted(window.start_ns, times, side="right") - 1
    inside = np.clip(times - window.start_ns[np.maximum(at, 0)], 0, length[np.maximum(at, 0)])
    return np.where(at < 0, 0, before[np.maximum(at, 0)] + inside).astype(np.int64)

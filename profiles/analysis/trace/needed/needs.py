"""Needed and done: every nanosecond of the GPU's time as the least that the work needs, what is slower, what need not be, or idle.

The least time of a launch is that of its operator's shapes at the ceilings (`trace.layer`); pointwise work that could live in a
product needs none of its own. What kinds claim is no need; what would take its place is. All parts of a GPU add up to its time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.frame import Frame
from profiles.analysis.core.intervals import Intervals
from profiles.analysis.trace.needed.facts import Avoidable, Facts, Kind, facts_of
from profiles.analysis.trace.needed.simulate import NO_INTS, Change, Recording
from profiles.analysis.trace.needed.table import KINDS
from profiles.analysis.trace.time.steps import Steps, steps_of
from profiles.analysis.trace.time.tiling import DeviceWork, devices
from profiles.ingest.arrays import Ints, stable_order
from profiles.ingest.trace import Category

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

    @cached_property
    def each(self) -> tuple[Ints, ...]:
        """Return the launches of each that was found."""
        return tuple(np.array(list(avoidable.positions), np.int64) for avoidable in self.found)

    @cached_property
    def positions(self) -> Ints:
        return np.concatenate(self.each)

    def sums(self, ns: Ints) -> list[int]:
        """Return the sum of each that was found, of numbers by position."""
        until = np.cumsum([0, *map(len, self.each)])
        total = np.concatenate([[0], np.cumsum(ns[self.positions])])
        return list((total[until[1:]] - total[until[:-1]]).tolist())

    @property
    def gone_ns(self) -> int:
        """Return the GPU time that goes, in the middle."""
        return self.takes_ns - sum(self.stays_ns) // 2

    @property
    def is_region(self) -> bool:
        return any(avoidable.is_region for avoidable in self.found)

    @property
    def worth_ns(self) -> int:
        """Return the GPU time that goes, of a region the middle of what the run gets shorter."""
        return max(self.gone_ns, sum(self.gain_ns) // 2 if self.is_region else 0)

    @property
    def certain(self) -> bool:
        return all(avoidable.certain for avoidable in self.found)


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
    position = np.full(frame.rows, -1, np.int64)
    position[facts.every.rows] = np.arange(facts.every.rows.size)
    every = [entry for work in works if (entry := _gpu(frame, facts, work, steps, claims, position)) is not None]
    rows, took_ns, least_ns, unknown_ns = (np.concatenate([np.empty(0, np.int64), *(entry[column] for entry in every)])
                                           for column in (1, 2, 3, 4))
    return Needs(tuple(gpu for gpu, *_ in every), tuple(sorted(claims, key=lambda claim: (-claim.gone_ns, claim.kind.name))), facts,
                 facts.has_shapes, rows, took_ns, least_ns, unknown_ns)


def _claims(facts: Facts, recording: Recording) -> list[Claim]:
    claims = []
    for kind in KINDS:
        avoidables = []
        for avoidable in kind.find(facts):
            positions = list(avoidable.positions)
            if not facts.taken[positions].any() and (positions or avoidable.rows):
                facts.taken[positions] = True
                avoidables.append(avoidable)
        if avoidables:
            claims.append(_claim(facts, recording, kind, avoidables, facts.frame.wall[1] - facts.frame.wall[0]))
    return claims


def _claim(facts: Facts, recording: Recording, kind: Kind, found: Sequence[Avoidable], wall_ns: int) -> Claim:
    takes = sum(facts.total_ns(list(one.positions)) for one in found) + sum(_copied_ns(facts, one) for one in found)
    stays = tuple(round(sum(avoidable.stays_ns[side] for avoidable in found)) for side in (0, 1))
    # Without the profiler, which slows the host, the GPU may be what holds the run back: at most all of its time goes.
    changes = [_change(facts, recording, found, side) for side in (0, 1)]
    bounds = [takes - stays[at] + (wall_ns if any(one.is_region for one in found) else _host_ns(facts, recording, found, at))
              for at in (0, 1)]
    most, least = (min(bounds[side], max(0, recording.saved_ns(changes[side]))) for side in (0, 1))
    return Claim(kind, tuple(found), sum(len(one.positions) + len(one.rows) for one in found), takes, (stays[0], stays[1]),
                 (min(least, most), max(most, least, takes - stays[0])))


def _copied_ns(facts: Facts, avoidable: Avoidable) -> int:
    return int(facts.frame["dur_ns"][list(avoidable.rows)].sum()) if avoidable.rows else 0
def _host_ns(facts: Facts, recording: Recording, found: Sequence[Avoidable], at: int) -> int:
    """Return the host time that goes with the launches: `at` 0 at most, 1 at least. Of a copy the call itself, which may block."""
    launched = sum(int(recording.host_share(facts.every.rows[list(one.positions)], one.host_shares[1 - at]).sum()) for one in found)
    calls = np.unique([call for one in found for row in one.rows if (call := int(facts.frame.call[row])) >= 0]).astype(np.int64)
    blocked = int(facts.frame["dur_ns"][calls].sum()) if at == 0 else 0
    return launched + blocked


def _change(facts: Facts, recording: Recording, avoidables: Sequence[Avoidable], at: int) -> Change:
    """Return the recording's change: `at` 0 the most that goes, 1 the least."""
    rows, ns, host_ns, gone = [NO_INTS], [NO_INTS], [NO_INTS], list[tuple[int, int]]()
    for avoidable in avoidables:
        positions, stays = list(avoidable.positions), avoidable.stays_ns[at]
        if avoidable.is_region:
            length = np.zeros(len(positions), np.int64)
            length[0] = max(1, round(stays))
            calls = recording.call[recording.place[facts.every.rows[positions]]]
            if at == 0:
                gone.append((int(calls.min()), int(calls.max())))
        else:
            length = np.rint(stays / max(1, facts.total_ns(positions)) * facts.ns[positions]).astype(np.int64)
        rows += [np.array(avoidable.rows, np.int64), facts.every.rows[positions]]
        ns += [np.zeros(len(avoidable.rows), np.int64), length]
        host_ns += [recording.host_share(part, avoidable.host_shares[1 - at]) for part in rows[-2:]]
    return Change(np.concatenate(rows), np.concatenate(ns), np.concatenate(host_ns), gone)


def _gpu(frame: Frame, facts: Facts, work: DeviceWork, steps: Steps, claims: Sequence[Claim],
         position: Ints) -> tuple[GpuNeeds, Ints, Ints, Ints, Ints] | None:
    """Return one GPU's needs, its rows of the frame, and of each within the steps: time, least time, time of unknown work, ns.

    `position`: among the facts, of each row.
    """
    rows = work.rows
    start, end = frame["start_ns"][rows].astype(np.int64), frame.end_ns[rows].astype(np.int64)
    spans = [span for span in steps.spans if span.rank in (work.rank, "")]
    window = _window(frame, rows, start, end, *(np.array([getattr(span, name) for span in spans], np.int64)
                                                for name in ("start_ns", "end_ns")))
    if not window.length_ns:
        return None
    portion = exclusive_ns(start, end, window)
    place = position[rows]
    parts = dict.fromkeys(PARTS, 0)
    category = frame["category"][rows]
    parts[COMMUNICATION] = int(portion[category == Category.COMMUNICATION].sum())
    parts[COPIES] = int(portion[np.isin(category, [int(Category.MEMCPY), int(Category.MEMSET)])].sum())
    mine = np.flatnonzero(place >= 0)
    ns = np.zeros(facts.every.rows.size, np.int64)
    ns[place[mine]] = portion[mine]
    has_copies = any(avoidable.rows for claim in claims for avoidable in claim.found)
    copied = dict(zip(rows.tolist(), portion.tolist(), strict=True)) if has_copies else {}
    left = np.ones(ns.size, np.bool_)
    least_ns = np.zeros(ns.size, np.int64)
    for claim in claims:
        parts.setdefault(claim.kind.name, 0)
        left[claim.positions] = False
        for avoidable, positions, inside in zip(claim.found, claim.each, claim.sums(ns), strict=True):
            if not inside and not avoidable.rows:
                continue                    # another GPU's
            moved = sum(copied.get(row, 0) for row in avoidable.rows)
            parts[COPIES] -= moved
            whole = max(1, int(facts.ns[positions].sum()))
            least, most = (min(inside, round(stay_ns * inside / whole)) for stay_ns in avoidable.stays_ns)
            middle = (least + most) // 2
            least_ns[positions] = _shared_out(least, ns[positions])
            parts[SLOWER] += middle - least
            parts[claim.kind.name] += moved + inside - middle
    floors = facts.floor_ns
    helper = np.array([item.is_part for item in facts.items])[facts.item]
    has_floor = left & ~np.isnan(floors)
    least_ns[has_floor] = np.minimum(floors[has_floor].round().astype(np.int64), ns[has_floor])
    parts[NEEDED] = int(least_ns.sum())
    parts[SLOWER] += int((ns - least_ns)[has_floor].sum()) + int(ns[left & ~has_floor & helper].sum())
    unknown_ns = np.where(left & ~has_floor & ~helper, ns, 0)
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
    if total * whole < 1 << 63:
        reached = total * until // whole
    else:                               # a product of two times in ns leaves 63 bits after some seconds
        reached = np.array([total * end_ns // whole for end_ns in until.tolist()], np.int64)
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
    index = np.searchsorted(window.start_ns, times, side="right") - 1
    inside = np.clip(times - window.start_ns[np.maximum(index, 0)], 0, length[np.maximum(index, 0)])
    return np.where(index < 0, 0, before[np.maximum(index, 0)] + inside).astype(np.int64)

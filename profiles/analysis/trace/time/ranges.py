"""GPU time of every range that a program names (NVTX, record_function): of the work launched within it, wherever it ran.

A piece of GPU work belongs to each range in which its launch call began, on the call's own thread. Autograd's workers and
threads that name no range belong to the ranges of their process too: those of its thread with the most of them. Ranges of
no thread (NVTX start/end) hold for every thread of their process.
GPU time is the sum of durations; *projected* is from the first start to the last end per range, as `nsys stats`'
nvtx_gpu_proj_sum has it.

Phases of a training or serving step: who launched each piece of GPU work, and so whose each gap before it is.

A launch belongs to the innermost slice around its call whose name is in PHASES; the work of a thread that names nothing
(autograd's workers) to the slice of that kind which its process's naming thread is in at that moment. Work that some
other framework operator launched counts as forward. So the phases tile wall time: busy time by who launched it (earlier
phases of ORDER first where streams overlap), idle time by what the GPU then waited for, or data while the host loads it.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.columns import rows_by_value
from profiles.analysis.core.frame import Frame
from profiles.analysis.trace.time.idle import DATA, Idle
from profiles.analysis.trace.time.tiling import DeviceWork, Tiling, in_turn, tiling
from profiles.ingest.arrays import Ints, Rows, stable_order, sums_by
from profiles.ingest.trace import Category

AUTOGRAD = "autograd::engine::"      # what only threads of backward passes are in
MOST_LANES = 256                # (thread, depth) pairs of ranges that are looked into, those with the most ranges first
MOST_RANGES = 300               # names; the others are one


@dataclass(frozen=True)
class RangeTime:
    """All ranges of one name. Times are sums over them."""

    name: str
    ranges: int
    host_ns: int
    gpu_ns: int
    projected_ns: int
    launches: int
    longest_id: int | None      # slice of the longest of them, None of many names together


def hosts_of(frame: Frame, rows: Rows) -> list[int]:
    """Return, for each track, the one whose slices among `rows` hold for it besides its own.

    Of a worker the busiest of its process, else itself; -1 where there is none.
    """
    per_track = Counter(track for track in frame["track"][rows].tolist() if frame.tracks[track].tid is not None)
    autograd = set(frame["track"][frame.rows_by_name(lambda name: name.startswith(AUTOGRAD), Category.CPU_OP)].tolist())
    best: dict[tuple[str, str | None], int] = {}
    for track, _ in sorted(per_track.items(), key=lambda pair: (pair[0] not in autograd, pair[1], -pair[0])):
        best[frame.rank_of_track[track], frame.tracks[track].pid] = track
    return [number if number in per_track and number not in autograd else best.get((frame.rank_of_track[number], track.pid), -1)
            for number, track in enumerate(frame.tracks)]


def range_times(frame: Frame) -> list[RangeTime]:
    """Return the ranges, most GPU time first.

    Where no range launched anything, the longest on the CPU first.
    """
    rows = frame.of(Category.ANNOTATION)
    if not rows.size:
        return []
    host = np.array(hosts_of(frame, rows))
    work = frame.work[frame.call[frame.work] >= 0]
    call = frame.call[work]
    on, began = host[frame["track"][call]], frame["start_ns"][call]
    total = {name: np.zeros(len(frame.names) + 1, np.int64) for name in ("gpu", "launches", "projected")}
    process = [(frame.rank_of_track[number], track.pid) for number, track in enumerate(frame.tracks)]
    for lane_rows, track, before in _lanes(frame, rows):
        if frame.tracks[track].tid is None:
            mine = np.flatnonzero(np.array([owner == process[track] for owner in process])[frame["track"][call]])
        else:
            mine = np.flatnonzero((on == track) | (frame["track"][call] == track))
        row = _range_at(frame, lane_rows, began[mine])
        code = frame["name"][row]
        hit = row >= 0
        for above in before:                    # within another range of the same name: that one counts it
            outer = _range_at(frame, above, began[mine])
            hit &= ~((outer >= 0) & (frame["name"][outer] == code))
        mine, row, code = mine[hit], row[hit], code[hit]
        total["gpu"] += sums_by(code + 1, frame["dur_ns"][work[mine]], len(frame.names) + 1)
        total["launches"] += np.bincount(code + 1, minlength=len(frame.names) + 1)
        total["projected"] += _projected_ns(frame, row, work[mine])
    return _sum_ranges(frame, rows, total)


def _lanes(frame: Frame, rows: Rows) -> list[tuple[Rows, int, list[Rows]]]:
    """Ranges of one track and depth, which never overlap; and the lanes above that share a name with them."""
    key = frame["track"][rows].astype(np.int64) << 16 | frame["depth"][rows].astype(np.int64)
    order = stable_order(key)
    lanes, first, count = np.unique(key[order], return_index=True, return_counts=True)
    chosen = np.sort(stable_order(-count)[:MOST_LANES])
    out: list[tuple[Rows, int, list[Rows]]] = []
    names: list[set[int]] = []
    for i in chosen.tolist():
        mine = rows[order[first[i]:first[i] + count[i]]]
        track, mine_names = int(lanes[i]) >> 16, set(frame["name"][mine].tolist())
        before = [other for (other, at, _), theirs in zip(out, names, strict=True) if at == track and theirs & mine_names]
        out.append((mine, track, before))
        names.append(mine_names)
    return out


def _range_at(frame: Frame, lane: Rows, time_ns: Ints) -> Ints:
    """The range of a lane at each time, -1 where there is none."""
    positions = np.searchsorted(frame["start_ns"][lane], time_ns, side="right") - 1
    row = lane[np.maximum(positions, 0)]
    return np.where((positions >= 0) & (frame.end_ns[row] > time_ns), row, -1)


def _projected_ns(frame: Frame, row: Ints, work: Rows) -> Ints:
    """By name: from the first start to the last end of what each range launched, summed."""
    out = np.zeros(len(frame.names) + 1, np.int64)
    if row.size:
        order = stable_order(row)
        row, work = row[order], work[order]
        begins = np.flatnonzero(np.r_[True, row[1:] != row[:-1]])
        spans = np.maximum.reduceat(frame.end_ns[work], begins) - np.minimum.reduceat(frame["start_ns"][work], begins)
        np.add.at(out, frame["name"][row[begins]] + 1, spans)
    return out


def _sum_ranges(frame: Frame, rows: Rows, total: dict[str, Ints]) -> list[RangeTime]:
    """The names with the most GPU time, and the others as one."""
    code, dur = frame["name"][rows] + 1, frame["dur_ns"][rows]
    ranges, host = np.bincount(code), sums_by(code, dur)
    names = np.flatnonzero(ranges)
    names = names[np.lexsort((names, -host[names], -total["gpu"][names]))]
    longest = np.zeros(ranges.size, np.intp)
    order = stable_order(dur)
    longest[code[order]] = rows[order]                          # the last, so the longest, stays
    gpu, projected, launches = total["gpu"], total["projected"], total["launches"]
    times = [RangeTime(frame.names[i - 1] if i else "", int(ranges[i]), int(host[i]), int(gpu[i]), int(projected[i]),
                       int(launches[i]), int(frame["id"][longest[i]])) for i in names[:MOST_RANGES].tolist()]
    rest = names[MOST_RANGES:]
    if rest.size:
        times.append(RangeTime(f"{rest.size:,} other names", int(ranges[rest].sum()), int(host[rest].sum()), int(gpu[rest].sum()),
                               int(projected[rest].sum()), int(launches[rest].sum()), None))
    return times


# What a slice's name says of its phase; the first pattern that fits.
PHASES: dict[str, re.Pattern[str]] = {
    "optimizer": re.compile(r"optimizer\.(step|zero_grad)|^#* ?(optimizer|optim|optimizer[ _.]step)\b|"
                            r"torch/optim/.*: (step|zero_grad)", re.IGNORECASE),
    "backward": re.compile(r"^autograd::engine::evaluate_function|^#* ?(backward|bwd)\b|\.backward$|"
                           r"torch/(_tensor|autograd/__init__)\.py\(\d+\): backward", re.IGNORECASE),
    "data": DATA,
    "forward": re.compile(r"^#* ?(forward|fwd)\b|\.forward$|\]\.forward|\|forward\]", re.IGNORECASE),
}
ORDER = ("data", "forward", "backward", "optimizer", "none")        # of a step, and of every list of phases
LABELS = {"data": "data", "forward": "forward", "backward": "backward", "optimizer": "optimizer", "none": "in no phase"}


def phase_of(name: str) -> str:
    """"" where the name says nothing."""
    return next((phase for phase, pattern in PHASES.items() if pattern.search(name)), "")


class Phases:
    """The phase of every piece of GPU work."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        rows = frame.rows_by_name(lambda name: bool(phase_of(name)), Category.CPU_OP, Category.ANNOTATION, Category.PYTHON)
        codes, at = np.unique(frame["name"][rows], return_inverse=True)
        said = np.array([ORDER.index(phase_of(frame.names[code])) for code in codes.tolist()] or [0])[at] if rows.size else rows
        self.flag = np.full(frame.rows, -1, np.int64)
        self.flag[rows] = said
        self.rows = rows
        self.of_work = self._of_work()

    def _of_work(self) -> Ints:
        """For every row of `frame.work` the number of its phase in ORDER."""
        frame = self.frame
        call = frame.call[frame.work]
        if not self.rows.size:
            return self._by_operator(np.full(call.size, -1))
        near = frame.nearest(self.rows)
        inner = np.where(call >= 0, near[call], -1)
        named = self.rows[frame["category"][self.rows] != Category.PYTHON]
        host = np.array(hosts_of(frame, named if named.size else self.rows))
        track = frame["track"][np.maximum(call, 0)]
        unnamed = np.flatnonzero((call >= 0) & (inner < 0))
        on_track = rows_by_value(frame["track"][self.rows])
        for own, of_unnamed in rows_by_value(track[unnamed]).items():
            if host[own] in (own, -1):
                continue
            mine, theirs = unnamed[of_unnamed], self.rows[on_track[int(host[own])]]
            began = frame["start_ns"][call[mine]]
            positions = np.searchsorted(frame["start_ns"][theirs], began, side="right") - 1
            inner[mine] = self._open(np.where(positions >= 0, theirs[np.maximum(positions, 0)], -1), near, began)
        return self._by_operator(np.where(inner >= 0, self.flag[np.maximum(inner, 0)], -1))

    def _open(self, row: Ints, near: Ints, began: Ints) -> Ints:
        """Outwards from the last flagged slice that began before each moment to one that is still open then."""
        for _ in range(64):
            over = (row >= 0) & (self.frame.end_ns[row] <= began)
            if not over.any():
                return row
            parent = self.frame.parent[row]
            row = np.where(over, np.where(parent >= 0, near[parent], -1), row)
        return np.where(self.frame.end_ns[row] > began, row, -1)

    def _by_operator(self, phases: Ints) -> Ints:
        """What is not found yet: forward where an operator launched it, else in no phase."""
        launched = self.frame.operator[self.frame.work] >= 0
        return np.where(phases >= 0, phases, np.where(launched, ORDER.index("forward"), ORDER.index("none")))

    def host_ns(self) -> dict[str, int]:
        """Return the CPU's time within each phase's slices.

        Per rank when at least one of its threads is in one, summed.
        """
        frame, out = self.frame, {}
        _, rank = frame.rank_numbers
        for number, phase in enumerate(ORDER[:-1]):
            rows = self.rows[self.flag[self.rows] == number]
            whose = rank[frame["track"][rows]]
            out[phase] = sum(intervals.union(frame["start_ns"][rows[whose == each]], frame.end_ns[rows[whose == each]]).length_ns
                             for each in np.unique(whose).tolist())
        return out

    def tiles(self, work: DeviceWork, idle: Idle) -> Tiling:
        """Wall time of one GPU by phase."""
        frame = self.frame
        place = np.searchsorted(frame.work, work.rows)
        mine = self.of_work[place]
        start, end = frame["start_ns"][work.rows], frame.end_ns[work.rows]
        busy = in_turn({phase: intervals.union(start[mine == number], end[mine == number]) for number, phase in enumerate(ORDER)})
        has_next = idle.after >= 0
        waited = np.full(idle.after.size, ORDER.index("none"))
        waited[has_next] = self.of_work[np.searchsorted(frame.work, idle.after[has_next])]
        apart = intervals.join(idle.causes["data_loading"], idle.causes["edges"])
        pieces = {}
        for number, phase in enumerate(ORDER):
            gaps = intervals.Intervals(idle.gaps.start_ns[waited == number], idle.gaps.end_ns[waited == number])
            pieces[phase] = intervals.join(busy[phase], intervals.without(gaps, apart))
        pieces["data"] = intervals.join(pieces["data"], idle.causes["data_loading"])
        pieces["none"] = intervals.join(pieces["none"], idle.causes["edges"])
        return tiling(pieces)

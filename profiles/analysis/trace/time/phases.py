"""Phases of a training or serving step: who launched each piece of GPU work, and so whose each gap before it is.

A launch belongs to the innermost slice around its call whose name is in PHASES; the work of a thread that names nothing
(autograd's workers) to the slice of that kind which its process's naming thread is in at that moment. Work that some
other framework operator launched counts as forward. So the phases tile wall time: busy time by who launched it (earlier
phases of ORDER first where streams overlap), idle time by what the GPU then waited for, or data while the host loads it.
"""

from __future__ import annotations

import re

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.columns import rows_by_value
from profiles.analysis.core.frame import Frame
from profiles.analysis.trace.time.idle import DATA, Idle
from profiles.analysis.trace.time.ranges import hosts_of
from profiles.analysis.trace.time.tiling import DeviceWork, Tiling, in_turn, tiling
from profiles.ingest.arrays import Ints
from profiles.ingest.trace import Category

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
            at = np.searchsorted(frame["start_ns"][theirs], began, side="right") - 1
            inner[mine] = self._open(np.where(at >= 0, theirs[np.maximum(at, 0)], -1), near, began)
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
        known = idle.after >= 0
        waited = np.full(idle.after.size, ORDER.index("none"))
        waited[known] = self.of_work[np.searchsorted(frame.work, idle.after[known])]
        apart = intervals.join(idle.causes["data_loading"], idle.causes["edges"])
        pieces = {}
        for number, phase in enumerate(ORDER):
            gaps = intervals.Intervals(idle.gaps.start_ns[waited == number], idle.gaps.end_ns[waited == number])
            pieces[phase] = intervals.join(busy[phase], intervals.without(gaps, apart))
        pieces["data"] = intervals.join(pieces["data"], idle.causes["data_loading"])
        pieces["none"] = intervals.join(pieces["none"], idle.causes["edges"])
        return tiling(pieces)

"""When a program was in its forward, backward, optimizer or data phase, as slices and ranges name it, or as stacks say.

Slices of a backward that follow each other without another phase between them are one stretch (autograd's nodes make one
backward), and so are those of a forward where there are backwards. A moment belongs to the slice around it that names a
phase, else to the stretch it lies in. Where nothing names a forward, what lies before a backward and in no other stretch is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from profiles.analysis.core.frame import Frame
from profiles.analysis.trace.time.phases import phase_of
from profiles.ingest.arrays import Ints, Rows
from profiles.ingest.trace import Category

NAMES = ("none", "data", "forward", "backward", "optimizer")
NONE, DATA, FORWARD, BACKWARD, OPTIMIZER = range(len(NAMES))
# Lines of a memory snapshot's stacks, innermost first ("step (adam.py:244)"): the first that fits.
_LINES = ((OPTIMIZER, re.compile(r"^(step|zero_grad|_init_group|_multi_tensor_\w+|_single_tensor_\w+|_fused_\w+) \((adam|adamw|sgd|"
                                 r"rmsprop|adagrad|lamb|lion|muon|optimizer)\w*\.py")),
          (BACKWARD, re.compile(r"^(backward|_engine_run_backward) \(|Engine::(evaluate_function|thread_main)")),
          (DATA, re.compile(r"^(_next_data|__next__|fetch|pin_memory) \((dataloader|fetch|pin_memory)\.py")),
          (FORWARD, re.compile(r"^(forward|_call_impl) \(")))


@dataclass(frozen=True)
class Stretches:
    """Stretches of time in one phase, disjoint, in order."""

    start_ns: Ints
    end_ns: Ints
    phase: Ints

    def at(self, times_ns: Ints) -> Ints:
        """Return the number of the stretch around each time, else -1."""
        if not self.start_ns.size:
            return np.full(times_ns.size, -1, np.int64)
        place = np.searchsorted(self.start_ns, times_ns, side="right") - 1
        return np.where((place >= 0) & (times_ns <= self.end_ns[np.maximum(place, 0)]), place, -1)

    def phase_at(self, times_ns: Ints) -> Ints:
        place = self.at(times_ns)
        return np.where(place >= 0, self.phase[np.maximum(place, 0)], NONE) if self.phase.size else np.full(times_ns.size, NONE)

    @property
    def bounds(self) -> tuple[int, int]:
        """First start and last end; (0, 0) where there are none."""
        return (int(self.start_ns[0]), int(self.end_ns.max())) if self.start_ns.size else (0, 0)


class Phases:
    """Phases of a trace; of one rank where it has several."""

    def __init__(self, frame: Frame, rank: str = "") -> None:
        self.frame = frame
        codes = np.array([_CODES.get(phase_of(name), NONE) for name in frame.names] or [NONE], np.int64)
        own = np.array([label == rank for label in frame.rank_of_track] or [True], np.bool_)
        on_host = np.isin(frame["category"], [int(Category.CPU_OP), int(Category.ANNOTATION), int(Category.PYTHON)])
        self.rows: Rows = np.flatnonzero(on_host & ~frame["instant"] & (codes[frame["name"]] != NONE) & own[frame["track"]])
        self._code = codes
        self._near = frame.nearest(self.rows) if self.rows.size else np.full(frame.rows, -1, np.int64)
        self.stretches = self._stretches()

    def _stretches(self) -> Stretches:
        start, end, phase = (self.frame["start_ns"][self.rows], self.frame.end_ns[self.rows],
                             self._code[self.frame["name"][self.rows]])
        if not start.size:
            return Stretches(start, end, phase)
        bridged = (phase == BACKWARD) | ((phase == FORWARD) & bool(np.any(phase == BACKWARD)))
        apart = start[1:] > np.maximum.accumulate(end)[:-1]
        first = np.concatenate(([True], (phase[1:] != phase[:-1]) | (apart & ~bridged[1:])))
        begin = np.flatnonzero(first)
        ends = np.maximum.reduceat(end, begin)
        # one phase within another (an optimizer step called in a backward hook): the outer one goes on after it, unsaid
        starts, kinds = start[begin], phase[begin]
        ends = np.minimum(ends, np.append(starts[1:], np.iinfo(np.int64).max))
        if not np.any(kinds == FORWARD) and np.any(kinds == BACKWARD):
            starts, ends, kinds = _with_forward(starts, ends, kinds, self.frame.wall[0])
        return Stretches(starts, ends, kinds)

    def of(self, rows: Rows) -> Ints:
        """The phase of each of some marks, by the slice around it, else by time, else by its stack."""
        frame, out = self.frame, np.full(rows.size, NONE, np.int64)
        if self.rows.size:
            around = frame.parent[rows]
            near = np.where(around >= 0, self._near[np.maximum(around, 0)], -1)
            by_time = self.stretches.phase_at(frame["start_ns"][rows])
            out = np.where(near >= 0, self._code[frame["name"][np.maximum(near, 0)]], by_time)
        left = np.flatnonzero((out == NONE) & (frame["detail"][rows] >= 0))
        details, at = np.unique(frame["detail"][rows[left]], return_inverse=True)
        if details.size:
            by_detail = [_by_stack(frame.detail_arguments(each).get("stack")) for each in details.tolist()]
            out[left] = np.array(by_detail, np.int64)[at.reshape(-1)]
        return out


_CODES = {name: code for code, name in enumerate(NAMES)}


def _with_forward(starts: Ints, ends: Ints, kinds: Ints, begin_ns: int) -> tuple[Ints, Ints, Ints]:
    """With a forward before each backward: since what came before it ended."""
    backward = np.flatnonzero(kinds == BACKWARD)
    since = np.where(backward > 0, ends[np.maximum(backward - 1, 0)], min(begin_ns, int(starts[0])))
    some = since < starts[backward]
    at = backward[some]
    return (np.insert(starts, at, since[some]), np.insert(ends, at, starts[at]), np.insert(kinds, at, FORWARD))


def _by_stack(stack: object) -> int:
    lines = [line for line in stack if isinstance(line, str)] if isinstance(stack, list) else []
    return next((phase for line in lines for phase, pattern in _LINES if pattern.search(line)), NONE)

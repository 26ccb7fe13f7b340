"""What allocations are for, told from when they were made and freed. A trace does not say which tensor is a parameter:
PyTorch's own memory profiler (torch/profiler/_memory_profiler.py) follows the data flow, this follows lifetimes.

The rules, the first that fits:

temporary    freed before the operator that allocated it ended, or within the same forward, backward or optimizer step; where
             the trace names no phase at all, whatever is freed
optimizer    allocated in an optimizer step and kept beyond it
gradients    allocated in a backward and kept beyond it
activations  allocated in a forward (or before it, outside of phases) and freed in a later backward
kept         a library's workspace, or allocated before the first optimizer step (without one: at any time) and still there
             after the last phase: parameters, buffers
other        everything else: inputs, outputs, losses

When a program was in its forward, backward, optimizer or data phase, as slices and ranges name it, or as stacks say.

Slices of a backward that follow each other without another phase between them are one stretch (autograd's nodes make one
backward), and so are those of a forward where there are backwards. A moment belongs to the slice around it that names a
phase, else to the stretch it lies in. Where nothing names a forward, what lies before a backward and in no other stretch is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from profiles.analysis.core.frame import Frame
from profiles.analysis.trace.memory.events import Counter, DeviceMemory
from profiles.analysis.trace.time.ranges import phase_of
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
        details, index = np.unique(frame["detail"][rows[left]], return_inverse=True)
        if details.size:
            by_detail = [_by_stack(frame.detail_arguments(detail).get("stack")) for detail in details.tolist()]
            out[left] = np.array(by_detail, np.int64)[index.reshape(-1)]
        return out


_CODES = {name: code for code, name in enumerate(NAMES)}


def _with_forward(starts: Ints, ends: Ints, kinds: Ints, begin_ns: int) -> tuple[Ints, Ints, Ints]:
    """With a forward before each backward: since what came before it ended."""
    backward = np.flatnonzero(kinds == BACKWARD)
    since = np.where(backward > 0, ends[np.maximum(backward - 1, 0)], min(begin_ns, int(starts[0])))
    some = since < starts[backward]
    indices = backward[some]
    return (np.insert(starts, indices, since[some]), np.insert(ends, indices, starts[indices]), np.insert(kinds, indices, FORWARD))


def _by_stack(stack: object) -> int:
    lines = [line for line in stack if isinstance(line, str)] if isinstance(stack, list) else []
    return next((phase for line in lines for phase, pattern in _LINES if pattern.search(line)), NONE)


# Key -> what the page calls it; "before" is not an allocation of the recording. The order is that of the picture, from below.
CATEGORIES = {"before": "held from before the recording", "kept": "parameters, buffers, workspaces", "optimizer": "optimizer state",
              "gradients": "gradients", "activations": "activations", "other": "inputs, outputs and other",
              "temporary": "temporary", "unknown": "cannot be told"}
KEYS = tuple(CATEGORIES)
_WORKSPACE = re.compile(r"workspace", re.IGNORECASE)


@dataclass(frozen=True)
class Allocations:
    """Per allocation of a `Held`, in order of time."""

    category: Ints               # number into KEYS
    phase: Ints                  # number into phases.NAMES
    site: Ints                   # number into `sites`
    sites: list[str]             # operators, or frames of stacks


def allocations_of(frame: Frame, memory: DeviceMemory, phases: Phases) -> Allocations:
    rows = memory.rows[memory.began]
    around = frame.parent[rows] if rows.size else rows
    operator = frame.enclosing(around, Category.CPU_OP)
    phase = phases.of(rows)
    site, sites = _sites(frame, rows, operator, around)
    category = _categories(frame, memory, phases, phase, _outermost(frame, operator))
    workspace = np.array([bool(_WORKSPACE.search(name)) for name in sites] or [False], np.bool_)
    if site.size:
        category[workspace[site] & (category != KEYS.index("temporary"))] = KEYS.index("kept")
    return Allocations(category, phase, site, sites)


def _outermost(frame: Frame, operator: Ints) -> Ints:
    """The operator that contains each operator and is in none itself."""
    outermost = operator.copy()
    left = np.flatnonzero(outermost >= 0)
    while left.size:
        above = frame.enclosing(frame.parent[outermost[left]], Category.CPU_OP)
        left, above = left[above >= 0], above[above >= 0]
        outermost[left] = above
    return outermost


def _categories(frame: Frame, memory: DeviceMemory, phases: Phases, made: Ints, outer: Ints) -> Ints:
    began_ns, freed = memory.time_ns[memory.began], memory.ended >= 0
    end_ns = memory.end_ns
    freed_in = phases.of(memory.rows[np.maximum(memory.ended, 0)]) if memory.began.size else made
    stretches = phases.stretches
    same = stretches.at(began_ns) == stretches.at(end_ns)
    within = freed & (freed_in == made) & same & (made != NONE)
    in_operator = freed & (outer >= 0) & (end_ns <= frame.end_ns[np.maximum(outer, 0)])
    if not stretches.start_ns.size:
        in_operator = freed
    _, last_ns = stretches.bounds
    stays = ~freed | (end_ns >= last_ns) if stretches.start_ns.size else ~freed
    steps = stretches.start_ns[stretches.phase == OPTIMIZER]
    early = began_ns < (int(steps[0]) if steps.size else np.iinfo(np.int64).max)
    rules = (("temporary", in_operator | within), ("optimizer", made == OPTIMIZER), ("gradients", made == BACKWARD),
             ("activations", np.isin(made, (FORWARD, NONE)) & freed & (freed_in == BACKWARD)), ("kept", stays & early))
    return np.select([fits for _, fits in rules], [KEYS.index(name) for name, _ in rules], KEYS.index("other")).astype(np.int64)


def _sites(frame: Frame, rows: Rows, operator: Ints, around: Ints) -> tuple[Ints, list[str]]:
    """Who asked: the operator around the mark, else the slice, else the frame of the recorded stack."""
    named = np.where(operator >= 0, operator, around)
    code = np.where(named >= 0, frame["name"][np.maximum(named, 0)].astype(np.int64), -1)
    detail = np.where(code >= 0, -1, frame["detail"][rows].astype(np.int64))
    pairs, index = np.unique(np.stack([code, detail]), axis=1, return_inverse=True)
    ids: dict[str, int] = {}
    numbers = np.array([ids.setdefault(_site(frame, *pair), len(ids)) for pair in pairs.T.tolist()] or [0], np.int64)
    return numbers[index.reshape(-1)] if rows.size else rows.astype(np.int64), list(ids)


def _site(frame: Frame, code: int, detail: int) -> str:
    if code >= 0:
        return frame.names[code]
    site = frame.detail_arguments(detail).get("site")
    return site[:300] if isinstance(site, str) and site else "not recorded"


# Bytes by category over time, at few enough moments for a picture that no peak is lost.

POINTS = 160             # stretches of time; each shows its highest moment and its last


def moments(level: Ints, time_ns: Ints) -> Ints:
    """Events that a picture needs: of each of POINTS stretches the highest and the last."""
    if level.size <= 2 * POINTS:
        return np.arange(level.size)
    span = max(int(time_ns[-1] - time_ns[0]), 1)
    stretch = ((time_ns - time_ns[0]) * POINTS // (span + 1)).astype(np.int64)
    last = np.flatnonzero(np.append(stretch[1:] != stretch[:-1], True))
    by_level = np.lexsort((level, stretch))
    return np.unique(np.concatenate([[0], by_level[last], last]))


def by_category(memory: DeviceMemory, allocations: Allocations | None) -> dict[str, Any]:
    """{"time_ns", "total_bytes", "reserved_bytes", "parts": {category: bytes}} at the moments."""
    indices = moments(memory.level, memory.time_ns)
    parts: dict[str, list[int]] = {}
    left = memory.level[indices].copy()
    if allocations is not None:
        for number, key in enumerate(KEYS):
            mine = allocations.category == number
            if mine.any():
                change = np.zeros(memory.rows.size, np.int64)
                np.add.at(change, memory.began[mine], memory.bytes[mine])
                freed = mine & (memory.ended >= 0)
                np.subtract.at(change, memory.ended[freed], memory.bytes[freed])
                values = np.cumsum(change)[indices]
                parts[key] = values.tolist()
                left -= values
    parts["before" if allocations is not None else "unknown"] = left.tolist()
    return {"time_ns": memory.time_ns[indices].tolist(), "total_bytes": memory.level[indices].tolist(),
            "reserved_bytes": _numbers(memory.reserved, memory.time_ns[indices]),
            "parts": {key: parts[key] for key in KEYS if key in parts and any(parts[key])}}


def _numbers(counter: Counter | None, times_ns: Ints) -> list[float | None] | None:
    if counter is None:
        return None
    return [float(value) if np.isfinite(value) else None for value in counter.at(times_ns).tolist()]


def of_counter(counter: Counter) -> dict[str, Any]:
    """Return the series of a device of which only a counter is known."""
    value = np.nan_to_num(counter.value, nan=0.0).astype(np.int64)
    indices = moments(value, counter.time_ns)
    return {"time_ns": counter.time_ns[indices].tolist(), "total_bytes": value[indices].tolist(), "reserved_bytes": None,
            "parts": {"unknown": value[indices].tolist()}}

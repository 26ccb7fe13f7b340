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
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from profiles.analysis.core.frame import Frame
from profiles.analysis.trace.memory.events import Counter, DeviceMemory
from profiles.analysis.trace.memory.phases import BACKWARD, FORWARD, NONE, OPTIMIZER, Phases
from profiles.ingest.arrays import Ints, Rows
from profiles.ingest.trace import Category

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


def allocations_of(frame: Frame, held: DeviceMemory, phases: Phases) -> Allocations:
    rows = held.rows[held.began]
    around = frame.parent[rows] if rows.size else rows
    operator = frame.enclosing(around, Category.CPU_OP)
    made = phases.of(rows)
    site, sites = _sites(frame, rows, operator, around)
    category = _categories(frame, held, phases, made, _outermost(frame, operator))
    workspace = np.array([bool(_WORKSPACE.search(each)) for each in sites] or [False], np.bool_)
    if site.size:
        category[workspace[site] & (category != KEYS.index("temporary"))] = KEYS.index("kept")
    return Allocations(category, made, site, sites)


def _outermost(frame: Frame, operator: Ints) -> Ints:
    """The operator that contains each operator and is in none itself."""
    outermost = operator.copy()
    left = np.flatnonzero(outermost >= 0)
    while left.size:
        above = frame.enclosing(frame.parent[outermost[left]], Category.CPU_OP)
        left, above = left[above >= 0], above[above >= 0]
        outermost[left] = above
    return outermost


def _categories(frame: Frame, held: DeviceMemory, phases: Phases, made: Ints, outer: Ints) -> Ints:
    began_ns, freed = held.time_ns[held.began], held.ended >= 0
    end_ns = held.end_ns
    freed_in = phases.of(held.rows[np.maximum(held.ended, 0)]) if held.began.size else made
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
    pairs, at = np.unique(np.stack([code, detail]), axis=1, return_inverse=True)
    ids: dict[str, int] = {}
    numbers = np.array([ids.setdefault(_site(frame, *pair), len(ids)) for pair in pairs.T.tolist()] or [0], np.int64)
    return numbers[at.reshape(-1)] if rows.size else rows.astype(np.int64), list(ids)


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


def by_category(held: DeviceMemory, made: Allocations | None) -> dict[str, Any]:
    """{"time_ns", "total_bytes", "reserved_bytes", "parts": {category: bytes}} at the moments."""
    at = moments(held.level, held.time_ns)
    parts: dict[str, list[int]] = {}
    left = held.level[at].copy()
    if made is not None:
        for number, key in enumerate(KEYS):
            mine = made.category == number
            if mine.any():
                change = np.zeros(held.rows.size, np.int64)
                np.add.at(change, held.began[mine], held.bytes[mine])
                freed = mine & (held.ended >= 0)
                np.subtract.at(change, held.ended[freed], held.bytes[freed])
                values = np.cumsum(change)[at]
                parts[key] = values.tolist()
                left -= values
    parts["before" if made is not None else "unknown"] = left.tolist()
    return {"time_ns": held.time_ns[at].tolist(), "total_bytes": held.level[at].tolist(),
            "reserved_bytes": _numbers(held.reserved, held.time_ns[at]),
            "parts": {key: parts[key] for key in KEYS if key in parts and any(parts[key])}}


def _numbers(counter: Counter | None, times_ns: Ints) -> list[float | None] | None:
    if counter is None:
        return None
    return [float(value) if np.isfinite(value) else None for value in counter.at(times_ns).tolist()]


def of_counter(counter: Counter) -> dict[str, Any]:
    """Return the series of a device of which only a counter is known."""
    value = np.nan_to_num(counter.value, nan=0.0).astype(np.int64)
    at = moments(value, counter.time_ns)
    return {"time_ns": counter.time_ns[at].tolist(), "total_bytes": value[at].tolist(), "reserved_bytes": None,
            "parts": {"unknown": value[at].tolist()}}

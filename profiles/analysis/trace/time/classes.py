"""Three bottleneck classes: what share of wall time a GPU computes, moves memory, or does neither (overhead).

"Making Deep Learning Go Brrrr From First Principles" (Horace He, 2022) names the three. PARTS tile the wall time of a GPU
and each part belongs to one class; kernels of unknown kind are a class of their own, for nobody knows theirs, and the
recording's edges are of none. The class with the most time is what holds the GPU back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profiles.analysis.core import intervals
from profiles.analysis.core.frame import Frame
from profiles.analysis.core.intervals import Intervals
from profiles.analysis.core.sentences import pct_of
from profiles.analysis.trace.time.idle import CAUSES, Idle
from profiles.analysis.trace.time.kinds import REGIMES, SMALL_NS, regimes
from profiles.analysis.trace.time.tiling import DeviceWork, Tiling, in_turn, tiling
from profiles.ingest.arrays import Floats, Rows
from profiles.ingest.trace import Category

CLASSES = ("compute", "memory", "overhead", "unknown")


@dataclass(frozen=True)
class Part:
    label: str
    of: str                 # its class, "" of what belongs to none
    meaning: str


PARTS: dict[str, Part] = {
    "compute": Part("arithmetic", "compute", "a kernel of 10 µs and more that computes: matrix products, convolutions, attention"),
    "memory": Part("memory traffic", "memory", "a kernel of 10 µs and more that moves data: elementwise, reductions, copies"),
    "unknown": Part("kernels of unknown kind", "unknown", "a kernel of 10 µs and more whose name says nothing of what limits it"),
    "small": Part("small kernels", "overhead", "only kernels under 10 µs run: start, ramp and tail"),
    "communication": Part("exposed communication", "overhead", "a collective runs and nothing computes"),
    "transfers": Part("exposed transfers", "overhead", "copies and sets, and no kernel runs"),
    **{cause: Part(label, "" if cause == "edges" else "overhead", meaning) for cause, (label, meaning) in CAUSES.items()},
}
KERNEL_PARTS = ("compute", "memory", "unknown", "small")


@dataclass(frozen=True)
class Kernels:
    """The computing kernels of a GPU: rows, and the number of each one's regime in REGIMES."""

    rows: Rows
    regime: npt.NDArray[np.int8]


def kernels_of(frame: Frame, work: DeviceWork) -> Kernels:
    rows = work.rows[frame["category"][work.rows] == Category.COMPUTE]
    return Kernels(rows, regimes(frame, rows, work.name))


def parts_of(frame: Frame, work: DeviceWork, kernels: Kernels, idle: Idle) -> Tiling:
    """Return the wall time of one GPU by PARTS.

    Where kernels overlap, the one that stands first in PARTS has the time.
    """
    rows, regime = kernels.rows, kernels.regime
    small = frame["dur_ns"][rows] < SMALL_NS
    start, end = frame["start_ns"][rows], frame.end_ns[rows]
    sets: dict[str, Intervals] = {}
    for number, name in enumerate(REGIMES):
        mine = (regime == number) & ~small
        sets[name] = intervals.union(start[mine], end[mine])
    sets["small"] = intervals.union(start[small], end[small])
    return tiling({**in_turn(sets), "communication": work.exposed["communication"], "transfers": work.exposed["memory"],
                   **idle.causes})


@dataclass(frozen=True)
class KernelTime:
    """A computing kernel's launches of one regime (one name has two where shapes decide)."""

    name: str
    regime: str
    launches: int
    ns: int                 # summed durations
    small_ns: int           # of these in launches under SMALL_NS
    counted_ns: int         # of these in longer launches that began in windows that count


def kernel_times(frame: Frame, devices: Sequence[tuple[Kernels, Intervals]]) -> list[KernelTime]:
    """Return the kernels that the classes rest on, the most time first.

    `devices`: with each GPU's kernels the windows that count.
    """
    groups: dict[tuple[int, int], Floats] = {}
    for kernels, windows in devices:
        dur = frame["dur_ns"][kernels.rows]
        key = frame["name"][kernels.rows].astype(np.int64) << 2 | kernels.regime
        distinct, at = np.unique(key, return_inverse=True)
        start, small = frame["start_ns"][kernels.rows], dur < SMALL_NS
        counts = intervals.covered_before(windows, start + 1) > intervals.covered_before(windows, start)
        sums = [np.bincount(at, weights, distinct.size) for weights in (
            np.ones(dur.size), dur, np.where(small, dur, 0), np.where(counts & ~small, dur, 0))]
        for code, values in zip(distinct.tolist(), np.stack(sums).T, strict=True):
            groups[code >> 2, code & 3] = groups.get((code >> 2, code & 3), np.zeros(4)) + values
    times = [KernelTime(frame.names[code] if code >= 0 else "", REGIMES[regime], *(int(value) for value in values.tolist()))
             for (code, regime), values in groups.items()]
    return sorted(times, key=lambda each: (-each.ns, each.name))


@dataclass(frozen=True)
class Verdict:
    """`bound` is the class with the most time, "" where there is no time. Times in ns, summed over GPUs."""

    bound: str
    total_ns: int           # of all classes: shares are of it
    classes: dict[str, int]
    parts: dict[str, int]

    def pct(self, name: str) -> float:
        """Return the share of a class."""
        return pct_of(self.classes[name], self.total_ns)

    def part_pct(self, name: str) -> float:
        return pct_of(self.parts[name], self.total_ns)


def verdict(parts: Mapping[str, int]) -> Verdict:
    """Return the verdict on the ns of every part."""
    classes = {name: sum(ns for part, ns in parts.items() if PARTS[part].of == name) for name in CLASSES}
    total = sum(classes.values())
    return Verdict(max(classes, key=lambda name: classes[name]) if total else "", total, classes, dict(parts))

"""How fast one GPU runs beside another: the same kernels on both, launch by launch, with an interval over the steps.

The n-th launch of a kernel and grid on one is compared with the n-th on the other. What some kernels take longer and others
shorter cancels: only the net difference says something of a GPU. It varies from step to step (clocks, neighbours, which kernels
share the GPU), so it counts only where its interval over the steps (Student's t, 95 %) lies above zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiles.analysis.core.frame import Frame, Ints
from profiles.analysis.trace.account.gpu import Names
from profiles.analysis.trace.time.work import DeviceWork
from profiles.ingest.trace import Category

FEWEST_STEPS, MOST_STEPS = 3, 30
MOST_NAMES = 20
# Student's t at 97.5 % for 2, 3, … degrees of freedom (NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2)
_T = (4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093,
      2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045)


@dataclass(frozen=True)
class Pace:
    """What one GPU took longer than another over a whole trace, ns; negative: shorter."""

    slower_ns: int                  # for launches that both made, net
    low_ns: int                     # interval of `slower_ns` over the steps
    high_ns: int
    shared_ns: int                  # what these launches took on the other GPU
    steps: int
    extra_ns: int                   # for launches that only one made, net
    slower: Names                   # kernels that took longer, the most first
    extra: Names

    @property
    def is_slower(self) -> bool:
        return self.low_ns > 0


def pace_of(frame: Frame, other: DeviceWork, own: DeviceWork, steps: int) -> Pace | None:
    """Compare `own` GPU with `other`; None where either ran no kernel. `steps` of one rank; fewer than FEWEST_STEPS say nothing
    of what varies, so that nothing is called slower then."""
    mine, theirs = _launches(frame, own), _launches(frame, other)
    if not mine or not theirs:
        return None
    steps = min(steps, MOST_STEPS)
    by_step = np.zeros(max(steps, 1))
    slower: list[tuple[int, int]] = []
    extra: list[tuple[int, int]] = []
    shared_ns = 0
    for key in mine.keys() | theirs.keys():
        a, b = mine.get(key, _NONE), theirs.get(key, _NONE)
        both = min(a.size, b.size)
        more = a[:both] - b[:both]
        by_step += np.bincount(np.arange(both) * by_step.size // max(both, 1), more, by_step.size)
        shared_ns += int(b[:both].sum())
        slower.append((key[0], int(more.sum())))
        extra.append((key[0], int(a[both:].sum() - b[both:].sum())))
    net, half = float(by_step.sum()), float("inf")
    if steps >= FEWEST_STEPS:
        half = float(np.sqrt(steps) * _T[steps - FEWEST_STEPS] * by_step.std(ddof=1))
    low, high = (round(float(np.clip(each, -2.0**62, 2.0**62))) for each in (net - half, net + half))
    return Pace(round(net), low, high, shared_ns, steps, sum(ns for _, ns in extra), _named(frame, slower), _named(frame, extra))


Key = tuple[int, int, int, int]             # name and grid: the same kernel with another grid is other work
_NONE = np.empty(0, np.int64)


def _launches(frame: Frame, work: DeviceWork) -> dict[Key, Ints]:
    """Durations of each kernel and grid, in order of start."""
    rows = work.rows[frame["category"][work.rows] == Category.COMPUTE]
    if not rows.size:
        return {}
    table = np.stack([frame["name"][rows], *(frame[f"grid_{axis}"][rows] for axis in "xyz")], axis=1).astype(np.int64)
    kinds, at, counts = np.unique(table, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(at.reshape(-1), kind="stable")
    parts = np.split(frame["dur_ns"][rows][order].astype(np.int64), np.cumsum(counts)[:-1])
    keys: list[Key] = [tuple(kind) for kind in kinds.tolist()]
    return dict(zip(keys, parts, strict=True))


def _named(frame: Frame, more: list[tuple[int, int]]) -> Names:
    """By name what is positive, the most first."""
    total: dict[int, int] = {}
    for code, ns in more:
        total[code] = total.get(code, 0) + ns
    named = [(frame.names[code] if code >= 0 else "", ns) for code, ns in total.items() if ns > 0]
    return sorted(named, key=lambda pair: (-pair[1], pair[0]))[:MOST_NAMES]

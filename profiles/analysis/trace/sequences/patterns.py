"""Frequent kernel sequences of operators: which kernels an outermost operator (or range) launches, in order, and how often.

As Holistic Trace Analysis does it (`get_frequent_cuda_kernel_sequences`): the kernels of the shallowest operators of a name,
but for all operators at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiles.analysis.core.frame import Frame, Ints
from profiles.analysis.trace.launching.order import order_of
from profiles.ingest.trace import Category

MOST, SHOWN = 200, 40               # patterns; kernels of one


@dataclass(frozen=True)
class Pattern:
    operator: int                   # code of its name
    names: tuple[int, ...]          # of its first SHOWN kernels
    kernels: int
    count: int
    gpu_ns: int                     # summed durations
    span_ns: int                    # first start to last end, summed
    host_ns: int                    # the operator's own duration, summed
    example: int                    # row of the first operator


def patterns(frame: Frame, least: int = 2) -> list[Pattern]:
    """Sequences of at least two kernels that occur at least `least` times, most GPU time first."""
    order = order_of(frame)
    rows = np.flatnonzero(order.is_kernel & order.has_call)
    owner = outermost(frame, order.call[rows])
    rows, owner = rows[owner >= 0], owner[owner >= 0]
    if not rows.size:
        return []
    by_owner = np.argsort(owner, kind="stable")                           # within an operator by start
    rows, owner = rows[by_owner], owner[by_owner]
    owners, first, count = np.unique(owner, return_index=True, return_counts=True)
    with np.errstate(over="ignore"):
        place = (np.arange(rows.size) - np.repeat(first, count)).astype(np.uint64)
        mixed = (order.name[rows].astype(np.uint64) + np.uint64(1)) * (place * np.uint64(2) + np.uint64(0x9E3779B97F4A7C15))
        mixed ^= mixed >> np.uint64(31)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        signature = np.add.reduceat(mixed, first).view(np.int64)
    groups = np.unique(np.stack((signature, frame["name"][owners].astype(np.int64), count)), axis=1,
                       return_inverse=True)[1].reshape(-1)
    times = np.bincount(groups)
    gpu = np.bincount(groups, weights=np.add.reduceat(order.dur_ns[rows], first))
    span = np.bincount(groups, weights=np.maximum.reduceat(order.end_ns[rows], first) - order.start_ns[rows][first])
    host = np.bincount(groups, weights=frame["dur_ns"][owners])
    some = np.unique(groups, return_index=True)[1]
    good = np.flatnonzero((times >= least) & (count[some] > 1))
    good = good[np.argsort(-gpu[good], kind="stable")][:MOST]
    return [Pattern(int(frame["name"][owners[at]]), tuple(order.name[rows[first[at]:first[at] + min(count[at], SHOWN)]].tolist()),
                    int(count[at]), int(times[group]), int(gpu[group]), int(span[group]), int(host[group]), int(owners[at]))
            for group, at in zip(good.tolist(), some[good].tolist(), strict=True)]


def outermost(frame: Frame, rows: Ints) -> Ints:
    """Return the outermost framework operator around each row.

    Where there is none, the innermost range; -1 without either.
    """
    operators = frame.enclosing(rows, Category.CPU_OP)
    above = operators.copy()
    while (above >= 0).any():
        above = frame.enclosing(np.where(above >= 0, frame.parent[np.maximum(above, 0)], -1), Category.CPU_OP)
        operators = np.where(above >= 0, above, operators)
    missing = np.flatnonzero(operators < 0)
    operators[missing] = frame.enclosing(rows[missing], Category.ANNOTATION)
    return operators

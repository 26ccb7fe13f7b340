"""Sets of time intervals as two int64 columns (starts, ends), half open, in ns. Disjoint and ordered after `union`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from profiles.analysis.core.frame import Frame
from profiles.ingest.arrays import Bools, Floats, Ints, stable_order

Int64 = npt.NDArray[np.int64]


class Intervals(NamedTuple):
    start_ns: Int64
    end_ns: Int64

    @property
    def length_ns(self) -> int:
        return int((self.end_ns - self.start_ns).sum())


EMPTY = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))


def union(start_ns: Int64, end_ns: Int64) -> Intervals:
    """Return what at least one of the intervals covers.

    Intervals of no length cover nothing.
    """
    keep = end_ns > start_ns
    start, end = start_ns[keep], end_ns[keep]
    if not start.size:
        return EMPTY
    order = stable_order(start)
    start, reach = start[order], np.maximum.accumulate(end[order])
    first = np.concatenate(([True], start[1:] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return Intervals(start[first], reach[last])


def join(*sets: Intervals) -> Intervals:
    """Return what at least one of the sets covers."""
    return union(np.concatenate([s.start_ns for s in sets]), np.concatenate([s.end_ns for s in sets]))


def select(start_ns: Int64, end_ns: Int64, which: Bools) -> Intervals:
    """Return those of the pairs that `which` marks, without empty ones."""
    keep = which & (end_ns > start_ns)
    return Intervals(start_ns[keep], end_ns[keep])


def gaps(covered: Intervals, start_ns: int, end_ns: int) -> Intervals:
    """Return what `covered` (disjoint, ordered) leaves free of [start_ns, end_ns)."""
    inner = clip(covered, start_ns, end_ns)
    start = np.concatenate(([start_ns], inner.end_ns))
    end = np.concatenate((inner.start_ns, [end_ns]))
    keep = end > start
    return Intervals(start[keep], end[keep])


def clip(intervals: Intervals, start_ns: int, end_ns: int) -> Intervals:
    start = np.maximum(intervals.start_ns, start_ns)
    end = np.minimum(intervals.end_ns, end_ns)
    keep = end > start
    return Intervals(start[keep], end[keep])


def covered_before(covered: Intervals, times_ns: Int64) -> Int64:
    """Return how many ns before each time are covered.

    `covered` is disjoint and ordered; differences give any window.
    """
    if not covered.start_ns.size:
        return np.zeros(times_ns.size, np.int64)
    total = np.concatenate(([0], np.cumsum(covered.end_ns - covered.start_ns)))
    began = np.searchsorted(covered.start_ns, times_ns, side="right")
    inside = np.maximum(covered.end_ns[np.maximum(began - 1, 0)] - times_ns, 0)
    return total[began] - np.where(began > 0, inside, 0)


def overlap_ns(covered: Intervals, start_ns: Int64, end_ns: Int64) -> Int64:
    """Return how many ns of each window are covered."""
    return covered_before(covered, end_ns) - covered_before(covered, start_ns)


def intersect(one: Intervals, other: Intervals) -> Intervals:
    """Return what both sets cover."""
    if not one.start_ns.size or not other.start_ns.size:
        return EMPTY
    first = np.searchsorted(other.end_ns, one.start_ns, side="right")      # of `other`, the first that ends after each begins
    last = np.searchsorted(other.start_ns, one.end_ns, side="left")        # and the one after the last that begins before it ends
    count = np.maximum(last - first, 0)
    mine = np.repeat(np.arange(one.start_ns.size), count)
    theirs = np.arange(mine.size) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    return Intervals(np.maximum(one.start_ns[mine], other.start_ns[theirs]), np.minimum(one.end_ns[mine], other.end_ns[theirs]))


def without(one: Intervals, other: Intervals) -> Intervals:
    """Return what `one` covers and `other` does not."""
    if not one.start_ns.size or not other.start_ns.size:
        return one
    return intersect(one, gaps(other, int(one.start_ns[0]), int(one.end_ns[-1])))


# What may go from a run's time, of work that several GPUs do side by side: their mean, not their sum.



def gpus_of(frame: Frame) -> int:
    """Return how many GPUs work in a trace, 1 at least."""
    return max(1, int(np.unique(frame["device"][frame.work]).size))


def mean_covered_ns(start_ns: Ints, end_ns: Ints, device: Ints, gpus: int) -> float:
    """Return the time that intervals cover on a GPU, in the mean over `gpus`.

    Several at once on one GPU (streams) count once: with them goes the time of one.
    """
    on_each = [device == gpu for gpu in np.unique(device).tolist()]
    return sum(union(start_ns[rows], end_ns[rows]).length_ns for rows in on_each) / max(1, gpus)


# Counters that a trace does not state but implies: launches waiting for the GPU, and the rate of copies.
#
# Each is a staircase: (time_ns, value) at every change, ordered by time, one row per moment.

Stairs = tuple[Ints, Floats]


def queue_depth(launch_ns: Ints, end_ns: Ints) -> Stairs:
    """Return launches issued minus launches finished, over time.

    Row i was asked for at `launch_ns[i]` (the call's start) and its GPU work ended at `end_ns[i]`. What ends before its call began
    (clocks disagree) waits for no time.
    """
    end_ns = np.maximum(end_ns, launch_ns)
    return stairs(np.concatenate((launch_ns, end_ns)), np.concatenate((np.ones(launch_ns.size), -np.ones(end_ns.size))))


def bandwidth(start_ns: Ints, dur_ns: Ints, copied_bytes: Floats) -> Stairs:
    """Return the bytes per second of the copies under way, each at its own mean rate.

    Copies of unknown size or of no time are left out.
    """
    is_valid = (dur_ns > 0) & (copied_bytes > 0) & np.isfinite(copied_bytes)
    start_ns, dur_ns, rate = start_ns[is_valid], dur_ns[is_valid], copied_bytes[is_valid] / (dur_ns[is_valid] * 1e-9)
    time_ns, value = stairs(np.concatenate((start_ns, start_ns + dur_ns)), np.concatenate((rate, -rate)))
    return time_ns, np.where(np.abs(value) < 1e-6 * rate.max(initial=0), 0.0, value)       # sums of floats end near zero, not at it


def stairs(time_ns: Ints, change: Floats) -> Stairs:
    """Running sum of changes, one row per moment at which it is another value."""
    if not time_ns.size:
        return np.empty(0, np.int64), np.empty(0)
    order = stable_order(time_ns)
    time_ns, value = time_ns[order], np.cumsum(change[order])
    last = np.concatenate((time_ns[1:] != time_ns[:-1], [True]))
    time_ns, value = time_ns[last], value[last]
    other = np.concatenate(([True], value[1:] != value[:-1]))
    return time_ns[other], value[other]

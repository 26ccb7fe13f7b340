"""Counters that a trace does not state but implies: launches waiting for the GPU, and the rate of copies.

Each is a staircase: (time_ns, value) at every change, ordered by time, one row per moment.
"""

from __future__ import annotations

import numpy as np

from profiles.ingest.arrays import Floats, Ints, stable_order

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
    known = (dur_ns > 0) & (copied_bytes > 0) & np.isfinite(copied_bytes)
    start_ns, dur_ns, rate = start_ns[known], dur_ns[known], copied_bytes[known] / (dur_ns[known] * 1e-9)
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

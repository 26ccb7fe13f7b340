"""Times of a trace put on one axis that every later stage can add on: from 0, shorter than 2**53 ns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from profiles.ingest.columns import Int64
from profiles.trace import Integrity

# Half of what a float64 (tiles, JavaScript) counts exactly in ns: 52 days. No profiler records for longer.
LONGEST_NS = 2**52
_EPOCH_NS = 10**15


def from_zero(columns: dict[str, npt.NDArray[Any]], samples: Int64, flows: Int64, integrity: Integrity) -> int:
    """Shift all times, in place, to begin at 0; returns the moment that is 0 now.

    What is not believable is mended and counted: a time that lies days from all others would leave the rest a single
    pixel, and sums with it would not fit an int64.
    """
    start, dur = columns["start"], columns["dur"]
    endless = dur > LONGEST_NS
    dur[endless] = 0
    integrity.repair("duration of more than 52 days: drawn as an instant of time", int(np.count_nonzero(endless)))
    _unread_clock(start, integrity)
    times = [values for values in (start, samples) if values.size] or ([flows] if flows.size else [])
    zero = min((int(values.min()) for values in times), default=0)
    if times and max(int(values.max()) for values in (*times, flows) if values.size) - zero > LONGEST_NS // 2:
        zero = _outliers(times, integrity)
    for values in (start, samples, flows):
        np.clip(values, zero, zero + LONGEST_NS, out=values)
        values -= zero
    return zero


def _unread_clock(start: Int64, integrity: Integrity) -> None:
    """A time of exactly 0 among epoch times is a clock that was never read (kineto #109): it is put at the earliest of
    the others instead of 1970."""
    zeros = start == 0
    if zeros.any() and not zeros.all() and start[~zeros].min() > _EPOCH_NS:
        start[zeros] = int(start[~zeros].min())
        integrity.repair("time 0 (the clock was not read): put at the start of the trace", int(np.count_nonzero(zeros)))


def _outliers(times: list[Int64], integrity: Integrity) -> int:
    """Put times that are more than 26 days from the median at the start of the others; returns that start."""
    middle = int(np.partition(times[0], times[0].size // 2)[times[0].size // 2])
    near = [(values > middle - LONGEST_NS // 2) & (values < middle + LONGEST_NS // 2) for values in times]
    zero = min((int(values[mask].min()) for values, mask in zip(times, near, strict=True) if mask.any()))
    for values, mask in zip(times, near, strict=True):
        values[~mask] = zero
    integrity.repair("time more than 26 days from the others: put at the start of the trace",
                     sum(int(np.count_nonzero(~mask)) for mask in near))
    return zero

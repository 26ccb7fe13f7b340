"""Times of a trace put on one axis that every later stage can add on: from 0, shorter than 2**53 ns.

What is not believable is mended and counted: a time that lies days from all others would leave the rest a single pixel,
and sums with it would not fit an int64. The decision needs no more than a sample of the times; whoever reads them back
applies it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from profiles.ingest.arrays import Array, Bools, Ints, stable_order
from profiles.ingest.trace import Integrity

# Half of what a float64 (tiles, JavaScript) counts exactly in ns: 52 days. No profiler records for longer.
LONGEST_NS = 2**52
ENDLESS = "duration of more than 52 days: drawn as an instant of time"
_UNREAD = "time 0 (the clock was not read): put at the start of the trace"
_FAR = "time more than 26 days from the others: put at the start of the trace"
_EPOCH_NS = 10**15


@dataclass
class Times:
    """What is known of one kind of times (starts of slices, samples, flow ends)."""

    least: int
    most: int
    sample: Ints                    # some of them, and
    weight: Ints                    # for how many each stands
    zeros: int = 0                   # that are exactly 0
    least_other: int | None = None   # of those that are not


@dataclass(frozen=True)
class Clock:
    """`zero`: the moment that becomes 0. Times outside [low, high] are put at it; where `unread` is set, times of exactly 0
    are put there first."""

    zero: int
    low: int
    high: int
    unread: int | None = None

    def move(self, times: Array) -> Ints:
        """Times of the file on the axis."""
        if self.unread is not None:
            times = np.where(times == 0, self.unread, times)
        near = np.where((times < self.low) | (times > self.high), self.zero, times)
        axis: Ints = np.clip(near - self.zero, 0, LONGEST_NS)
        return axis

    def misplaced(self, times: Array) -> Bools:
        """Times that do not stay where the file has them."""
        odd: Bools = (times < self.low) | (times > self.high)
        return odd if self.unread is None else odd | (times == 0)


def decide(slices: Times | None, samples: Times | None, flows: Times | None, least_near: Callable[[int, int], int]) -> Clock:
    """Choose the clock of a trace by what is known of its times.

    `least_near(low, high)`: the least time within both.
    """
    unread = None
    if slices and slices.zeros and slices.least_other is not None and slices.least_other > _EPOCH_NS:
        unread = slices.least_other
        slices = Times(unread, slices.most, np.where(slices.sample == 0, unread, slices.sample), slices.weight)
    times = [source for source in (slices, samples) if source] or [source for source in (flows,) if source]
    zero = min((source.least for source in times), default=0)
    most = max((source.most for source in (*times, flows) if source), default=0)
    if times and most - zero > LONGEST_NS // 2:
        middle = _median(times[0])
        low, high = middle - LONGEST_NS // 2 + 1, middle + LONGEST_NS // 2 - 1
        return Clock(least_near(low, high), low, high, unread)
    return Clock(zero, zero, zero + LONGEST_NS, unread)


def _median(times: Times) -> int:
    order = stable_order(times.sample)
    heavy = np.cumsum(times.weight[order])
    return int(times.sample[order][np.searchsorted(heavy, heavy[-1] // 2, side="right").clip(0, order.size - 1)])


def count(integrity: Integrity, clock: Clock, zeros: int, far: int) -> None:
    """Say what was moved."""
    integrity.repair(_UNREAD, zeros if clock.unread is not None else 0)
    integrity.repair(_FAR, far)

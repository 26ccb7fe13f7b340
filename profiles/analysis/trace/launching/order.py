"""GPU work in the order of its streams, with the call that launched each: what all analyses of launches start from.

The delay of a launch, from the begin of its call to the start of its work, has three parts that add up to it:

- `in_call_ns`: until the call returned (or the work started): the driver;
- `queued_ns`: from then until the work before it on its stream had ended: the GPU was busy, the launch ran ahead;
- `ready_ns`: from then until it started: latency, or a dependency on something else.

Holistic Trace Analysis calls `queued_ns + ready_ns` the launch delay (`get_cuda_kernel_launch_stats`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from profiles.analysis.core.frame import Frame, once_a_frame
from profiles.analysis.core.intervals import Stairs, stairs
from profiles.ingest.arrays import Array, Bools, Floats, Ints, Rows, stable_order
from profiles.ingest.trace import Category
from profiles.ingest.windows import MISSING32

NEVER = -(2**62)                    # a time before every trace: a stream on which nothing ran before


@dataclass(eq=False)
class Order:
    """All GPU work of a frame, in order of start; arrays of one length. `rows` are rows of the frame."""

    frame: Frame

    @cached_property
    def rows(self) -> Rows:
        return self.frame.work

    @cached_property
    def start_ns(self) -> Ints:
        return self.frame["start_ns"][self.rows]

    @cached_property
    def end_ns(self) -> Ints:
        return self.frame.end_ns[self.rows]

    @cached_property
    def dur_ns(self) -> Ints:
        return self.end_ns - self.start_ns

    @cached_property
    def name(self) -> Array:
        return self.frame["name"][self.rows]

    @cached_property
    def category(self) -> Array:
        return self.frame["category"][self.rows]

    @cached_property
    def track(self) -> Ints:
        return self.frame["track"][self.rows].astype(np.int64)

    @cached_property
    def device(self) -> Ints:
        """Return the number of the GPU, -1 where the file does not say it."""
        device = self.frame["device"][self.rows].astype(np.int64)
        return np.where(device == MISSING32, -1, device)

    @cached_property
    def is_kernel(self) -> Bools:
        return np.isin(self.category, [int(Category.COMPUTE), int(Category.COMMUNICATION)])

    @cached_property
    def call(self) -> Ints:
        """Row of the frame of the launching call, -1 where none is known."""
        return self.frame.call[self.rows]

    @cached_property
    def has_call(self) -> Bools:
        return self.call >= 0

    @cached_property
    def call_start_ns(self) -> Ints:
        """Return when the launch call began.

        The work's own start where no call is known, or where the file's clocks put the call behind it (kineto #1380).
        """
        return np.minimum(np.where(self.has_call, self.frame["start_ns"][np.maximum(self.call, 0)], self.start_ns), self.start_ns)

    @cached_property
    def call_end_ns(self) -> Ints:
        """Return when the call had returned, the work's start at the latest."""
        return np.minimum(np.where(self.has_call, self.frame.end_ns[np.maximum(self.call, 0)], self.start_ns), self.start_ns)

    @cached_property
    def leads(self) -> Bools:
        """Return whether it is the first piece of work of its call.

        A graph launch has many. Work without a call leads.
        """
        first = np.zeros(self.rows.size, np.bool_)
        first[np.unique(self.call, return_index=True)[1]] = True
        return first | ~self.has_call

    @cached_property
    def before(self) -> Ints:
        """Return the position of the work that began before it on its stream, else -1."""
        order = stable_order(self.track)
        previous = np.full(self.rows.size, -1, np.int64)
        same = self.track[order[1:]] == self.track[order[:-1]]
        previous[order[1:][same]] = order[:-1][same]
        return previous

    @cached_property
    def free_ns(self) -> Ints:
        """Return when all work before it on its stream had ended, NEVER for the first.

        Its own start at the latest (work may overlap on one stream: programmatic dependent launch, graphs).
        """
        return np.minimum(running_end(self.track, self.end_ns), self.start_ns)

    @cached_property
    def gap_start_ns(self) -> Ints:
        """Return when its GPU (any stream) had nothing left to do before it.

        Its own start where the GPU was busy.
        """
        return np.minimum(running_end(self.device, self.end_ns), self.start_ns)

    @cached_property
    def gap_ns(self) -> Ints:
        """Return how long its GPU had stood idle when it started, 0 for the first work."""
        return np.where(self.gap_start_ns == NEVER, 0, self.start_ns - self.gap_start_ns)

    @cached_property
    def late_ns(self) -> Ints:
        """Return the part of `gap_ns` before its launch call had returned: the host was late."""
        has_gap = self.has_call & (self.gap_ns > 0)
        return np.where(has_gap, np.clip(self.call_end_ns - self.gap_start_ns, 0, self.gap_ns), 0)

    @cached_property
    def in_call_ns(self) -> Ints:
        return self.call_end_ns - self.call_start_ns

    @cached_property
    def queued_ns(self) -> Ints:
        queued: Ints = np.maximum(self.free_ns - self.call_end_ns, 0)
        return queued

    @cached_property
    def ready_ns(self) -> Ints:
        return self.start_ns - self.call_end_ns - self.queued_ns

    @cached_property
    def delay_ns(self) -> Ints:
        return self.start_ns - self.call_start_ns

    def track_text(self, track: int) -> str:
        """"rank 1 · GPU 1 · stream 7"."""
        description, rank = self.frame.tracks[track], self.frame.rank_of_track[track]
        group = description.group.removeprefix(f"{rank}: ") if rank else description.group
        return " · ".join(part for part in (rank, group, description.name) if part)


def running_end(group: Ints, end_ns: Ints) -> Ints:
    """Return the latest end of the entries before each in its group, NEVER for the first.

    Entries are in order of start.
    """
    order = stable_order(group)
    ends, starts = end_ns[order], np.flatnonzero(np.r_[True, group[order][1:] != group[order][:-1]])
    latest = np.full(group.size, NEVER, np.int64)
    for lo, hi in zip(starts.tolist(), [*starts[1:].tolist(), group.size], strict=True):
        latest[order[lo + 1:hi]] = np.maximum.accumulate(ends[lo:hi - 1]) if hi - lo > 1 else ends[:0]
    return latest


@once_a_frame
def order_of(frame: Frame) -> Order:
    """The frame's order, made once."""
    return Order(frame)


@dataclass(frozen=True)
class Groups:
    """Values by code: counts, sums, and exact quantiles (linear between neighbours). Codes ascending."""

    code: Array
    count: Ints
    total: Ints
    p50: Floats
    p95: Floats
    largest: Ints


def group_values(code: Array, value: Ints) -> Groups:
    order = np.lexsort((value, code))
    code, value = code[order], value[order]
    starts = np.flatnonzero(np.r_[True, code[1:] != code[:-1]]) if code.size else np.empty(0, np.intp)
    count = np.diff(np.r_[starts, code.size])
    total = np.add.reduceat(value, starts) if starts.size else np.empty(0, np.int64)

    def quantile(q: float) -> Floats:
        place = (count - 1) * q
        low = np.floor(place).astype(np.intp)
        below, above = value[starts + low].astype(np.float64), value[starts + np.minimum(low + 1, count - 1)]
        return np.asarray(below + (above - below) * (place - low))

    last = value[starts + count - 1] if starts.size else np.empty(0, np.int64)
    return Groups(code[starts], count, total, quantile(0.5), quantile(0.95), last)


# Queue depth of every stream: launches that were asked for and whose work has not started.
#
# As Holistic Trace Analysis counts it (`get_queue_length_time_series`): one more when the launch call begins, one less when
# its work starts. A graph launch is one entry, gone when its first node starts on that stream. A stream's queue holds
# about 1,024 launches; then the next call blocks until one has started. NVIDIA does not document it: Holistic Trace Analysis
# has seen calls block from 1,022 on (`hta/common/constants.py`), and so it is on an H200 with driver 580.159
# (tests/data/recorded/launch_queue_full.json.gz: the depth stays at 1,022 while one call waits for 86.6 ms). FULL is where
# time counts as blocked.

LIMIT, FULL = 1024, 1022
BINS = 480                          # of a drawn series
DRAWN = 6                           # streams


@dataclass(frozen=True)
class Queue:
    """One stream; times over the stream's own window, from its first call to its last start."""

    track: int
    launches: int
    window_ns: int
    mean: float                     # weighted by time
    most: int
    blocked_ns: int                 # at FULL or above
    empty_ns: int                   # nothing waiting
    steps: Stairs


def queues(order: Order, limit: int = FULL) -> list[Queue]:
    """Every stream with launches whose call is known, most launches first."""
    rows = np.flatnonzero(order.has_call)
    # the first work of each call on each stream: one entry of that stream's queue
    key = order.track[rows] << 40 | order.call[rows]
    rows = rows[np.sort(np.unique(key, return_index=True)[1])]
    queues = []
    by_track = stable_order(order.track[rows])
    tracks, first = np.unique(order.track[rows][by_track], return_index=True)
    for track, mine in zip(tracks.tolist(), np.split(rows[by_track], first[1:]), strict=True):
        queues.append(_queue(track, order.call_start_ns[mine], order.start_ns[mine], limit))
    return sorted(queues, key=lambda queue: -queue.launches)


def _queue(track: int, asked_ns: Ints, started_ns: Ints, limit: int) -> Queue:
    steps = stairs(np.concatenate((asked_ns, started_ns)), np.concatenate((np.ones(asked_ns.size), -np.ones(asked_ns.size))))
    time_ns, depth = steps
    if not time_ns.size:                                    # every call began where its work started
        return Queue(track, asked_ns.size, 0, 0.0, 0, 0, 0, steps)
    span_ns = np.diff(np.r_[time_ns, max(int(time_ns[-1]), int(started_ns.max()))])
    window = int(span_ns.sum())
    return Queue(track, asked_ns.size, window, float((span_ns * depth).sum() / window) if window else 0.0, int(depth.max()),
                 int(span_ns[depth >= limit].sum()), int(span_ns[depth <= 0].sum()), steps)


def queue_points(queue: Queue, start_ns: int, end_ns: int, bins: int = BINS) -> dict[str, Any]:
    """Return the series of a queue's depth in at most `bins` points.

    Where a bin holds several depths, the greatest (a full queue must show).
    """
    time_ns, depth = queue.steps
    edges = np.linspace(start_ns, end_ns, bins + 1).astype(np.int64)
    position = np.searchsorted(time_ns, edges[:-1], side="right") - 1
    depths = np.where(position >= 0, depth[np.maximum(position, 0)], 0.0) if time_ns.size else np.zeros(bins)
    place = np.clip(np.searchsorted(edges, time_ns, side="right") - 1, 0, bins - 1)
    np.maximum.at(depths, place, depth)
    return {"time_ns": edges[:-1].tolist(), "depth": depths.astype(np.int64).tolist()}

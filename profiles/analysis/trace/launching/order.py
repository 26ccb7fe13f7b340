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

import numpy as np
import numpy.typing as npt

from profiles.analysis.core.frame import Array, Frame, Ints, Rows
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
    def is_kernel(self) -> npt.NDArray[np.bool_]:
        return np.isin(self.category, [int(Category.COMPUTE), int(Category.COMMUNICATION)])

    @cached_property
    def call(self) -> Ints:
        """Row of the frame of the launching call, -1 where none is known."""
        return self.frame.call[self.rows]

    @cached_property
    def has_call(self) -> npt.NDArray[np.bool_]:
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
    def leads(self) -> npt.NDArray[np.bool_]:
        """Return whether it is the first piece of work of its call.

        A graph launch has many. Work without a call leads.
        """
        first = np.zeros(self.rows.size, np.bool_)
        first[np.unique(self.call, return_index=True)[1]] = True
        return first | ~self.has_call

    @cached_property
    def before(self) -> Ints:
        """Return the position of the work that began before it on its stream, else -1."""
        order = np.argsort(self.track, kind="stable")
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
        known = self.has_call & (self.gap_ns > 0)
        return np.where(known, np.clip(self.call_end_ns - self.gap_start_ns, 0, self.gap_ns), 0)

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
    order = np.argsort(group, kind="stable")
    ends, starts = end_ns[order], np.flatnonzero(np.r_[True, group[order][1:] != group[order][:-1]])
    latest = np.full(group.size, NEVER, np.int64)
    for lo, hi in zip(starts.tolist(), [*starts[1:].tolist(), group.size], strict=True):
        latest[order[lo + 1:hi]] = np.maximum.accumulate(ends[lo:hi - 1]) if hi - lo > 1 else ends[:0]
    return latest


def order_of(frame: Frame) -> Order:
    """The frame's order, made once."""
    if "_launch_order" not in frame.__dict__:
        frame.__dict__["_launch_order"] = Order(frame)
    order: Order = frame.__dict__["_launch_order"]
    return order


@dataclass(frozen=True)
class Groups:
    """Values by code: counts, sums, and exact quantiles (linear between neighbours). Codes ascending."""

    code: Array
    count: Ints
    total: Ints
    p50: npt.NDArray[np.float64]
    p95: npt.NDArray[np.float64]
    largest: Ints


def group_values(code: Array, value: Ints) -> Groups:
    order = np.lexsort((value, code))
    code, value = code[order], value[order]
    starts = np.flatnonzero(np.r_[True, code[1:] != code[:-1]]) if code.size else np.empty(0, np.intp)
    count = np.diff(np.r_[starts, code.size])
    total = np.add.reduceat(value, starts) if starts.size else np.empty(0, np.int64)

    def quantile(q: float) -> npt.NDArray[np.float64]:
        place = (count - 1) * q
        low = np.floor(place).astype(np.intp)
        below, above = value[starts + low].astype(np.float64), value[starts + np.minimum(low + 1, count - 1)]
        return np.asarray(below + (above - below) * (place - low))

    last = value[starts + count - 1] if starts.size else np.empty(0, np.int64)
    return Groups(code[starts], count, total, quantile(0.5), quantile(0.95), last)

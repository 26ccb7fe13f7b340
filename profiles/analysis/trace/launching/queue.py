"""Queue depth of every stream: launches that were asked for and whose work has not started.

As Holistic Trace Analysis counts it (`get_queue_length_time_series`): one more when the launch call begins, one less when
its work starts. A graph launch is one entry, gone when its first node starts on that stream. A stream's queue holds
about 1,024 launches; then the next call blocks until one has started. NVIDIA does not document it: Holistic Trace Analysis
has seen calls block from 1,022 on (`hta/common/constants.py`), and so it is on an H200 with driver 580.159
(tests/data/recorded/launch_queue_full.json.gz: the depth stays at 1,022 while one call waits for 86.6 ms). FULL is where
time counts as blocked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from profiles.analysis.core.derived import Stairs, stairs
from profiles.analysis.core.frame import Ints
from profiles.analysis.trace.launching.order import Order

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
    by_track = np.argsort(order.track[rows], kind="stable")
    tracks, first = np.unique(order.track[rows][by_track], return_index=True)
    for track, mine in zip(tracks.tolist(), np.split(rows[by_track], first[1:]), strict=True):
        queues.append(_queue(track, order.call_start_ns[mine], order.start_ns[mine], limit))
    return sorted(queues, key=lambda queue: -queue.launches)


def _queue(track: int, asked_ns: Ints, started_ns: Ints, limit: int) -> Queue:
    steps = stairs(np.concatenate((asked_ns, started_ns)), np.concatenate((np.ones(asked_ns.size), -np.ones(asked_ns.size))))
    time_ns, depth = steps
    if not time_ns.size:                                    # every call began where its work started
        return Queue(track, asked_ns.size, 0, 0.0, 0, 0, 0, steps)
    held = np.diff(np.r_[time_ns, max(int(time_ns[-1]), int(started_ns.max()))])
    window = int(held.sum())
    return Queue(track, asked_ns.size, window, float((held * depth).sum() / window) if window else 0.0, int(depth.max()),
                 int(held[depth >= limit].sum()), int(held[depth <= 0].sum()), steps)


def queue_points(queue: Queue, start_ns: int, end_ns: int, bins: int = BINS) -> dict[str, Any]:
    """Return the series of a queue's depth in at most `bins` points.

    Where a bin holds several depths, the greatest (a full queue must show).
    """
    time_ns, depth = queue.steps
    edges = np.linspace(start_ns, end_ns, bins + 1).astype(np.int64)
    at = np.searchsorted(time_ns, edges[:-1], side="right") - 1
    held = np.where(at >= 0, depth[np.maximum(at, 0)], 0.0) if time_ns.size else np.zeros(bins)
    place = np.clip(np.searchsorted(edges, time_ns, side="right") - 1, 0, bins - 1)
    np.maximum.at(held, place, depth)
    return {"time_ns": edges[:-1].tolist(), "depth": held.astype(np.int64).tolist()}

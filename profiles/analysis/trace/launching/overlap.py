"""What could run at the same time and does not: copies beside kernels, and small kernels of one stream beside each other.

A copy is *exposed* while no kernel runs on its GPU. Copy engines work beside the SMs, but only where the copy is on another
stream than the kernels, from or to pinned memory (CUDA C++ Programming Guide, "Overlap of Data Transfer and Kernel
Execution"; pageable memory is staged by the driver and blocks the call).

Kernels of one stream run one after the other. A kernel with fewer blocks than the GPU has SMs leaves SMs without work, so
such kernels, one directly behind the other, could share the GPU on several streams or as one grouped kernel, if they do not
depend on each other. A trace does not say what depends on what: the same kernel with the same grid again and again
(one per parameter, expert or head) usually does not, and only such runs are listed. Estimate: a run of durations d and fills
f = min(1, blocks / SMs) takes at least max(longest d, Σ d·f): saved = Σ d − that. An upper bound: blocks may be too large to
share an SM's memory paths.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiles.analysis.core import gpus, intervals
from profiles.analysis.core.columns import pack_pairs, unpack_pairs
from profiles.analysis.trace.launching.order import Order
from profiles.ingest.arrays import Ints, stable_order, sums_by
from profiles.ingest.trace import Category
from profiles.ingest.windows import MISSING, MISSING32

CLOSE_NS = 200_000                  # from one kernel to the next of a run
RUN = 4                             # kernels at least
MOST_RUNS, MOST_COPIES = 200, 200


@dataclass(frozen=True)
class Copies:
    """Copies of one name on one stream."""

    name: int
    track: int
    count: int
    total_ns: int
    exposed_ns: int
    moved_bytes: int | None
    why: str                        # what keeps them from overlapping, "" where nothing is exposed


def copies(order: Order) -> list[Copies]:
    """Return copies by name and stream, most exposed time first."""
    rows = np.flatnonzero(order.category == Category.MEMCPY)
    if not rows.size:
        return []
    exposed = order.dur_ns[rows].copy()
    for device in np.unique(order.device[rows]).tolist():
        mine = order.device[rows] == device
        of_device = order.is_kernel & (order.device == device)
        kernels = intervals.union(order.start_ns[of_device], order.end_ns[of_device])
        exposed[mine] -= intervals.overlap_ns(kernels, order.start_ns[rows[mine]], order.end_ns[rows[mine]])
    computing = set(np.unique(order.track[order.is_kernel]).tolist())
    keys, place = np.unique(pack_pairs(order.track[rows], order.name[rows]), return_inverse=True)
    tracks, codes = (column.tolist() for column in unpack_pairs(keys))
    moved = order.frame["bytes"][order.rows[rows]]
    has_size = moved != MISSING
    count, hidden, total, sized, size = (sums_by(place, values, keys.size) for values in (
        np.ones(rows.size), exposed, order.dur_ns[rows], has_size, np.where(has_size, moved, 0)))
    names = [order.frame.names[code] if code >= 0 else "" for code in codes]
    return [Copies(codes[at], tracks[at], int(count[at]), int(total[at]), int(hidden[at]), int(size[at]) if sized[at] else None,
                   _copy_reason(names[at], tracks[at] in computing) if hidden[at] else "")
            for at in np.lexsort((-total, -hidden))[:MOST_COPIES].tolist()]


def _copy_reason(name: str, with_kernels: bool) -> str:
    if "ageable" in name:
        return "pageable memory: pin it, then copy asynchronously"
    if with_kernels:
        return "on a stream that also runs kernels: give copies a stream of their own"
    return "nothing else was queued at that time, or a kernel waited for the copy: copy earlier"


@dataclass(frozen=True)
class Run:
    """Launches of one kernel and grid, one directly behind the other on one stream; summed over the times it occurs."""

    name: int
    track: int
    blocks: int
    sm_count: int
    runs: int
    launches: int
    total_ns: int
    saved_ns: int
    example: int                    # row of the frame: where the longest run begins


def serial_runs(order: Order) -> list[Run]:
    """Return serial runs of small kernels, most saved time first."""
    rows = np.flatnonzero(order.category == Category.COMPUTE)
    sms = _sm_counts(order)
    if not rows.size or not sms:
        return []
    rows = rows[stable_order(order.track[rows])]           # by stream, then by start
    frame = order.frame
    grid = [frame[f"grid_{axis}"][order.rows[rows]].astype(np.int64) for axis in "xyz"]
    has_grid = np.all([axis != MISSING32 for axis in grid], axis=0)
    blocks = np.where(has_grid, np.prod([np.maximum(axis, 1) for axis in grid], axis=0), 0)
    sm = np.zeros(rows.size, np.int64)
    for device, sm_count in sms.items():
        sm[order.device[rows] == device] = sm_count
    small = has_grid & (sm > 0) & (blocks < sm)
    close = (order.start_ns[rows[1:]] - order.end_ns[rows[:-1]]) <= CLOSE_NS
    direct = order.before[rows[1:]] == rows[:-1]                        # no copy or set between them
    same = (order.name[rows[1:]] == order.name[rows[:-1]]) & (blocks[1:] == blocks[:-1]) & small[1:] & small[:-1]
    starts = np.flatnonzero(np.r_[True, ~(same & close & direct)])
    length = np.diff(np.r_[starts, rows.size])
    fill = np.where(sm > 0, np.minimum(1.0, blocks / np.maximum(sm, 1)), 1.0)
    total = np.add.reduceat(order.dur_ns[rows], starts)
    least = np.maximum(np.maximum.reduceat(order.dur_ns[rows], starts), np.add.reduceat(order.dur_ns[rows] * fill, starts))
    chosen = np.flatnonzero((length >= RUN) & small[starts])
    return _sum_runs(order, rows, starts[chosen], length[chosen], total[chosen], total[chosen] - least[chosen], blocks, sm)


def _sum_runs(order: Order, rows: Ints, starts: Ints, length: Ints, total: Ints, saved: Ints, blocks: Ints, sm: Ints) -> list[Run]:
    runs: dict[tuple[int, int, int], Run] = {}
    for at in stable_order(-saved)[:20_000].tolist():      # bounded; the longest are first
        first = rows[starts[at]]
        key = int(order.name[first]), int(order.track[first]), int(blocks[starts[at]])
        old = runs.get(key)
        runs[key] = Run(*key, int(sm[starts[at]]), (old.runs if old else 0) + 1, (old.launches if old else 0) + int(length[at]),
                         (old.total_ns if old else 0) + int(total[at]), (old.saved_ns if old else 0) + int(saved[at]),
                         old.example if old else int(order.rows[first]))
    return sorted(runs.values(), key=lambda run: -run.saved_ns)[:MOST_RUNS]


def _sm_counts(order: Order) -> dict[int, int]:
    """Streaming multiprocessors by GPU: from the table of GPUs, else as the file says; without either it is not in it."""
    counts = {}
    for device in order.frame.devices:
        gpu = gpus.lookup(device.name)
        count = gpu.sm_count if gpu else device.sm_count
        if count:
            counts[device.index] = count
    return counts


"""Work that is launched and waits for another stream while the kernel that runs leaves most of the GPU empty.

A kernel with fewer blocks than half of the GPU's SMs leaves room (CUDA C++ Programming Guide, "Concurrent Kernel Execution").
While only such kernels run, a computing kernel of another stream that has been launched, and whose own stream is free, is held
by an event or by the order of the legacy default stream. Whether it needs the result of what runs the trace does not say.
"""

from __future__ import annotations

import numpy as np

from profiles.analysis.core import gpus, intervals
from profiles.analysis.core.frame import Rows
from profiles.analysis.core.intervals import EMPTY, Intervals
from profiles.analysis.trace.launching.order import NEVER, Order
from profiles.analysis.trace.time.work import DeviceWork
from profiles.ingest.trace import Category
from profiles.ingest.windows import MISSING32

FILL = 0.5                          # of the SMs: a kernel with fewer blocks leaves room for another
WAITED_NS = 5_000                   # a shorter wait is the launch's own


def waiting_behind(order: Order, work: DeviceWork) -> tuple[Intervals, Rows]:
    """Return when a GPU ran small kernels alone while another stream's kernel waited, and the rows of those small kernels."""
    gpu = gpus.lookup(work.name)
    sms = gpu.sm_count if gpu else next((each.sm_count for each in order.frame.devices if each.index == work.index), 0)
    mine = np.flatnonzero((order.device == work.index) & (order.category == Category.COMPUTE))
    if not sms or not mine.size or np.unique(order.track[mine]).size < 2:
        return EMPTY, np.empty(0, np.intp)
    grid = [order.frame[f"grid_{axis}"][order.rows[mine]].astype(np.int64) for axis in "xyz"]
    known = np.all([axis != MISSING32 for axis in grid], axis=0)
    blocks = np.prod([np.maximum(axis, 1) for axis in grid], axis=0)
    small = known & (blocks < FILL * sms)
    ready = np.maximum(order.free_ns[mine], order.call_end_ns[mine])
    waits = order.has_call[mine] & (order.free_ns[mine] > NEVER) & (order.start_ns[mine] - ready > WAITED_NS)
    if not small.any() or not waits.any():
        return EMPTY, np.empty(0, np.intp)
    waiting = intervals.union(ready[waits], order.start_ns[mine][waits])
    running = intervals.union(order.start_ns[mine][small], order.end_ns[mine][small])
    full = intervals.union(order.start_ns[mine][~small], order.end_ns[mine][~small])
    found = intervals.without(intervals.intersect(waiting, running), full)
    inside = small & (intervals.overlap_ns(found, order.start_ns[mine], order.end_ns[mine]) > 0)
    return found, order.rows[mine[inside]]

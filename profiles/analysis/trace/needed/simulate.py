"""What a run would take if some launches were shorter or gone: the recorded graph played again.

The GPU's work runs in the order of its launch calls. A piece starts when its stream is free and its launch has been called, and
then as much later as it did in the recording: latency, and what it waited for else. A call that waits for the GPU returns when
the GPU is done. Played without a change, every start is the recorded one. After Zhu, Phanishayee and Pekhimenko, "Daydream:
Accurately Estimating the Efficacy of Optimizations for DNN Training" (USENIX ATC 2020), section 4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from profiles.analysis.core.frame import Frame, Ints
from profiles.analysis.trace.launching.order import order_of
from profiles.ingest.trace import Category

MOST_HOST_NS = 300_000              # of one launch: what is longer is no operator's own work
_WAITS = re.compile(r"^cu(?:da)?(?:Device|Stream|Ctx|Event)Synchronize|^hip(?:Device|Stream|Event)Synchronize")


@dataclass(frozen=True)
class Change:
    """`ns`: row of the frame -> its new length. `host_ns`: row -> host time that goes with it. `gone`: windows of host time, start
    and end in ns, in which launches that `ns` does not name go, and calls wait for nothing."""

    ns: Mapping[int, int] = field(default_factory=dict)
    host_ns: Mapping[int, int] = field(default_factory=dict)
    gone: Sequence[tuple[int, int]] = ()


class Recording:
    """The launches of a trace as numbers, in order of their calls; made once, played often."""

    def __init__(self, frame: Frame) -> None:
        order = order_of(frame)
        by_call = np.argsort(order.call_start_ns, kind="stable")
        self.rows: Ints = np.asarray(order.rows)[by_call].astype(np.int64)
        self.call: Ints = order.call_start_ns[by_call]
        self.waits = _waits(frame)
        self.host_ns = _host_ns(self.call, self.waits)
        self.host_of = dict(zip(self.rows.tolist(), self.host_ns.tolist(), strict=True))
        self.call_of = dict(zip(self.rows.tolist(), self.call.tolist(), strict=True))
        self._work = list(zip(self.rows.tolist(), order.track[by_call].tolist(), order.device[by_call].tolist(),
                              order.start_ns[by_call].tolist(), order.end_ns[by_call].tolist(), self.call.tolist(), strict=True))

    def saved_ns(self, change: Change) -> int:
        """Return by how much the last piece of work ends earlier."""
        free, recorded_free, done, recorded_done = (dict[int, int]() for _ in range(4))
        shift, wait, waits, ns, host_ns = 0, 0, self.waits, change.ns, change.host_ns
        inside = _inside(self.call, change.gone).tolist()
        skipped = _inside(np.array([start for start, _ in waits], np.int64), change.gone).tolist()
        for (row, stream, device, start, end, call), is_gone in zip(self._work, inside, strict=True):
            while wait < len(waits) and waits[wait][0] <= call:
                returned = waits[wait]
                shift = shift + returned[1] - returned[0] if skipped[wait] else _returned(returned, shift, done, recorded_done)
                wait += 1
            length = ns.get(row, 0 if is_gone else end - start)
            before = recorded_free.get(stream, call)
            recorded_free[stream], recorded_done[device] = max(end, before), max(end, recorded_done.get(device, end))
            if length > 0 or not (is_gone or row in ns):        # what has no length is not launched
                mine = max(free.get(stream, call - shift), call - shift) + start - max(before, call)
                free[stream] = mine + length
                done[device] = max(done.get(device, mine + length), mine + length)
            shift += host_ns.get(row, self.host_of[row] if is_gone and row not in ns else 0)
        return max((recorded_done[device] - done.get(device, 0) for device in done), default=0)


def _returned(wait: tuple[int, int], shift: int, done: Mapping[int, int], recorded_done: Mapping[int, int]) -> int:
    """Return how much earlier the host goes on after a call that waits for the GPU."""
    start, end = wait
    recorded = max((each for each in recorded_done.values() if each <= end), default=start)
    waited_until = max(done.values(), default=start - shift) if recorded > start else start - shift
    return end - (max(start - shift, waited_until) + end - max(start, recorded))


def _inside(times: Ints, windows: Sequence[tuple[int, int]]) -> npt.NDArray[np.bool_]:
    """Return which times lie in one of some windows, which do not overlap."""
    if not windows or not times.size:
        return np.zeros(times.size, np.bool_)
    start, end = np.array(sorted(windows), np.int64).T
    at = np.searchsorted(start, times, side="right") - 1
    inside: npt.NDArray[np.bool_] = (at >= 0) & (times <= end[np.maximum(at, 0)])
    return inside


def _waits(frame: Frame) -> list[tuple[int, int]]:
    rows = frame.rows_by_name(lambda name: bool(_WAITS.match(name)), Category.RUNTIME)
    return list(zip(frame["start_ns"][rows].tolist(), frame.end_ns[rows].tolist(), strict=True))


def _host_ns(call: Ints, waits: list[tuple[int, int]]) -> Ints:
    """Return the host time that each launch takes: until the next launch call, without waits for the GPU, MOST_HOST_NS at most."""
    if not call.size:
        return np.empty(0, np.int64)
    until = np.append(call[1:], call[-1])
    spent = until - call
    if waits:
        start, end = np.array(waits, np.int64).T
        total = np.concatenate([[0], np.cumsum(end - start)])
        spent = spent - (total[np.searchsorted(start, until)] - total[np.searchsorted(start, call)])
    return np.clip(spent, 0, MOST_HOST_NS)

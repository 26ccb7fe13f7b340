"""What a run would take if some launches were shorter or gone: the recorded graph played again.

The GPU's work runs in the order of its launch calls. A piece starts when its stream is free and its launch has been called, and
then as much later as it did in the recording: latency, and what it waited for else. A call that waits for the GPU returns when
the GPU is done. Played without a change, every start is the recorded one. After Zhu, Phanishayee and Pekhimenko, "Daydream:
Accurately Estimating the Efficacy of Optimizations for DNN Training" (USENIX ATC 2020), section 4.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from profiles.analysis.core.frame import Frame
from profiles.analysis.trace.launching.order import NEVER, order_of
from profiles.ingest.arrays import Bools, Ints, stable_order
from profiles.ingest.trace import Category

MOST_HOST_NS = 300_000              # of one launch: what is longer is no operator's own work
FEW = 48                            # pieces between two waits, a stream: fewer are played one after the other
_WAITS = re.compile(r"^cu(?:da)?(?:Device|Stream|Ctx|Event)Synchronize|^hip(?:Device|Stream|Event)Synchronize")
NO_INTS = np.empty(0, np.int64)


@dataclass(frozen=True)
class Change:
    """`rows` of the frame with their new lengths `ns`, and `host_ns` that goes with each. `gone`: windows of host time, start and
    end in ns, in which launches that are not named go, and calls wait for nothing."""

    rows: Ints = field(default_factory=lambda: NO_INTS)
    ns: Ints = field(default_factory=lambda: NO_INTS)
    host_ns: Ints = field(default_factory=lambda: NO_INTS)
    gone: Sequence[tuple[int, int]] = ()


class Recording:
    """The launches of a trace as numbers, in order of their calls; made once, played often."""

    def __init__(self, frame: Frame) -> None:
        order = order_of(frame)
        by_call = stable_order(order.call_start_ns)
        rows: Ints = np.asarray(order.rows)[by_call].astype(np.int64)
        self.call: Ints = order.call_start_ns[by_call]
        self.waits = _waits(frame)
        self.host_ns = _launch_ns(self.call, self.waits)
        self.place = np.full(frame.rows, -1, np.int64)          # of a row among the launches
        self.place[rows] = np.arange(rows.size)
        start, end = order.start_ns[by_call], order.end_ns[by_call]
        self._length: Ints = end - start
        (streams, self._stream), (devices, self._device) = (np.unique(column[by_call], return_inverse=True)
                                                           for column in (order.track, order.device))
        free = np.zeros(rows.size, np.int64)
        for stream in range(streams.size):                      # when its stream was free, of the first when it was called
            mine = np.flatnonzero(self._stream == stream)
            free[mine] = np.maximum.accumulate(np.concatenate([self.call[mine[:1]], end[mine[:-1]]]))
        self._late: Ints = start - np.maximum(free, self.call)
        self._lanes = [np.flatnonzero(self._device == device) for device in range(devices.size)]
        self._done = [np.maximum.accumulate(end[lane]) for lane in self._lanes]
        self._before = np.searchsorted(self.call, np.array([start for start, _ in self.waits], np.int64))      # launches before it
        self._waited = self._recorded_waits()

    def host_share(self, rows: Ints, share: float) -> Ints:
        """Return a share of the host time that the launch of each row takes, ns."""
        ns: Ints = np.rint(share * self.host_ns[self.place[rows]]).astype(np.int64)
        return ns

    def _recorded_waits(self) -> list[int]:
        """Return of each wait when the last work before it ended that had ended as the call returned; its start where none had."""
        start, end = np.array(self.waits, np.int64).reshape(-1, 2).T
        last = np.full(start.size, NEVER)
        for lane, done in zip(self._lanes, self._done, strict=True):
            index = np.searchsorted(lane, self._before) - 1
            ended = np.where(index >= 0, done[np.maximum(index, 0)], NEVER)
            last = np.where(ended <= end, np.maximum(last, ended), last)
        return list(np.where(last == NEVER, start, last).tolist())

    def saved_ns(self, change: Change) -> int:
        """Return by how much the last piece of work ends earlier."""
        played = _Played(self, change)
        skipped = _inside(np.array([start for start, _ in self.waits], np.int64), change.gone).tolist()
        for wait, (before, skips) in enumerate(zip(self._before.tolist(), skipped, strict=True)):
            if before == self.call.size:
                break                                           # nothing is launched behind it
            played.run_until(before)
            start, end = self.waits[wait]
            played.shift = played.shift + end - start if skips else self._returned(wait, played)
        played.run_until(self.call.size)
        return max((int(done[-1]) - ended for done, ended in zip(self._done, played.done, strict=True) if ended != NEVER),
                   default=0)

    def _returned(self, wait: int, played: _Played) -> int:
        """Return how much earlier the host goes on after a call that waits for the GPU."""
        (start, end), recorded, called = self.waits[wait], self._waited[wait], self.waits[wait][0] - played.shift
        last = max(played.done, default=NEVER)
        waited_until = last if recorded > start and last != NEVER else called
        return end - (max(called, waited_until) + end - max(start, recorded))


class _Played:
    """One change as it is played: when each stream is free, when each GPU is done, and how much earlier the host is, ns."""

    def __init__(self, recording: Recording, change: Change) -> None:
        gone = _inside(recording.call, change.gone)
        length, host_ns = np.where(gone, 0, recording._length), np.where(gone, recording.host_ns, 0)
        named, place = np.zeros(gone.size, np.bool_), recording.place[change.rows]
        named[place], length[place], host_ns[place] = True, change.ns, change.host_ns
        self.goes_on = (length > 0) | ~(gone | named)           # what has no length is not launched
        self.takes = recording._late + length
        self.earlier = np.concatenate([[0], np.cumsum(host_ns)])
        self.recording = recording
        self.shift, self.at = 0, 0
        self.free = [NEVER] * (int(recording._stream.max(initial=-1)) + 1)
        self.done = [NEVER] * len(recording._lanes)

    def run_until(self, end: int) -> None:
        """Play the launches up to one, between which no call waits.

        On one stream a piece ends at max(when the one before ended, when it was called) + what it takes: a maximum of sums.
        """
        begin, self.at = self.at, max(self.at, end)
        if begin >= end:
            return
        mine = begin + np.flatnonzero(self.goes_on[begin:end])
        called = self.recording.call[mine] - self.shift - (self.earlier[mine] - self.earlier[begin])
        stream, device, takes = self.recording._stream[mine], self.recording._device[mine], self.takes[mine]
        self.shift += int(self.earlier[end] - self.earlier[begin])
        if mine.size < FEW * len(self.free):
            for stream_id, gpu, call_ns, ns in zip(stream.tolist(), device.tolist(), called.tolist(), takes.tolist(), strict=True):
                self.free[stream_id] = max(self.free[stream_id], call_ns) + ns
                self.done[gpu] = max(self.done[gpu], self.free[stream_id])
            return
        ended = np.empty(mine.size, np.int64)
        for stream_id in np.unique(stream).tolist():
            places = np.flatnonzero(stream == stream_id)
            until = np.cumsum(takes[places])
            ready = np.maximum.accumulate(called[places] - (until - takes[places]))
            ended[places] = until + np.maximum(ready, self.free[stream_id])
            self.free[stream_id] = int(ended[places[-1]])
        for gpu in np.unique(device).tolist():
            self.done[gpu] = max(self.done[gpu], int(ended[device == gpu].max()))


def _inside(times: Ints, windows: Sequence[tuple[int, int]]) -> Bools:
    """Return which times lie in one of some windows, which do not overlap."""
    if not windows or not times.size:
        return np.zeros(times.size, np.bool_)
    start, end = np.array(sorted(windows), np.int64).T
    index = np.searchsorted(start, times, side="right") - 1
    inside: Bools = (index >= 0) & (times <= end[np.maximum(index, 0)])
    return inside


def _waits(frame: Frame) -> list[tuple[int, int]]:
    rows = frame.rows_by_name(lambda name: bool(_WAITS.match(name)), Category.RUNTIME)
    return list(zip(frame["start_ns"][rows].tolist(), frame.end_ns[rows].tolist(), strict=True))


def _launch_ns(call: Ints, waits: list[tuple[int, int]]) -> Ints:
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

"""Lanes of a Chrome trace (pid, tid) to tracks: which is a GPU stream, what it is called, where it is drawn."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from profiles.ingest.batches import Gathered
from profiles.ingest.columns import Int64
from profiles.ingest.events import MISSING
from profiles.trace import Track

_NUMBER = re.compile(r"(-?\d+)\s*$")


class Lanes:
    """Numbers the tracks. A (pid, tid) that carries both GPU and CPU slices is two tracks: helper threads use pid 0 too.

    7 and "7" are one thread: PyTorch 1.9 wrote its operators with one and its memory instants with the other.
    """

    def __init__(self, rows: Gathered, lane: npt.NDArray[np.int32], gpu: npt.NDArray[np.bool_]) -> None:
        first: dict[tuple[str, str], int] = {}
        self._same = np.array([first.setdefault((str(pid), str(tid)), number)
                               for number, (pid, tid) in enumerate(rows.lanes.values_in_order)], np.int64)
        both = self._same[lane] * 2 + gpu
        present = np.bincount(both, minlength=1) > 0
        self.used = np.flatnonzero(present)
        inverse = (np.cumsum(present) - 1)[both]
        self.keys = [rows.lanes.values_in_order[int(value) // 2] for value in self.used]
        self.is_gpu = (self.used % 2).astype(np.bool_)
        self.track = inverse.astype(np.int32)
        device = np.array([_integer(pid) if gpu else MISSING for (pid, _), gpu in zip(self.keys, self.is_gpu, strict=True)],
                          np.int64)
        stream = np.array([_integer(tid) if gpu else MISSING for (_, tid), gpu in zip(self.keys, self.is_gpu, strict=True)],
                          np.int64)
        self.device: Int64 = device[self.track] if device.size else np.empty(0, np.int64)
        self.stream: Int64 = stream[self.track] if stream.size else np.empty(0, np.int64)

    def renumber(self, order: npt.NDArray[np.intp]) -> None:
        """Track numbers follow `order` (old numbers in their new sequence)."""
        place = np.empty(order.size, np.int32)
        place[order] = np.arange(order.size, dtype=np.int32)
        self.track = place[self.track] if self.track.size else self.track
        self.used, self.is_gpu = self.used[order], self.is_gpu[order]
        self.keys = [self.keys[i] for i in order.tolist()]

    def track_at(self, lane: npt.NDArray[np.int32], _: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
        """Track of a lane number alone (flow ends do not say whether they end on a GPU lane), -1 where it has no slices."""
        table = np.full(self._same.size, -1, np.int32)
        table[self.used // 2] = np.arange(self.used.size, dtype=np.int32)
        return table[self._same[lane]]


def _integer(value: Any) -> int:
    """7, "7" and "stream 7" (PyTorch 1.8) are 7."""
    if isinstance(value, (int, float)) and value == value and abs(value) < 2**63:
        return int(value)
    match = _NUMBER.search(value) if isinstance(value, str) else None
    return int(match[1]) if match and len(match[1]) < 19 else MISSING


class _Names:
    """What ph M records say of processes and threads."""

    def __init__(self, rows: Gathered) -> None:
        self.process: dict[str, str] = {}
        self.labels: dict[str, str] = {}
        self.process_order: dict[str, int] = {}
        self.thread: dict[tuple[str, str], str] = {}
        self.thread_order: dict[tuple[str, str], int] = {}
        for name, pid, tid, args in rows.metadata:
            process, thread = str(pid), (str(pid), str(tid))
            if name == "process_name" and args.name:
                self.process[process] = str(args.name)[:200]
            elif name == "process_labels" and args.labels:
                self.labels[process] = str(args.labels)[:200]
            elif name == "process_sort_index" and isinstance(args.sort_index, int):
                self.process_order[process] = args.sort_index
            elif name == "thread_name" and args.name:
                self._thread(thread, str(args.name)[:200])
            elif name == "thread_sort_index" and isinstance(args.sort_index, int):
                self.thread_order[thread] = args.sort_index

    def _thread(self, thread: tuple[str, str], name: str) -> None:
        """Kineto names a thread twice, first after the process: the more telling name stays."""
        known = self.thread.get(thread, "")
        if not known or "python" in known or "python" not in name:
            self.thread[thread] = name


def lane_tracks(rows: Gathered, lanes: Lanes, columns: dict[str, npt.NDArray[Any]]) -> list[Track]:
    """The tracks in the order they are drawn: CPU processes, then GPUs, then the profiler's own marks."""
    names = _Names(rows)
    made = [_track(names, pid, tid, bool(gpu)) for (pid, tid), gpu in zip(lanes.keys, lanes.is_gpu, strict=True)]
    order = sorted(range(len(made)), key=lambda i: (made[i][0], made[i][1].group, made[i][1].sort, made[i][1].name))
    lanes.renumber(np.array(order, np.intp))
    return [_sorted(made[i][1], place) for place, i in enumerate(order)]


def _sorted(track: Track, place: int) -> Track:
    return Track(**{**track.__dict__, "sort": place})


def _track(names: _Names, pid: Any, tid: Any, gpu: bool) -> tuple[tuple[int, int], Track]:
    process, thread = str(pid), (str(pid), str(tid))
    number = _integer(tid)
    inner = names.thread_order.get(thread, number if number != MISSING else 0)
    if gpu:
        device = _integer(pid)
        stream = None if number == MISSING else number
        return (1, device), Track(kind="stream", name=f"stream {stream}" if stream is not None else str(tid)[:200],
                                  group=f"GPU {device}" if device != MISSING else f"GPU {process[:100]}", sort=inner,
                                  pid=process, tid=str(tid), device=None if device == MISSING else device, stream=stream)
    if pid == -1:                                            # libkineto's own: buffer flushes and the like
        return (2, 0), Track(kind="other", name="overhead" if tid in (0, -1) else f"overhead {tid}", group="profiler",
                             sort=inner, pid=process, tid=str(tid))
    if isinstance(pid, str) and not _NUMBER.search(pid):
        return (2, 0), Track(kind="other", name=str(tid)[:200] or "trace", group=pid[:200] or "trace", sort=inner,
                             pid=process, tid=str(tid))
    name = names.thread.get(thread) or f"thread {tid}"
    title = names.process.get(process)
    return (0, names.process_order.get(process, 0)), Track(
        kind="thread", name=name, group=f"{title} ({process})" if title else f"process {process}", sort=inner,
        pid=process, tid=str(tid))


def counter_tracks(rows: Gathered) -> list[Track]:
    """One track per counter; `GPU 0 Counters` and device indices are drawn under their GPU."""
    out = []
    for number, (pid, counter, series, unit) in enumerate(rows.series.values_in_order):
        text = str(pid)
        gpu = re.match(r"GPU (\d+)", text) if isinstance(pid, str) else None
        on_gpu = gpu is not None or counter.endswith("(GPU)")
        index = int(gpu[1]) if gpu else pid if on_gpu and isinstance(pid, int) else None
        out.append(Track(kind="counter", name=f"{counter} {series}".strip()[:200],
                         group=f"GPU {index}" if index is not None else f"process {text[:100]}", sort=1_000_000 + number,
                         pid=text, device=index, unit=unit))
    return out

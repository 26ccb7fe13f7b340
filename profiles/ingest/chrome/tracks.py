"""Lanes of a Chrome trace (pid, tid) to tracks: which is a GPU stream, what it is called, where it is drawn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from profiles.ingest.arrays import Array, Bools, Int32, Ints
from profiles.ingest.chrome.kinds import number_of, own_name
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.columns import Ids
from profiles.ingest.core.events import MISSING, MetaArgs
from profiles.ingest.trace import Track

FURTHER = ("further lanes", "further lanes")      # the lane of all that are beyond the limit
_NUMBER = re.compile(r"(-?\d+)\s*$")


class Lanes:
    """Numbers the tracks. A (pid, tid) that carries both GPU and CPU slices is two tracks: helper threads use pid 0 too.

    7 and "7" are one thread: PyTorch 1.9 wrote its operators with one and its memory instants with the other.
    """

    def __init__(self, builder: TraceBuilder, lanes: Ids) -> None:
        self._builder, self._lanes = builder, lanes
        self._first: dict[tuple[str, str], int] = {}
        self._same = np.empty(64, np.int64)                 # of every lane the first one that reads the same
        self._count = 0                                     # lanes whose place in it is known
        self._numbers = np.full((3, 64), -1, np.int32)      # of lanes: as thread, as GPU lane, as where flows end
        self._device, self._stream = np.full(64, MISSING, np.int64), np.full(64, MISSING, np.int64)     # by track number

    def tracks(self, lane: Int32, gpu: Bools) -> tuple[Int32, Ints, Ints]:
        """Provisional track number of every slice, and the device and stream its lane stands for."""
        same = self._learn_lanes(lane)
        out = self._numbers[gpu.astype(np.intp), same]
        if (out < 0).any():
            for both in np.unique(same[out < 0] * 2 + gpu[out < 0]).tolist():
                self._track(both // 2, both % 2)
            out = self._numbers[gpu.astype(np.intp), same]
        return out, self._device[out], self._stream[out]

    def ends(self, lane: Int32) -> Int32:
        """Return stand-in track numbers of flow ends.

        They do not say whether they lie on the GPU's side of their lane.
        """
        same = self._learn_lanes(lane)
        for number in np.unique(same[self._numbers[2, same] < 0]).tolist():
            self._numbers[2, number] = self._builder.stand_in(number)
        ends: Int32 = self._numbers[2, same]
        return ends

    def _learn_lanes(self, lane: Int32) -> Ints:
        """Costs what is new: it is asked for single lanes too."""
        lanes = self._lanes.values_in_order
        if self._same.size < len(lanes):
            self._same, self._numbers = _widen(self._same, 2 * len(lanes), -1), _widen(self._numbers, 2 * len(lanes), -1)
        for number in range(self._count, len(lanes)):
            pid, tid = lanes[number]
            self._same[number] = self._first.setdefault((str(pid), str(tid)), number)
        self._count = len(lanes)
        same: Ints = self._same[lane]
        return same

    def _track(self, lane: int, gpu: int) -> None:
        pid, tid = key = self._lanes.values_in_order[lane]
        number = self._builder.further() if key == FURTHER else self._builder.track(
            (lane, gpu), lambda: _track(_Names([]), pid, tid, bool(gpu))[1])
        self._numbers[gpu, lane] = number
        if number >= self._device.size:
            self._device, self._stream = (_widen(values, 2 * number + 2, MISSING) for values in (self._device, self._stream))
        self._device[number], self._stream[number] = (number_of(pid), number_of(tid)) if gpu else (MISSING, MISSING)

    def finish(self, metadata: Sequence[tuple[Any, Any, Any, MetaArgs]]) -> list[Track]:
        """Name and order the tracks: CPU processes, then GPUs, then the profiler's own marks."""
        names = _Names(metadata)
        tracks = []
        for lane in range(self._count):
            for gpu in (0, 1):
                if (number := int(self._numbers[gpu, lane])) >= 0 and number != self._builder.shared:
                    pid, tid = self._lanes.values_in_order[lane]
                    rank, track = _track(names, pid, tid, bool(gpu))
                    self._builder.describe(number, track, (rank, track.group, track.sort, track.name))
                    tracks.append(track)
            if (number := int(self._numbers[2, lane])) >= 0:
                place = int(max(self._numbers[1, lane], self._numbers[0, lane] if self._numbers[1, lane] < 0 else -1))
                self._builder.alias(number, place if place >= 0 else None)
        return tracks


def _widen(values: Array, width: int, fill: int) -> Array:
    wide = np.full((*values.shape[:-1], width), fill, values.dtype)
    wide[..., :values.shape[-1]] = values
    return wide


class _Names:
    """What ph M records say of processes and threads."""

    def __init__(self, metadata: Sequence[tuple[Any, Any, Any, MetaArgs]]) -> None:
        self.process: dict[str, str] = {}
        self.labels: dict[str, str] = {}
        self.process_order: dict[str, int] = {}
        self.thread: dict[tuple[str, str], str] = {}
        self.thread_order: dict[tuple[str, str], int] = {}
        for name, pid, tid, args in metadata:
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
        present = self.thread.get(thread, "")
        if not present or "python" in present or "python" not in name:
            self.thread[thread] = name


def process_names(metadata: Sequence[tuple[Any, Any, Any, MetaArgs]]) -> dict[str, str]:
    """Return what records call processes, by pid."""
    return _Names(metadata).process


def _track(names: _Names, pid: Any, tid: Any, gpu: bool) -> tuple[tuple[int, int], Track]:
    process, thread = str(pid), (str(pid), str(tid))
    number = number_of(tid)
    inner = names.thread_order.get(thread, number if number != MISSING else 0)
    if gpu:
        device = number_of(pid)
        own = own_name(names.process.get(process, ""))
        if own.startswith("MTIA"):                              # its lanes are units of the device, not streams
            return (1, device), Track(kind="stream", name=names.thread.get(thread) or f"lane {tid}"[:200], group=own, sort=inner,
                                      pid=process, tid=str(tid), device=None if device == MISSING else device)
        stream = None if number == MISSING else number
        return (1, device), Track(kind="stream", name=f"stream {stream}" if stream is not None else str(tid)[:200],
                                  group=own or (f"GPU {device}" if device != MISSING else f"GPU {process[:100]}"), sort=inner,
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


def counter_track(number: int, key: tuple[Any, str, str, str | None]) -> tuple[Track, tuple[Any, ...]]:
    """Return the track of the `number`-th counter and where it is drawn.

    `key`: (pid, counter, series, unit). `GPU 0 Counters` and device indices lie under their GPU.
    """
    pid, counter, series, unit = key
    text = str(pid)
    gpu = re.match(r"GPU (\d+)", text) if isinstance(pid, str) else None
    on_gpu = gpu is not None or counter.endswith("(GPU)")
    index = int(gpu[1]) if gpu else pid if on_gpu and isinstance(pid, int) else None
    return Track(kind="counter", name=f"{counter} {series}".strip()[:200],
                 group=f"GPU {index}" if index is not None else f"process {text[:100]}", sort=1_000_000 + number,
                 pid=text, device=index, unit=unit), ((3, number), "", 0, "")

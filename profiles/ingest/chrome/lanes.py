"""Lanes (pid, tid) of a Chrome trace to tracks, with the names and the order that its metadata records give them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from profiles.ingest.arrays import Array, Bools, Int32, Ints
from profiles.ingest.chrome.batches import LaneIds
from profiles.ingest.chrome.kinds import Lane, lane_of, number_of, stream_name
from profiles.ingest.chrome.tracks import FURTHER
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.events import MISSING, MetaArgs
from profiles.ingest.trace import Track

_CHARS = 200
_ASYNC, _COUNTER = 1 << 40, 1 << 41       # behind the threads of their process
Placed = tuple[Track, tuple[Any, ...]]


class Names:
    """What ph M records say of processes and threads. Ids that read the same (7 and "7") are the same."""

    def __init__(self) -> None:
        self.process: dict[str, str] = {}
        self.labels: dict[str, str] = {}
        self.process_order: dict[str, int] = {}
        self.thread: dict[tuple[str, str], str] = {}
        self.thread_order: dict[tuple[str, str], int] = {}

    def add(self, name: Any, pid: Any, tid: Any, args: MetaArgs) -> bool:
        """Take one record. False where it names nothing."""
        process, thread = str(pid), (str(pid), str(tid))
        order = args.sort_index
        if name == "process_name" and args.name not in (None, ""):
            self.process[process] = str(args.name)[:_CHARS]
        elif name == "process_labels" and args.labels:
            self.labels[process] = str(args.labels)[:_CHARS]
        elif name == "process_sort_index" and isinstance(order, (int, float)) and order == order:
            self.process_order[process] = int(min(max(order, -2**31), 2**31))
        elif name == "thread_name" and args.name not in (None, ""):
            self.thread[thread] = str(args.name)[:_CHARS]
        elif name == "thread_sort_index" and isinstance(order, (int, float)) and order == order:
            self.thread_order[thread] = int(min(max(order, -2**31), 2**31))
        else:
            return False
        return True

    def group(self, pid: Any) -> str:
        """"renderer (123)", "process 123", or the pid itself where it is a text."""
        text = str(pid)[:_CHARS]
        title = self.process.get(str(pid))
        if title:
            return f"{title} ({text})" if _is_number(text) and title != text else title
        return _process_label(pid, "process")


class ChromeLanes:
    """Numbers the tracks of threads and streams. A lane with GPU work and CPU slices on it is two tracks."""

    def __init__(self, builder: TraceBuilder, ids: LaneIds, names: Names, rule: Callable[..., Lane] = lane_of) -> None:
        self._builder, self.ids, self.names, self._rule = builder, ids, names, rule
        self._kinds: list[Lane] = []
        self._first: dict[tuple[str, str], int] = {}
        self._same: list[int] = []
        self._tracks: dict[tuple[int, int], int] = {}
        self._ends: dict[int, int] = {}
        self.late = 0                                       # slices that lay on GPU lanes before these were named so
        self._as_cpu: dict[int, int] = {}                   # rows of lanes taken for CPU threads so far
        self._columns: tuple[Array, ...] = ()    # of `_kinds`

    def kinds(self, lane: Int32) -> tuple[Bools, Ints, Ints, Bools]:
        """Return, for each row, what its lane says.

        Does it belong to a GPU, which, which stream, is it derived time.
        """
        self._learn()
        if not self._columns or self._columns[0].size != len(self._kinds):
            self._columns = tuple(np.array([kind[i] for kind in self._kinds]) for i in range(4))
        gpu, device, stream, derived = (column[lane] for column in self._columns)
        return gpu, device, stream, derived

    def strange(self, lane: Int32) -> Bools:
        """Return, for each row, whether its lane belongs to a device that is not known."""
        self._learn()
        numbers = np.unique(lane)
        return np.isin(lane, [number for number in numbers.tolist() if self._kinds[number].strange])

    def rename_lanes(self) -> None:
        """Look at all lanes again: names came in."""
        count = len(self._kinds)
        self._kinds, self._columns = [], ()
        before = self._as_cpu
        self._learn()
        for lane in range(count):
            if self._kinds[lane].gpu and before.get(lane):
                self.late += before.pop(lane)

    def _learn(self) -> None:
        for number in range(len(self._kinds), len(self.ids.values_in_order)):
            pid, tid = self.ids.values_in_order[number]
            self._kinds.append(self._rule(pid, tid, self.names.process.get(str(pid), ""),
                                          self.names.thread.get((str(pid), str(tid)), "")))
            if number == len(self._same):
                self._same.append(self._first.setdefault((str(pid), str(tid)), number))

    def same(self, lane: Int32) -> Ints:
        """Return one number for lanes whose ids read the same."""
        self._learn()
        return np.array(self._same, np.int64)[lane]

    def tracks(self, lane: Int32, on_gpu: Bools) -> Int32:
        """Provisional track of every row."""
        same = self.same(lane)
        both = same * 2 + on_gpu
        pairs, inverse, counts = np.unique(both, return_inverse=True, return_counts=True)
        numbers = np.empty(pairs.size, np.int32)
        for place, (key, count) in enumerate(zip(pairs.tolist(), counts.tolist(), strict=True)):
            number, gpu = divmod(key, 2)
            if not gpu:
                self._as_cpu[number] = self._as_cpu.get(number, 0) + count
            if (number, gpu) not in self._tracks:
                further = self.ids.values_in_order[number] == FURTHER
                self._tracks[number, gpu] = self._builder.further() if further else self._builder.track(
                    ("lane", number, gpu), lambda: Track(kind="thread", name="", group=""))
            numbers[place] = self._tracks[number, gpu]
        return numbers[inverse]

    def ends(self, lane: Int32) -> Int32:
        """Return stand-in track numbers of flow ends.

        They do not say whether they lie on the GPU's side of their lane.
        """
        numbers, inverse = np.unique(self.same(lane), return_inverse=True)
        for number in numbers.tolist():
            if number not in self._ends:
                self._ends[number] = self._builder.stand_in()
        return np.array([self._ends[number] for number in numbers.tolist()], np.int32)[inverse]

    def finish(self) -> set[int]:
        """Name and order the tracks; returns the GPUs they belong to."""
        devices = set()
        for (lane, gpu), number in self._tracks.items():
            if number != self._builder.shared:
                track, order = self._describe(lane, bool(gpu))
                self._builder.describe(number, track, order)
                if track.device is not None:
                    devices.add(track.device)
        for lane, number in self._ends.items():
            self._builder.alias(number, self._tracks.get((lane, 1), self._tracks.get((lane, 0))))
        return devices

    def _describe(self, lane: int, gpu: bool) -> Placed:
        pid, tid = self.ids.values_in_order[lane]
        kind, thread = self._kinds[lane], self.names.thread.get((str(pid), str(tid)), "")
        number = number_of(tid)
        inner = self.names.thread_order.get((str(pid), str(tid)), number if abs(number) < 2**40 else 0)
        device, stream = kind.device, kind.stream
        if gpu and 0 <= device < 2**31:
            plain = str(tid)[:_CHARS] if isinstance(tid, str) else "kernels"
            name = stream_name(thread) or (f"stream {stream}" if stream != MISSING else plain)
            return (Track(kind="stream", name=name[:_CHARS], group=kind.group or f"GPU {device}", sort=inner, pid=str(pid),
                          tid=str(tid), device=device, stream=None if stream == MISSING else stream),
                    ((1, device), "", kind.derived, inner, name))
        return self.place_track(pid, Track(kind="stream" if gpu else "thread", name=thread or _process_label(tid, "thread"),
                                      group=self.names.group(pid), sort=inner, pid=str(pid), tid=str(tid)), inner)

    def place_track(self, pid: Any, track: Track, inner: int) -> Placed:
        """Return a track of a process and its place."""
        number = number_of(pid)
        return track, ((0, self.names.process_order.get(str(pid), 0), number), track.group, inner, track.name)

    def chain(self, pid: Any, name: str) -> Placed:
        """The track of asynchronous slices of one name."""
        return self.place_track(pid, Track(kind="other", name=f"{name[:_CHARS]} (async)", group=self.names.group(pid), sort=0,
                                      pid=str(pid)), _ASYNC)

    def counter(self, pid: Any, name: str, series: str, number: int) -> Placed:
        """The track of one series of a counter, under the GPU where its process is one."""
        kind = lane_of(pid, "", self.names.process.get(str(pid), ""), "")
        label = (name if series in ("", "value", name) else f"{name} {series}")[:_CHARS]
        if not kind.gpu or kind.device == MISSING:
            return self.place_track(pid, Track(kind="counter", name=label, group=self.names.group(pid), sort=number, pid=str(pid)),
                               _COUNTER + number)
        return (Track(kind="counter", name=label, group=f"GPU {kind.device}", sort=number, pid=str(pid), device=kind.device),
                ((1, kind.device), "", True, _COUNTER + number, label))



def _process_label(value: Any, what: str) -> str:
    """"process 123", the id itself where it is a text, "trace" where there is none."""
    text = str(value)[:_CHARS]
    return "trace" if value is None else f"{what} {text}" if _is_number(text) else text


def _is_number(text: str) -> bool:
    return text.lstrip("-").isdigit()

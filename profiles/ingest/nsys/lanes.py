"""Who did it: processes, threads, GPUs and streams of an export, and the tracks they are drawn on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from profiles.ingest.arrays import Int32, Ints
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.events import MISSING
from profiles.ingest.nsys.export import Batch, Export, per_row, per_value
from profiles.ingest.trace import Device, Track

_LAST = 9                  # rank of processes without GPU work: behind threads (0), streams (1) and counters (3)
# what the system tells of any thread
_SEEN = frozenset({"scheduling", "samples", "Python samples", "profiler overhead", "CUPTI overhead"})
_SIDE = ("", "CUDA graphs", "UCX", "OS runtime", "system calls", "scheduling", "Python samples", "samples", "profiler overhead",
         "CUPTI overhead")


def pid_of(serial: int) -> int:
    """globalTid and globalPid are hardware << 56 | VM << 48 | pid << 24 | tid."""
    return serial >> 24 & 0xFFFFFF


def tid_of(serial: int) -> int:
    return serial & 0xFFFFFF


class Lanes:
    """Numbers tracks of a builder; what they are called is in the file's own tables."""

    def __init__(self, export: Export, build: TraceBuilder) -> None:
        self.build = build
        self.processes: dict[int, str] = {}
        self.threads: dict[int, str] = {}
        self._rank: dict[int, int] = {}         # pid -> place in order of sight: correlation ids repeat across processes
        self._gpu_of = self._map_devices(export)
        self._default_streams = self._default(export)
        self._contexts: dict[int, set[tuple[int, int]]] = {}                # GPU -> (pid, context) that worked on it
        self._worked: dict[tuple[int, int], int] = {}                       # (pid, context) -> the GPU it worked on
        self._streams: dict[int, tuple[int, int, int, int, str]] = {}       # track -> device, pid, context, stream, what
        self._sides: dict[int, dict[str, int]] = {}                         # thread -> what lies beside it -> track
        for batch in export.descriptions("PROCESSES", ["globalPid", "pid", "name"]):
            for pid, name in zip(batch.ints("pid").tolist(), batch.texts("name", 500), strict=True):
                if name:
                    self.processes.setdefault(pid, name.split("/")[-1][:80])
        for batch in export.descriptions("ThreadNames", ["globalTid", "nameId"]):
            for serial, text in zip(batch.ints("globalTid").tolist(), batch.ints("nameId").tolist(), strict=True):
                self.threads.setdefault(serial, export.strings.get(text, "")[:80])

    def _map_devices(self, export: Export) -> dict[tuple[int, int], int]:
        """(pid, CUDA's number of the device in that process) -> the GPU: CUDA_VISIBLE_DEVICES renumbers."""
        by_process: dict[tuple[int, int], int] = {}
        for batch in export.descriptions("TARGET_INFO_CUDA_DEVICE", ["gpuId", "cudaId", "pid"]):
            pids, cudas, gpus = (batch.ints(name).tolist() for name in ("pid", "cudaId", "gpuId"))
            by_process.update(((pid, cuda), gpu) for pid, cuda, gpu in zip(pids, cudas, gpus, strict=True) if 0 <= gpu < 2**31)
        return by_process

    def _default(self, export: Export) -> set[tuple[int, int, int]]:
        """(pid, context, stream) of the default streams."""
        streams: set[tuple[int, int, int]] = set()
        for table, column in (("TARGET_INFO_CUDA_NULL_STREAM", "streamId"), ("TARGET_INFO_CUDA_CONTEXT_INFO", "nullStreamId")):
            for batch in export.descriptions(table, ["processId", "contextId", column]):
                streams.update(zip(*(batch.ints(name).tolist() for name in ("processId", "contextId", column)), strict=True))
        return streams

    def correlation(self, batch: Batch, serial: str) -> Ints:
        """Return correlation ids that are different in different processes.

        Those of the first as they are, those of the n-th with n in the upper half.
        """
        ids, serials = batch.ints("correlationId"), batch.ints(serial, 0)
        place = per_value(serials, lambda value: self._rank.setdefault(pid_of(value), len(self._rank)) if value else 0)
        return np.where(ids == MISSING, MISSING, ids + (place.astype(np.int64) << 32))

    def of_threads(self, serials: Ints, side: str = "") -> Int32:
        """Tracks of threads (by globalTid), or those beside them that hold `side`."""
        return per_value(serials, lambda serial: self._thread(serial, side))

    def _thread(self, serial: int, side: str) -> int:
        created: list[Track] = []

        def make() -> Track:
            created.append(self._thread_track(serial, side))
            return created[0]

        number = self.build.track(("thread", serial, side), make)
        if created:                                         # else it is known, or one of those that share a track
            self._sides.setdefault(serial, {})[side] = number
        return number

    def _thread_track(self, serial: int, side: str) -> Track:
        """The main thread first, then those that called something; those of which only the system tells are a group apart."""
        if serial == MISSING:
            return Track(kind="thread", name=side or "calls of unknown threads", group="process unknown", sort=2**45)
        pid, tid = pid_of(serial), tid_of(serial)
        name = f"{self.threads.get(serial) or 'thread'} ({tid})"
        place = _SIDE.index(side) if side in _SIDE else len(_SIDE)
        group = f"{self.process(pid)} · threads without calls" if self._silent(serial) else self.process(pid)
        return Track(kind="thread", name=f"{side} · {name}" if side else name, group=group,
                     sort=(0 if tid == pid else tid << 8) + place, pid=str(pid), tid=str(tid))

    def _silent(self, serial: int) -> bool:
        """Of a process with GPU work: threads that called nothing."""
        return self._works(serial) and tid_of(serial) != pid_of(serial) and self._sides.get(serial, {}).keys() <= _SEEN

    def _works(self, serial: int) -> bool:
        """Had the thread's process GPU work, or no process any?"""
        return pid_of(serial) in self._rank or not self._rank

    def process(self, pid: int) -> str:
        name = self.processes.get(pid)
        return f"{name} ({pid})" if name else f"process {pid}"

    def of_process(self, serial: int, name: str) -> int:
        """Return a track of the whole process, drawn after its threads."""
        pid = pid_of(serial) if serial != MISSING else None
        group = self.process(pid) if pid is not None else "process unknown"
        return self.build.track(("process", pid, name), lambda: Track(
            kind="thread", name=name, group=group, sort=2**45, pid=str(pid) if pid is not None else None))

    def of_streams(self, batch: Batch, what: str = "") -> tuple[Int32, Ints, Ints]:
        """Tracks, GPU numbers and stream ids of GPU work. `what` ("waits") lies beside the streams."""
        columns = [batch.ints(name) for name in ("deviceId", "globalPid", "contextId", "streamId")]
        track = per_row(columns, lambda values: self._stream(values, what))
        gpus = per_row(columns[:3], lambda values: self._gpu_at(values, what)).astype(np.int64)
        return track, np.where(gpus < 0, MISSING, gpus), columns[3]

    def gpu(self, device: int, serial: int) -> int:
        """Return the number of the GPU behind a process's device, -1 where none is stated."""
        pid = pid_of(serial) if serial != MISSING else -1
        return self._gpu_of.get((pid, device), device if 0 <= device < 2**31 else -1)

    def _gpu_at(self, values: tuple[int, ...], what: str) -> int:
        """Synchronisation records of a second GPU say device 0: their context, where it has worked, knows better."""
        device, serial, context = values[:3]
        gpu = self.gpu(device, serial)
        return self._worked.get((serial, context), gpu) if what and context != MISSING else gpu

    def _stream(self, values: tuple[int, ...], what: str) -> int:
        _, serial, context, stream = values
        pid = pid_of(serial) if serial != MISSING else -1
        gpu = self._gpu_at(values, what)
        created: list[Track] = []

        def make() -> Track:
            created.append(self._stream_track(gpu, pid, context, stream, what, apart=False))
            return created[0]

        number = self.build.track(("stream", gpu, pid, context, stream, what), make)
        if created:
            self._streams[number] = gpu, pid, context, stream, what
            if not what:
                self._worked[serial, context] = gpu
            self._contexts.setdefault(gpu, set()).add((pid, context))
        return number

    def _stream_track(self, gpu: int, pid: int, context: int, stream: int, what: str, apart: bool) -> Track:
        has_number = 0 <= stream < 2**31
        number = f"{stream}" if has_number else "all"            # short: labels are narrow, and these stand below their stream
        name = f"{what} · {number}" if what else f"stream {number}" if has_number else "all streams"
        name += " (default)" if not what and (pid, context, stream) in self._default_streams else ""
        name += f" · {self.processes.get(pid, 'process')} {pid}, context {context}" if apart else ""
        return Track(kind="other" if what else "stream", name=name, group=f"GPU {gpu}" if gpu >= 0 else "GPU unknown",
                     sort=stream if has_number else 2**31, pid=str(pid) if pid >= 0 else None, device=gpu if gpu >= 0 else None,
                     stream=stream if has_number and not what else None)

    def of_gpu(self, gpu: int, name: str, kind: str, unit: str | None = None, sort: int = 0) -> int:
        """Return a track of a whole GPU: a counter, or faults of its memory."""
        return self.build.track(("gpu", gpu, name, unit), lambda: Track(
            kind=kind, name=name[:200], group=f"GPU {gpu}", sort=2**32 + sort, device=gpu, unit=unit))

    def finish(self) -> None:
        """Name streams of a shared GPU by whose they are, and give threads their place.

        Shared: several processes or contexts use it.
        """
        for serial, sides in self._sides.items():
            for side, number in sides.items():
                track, pid = self._thread_track(serial, side), pid_of(serial)
                behind = ((_LAST, pid, int(self._silent(serial))), (), track.sort, ())
                first = self._works(serial) and not self._silent(serial)
                self.build.describe(number, track, None if first else behind)
        for number, (gpu, pid, context, stream, what) in self._streams.items():
            if len(self._contexts[gpu]) > 1:
                self.build.describe(number, self._stream_track(gpu, pid, context, stream, what, apart=True))

    def gpus(self) -> set[int]:
        return {gpu for gpu in self._contexts if gpu >= 0}


def devices(export: Export, used: set[int]) -> list[Device]:
    """Return the GPUs that work was recorded on, as the file describes them.

    All it lists where none worked.
    """
    listed: dict[int, Device] = {}
    for batch in export.descriptions("TARGET_INFO_GPU", ["id", "name", "smCount", "totalMemory", "computeMajor", "computeMinor"]):
        ids, counts, sizes, majors, minors = (batch.ints(name).tolist() for name in (
            "id", "smCount", "totalMemory", "computeMajor", "computeMinor"))
        for row, name in enumerate(batch.texts("name", 200)):
            if 0 <= ids[row] < 2**31 and len(listed) < 1024:
                capability = f"{majors[row]}.{minors[row]}" if 0 < majors[row] < 1000 and 0 <= minors[row] < 1000 else None
                listed[ids[row]] = Device(ids[row], name or "", capability, counts[row] if 0 < counts[row] < 2**31 else None,
                                          sizes[row] if sizes[row] > 0 else None)
    only = next(iter(listed.values())) if len(listed) == 1 else Device(0, "")
    indices = sorted(used) or sorted(listed)
    return [listed.get(index) or replace(only, index=index) for index in indices[:1024]]

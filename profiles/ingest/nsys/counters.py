"""Counters of an Nsight Systems export: GPU metrics sampled over time, and memory that the program holds on a GPU."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.columns import Int64
from profiles.ingest.nsys.export import Export, is_on_clock, per_row
from profiles.ingest.nsys.lanes import Lanes
from profiles.ingest.nsys.tables import ALLOCATION, MEMORY_KINDS

# "SM Active [Throughput %]": what is in brackets -> the unit of the values. Clocks are stored in Hz whatever it says.
_UNITS = {"Throughput %": "%", "%": "%", "MHz": "Hz", "Hz": "Hz", "Ratio %": "%", "Bytes": "bytes", "B/s": "B/s"}
_BRACKETS = re.compile(r"^(?P<name>.*?)\s*\[(?P<unit>[^\]]*)\]$")
_MAX_METRICS = 10_000


def read(export: Export, lanes: Lanes, build: TraceBuilder) -> None:
    """Read GPU metrics over time and the memory that the program holds on a GPU."""
    for table, described in (("GPU_METRICS", "TARGET_INFO_GPU_METRICS"), ("SOC_METRICS", "TARGET_INFO_SOC_METRICS")):
        _metrics(export, lanes, build, table, described)
    _memory(export, lanes, build)


def _metrics(export: Export, lanes: Lanes, build: TraceBuilder, table: str, described: str) -> None:
    """Samples of every metric as one track under its GPU (the low byte of its typeId)."""
    names: dict[tuple[int, int], str] = {}
    for batch in export.descriptions(described, ["typeId", "metricId", "metricName"]):
        keys = zip(batch.ints("typeId").tolist(), batch.ints("metricId").tolist(), strict=True)
        names.update(((kind, metric), text or "") for (kind, metric), text in zip(keys, batch.texts("metricName", 300), strict=True)
                     if len(names) < _MAX_METRICS)

    def track(key: tuple[int, ...]) -> int:
        kind, metric = key
        name = names.get((kind, metric)) or f"metric {metric}"
        brackets = _BRACKETS.match(name)
        unit = _UNITS.get(brackets["unit"]) if brackets else None
        place = metric if 0 <= metric < 2**31 else 2**31
        return lanes.of_gpu(kind & 0xFF, brackets["name"] if brackets and unit else name, "counter", unit, sort=place)

    ends = _Ends()
    for batch in export.events(table, ["timestamp", "typeId", "metricId", "value"]):
        time, value = batch.ints("timestamp"), batch.floats("value")
        good = is_on_clock(time) & np.isfinite(value)
        build.integrity.drop(f"samples of {table} without a time or a value", int(np.count_nonzero(~good)))
        tracks = per_row([batch.ints("typeId"), batch.ints("metricId")], track)
        build.add_samples(tracks[good], time[good], value[good])
        ends.saw(tracks[good], time[good])
    ends.close(build)


class _Ends:
    """Where the sampling of each metric ended: a sample speaks for the time to the next one, and after the last one
    nothing is known."""

    def __init__(self) -> None:
        self.last_ns: dict[int, int] = {}
        self.period_ns: dict[int, int] = {}

    def saw(self, tracks: npt.NDArray[np.int32], time: Int64) -> None:
        for track in np.unique(tracks).tolist():
            times = np.unique(time[tracks == track])
            self.last_ns[track] = max(self.last_ns.get(track, 0), int(times[-1]))
            if times.size > 1:
                self.period_ns[track] = int(np.median(np.diff(times)))

    def close(self, build: TraceBuilder) -> None:
        tracks = np.array([track for track in self.last_ns if track in self.period_ns], np.int32)
        times = np.array([self.last_ns[track] + self.period_ns[track] for track in tracks.tolist()], np.int64)
        build.add_samples(tracks, times, np.full(tracks.size, np.nan))


def _memory(export: Export, lanes: Lanes, build: TraceBuilder) -> None:
    """Allocations and frees of the device, added up."""
    kinds = export.label("ENUM_CUDA_MEM_KIND", MEMORY_KINDS)
    held: dict[int, int] = {}
    for batch in export.events("CUDA_GPU_MEMORY_USAGE_EVENTS",
                               ["start", "deviceId", "globalPid", "bytes", "memKind", "memoryOperationType"]):
        time, size = batch.ints("start"), batch.ints("bytes")
        good = is_on_clock(time) & (size >= 0) & (size < 2**50)
        build.integrity.drop("memory events without a time or a size", int(np.count_nonzero(~good)))
        track = per_row([batch.ints(name) for name in ("deviceId", "globalPid", "memKind")], lambda key: lanes.of_gpu(
            max(lanes.gpu(key[0], key[1]), 0), f"{kinds.get(key[2], 'Other')} memory held", "counter", "bytes", sort=-1))
        change = np.where(batch.ints("memoryOperationType") == ALLOCATION, size, -size)
        for number in np.unique(track[good]).tolist():
            rows = np.flatnonzero(good & (track == number))
            rows = rows[np.argsort(time[rows], kind="stable")]
            level: Int64 = held.get(number, 0) + np.cumsum(change[rows])
            held[number] = int(level[-1])
            build.add_samples(track[rows], time[rows], level.astype(np.float64))

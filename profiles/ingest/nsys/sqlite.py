"""Nsight Systems exports (`nsys export --type sqlite`), schemas of 2021 to today, to a `Trace`.

Times are integer ns since the session began, exactly as stored. The file's own SQL is never run (`sqlite_pages`).
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from profiles.ingest.arrays import Int32, Ints, stable_order
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.source import Source
from profiles.ingest.core.sqlite_pages import MAGIC, Database
from profiles.ingest.nsys import cpu, gpu
from profiles.ingest.nsys.export import ALLOCATION, MEMORY_KINDS, WARNING, Export, is_on_clock, open_export, per_row
from profiles.ingest.nsys.lanes import Lanes, devices
from profiles.ingest.nsys.nvtx import Nvtx
from profiles.ingest.trace import Doubt, Trace, TraceError

FORMAT = "nsys-sqlite"
_NOTES = 20
_KERNEL_TABLES = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE")
_EXPORT = {"EXPORT_PRODUCT_VERSION": "nsys version", "EXPORT_SCHEMA_VERSION": "schema version"}
# of TARGET_INFO_SYSTEM_ENV only these: the table also holds the program's environment, with whatever secrets that has
_SYSTEM = {"Hostname": "host", "OsDescription": "operating system", "CpuDescription": "CPU", "NvDriverVersion": "driver",
           "CudaDriverVersion": "CUDA driver API"}


def sniff(head: bytes) -> bool:
    return head.startswith(MAGIC)


def read(source: Source) -> Trace:
    """Raises TraceError where this is another database, or none of its events can be read."""
    with open_export(source) as export:
        _check(export.database)
        return _read(export, source)


def _check(database: Database) -> None:
    names = set(database.tables)
    if not names & {"StringIds", "META_DATA_EXPORT", "EXPORT_META_DATA", "NVTX_EVENTS"} and not any(
            name.startswith("CUPTI_ACTIVITY_KIND_") for name in names):
        if database.schema.pages_lost or not names:
            raise TraceError(f"page {database.schema.first_lost or 1}", "an SQLite database whose list of tables is lost or empty",
                             "Export the report again (`nsys export --type sqlite`) and copy the whole file.")
        shown = ", ".join(sorted(names)[:5])
        raise TraceError("the schema", f"an SQLite database, but not an export of Nsight Systems (its tables: {shown[:300]})",
                         "Exports of `nsys export --type sqlite` are read.")


def _read(export: Export, source: Source) -> Trace:
    database, integrity = export.database, export.integrity
    build = TraceBuilder(source, FORMAT, integrity)
    lanes = Lanes(export, build)
    _notes(database, export)
    gpu.read(export, lanes, build)
    Nvtx(export, lanes, build).read()
    cpu.read(export, lanes, build)
    read_counters(export, lanes, build)
    messages = _diagnostics(export)
    cpu.read_unknown(export, lanes, build)
    lanes.finish()
    trace = build.finish(devices=devices(export, lanes.gpus()), base_ns=_session_start(export), rank=_rank(export),
                         metadata=_metadata(export) | ({"nsys messages": " · ".join(messages)} if messages else {}))
    integrity.settle()
    if not any(export.table(name) for name in _KERNEL_TABLES):
        integrity.plausibility.append(Doubt("no_kernel_table", 0))
    return trace


def _notes(database: Database, export: Export) -> None:
    notes = export.integrity.notes
    if database.not_tables:
        notes.append(f"Views and virtual tables are not looked into: {', '.join(database.not_tables[:5])[:300]}.")
    if database.schema.pages_lost:
        notes.append(f"{database.schema.pages_lost} pages of the list of tables are lost (the first: page "
                     f"{database.schema.first_lost}): tables that they name are missing, and nobody knows which.")
    if database.write_ahead:
        notes.append("The database was in write-ahead mode: what stood only in its -wal file is not in the upload.")


def _diagnostics(export: Export) -> list[str]:
    """The tool's own warnings become notes of the report; returns what it says for information. Each text once."""
    warned: dict[str, int] = {}
    informed: dict[str, int] = {}
    for batch in export.events("DIAGNOSTIC_EVENT", ["severity", "text"]):
        severity = batch.ints("severity", WARNING)
        for level, text in zip(severity.tolist(), batch.texts("text", 1_000), strict=True):
            note = (text or "").strip()[:400]
            texts = warned if level >= WARNING else informed
            if note in texts or len(texts) < _NOTES:
                texts[note] = texts.get(note, 0) + 1
            else:
                export.integrity.drop(f"messages of nsys beyond the first {_NOTES}")
    export.integrity.notes += [f"nsys says{f' ({count} times)' if count > 1 else ''}: {text}" for text, count in warned.items()]
    return list(informed)


def _session_start(export: Export) -> int | None:
    """Epoch ns of time 0."""
    for batch in export.descriptions("TARGET_INFO_SESSION_START_TIME", ["utcEpochNs"]):
        for value in batch.ints("utcEpochNs").tolist():
            if 0 < value < 2**62:
                return int(value)
    return None


def _rank(export: Export) -> int | None:
    """The rank of the one MPI process that was recorded."""
    ranks: set[int] = set()
    for batch in export.descriptions("MPI_RANKS", ["rank"]):
        ranks.update(batch.ints("rank").tolist())
    only = ranks.pop() if len(ranks) == 1 else None
    return only if only is not None and 0 <= only < 2**31 else None


def _metadata(export: Export) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for table, key_by_name in (("META_DATA_EXPORT", _EXPORT), ("TARGET_INFO_SYSTEM_ENV", _SYSTEM)):
        for batch in export.descriptions(table, ["name", "value"]):
            for name, value in zip(batch.texts("name", 200), batch.texts("value", 200), strict=True):
                if name in key_by_name and value:
                    metadata.setdefault(key_by_name[name], value)
    return metadata


# "SM Active [Throughput %]": what is in brackets -> the unit of the values. Clocks are stored in Hz whatever it says.
_UNITS = {"Throughput %": "%", "%": "%", "MHz": "Hz", "Hz": "Hz", "Ratio %": "%", "Bytes": "bytes", "B/s": "B/s"}
_BRACKETS = re.compile(r"^(?P<name>.*?)\s*\[(?P<unit>[^\]]*)\]$")
_MAX_METRICS = 10_000


# ---- GPU metrics sampled over time, and memory that the program holds on a GPU ----

def read_counters(export: Export, lanes: Lanes, build: TraceBuilder) -> None:
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

    def saw(self, tracks: Int32, time: Ints) -> None:
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
    level_by_track: dict[int, int] = {}
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
            rows = rows[stable_order(time[rows])]
            level: Ints = level_by_track.get(number, 0) + np.cumsum(change[rows])
            level_by_track[number] = int(level[-1])
            build.add_samples(track[rows], time[rows], level.astype(np.float64))

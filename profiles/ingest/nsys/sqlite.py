"""Nsight Systems exports (`nsys export --type sqlite`), schemas of 2021 to today, to a `Trace`.

Times are integer ns since the session began, exactly as stored. The file's own SQL is never run (`sqlite_pages`).
"""

from __future__ import annotations

from typing import Any

from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.source import Source
from profiles.ingest.core.sqlite_pages import MAGIC, Database
from profiles.ingest.nsys import counters, cpu, gpu
from profiles.ingest.nsys.export import Export
from profiles.ingest.nsys.lanes import Lanes, devices
from profiles.ingest.nsys.nvtx import Nvtx
from profiles.ingest.nsys.tables import WARNING
from profiles.ingest.trace import Doubt, Integrity, Trace, TraceError

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
    with source.as_file() as path:
        database = Database(path)
        integrity = Integrity(truncated_at=database.cut)
        if source.damage:
            integrity.notes.append(f"The compressed file ends early: {source.damage}.")
        _check(database)
        return _read(database, source, integrity)


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


def _read(database: Database, source: Source, integrity: Integrity) -> Trace:
    export = Export(database, source, integrity)
    build = TraceBuilder(source, FORMAT, integrity)
    lanes = Lanes(export, build)
    _notes(database, export)
    gpu.read(export, lanes, build)
    Nvtx(export, lanes, build).read()
    cpu.read(export, lanes, build)
    counters.read(export, lanes, build)
    messages = _diagnostics(export)
    cpu.read_unknown(export, lanes, build)
    lanes.finish()
    trace = build.finish(devices=devices(export, lanes.gpus()), base_ns=_session_start(export), rank=_rank(export),
                         metadata=_metadata(export) | ({"nsys messages": " · ".join(messages)} if messages else {}))
    integrity.records_kept = integrity.records_read - sum(integrity.not_kept.values())
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
            said = (text or "").strip()[:400]
            texts = warned if level >= WARNING else informed
            if said in texts or len(texts) < _NOTES:
                texts[said] = texts.get(said, 0) + 1
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
    for table, wanted in (("META_DATA_EXPORT", _EXPORT), ("TARGET_INFO_SYSTEM_ENV", _SYSTEM)):
        for batch in export.descriptions(table, ["name", "value"]):
            for name, value in zip(batch.texts("name", 200), batch.texts("value", 200), strict=True):
                if name in wanted and value:
                    metadata.setdefault(wanted[name], value)
    return metadata

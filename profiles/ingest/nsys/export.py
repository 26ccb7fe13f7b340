"""An Nsight Systems export opened: tables by what they mean, texts by id, and a count of every row that is an event.

Tables are created lazily: a table that is absent recorded nothing. Columns come and go with the schema (3.6 in 2023.4,
3.28 in 2026.4); every name that has changed stands here, nothing else in this reader spells a second name.
Source: "SQLite Export Schema Reference", docs.nvidia.com/nsight-systems (2021.5 to 2026), and real exports.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np

from profiles.ingest.arrays import Bools, Floats, Int32, Ints
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.events import MISSING
from profiles.ingest.core.source import Source
from profiles.ingest.core.sqlite_pages import Database, Table
from profiles.ingest.core.sqlite_rows import Rows
from profiles.ingest.trace import Category, Integrity, TraceError

# what this reader calls a table -> how exports call it, newest first
TABLES = {
    "TARGET_INFO_GPU": ("TARGET_INFO_GPU", "TARGET_INFO_CUDA_GPU"),                     # the latter until early 2021
    "META_DATA_EXPORT": ("META_DATA_EXPORT", "EXPORT_META_DATA"),                       # the latter until 2022
    "CUPTI_ACTIVITY_KIND_KERNEL": ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL"),
}
# what this reader calls a column -> how exports call it, newest first
COLUMNS = {
    "id": ("id", "deviceId"), "smCount": ("smCount", "numMultiprocessors"), "totalMemory": ("totalMemory", "globalMemorySize"),
    "computeMajor": ("computeMajor", "computeCapabilityMajor", "smMajor"),
    "computeMinor": ("computeMinor", "computeCapabilityMinor", "smMinor"),
    "start": ("start", "timestamp", "rawTimestamp"), "timestamp": ("timestamp", "start"),
    "value": ("value", "data"), "severity": ("severity", "level"),
    "nameId": ("nameId", "textId", "functionId"),
}
# tables that hold no events: what they describe is read with the events, or is not needed
DESCRIPTIONS = ("ENUM_*", "META_DATA_*", "EXPORT_META_DATA", "TARGET_INFO_*", "ANALYSIS_*", "sqlite_*", "StringIds", "PROCESSES",
                "ProcessStreams", "ThreadNames", "*_CALLCHAINS", "NVTX_PAYLOAD_*", "MPI_RANKS", "MPI_COMMUNICATORS", "UCP_WORKERS",
                "UnwindMethodType", "GENERIC_EVENT_SOURCES", "GENERIC_EVENT_TYPES", "GENERIC_EVENT_TYPE_FIELDS", "ETW_PROVIDERS",
                "ETW_TASKS", "NIC_ID_MAP", "NET_*_INFO", "CUDA_DEVICES")


class Api(NamedTuple):
    """Calls on CPU threads. `track` "" is the thread's own, where ranges and calls nest; else a track beside it."""

    category: Category
    track: str = ""


APIS = {
    "CUPTI_ACTIVITY_KIND_RUNTIME": Api(Category.RUNTIME), "CUPTI_ACTIVITY_KIND_DRIVER": Api(Category.RUNTIME),
    "CUDNN_EVENTS": Api(Category.CPU_OP), "CUBLAS_EVENTS": Api(Category.CPU_OP), "CUSPARSE_EVENTS": Api(Category.CPU_OP),
    "CUSOLVER_EVENTS": Api(Category.CPU_OP), "CUFFT_EVENTS": Api(Category.CPU_OP), "NCCL_EVENTS": Api(Category.CPU_OP),
    "MPI_P2P_EVENTS": Api(Category.OTHER), "MPI_COLLECTIVES_EVENTS": Api(Category.OTHER),
    "MPI_START_WAIT_EVENTS": Api(Category.OTHER), "MPI_OTHER_EVENTS": Api(Category.OTHER),
    "UCP_SUBMIT_EVENTS": Api(Category.OTHER, "UCX"), "UCP_PROGRESS_EVENTS": Api(Category.OTHER, "UCX"),
    "UCP_EVENTS": Api(Category.OTHER, "UCX"),
    "CUDA_GRAPH_EVENTS": Api(Category.OTHER, "CUDA graphs"), "CUDA_GRAPH_NODE_EVENTS": Api(Category.OTHER, "CUDA graphs"),
    "OSRT_API": Api(Category.OTHER, "OS runtime"), "SYSCALL": Api(Category.OTHER, "system calls"),
    "OPENACC_DATA_EVENTS": Api(Category.CPU_OP), "OPENACC_LAUNCH_EVENTS": Api(Category.CPU_OP),
    "OPENACC_OTHER_EVENTS": Api(Category.CPU_OP),
    "PROFILER_OVERHEAD": Api(Category.OVERHEAD, "profiler overhead"),
    "CUPTI_ACTIVITY_KIND_OVERHEAD": Api(Category.OVERHEAD, "CUPTI overhead"),
}
# numbers of a call that are worth showing: column -> what people call it
API_DETAILS = {"returnValue": "return value", "size": "bytes", "recvSize": "bytes received", "packedSize": "bytes", "tag": "tag",
               "remoteRank": "remote rank", "rootRank": "root rank", "graphId": "graph", "graphExecId": "graph exec",
               "graphNodeId": "graph node", "originalGraphNodeId": "original graph node", "originalGraphId": "original graph"}

NVTX_CATEGORY, NVTX_THREAD, NVTX_DOMAIN, NVTX_DOMAIN_END = 33, 39, 75, 76      # names, not events
NVTX_MARKS, NVTX_PUSH_POP, NVTX_START_END = (34, 65), (59, 70), (60, 71)

COPY_KINDS = {0: "", 1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP",
              11: "unified HtoD", 12: "unified DtoH", 13: "unified DtoD"}
MEMORY_KINDS = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device Static", 6: "Managed Static"}
SYNC_TYPES = {1: "Event sync", 2: "Stream wait event", 3: "Stream sync", 4: "Context sync"}
ALLOCATION = 0                  # memoryOperationType; 1 is a deallocation
WARNING = 2                     # DIAGNOSTIC_EVENT.severity: 1 information, 2 warning, 3 error


MAX_TEXT_BYTES = 16_384                 # of a name; the builder clips further
MAX_DESCRIBED = 1_000_000               # rows of a table that describes (names of processes, threads, texts)
MAX_DETAILS = 400_000                   # different sets of arguments


class Batch:
    """Rows of one table under the names that `nsys_tables` gives its columns."""

    def __init__(self, rows: Rows, names: Mapping[str, str]) -> None:
        self._rows, self._names, self.count = rows, names, rows.count

    def has(self, column: str) -> bool:
        return column in self._names

    def ints(self, column: str, missing: int = MISSING) -> Ints:
        return self._rows.ints(self._names.get(column, ""), missing)

    def floats(self, column: str) -> Floats:
        return self._rows.floats(self._names.get(column, ""))

    def texts(self, column: str, longest: int = MAX_TEXT_BYTES) -> list[str | None]:
        return self._rows.texts(self._names.get(column, ""), longest)

    def blobs(self, column: str, longest: int) -> list[bytes | None]:
        return self._rows.blobs(self._names.get(column, ""), longest)

    @property
    def odd(self) -> int:
        return self._rows.odd


@contextmanager
def open_export(source: Source, *, notes_log: bool = False) -> Iterator[Export]:
    """Open an upload as a database; what it lacks is noted. `notes_log`: also what a write-ahead log kept to itself.

    Raises TraceError where it is none.
    """
    with source.as_file() as path:
        database = Database(path)
        integrity = Integrity(truncated_at=database.cut)
        if source.damage:
            integrity.notes.append(f"The compressed file ends early: {source.damage}.")
        if notes_log and database.write_ahead:
            integrity.notes.append("The database was in write-ahead mode: what stood only in its -wal file is not in the upload.")
        yield Export(database, source, integrity)


class Export:
    """The tables of an export. `integrity` counts every row of an event table when its batch is handed out."""

    def __init__(self, database: Database, source: Source, integrity: Integrity) -> None:
        self.database, self.source, self.integrity = database, source, integrity
        self._strings: dict[int, str] | None = None
        self._done: set[str] = set()

    def table(self, name: str) -> Table | None:
        return next((self.database.tables[alias] for alias in TABLES.get(name, (name,)) if alias in self.database.tables), None)

    def columns(self, name: str) -> set[str]:
        """Return the names of the table's columns as the file spells them.

        Empty where there is no such table.
        """
        table = self.table(name)
        return set(table.columns.names) if table else set()

    def events(self, name: str, columns: Sequence[str]) -> Iterator[Batch]:
        """The rows of an event table, counted as read."""
        table = self.table(name)
        if table is None:
            return
        self._done.add(table.name)
        integrity = self.integrity
        for batch in self._batches(table, columns):
            integrity.count(table.name, batch.count)
            integrity.records_read += batch.count
            if integrity.records_read > self.source.limits.records:
                raise TraceError(f"table {table.name}", f"more than {self.source.limits.records:,} rows",
                                 "Record a shorter time (nsys --duration), or fewer kinds of events.")
            self.source.progress("reading", integrity.records_read)
            yield batch
            integrity.repair("values of another type than their column: taken as missing", batch.odd)
        self._count_lost(table)

    def descriptions(self, name: str, columns: Sequence[str]) -> Iterator[Batch]:
        """The rows of a table that describes, at most MAX_DESCRIBED of them."""
        table = self.table(name)
        rows = 0
        for batch in self._batches(table, columns) if table else ():
            yield batch
            rows += batch.count
            if rows > MAX_DESCRIBED and name != "StringIds":
                self.integrity.notes.append(f"Table {name} has more than {MAX_DESCRIBED:,} rows: the rest is not looked at.")
                return
        if table and (table.pages_lost or table.rows_lost) and name != "NVTX_EVENTS":      # its rows are counted as events
            self.integrity.notes.append(f"Table {name}: {table.pages_lost} pages and {table.rows_lost} rows cannot be read, "
                                        "so some names are missing.")

    def _batches(self, table: Table, columns: Sequence[str]) -> Iterator[Batch]:
        there = set(table.columns.names)
        names = {column: alias for column in columns
                 if (alias := next((name for name in COLUMNS.get(column, (column,)) if name in there), None)) is not None}
        for rows in self.database.batches(table, list(names.values())):
            yield Batch(rows, names)

    def _count_lost(self, table: Table) -> None:
        """Rows that are gone count as read and not kept; of a page that is gone, as one: nobody knows how many it held."""
        lost = table.rows_lost + table.pages_lost
        self.integrity.records_read += lost
        self.integrity.drop(f"rows of {table.name} that are damaged or longer than 16 MB", table.rows_lost)
        self.integrity.drop(f"pages of {table.name} that are missing or damaged (the first: page {table.first_lost}), "
                            "each counted as one row", table.pages_lost)

    def rest(self) -> Iterator[str]:
        """Tables of events that nothing has read so far."""
        for name in self.database.tables:
            if name not in self._done and not any(fnmatchcase(name, pattern) for pattern in DESCRIPTIONS):
                yield name

    @property
    def strings(self) -> dict[int, str]:
        """Texts by id."""
        if self._strings is None:
            self._strings = {}
            for batch in self.descriptions("StringIds", ["id", "value"]):
                self._strings.update((key, text) for key, text in zip(batch.ints("id").tolist(), batch.texts("value"), strict=True)
                                     if text is not None)
        return self._strings

    def label(self, table: str, fallback: Mapping[int, str]) -> Mapping[int, str]:
        """Words of an enumeration: the file's own, else those known here."""
        labels = dict(fallback)
        for batch in self.descriptions(table, ["id", "name", "label"]):
            texts = batch.texts("label") if batch.has("label") else batch.texts("name")
            labels.update((key, text) for key, text in zip(batch.ints("id").tolist(), texts, strict=True) if text)
        return labels


def is_on_clock(values: Ints) -> Bools:
    """Return which are times at all.

    Neither missing nor beyond what sums of them can hold.
    """
    return (values > -2**62) & (values < 2**62)


def per_value(values: Ints, make: Callable[[int], int]) -> Int32:
    """Call `make` once for every different value, and spread the results over the rows."""
    if values.size and (values == values[0]).all():
        return np.full(values.size, make(int(values[0])), np.int32)
    different, place = np.unique(values, return_inverse=True)
    return np.array([make(value) for value in different.tolist()], np.int32)[place]


def per_row(columns: Sequence[Ints], make: Callable[[tuple[int, ...]], int]) -> Int32:
    """Call `make` once for every different combination, and spread the results over the rows."""
    code = np.zeros(columns[0].size, np.int64)
    for column in columns:
        if column.size and not (column == column[0]).all():
            different, place = np.unique(column, return_inverse=True)
            code = np.unique(code * different.size + place, return_inverse=True)[1].astype(np.int64)
    _, first, place = np.unique(code, return_index=True, return_inverse=True)
    numbers = [make(tuple(int(column[row]) for column in columns)) for row in first.tolist()]
    return np.array(numbers, np.int32)[place] if numbers else np.empty(0, np.int32)


def details(build: TraceBuilder, columns: Mapping[str, Ints], words: Mapping[str, Mapping[int, str]] | None = None) -> Int32:
    """Return the numbers of the JSON texts {"name": value} of every row.

    What is missing is left out, -1 where nothing is left.
    """
    names, words = list(columns), words or {}

    def number(values: tuple[int, ...]) -> int:
        shown: dict[str, Any] = {name: words[name].get(value, value) if name in words else value
                                 for name, value in zip(names, values, strict=True) if value != MISSING}
        if not shown:
            return -1
        text = json.dumps(shown, ensure_ascii=False)
        if text not in build.details and len(build.details) >= MAX_DETAILS:
            build.integrity.remark(f"arguments beyond the first {MAX_DETAILS:,} different sets: not shown")
            return -1
        return build.details[text]

    return per_row(list(columns.values()), number)


def or_missing(values: Ints, absent: int = 0) -> Ints:
    """Return `values` with MISSING in the place of `absent`."""
    return np.where(values == absent, MISSING, values)

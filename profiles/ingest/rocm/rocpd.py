"""ROCm's databases in SQLite to a `Trace`: rocpd, the default of rocprofv3 and rocprofiler-systems.

Tables: source/share/rocprofiler-sdk-rocpd/rocpd_tables.sql of ROCm/rocprofiler-sdk. Each is called after what it holds and the
process that wrote it (`rocpd_kernel_dispatch_00001a2b…`), the bare names are views. Releases differ in where a row says when and
where it ran: in its own columns (`start`, `end`, `agent_id`, `stream_id`), or by the ids of a timestamp and of a track.
The file's own SQL is never run (`core/sqlite_pages`).
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

from profiles.ingest.arrays import Ints, stable_order
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.events import MISSING
from profiles.ingest.core.source import Source
from profiles.ingest.core.sqlite_pages import MAGIC
from profiles.ingest.nsys.export import Batch, Export, open_export
from profiles.ingest.rocm.rows import Rows, settle
from profiles.ingest.trace import Device, Integrity, Trace, TraceError

FORMAT = "rocpd"
MAX_PROCESSES = 1_024
MAX_JOINED = 50_000_000                # rows of a table that others point to: times, events
_CREATED = re.compile(rb"CREATE TABLE\s+[\"`'\[]?rocpd_(?:info_agent|kernel_dispatch|info_node)")
_NAME = re.compile(r"rocpd_(kernel_dispatch|memory_copy|memory_allocate|region|sample)(.*)$", re.DOTALL)
_PLACES = ("start", "end", "start_id", "end_id", "track_id", "tid", "agent_id", "queue_id", "stream_id", "event_id")
_SIZES = tuple(f"{what}_size_{axis}" for what in ("grid", "workgroup") for axis in "xyz")


def sniff(head: bytes) -> bool:
    return head.startswith(MAGIC) and bool(_CREATED.search(head))


def read(source: Source) -> Trace:
    """Raises TraceError where none of its records can be read."""
    with open_export(source, notes_log=True) as export:
        return _read(export, source, export.integrity)


def _read(export: Export, source: Source, integrity: Integrity) -> Trace:
    suffixes = list(dict.fromkeys(match[2] for name in export.database.tables if (match := _NAME.match(name))))
    if not suffixes:
        raise TraceError("the schema", "a rocpd database without a table of events",
                         "Record again: `rocprofv3 --sys-trace -- ./program`.")
    rows = Rows(TraceBuilder(source, FORMAT, integrity))
    devices: dict[int, Device] = {}
    metadata: dict[str, Any] = {}
    for place, suffix in enumerate(suffixes[:MAX_PROCESSES]):
        process = _Process(export, suffix, place)
        devices |= process.devices
        metadata |= process.metadata
        process.read(rows)
    if len(suffixes) > MAX_PROCESSES:
        integrity.notes.append(f"Processes beyond the first {MAX_PROCESSES:,} are not read.")
    rows.flush()
    used = [devices.get(index) or Device(index, "") for index in sorted(rows.devices)]
    trace = rows.build.finish(devices=used, metadata=metadata)
    settle([rows], integrity)
    return trace


class _Joined:
    """Columns of a table that others point to, by id."""

    def __init__(self, export: Export, name: str, columns: tuple[str, ...]) -> None:
        table = export.database.tables.get(name)
        there = [column for column in columns if table and column in table.columns.names]
        parts: list[list[Ints]] = []
        rows = 0
        for batch in export.database.batches(table, ["id", *there]) if table else ():
            parts.append([batch.ints(column, MISSING) for column in ("id", *there)])
            rows += batch.count
            if rows > MAX_JOINED:
                export.integrity.notes.append(f"Table {name} has more than {MAX_JOINED:,} rows: the rest is not looked at.")
                break
        none = [np.empty(0, np.int64)] * (1 + len(there))
        whole = [np.concatenate(values) for values in zip(*parts, strict=True)] if parts else none
        order = stable_order(whole[0])
        self._ids = whole[0][order]
        self._values = dict(zip(there, (values[order] for values in whole[1:]), strict=True))

    def of(self, ids: Ints, column: str) -> Ints:
        """Return the values of a column at `ids`, MISSING where there is no such row."""
        values = self._values.get(column)
        if values is None or not self._ids.size:
            return np.full(ids.size, MISSING, np.int64)
        place = np.minimum(np.searchsorted(self._ids, ids), self._ids.size - 1)
        return np.where(self._ids[place] == ids, values[place], MISSING)


class _Process:
    """The tables of one process (one suffix)."""

    def __init__(self, export: Export, suffix: str, place: int) -> None:
        self.export, self.suffix, self.place = export, suffix, place
        self.strings = self._texts("rocpd_string", "string")
        self.symbols: dict[int, tuple[str, int, int, int]] = {}
        self.agents: dict[int, int] = {}
        self.devices: dict[int, Device] = {}
        self.metadata: dict[str, Any] = {}
        self._read_symbols()
        self._read_agents()
        self.threads = self._numbers("rocpd_info_thread", "tid")
        self.pid = next(iter(self._numbers("rocpd_info_process", "pid").values()), None)
        command = next(iter(self._texts("rocpd_info_process", "command").values()), "")
        if command:
            self.metadata["command"] = command[:400]
        self.events = _Joined(export, f"rocpd_event{suffix}", ("stack_id", "category_id"))
        self.times = _Joined(export, f"rocpd_timestamp{suffix}", ("value",))
        self.tracks = _Joined(export, f"rocpd_track{suffix}", ("tid", "agent_id", "queue_id", "stream_id"))
        self.counters = self._read_counters()

    def _texts(self, table: str, column: str) -> dict[int, str]:
        out: dict[int, str] = {}
        for batch in self.export.descriptions(table + self.suffix, ["id", column]):
            out.update((key, text) for key, text in zip(batch.ints("id").tolist(), batch.texts(column), strict=True) if text)
        return out

    def _numbers(self, table: str, column: str) -> dict[int, int]:
        out: dict[int, int] = {}
        for batch in self.export.descriptions(table + self.suffix, ["id", column]):
            out.update(zip(batch.ints("id").tolist(), batch.ints(column).tolist(), strict=True))
        return out

    def _read_symbols(self) -> None:
        columns = ["id", "display_name", "kernel_name", "arch_vgpr_count", "accum_vgpr_count", "sgpr_count"]
        for batch in self.export.descriptions(f"rocpd_info_kernel_symbol{self.suffix}", columns):
            numbers = zip(*(batch.ints(column, 0).tolist() for column in ("id", *columns[3:])), strict=True)
            texts = batch.texts("display_name"), batch.texts("kernel_name")
            for (key, *counts), shown, mangled in zip(numbers, *texts, strict=True):
                self.symbols[key] = (shown or mangled or f"kernel {key}", counts[0], counts[1], counts[2])

    def _read_agents(self) -> None:
        columns = ["id", "type_index", "logical_index", "absolute_index", "type", "product_name", "model_name", "name"]
        for batch in self.export.descriptions(f"rocpd_info_agent{self.suffix}", columns):
            indices = [batch.ints(column).tolist() for column in columns[1:4]]
            texts = {column: batch.texts(column, 200) for column in columns[4:]}
            for row, key in enumerate(batch.ints("id").tolist()):
                if texts["type"][row] == "GPU":
                    index = next((values[row] for values in indices if 0 <= values[row] < 4096), len(self.devices))
                    self.agents[key] = index
                    self.devices[index] = Device(index, next((text for column in columns[5:] if (text := texts[column][row])), ""))

    def _read_counters(self) -> dict[int, dict[str, float]]:
        """Values of hardware counters by the event of their dispatch: of several instances the sum."""
        names = self._texts("rocpd_info_pmc", "name")
        out: dict[int, dict[str, float]] = {}
        for batch in self.export.descriptions(f"rocpd_pmc_event{self.suffix}", ["event_id", "pmc_id", "value"]):
            for event, counter, value in zip(batch.ints("event_id").tolist(), batch.ints("pmc_id").tolist(),
                                             batch.floats("value").tolist(), strict=True):
                if value == value:
                    values = out.setdefault(event, {})
                    name = names.get(counter, f"counter {counter}")
                    values[name] = values.get(name, 0.0) + value
        return out

    def read(self, rows: Rows) -> None:
        """Hand every event of the process to `rows`."""
        for batch in self.export.events(f"rocpd_kernel_dispatch{self.suffix}",
                                        [*_PLACES, *_SIZES, "kernel_id", "group_segment_size", "private_segment_size"]):
            self._kernels(rows, batch)
        for batch in self.export.events(f"rocpd_memory_copy{self.suffix}",
                                        [*_PLACES, "name_id", "src_agent_id", "dst_agent_id", "size"]):
            self._copies(rows, batch)
        for batch in self.export.events(f"rocpd_region{self.suffix}", [*_PLACES, "name_id", "extdata"]):
            self._regions(rows, batch)
        for batch in self.export.events(f"rocpd_memory_allocate{self.suffix}", [*_PLACES, "type", "size"]):
            self._allocations(rows, batch)
        for batch in self.export.events(f"rocpd_sample{self.suffix}", ["timestamp_id", "event_id"]):
            rows.integrity.drop("samples of rocprofiler-systems are not read yet", batch.count)

    def _place(self, batch: Batch) -> dict[str, list[int | None]]:
        """When and where the rows ran, however the release says it; and the number that they share with their call."""
        track = batch.ints("track_id")
        out: dict[str, Ints] = {}
        for name in ("tid", "agent_id", "queue_id", "stream_id"):
            own = batch.ints(name)
            out[name] = np.where(own == MISSING, self.tracks.of(track, name), own)
        for name in ("start", "end"):
            own = batch.ints(name)
            out[name] = np.where(own == MISSING, self.times.of(batch.ints(f"{name}_id"), "value"), own)
        event = batch.ints("event_id")
        stack = self.events.of(event, "stack_id")
        out["event"], out["category"] = event, self.events.of(event, "category_id")
        out["correlation"] = np.where((stack == MISSING) | (stack == 0), MISSING, stack + (self.place << 40))
        return {name: [None if value == MISSING else value for value in values.tolist()] for name, values in out.items()}

    def _kernels(self, rows: Rows, batch: Batch) -> None:
        run = self._place(batch)
        sizes = np.stack([batch.ints(column, 0) for column in _SIZES], axis=1).tolist()
        lds, scratch, kernels = (batch.ints(column, 0).tolist()
                                 for column in ("group_segment_size", "private_segment_size", "kernel_id"))
        for i in range(batch.count):
            name, registers, accumulation, scalars = self.symbols.get(kernels[i], (f"kernel {kernels[i]}", 0, 0, 0))
            x, y, z, *block = sizes[i]
            work_items, group = (x, y, z) if x and y and z else None, (block[0], block[1], block[2]) if all(block) else None
            rows.kernel(run["start"][i], run["end"][i], name, self._gpu(run["agent_id"][i]), stream=run["stream_id"][i],
                        queue=run["queue_id"][i], correlation=run["correlation"][i], work_items=work_items, block=group,
                        registers=registers or None, lds_bytes=lds[i], pid=self.pid,
                        details={"accumulation VGPRs": accumulation, "SGPRs": scalars, "scratch bytes": scratch[i],
                                 **self.counters.get(run["event"][i] or 0, {})})

    def _copies(self, rows: Rows, batch: Batch) -> None:
        run = self._place(batch)
        names, sources, targets, sizes = (batch.ints(name).tolist() for name in ("name_id", "src_agent_id", "dst_agent_id", "size"))
        for i in range(batch.count):
            rows.copy(run["start"][i], run["end"][i], self.strings.get(names[i], ""), self._gpu(sources[i]), self._gpu(targets[i]),
                      size=sizes[i], stream=run["stream_id"][i], queue=run["queue_id"][i], correlation=run["correlation"][i],
                      pid=self.pid)

    def _regions(self, rows: Rows, batch: Batch) -> None:
        run = self._place(batch)
        for i, (name, further) in enumerate(zip(batch.ints("name_id").tolist(), batch.texts("extdata"), strict=True)):
            domain = self.strings.get(run["category"][i] or -1, "")
            text = self.strings.get(name, f"region {name}")
            if "MARKER" in domain.upper():
                text = _message(further) or text
            rows.call(run["start"][i], run["end"][i], text, domain, self.pid, self._thread(run["tid"][i]),
                      correlation=run["correlation"][i])

    def _allocations(self, rows: Rows, batch: Batch) -> None:
        run = self._place(batch)
        for i, (kind, size) in enumerate(zip(batch.texts("type", 100), batch.ints("size", 0).tolist(), strict=True)):
            rows.call(run["start"][i], run["end"][i], f"memory {(kind or 'allocation').lower()}", "MEMORY_ALLOCATION", self.pid,
                      self._thread(run["tid"][i]), correlation=run["correlation"][i],
                      details={"bytes": size, "GPU": self._gpu(run["agent_id"][i])})

    def _gpu(self, agent: int | None) -> int | None:
        return self.agents.get(agent) if agent is not None else None

    def _thread(self, tid: int | None) -> int | None:
        return self.threads.get(tid, tid) if tid is not None else None


def _message(text: str | None) -> str:
    """The text of a marker, which stands beside its row."""
    if not text or len(text) > 16_384 or '"message"' not in text:
        return ""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    return str(value.get("message") or "")[:8192] if isinstance(value, dict) else ""

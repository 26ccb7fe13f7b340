"""JSON of rocprofv3 (`--output-format json`): one document, an object for each process.

Fields: "JSON output schema" of ROCm's documentation of rocprofv3, and source/lib/output/generateJSON.cpp of
ROCm/rocprofiler-sdk. The document is read whole within the limit of a record; larger runs are for rocpd or pftrace.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.source import Source
from profiles.ingest.rocm.rows import CounterRows, Dim, Rows, settle
from profiles.ingest.samplers.document import decode_document, load_content
from profiles.ingest.trace import Device, Integrity, Report, Trace, TraceError

FORMAT, COUNTERS_FORMAT = "rocprofv3-json", "rocprof-counters"
_START = re.compile(rb'\s*\{\s*"rocprofiler-sdk-tool"\s*:')
_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_LARGER = "Write larger runs as rocpd (its default) or with `--output-format pftrace`."
_KERNELS, _COPIES = "kernel_dispatch", "memory_copy"


class Record(msgspec.Struct, gc=False):
    """A record of any kind: what it lacks is None."""

    kind: Any = None
    operation: Any = None
    thread_id: Any = None
    correlation_id: Any = None
    start_timestamp: Any = None
    end_timestamp: Any = None
    dispatch_info: Any = None
    stream_id: Any = None
    src_agent_id: Any = None
    dst_agent_id: Any = None
    bytes: Any = None
    allocation_size: Any = None


class Process(msgspec.Struct):
    """One process of the document; lists of records stay text until their turn."""

    metadata: Any = None
    agents: Any = None
    counters: Any = None
    strings: Any = None
    kernel_symbols: Any = None
    callback_records: dict[str, msgspec.Raw] | None = None
    buffer_records: dict[str, msgspec.Raw] | None = None


class Document(msgspec.Struct):
    processes: list[Process] = msgspec.field(name="rocprofiler-sdk-tool", default_factory=list)


def sniff(head: bytes) -> bool:
    return bool(_START.match(head.removeprefix(b"\xef\xbb\xbf")))


def read(source: Source) -> Trace | Report:
    """Raises TraceError where no record can be read."""
    integrity = Integrity()
    try:
        data = load_content(source, integrity)
    except TraceError as error:
        raise TraceError(error.where, error.what, _LARGER) if "one JSON document" in error.what else error from None
    document: Document = decode_document(data, Document, integrity)
    rows, counters = Rows(TraceBuilder(source, FORMAT, integrity)), CounterRows(integrity)
    devices: dict[int, Device] = {}
    metadata: dict[str, Any] = {}
    for place, process in enumerate(document.processes[:4096]):
        reader = _Process(process, place)
        devices |= reader.devices
        metadata |= reader.metadata()
        reader.read(rows, integrity)
    rows.flush()
    if not rows.build.rows:
        for place, process in enumerate(document.processes[:4096]):
            _Process(process, place).read_counters(counters)
        return counters.report(COUNTERS_FORMAT)
    beside = sum(len(_plain((process.callback_records or {}).get("counter_collection"))) for process in document.processes)
    if beside:
        integrity.notes.append(f"The counters of {beside:,} dispatches stand in the file too and are not shown beside a "
                               "timeline: upload the table counter_collection.csv of the run for them.")
    used = [devices.get(index) or Device(index, "") for index in sorted(rows.devices)]
    trace = rows.build.finish(devices=used, metadata=metadata)
    settle([rows], integrity)
    return trace


class _Process:
    """The names of a process, and its records."""

    def __init__(self, process: Process, place: int) -> None:
        self.process, self.place = process, place
        self.pid = _whole(_dict(process.metadata).get("pid"))
        self.symbols = {_whole(symbol.get("kernel_id")): symbol for symbol in _dicts(process.kernel_symbols)}
        self.kinds = [_dict(record) for record in _list(_dict(process.strings).get("buffer_records"))]
        messages = _dicts(_dict(process.strings).get("marker_api"))
        self.messages = {_whole(message.get("key")): str(message.get("value")) for message in messages}
        self.agents: dict[int | None, int] = {}
        self.devices: dict[int, Device] = {}
        for agent in _dicts(process.agents):
            if agent.get("type") in (2, "GPU"):                  # ROCPROFILER_AGENT_TYPE_GPU
                stated = _whole(agent.get("logical_node_type_id"))
                index = stated if stated is not None and 0 <= stated < 4096 else len(self.devices)
                self.agents[_handle(agent.get("id"))] = index
                name = str(agent.get("product_name") or agent.get("model_name") or agent.get("name") or "")
                self.devices[index] = Device(index, name[:200], sm_count=_whole(agent.get("cu_count")) or None)

    def metadata(self) -> dict[str, Any]:
        command = _dict(self.process.metadata).get("command")
        text = " ".join(map(str, command[:50])) if isinstance(command, list) else str(command or "")
        return {"command": text[:400]} if text else {}

    def read(self, rows: Rows, integrity: Integrity) -> None:
        for kind, raw in (self.process.buffer_records or {}).items():
            records = _records(raw, integrity)
            integrity.records_read += len(records)
            if records:
                integrity.count(kind[:80], len(records))
            if kind.startswith("pc_sample"):
                integrity.drop(f"{kind[:60]}: samples of instructions are not read yet", len(records))
                continue
            for record in records:
                if kind == _KERNELS:
                    self._kernel(rows, record)
                elif kind == _COPIES:
                    self._copy(rows, record)
                else:
                    self._call(rows, kind, record)

    def _kernel(self, rows: Rows, record: Record) -> None:
        info = _dict(record.dispatch_info)
        symbol = _dict(self.symbols.get(_whole(info.get("kernel_id"))))
        rows.kernel(_whole(record.start_timestamp), _whole(record.end_timestamp), _symbol_name(symbol, info),
                    self._gpu(info.get("agent_id")), stream=_handle(record.stream_id),
                    queue=_handle(info.get("queue_id")), correlation=self._correlation(record),
                    work_items=_dim(info.get("grid_size")), block=_dim(info.get("workgroup_size")),
                    registers=_whole(symbol.get("arch_vgpr_count")), lds_bytes=_whole(info.get("group_segment_size")),
                    pid=self.pid, details={
                        "accumulation VGPRs": _whole(symbol.get("accum_vgpr_count")), "SGPRs": _whole(symbol.get("sgpr_count")),
                        "scratch bytes": _whole(info.get("private_segment_size"))})

    def _copy(self, rows: Rows, record: Record) -> None:
        rows.copy(_whole(record.start_timestamp), _whole(record.end_timestamp), self._operation(record),
                  self._gpu(record.src_agent_id), self._gpu(record.dst_agent_id), size=_whole(record.bytes),
                  stream=_handle(record.stream_id), correlation=self._correlation(record), pid=self.pid)

    def _call(self, rows: Rows, kind: str, record: Record) -> None:
        name = self._operation(record)
        if kind == "marker_api":
            name = self.messages.get(_whole(_dict(record.correlation_id).get("internal")), name)
        rows.call(_whole(record.start_timestamp), _whole(record.end_timestamp), name, kind, self.pid, _whole(record.thread_id),
                  correlation=self._correlation(record), details={"bytes": _whole(record.allocation_size)})

    def read_counters(self, counters: CounterRows) -> None:
        names = {_handle(entry.get("id")): str(entry.get("name"))[:200] for entry in _dicts(self.process.counters)}
        for item in _plain((self.process.callback_records or {}).get("counter_collection")):
            counters.integrity.records_read += 1
            data = _dict(item.get("dispatch_data"))
            info = _dict(data.get("dispatch_info"))
            symbol = _dict(self.symbols.get(_whole(info.get("kernel_id"))))
            values = [(names.get(counter := _handle(record.get("counter_id"))) or f"counter {counter}", float(record["value"]))
                      for record in _dicts(item.get("records")) if isinstance(record.get("value"), (int, float))]
            index = self._gpu(info.get("agent_id"))
            counters.add((self.place, _whole(info.get("dispatch_id"))), _symbol_name(symbol, info),
                         self.devices.get(index if index is not None else -1) or Device(index or 0, ""), values,
                         start=_whole(data.get("start_timestamp")), end=_whole(data.get("end_timestamp")),
                         work_items=_dim(info.get("grid_size")), block=_dim(info.get("workgroup_size")),
                         registers=_whole(item.get("arch_vgpr_count")))

    def _gpu(self, agent: Any) -> int | None:
        return self.agents.get(_handle(agent))

    def _correlation(self, record: Record) -> int | None:
        number = _whole(_dict(record.correlation_id).get("internal"))
        return None if not number else number + (self.place << 40)

    def _operation(self, record: Record) -> str:
        kind, operation = _whole(record.kind), _whole(record.operation)
        if kind is None or operation is None or not 0 <= kind < len(self.kinds):
            return f"operation {operation}" if operation is not None else ""
        names = _list(self.kinds[kind].get("operations"))
        return str(names[operation]) if 0 <= operation < len(names) else f"operation {operation}"


def _symbol_name(symbol: dict[str, Any], info: dict[str, Any]) -> str:
    for key in ("formatted_kernel_name", "demangled_kernel_name", "kernel_name"):
        if symbol.get(key):
            return str(symbol[key])
    return f"kernel {info.get('kernel_id')}"


def _records(raw: msgspec.Raw | None, integrity: Integrity) -> list[Record]:
    """Records of one kind; those that are none are counted."""
    if raw is None:
        return []
    try:
        records: list[Record] = msgspec.json.decode(raw, type=list[Record])
        return records
    except _ERRORS:
        pass
    out: list[Record] = []
    try:
        parts = msgspec.json.decode(raw, type=list[msgspec.Raw])
    except _ERRORS:
        return []
    for part in parts:
        try:
            out.append(msgspec.json.decode(part, type=Record))
        except _ERRORS:
            integrity.records_read += 1
            integrity.drop("a record that is no object")
    return out


def _plain(raw: msgspec.Raw | None) -> list[dict[str, Any]]:
    try:
        return _dicts(msgspec.json.decode(raw)) if raw is not None else []
    except _ERRORS:
        return []


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [element for element in _list(value) if isinstance(element, dict)]


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63 else None


def _handle(value: Any) -> int | None:
    return _whole(value.get("handle")) if isinstance(value, dict) else _whole(value)


def _dim(value: Any) -> Dim:
    sides = [_whole(_dict(value).get(axis)) for axis in "xyz"]
    return (sides[0] or 1, sides[1] or 1, sides[2] or 1) if any(sides) else None

"""RPD, the SQLite database of ROCm's rocmProfileData (`runTracer.sh`, `rpdTracerControl`), to a `Trace`.

Tables: rpd_tracer/schema_data/tableSchema.cmd of ROCm/rocmProfileData, schema versions 1 and 2. `rocpd_op` is GPU work, `rocpd_api`
calls of HIP and ranges of the program, `rocpd_api_ops` joins them. Of older and newer files the columns differ; what is absent
is unknown. The file's own SQL is never run (`core/sqlite_pages`).
"""

from __future__ import annotations

import re
from functools import partial

import numpy as np

from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.events import MISSING
from profiles.ingest.core.source import Source
from profiles.ingest.core.sqlite_pages import MAGIC
from profiles.ingest.nsys.export import Batch, Export, open_export
from profiles.ingest.rocm.rows import Rows, is_time, settle
from profiles.ingest.trace import Device, Trace, Track

FORMAT = "rpd"
_CREATED = re.compile(rb"CREATE TABLE\s+(?:IF NOT EXISTS\s+)?[\"`'\[]?rocpd_(?:op|api)[\"`'\]]?\s*\(")
_NO_WORK = re.compile(r"barrier|marker", re.IGNORECASE)
_WORK_ITEMS = re.compile(r"^hip(?:Ext|Hcc)ModuleLaunchKernel")
_COPIES = re.compile(r"copy|fill|memset", re.IGNORECASE)
_DIM = tuple(f"{what}{axis}" for what in ("grid", "workgroup") for axis in "XYZ")
_Launch = tuple[int, ...]


def sniff(head: bytes) -> bool:
    return head.startswith(MAGIC) and bool(_CREATED.search(head))


def read(source: Source) -> Trace:
    """Raises TraceError where none of its records can be read."""
    with open_export(source, notes_log=True) as export:
        rows = Rows(TraceBuilder(source, FORMAT, export.integrity))
        _Reader(export, rows).read()
        rows.flush()
        trace = rows.build.finish(devices=[Device(index, "") for index in sorted(rows.devices)])
        settle([rows], export.integrity)
        return trace


def _counter(device: int, name: str) -> Track:
    return Track(kind="counter", name=name, group=f"GPU {device}", device=device)


class _Reader:
    def __init__(self, export: Export, rows: Rows) -> None:
        self.export, self.rows = export, rows
        self.strings: dict[int, str] = {}
        for batch in export.descriptions("rocpd_string", ["id", "string"]):
            pairs = zip(batch.ints("id").tolist(), batch.texts("string"), strict=True)
            self.strings.update((key, text) for key, text in pairs if text)
        self.calls: dict[int, int] = {}               # operation -> call
        for batch in export.descriptions("rocpd_api_ops", ["api_id", "op_id"]):
            self.calls.update(zip(batch.ints("op_id").tolist(), batch.ints("api_id").tolist(), strict=True))
        self.counts_work_items = self._read_launch_calls()
        self.launches: dict[int, _Launch] = {}        # call -> grid, workgroup
        self.sizes: dict[int, int] = {}               # call -> bytes of its copy
        for batch in export.descriptions("rocpd_kernelapi", ["api_ptr_id", *_DIM]):
            sides = zip(*(batch.ints(column, 0).tolist() for column in _DIM), strict=True)
            self.launches.update(zip(self._call_ids(batch), sides, strict=True))
        for batch in export.descriptions("rocpd_copyapi", ["api_ptr_id", "size"]):
            self.sizes.update(zip(self._call_ids(batch), batch.ints("size").tolist(), strict=True))

    def _read_launch_calls(self) -> set[int]:
        """Calls whose grid is in work-items: those of hipExtModuleLaunchKernel and hipHccModuleLaunchKernel."""
        table = self.export.database.tables.get("rocpd_api")
        name_ids = [number for number, text in self.strings.items() if _WORK_ITEMS.match(text)]
        out: set[int] = set()
        for batch in self.export.database.batches(table, ["id", "apiName_id"]) if table and name_ids else ():
            out.update(batch.ints("id", MISSING)[np.isin(batch.ints("apiName_id", MISSING), name_ids)].tolist())
        return out

    @staticmethod
    def _call_ids(batch: Batch) -> list[int]:
        ids: list[int] = batch.ints("api_ptr_id").tolist()
        return ids

    def read(self) -> None:
        for batch in self.export.events("rocpd_op", ["id", "gpuId", "queueId", "start", "end", "description_id", "opType_id"]):
            self._operations(batch)
        for batch in self.export.events("rocpd_api", ["id", "pid", "tid", "start", "end", "apiName_id", "args_id"]):
            self._calls(batch)
        for batch in self.export.events("rocpd_monitor", ["deviceId", "monitorType", "start", "value"]):
            self._readings(batch)

    def _operations(self, batch: Batch) -> None:
        columns = [[None if value == MISSING else value for value in batch.ints(name).tolist()]
                   for name in ("id", "gpuId", "queueId", "start", "end", "description_id", "opType_id")]
        for key, gpu, queue, start, end, described, kind in zip(*columns, strict=True):
            what, text = self.strings.get(kind or -1, ""), self.strings.get(described or -1, "")
            call = self.calls.get(key or -1)
            device = gpu if gpu is not None and 0 <= gpu < 4096 else None
            if _NO_WORK.search(what):
                self.rows.sync(start, end, text or what, device, queue)
            elif _COPIES.search(what):
                size = self.sizes.get(call or -1)
                self.rows.copy(start, end, what, device, device, size=None if size in (None, MISSING) else size, queue=queue,
                               correlation=call)
            else:
                grid, block = self._shape(call)
                self.rows.kernel(start, end, text or what, device, queue=queue, correlation=call, work_items=grid, block=block)

    def _shape(self, call: int | None) -> tuple[tuple[int, int, int] | None, tuple[int, int, int] | None]:
        """Grid in work-items and block of a launch: the table states the grid as the call takes it, most in blocks."""
        sides = self.launches.get(call or -1)
        if sides is None or not all(sides):
            return None, None
        block = sides[3], sides[4], sides[5]
        if call in self.counts_work_items:
            return (sides[0], sides[1], sides[2]), block
        return (sides[0] * block[0], sides[1] * block[1], sides[2] * block[2]), block

    def _readings(self, batch: Batch) -> None:
        """What rocm-smi said while the program ran: clocks, power. The table states no unit."""
        build, count = self.rows.build, 0
        texts = zip(batch.texts("monitorType", 100), batch.texts("value", 100), strict=True)
        for device, start, (what, text) in zip(batch.ints("deviceId").tolist(), batch.ints("start").tolist(), texts, strict=True):
            try:
                value = float(text or "")
            except ValueError:
                continue
            if not is_time(start) or not 0 <= device < 4096:
                continue
            track = build.track(("monitor", device, what), partial(_counter, device, what or "reading"))
            build.add_samples(np.array([track], np.int32), np.array([start], np.int64), np.array([value], np.float64))
            count += 1
        self.rows.integrity.drop("readings without a number, a time or a GPU", batch.count - count)

    def _calls(self, batch: Batch) -> None:
        columns = [[None if value == MISSING else value for value in batch.ints(name).tolist()]
                   for name in ("id", "pid", "tid", "start", "end", "apiName_id", "args_id")]
        for key, pid, tid, start, end, name, args in zip(*columns, strict=True):
            text, shown = self.strings.get(name or -1, f"call {name}"), self.strings.get(args or -1, "")
            marker = text == "UserMarker"
            self.rows.call(start, end, shown if marker and shown else text, "ROCTX" if marker else "", pid, tid, correlation=key,
                           details=None if marker else {"arguments": shown[:2000]})

"""JSON of rocprof (v1): a Chrome trace whose `ts` and `dur` are whole µs, cut off; its arguments hold the ns.

Kernels lie on a process `GPU0`; `BeginNs`, `EndNs`, `DurationNs`, `stream-id` and `queue-id` among the arguments of a record say
what ran when. Source: bin/tblextr.py and bin/sqlitedb.py of ROCm/rocprofiler.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np

from profiles.ingest.arrays import Bools, Rows
from profiles.ingest.chrome.gather import Gather
from profiles.ingest.chrome.generic import assemble, is_of_tool
from profiles.ingest.chrome.work import Arguments, Columns
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.columns import decode_args, optional
from profiles.ingest.core.events import MISSING, Event
from profiles.ingest.core.pieces import Pieces
from profiles.ingest.core.source import Source
from profiles.ingest.trace import Integrity, Trace

FORMAT = "rocprof-json"
_MARK = re.compile(rb'"(?:BeginNs|DurationNs)"\s*:')
EXACT = "times that the file states in ns beside whole µs: taken from there"


def sniff(head: bytes) -> bool:
    return is_of_tool(head) and bool(_MARK.search(head))


def read(source: Source) -> Trace:
    """Raises TraceError where no record can be read."""
    integrity = Integrity()
    pieces = Pieces(source, integrity)
    builder = TraceBuilder(source, FORMAT, integrity)
    return assemble(_Gather(pieces, builder, _Arguments(builder)), source, FORMAT)


class TimeArgs(msgspec.Struct, gc=False):
    begin_ns: Any = msgspec.field(default=None, name="BeginNs")
    end_ns: Any = msgspec.field(default=None, name="EndNs")
    duration_ns: Any = msgspec.field(default=None, name="DurationNs")


class PlaceArgs(msgspec.Struct, gc=False):
    stream: Any = msgspec.field(default=None, name="stream-id")
    queue: Any = msgspec.field(default=None, name="queue-id")


class _Gather(Gather):
    def end_mark(self, phase: Any, count: int) -> bool:
        """The empty record with which the file begins."""
        return phase is None and count == 1

    def _add(self, records: list[Event]) -> None:
        """Put the ns in the place of what was cut to µs."""
        spans = [record for record in records if record.ph == "X" and b'Ns"' in bytes(record.args)]
        args, _ = decode_args(TimeArgs, [record.args for record in spans])
        begin, end, duration = (optional(getattr(arg, name) for arg in args) for name in ("begin_ns", "end_ns", "duration_ns"))
        stated = np.where(duration >= 0, duration, np.where((begin > 0) & (end >= begin), end - begin, MISSING))
        for record, begin_ns, duration_ns in zip(spans, begin.tolist(), stated.tolist(), strict=True):
            if duration_ns >= 0:
                record.dur = duration_ns / 1000
            start_us = _microseconds(record.ts)
            if start_us is not None and 0 <= begin_ns - start_us * 1000 < 1000:     # one clock: else `ts` counts from elsewhere
                record.ts = begin_ns / 1000
        self.integrity.remark(EXACT, int(np.count_nonzero(stated >= 0)))
        super()._add(records)


class _Arguments(Arguments):
    def work(self, raws: list[Any], rows: Rows, on_gpu: Bools, out: Columns) -> None:
        super().work(raws, rows, on_gpu, out)
        args, _ = decode_args(PlaceArgs, raws)
        for values in (optional(arg.queue for arg in args), optional(arg.stream for arg in args)):
            out["stream"][rows] = np.where(on_gpu & (values != MISSING), values, out["stream"][rows])


def _microseconds(value: Any) -> int | None:
    text = str(value).split(".")[0]
    return int(text) if text.isdecimal() and len(text) < 17 else None

"""CSV of ROCm's profilers: rocprofv3's traces, counters and sums, and those of rocprof (v1, v2) before it.

Columns: source/lib/output/generateCSV.cpp of ROCm/rocprofiler-sdk, versions 6.2 to 7.x; rocprof's results.csv. A file holds one
kind of table; tables of several kinds one behind the other are read as they come. A table of events makes a `Trace`, counters a
`Report`, sums a `Summary`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.source import Source
from profiles.ingest.core.text_lines import csv_cells, read_lines
from profiles.ingest.rocm.rows import CounterRows, Dim, Rows, number_at_end, settle
from profiles.ingest.trace import (
    Device,
    Integrity,
    KernelSum,
    Report,
    Summary,
    SummaryTable,
    Trace,
    TraceError,
    summary_columns,
)

FORMAT, COUNTERS_FORMAT, SUMS_FORMAT = "rocprof-csv", "rocprof-counters", "rocprof-stats"
MAX_LINE_BYTES = 1 << 20
MAX_SUMS = 200_000                    # rows of a table of sums
_HINT = "Run it again: `rocprofv3 --sys-trace --output-format csv -- ./program`, and upload one of its tables."


class Row(NamedTuple):
    """Cells of a line by the lower-case names of its header, and these names as the file spells them."""

    cells: dict[str, str]
    spelled: dict[str, str]

    def text(self, *names: str) -> str:
        return next((self.cells[name].strip() for name in names if self.cells.get(name)), "")

    def whole(self, *names: str) -> int | None:
        text = self.text(*names)
        digits = text.removeprefix("-").isdecimal() and len(text) < 20
        return int(text) if digits and int(text) < 2**63 else None

    def agent(self, *names: str) -> int | None:
        return number_at_end(self.text(*names))

    def dim(self, stem: str) -> Dim:
        """Three columns, or one number of all sides, which is put along x."""
        sides = [self.whole(f"{stem}_{axis}") for axis in "xyz"]
        if None not in sides:
            return sides[0] or 1, sides[1] or 1, sides[2] or 1
        total = self.whole(stem)
        return (total, 1, 1) if total else None

    def start(self) -> int | None:
        return self.whole("start_timestamp", "beginns")

    def end(self) -> int | None:
        return self.whole("end_timestamp", "endns")


class _Content:
    """What the rows of a file become."""

    def __init__(self, source: Source, integrity: Integrity) -> None:
        self.integrity = integrity
        self.rows = Rows(TraceBuilder(source, FORMAT, integrity))
        self.counters = CounterRows(integrity)
        self.sums: list[KernelSum] = []
        self.calls: list[list[str | int | float | None]] = []


def _kernel(content: _Content, row: Row) -> None:
    content.rows.kernel(
        row.start(), row.end(), row.text("kernel_name", "kernelname"), row.agent("agent_id", "gpu-id", "gpu_id"),
        stream=row.whole("stream_id"), queue=row.whole("queue_id", "queue-id"), correlation=row.whole("correlation_id"),
        work_items=row.dim("grid_size") or row.dim("grd"), block=row.dim("workgroup_size") or row.dim("wgrp"),
        registers=row.whole("vgpr_count", "arch_vgpr", "arch_vgpr_count", "vgpr"),
        lds_bytes=row.whole("lds_block_size", "group_segment_size", "lds", "lds_per_workgroup"),
        pid=row.whole("process_id", "pid"),
        details={"accumulation VGPRs": row.whole("accum_vgpr_count", "accum_vgpr"), "SGPRs": row.whole("sgpr_count", "sgpr"),
                 "scratch bytes": row.whole("scratch_size", "private_segment_size", "scr", "scratch_per_workitem")})


def _copy(content: _Content, row: Row) -> None:
    content.rows.copy(row.start(), row.end(), row.text("direction"), row.agent("source_agent_id"),
                      row.agent("destination_agent_id"), size=row.whole("bytes", "size", "copy_bytes"),
                      stream=row.whole("stream_id"), correlation=row.whole("correlation_id"))


def _call(content: _Content, row: Row) -> None:
    content.rows.call(row.start(), row.end(), row.text("function"), row.text("domain"), row.whole("process_id"),
                      row.whole("thread_id"), correlation=row.whole("correlation_id"))


def _memory(content: _Content, row: Row) -> None:
    content.rows.call(row.start(), row.end(), row.text("operation"), row.text("kind") or "MEMORY_ALLOCATION",
                      row.whole("process_id"), row.whole("thread_id"), correlation=row.whole("correlation_id"),
                      details={"agent": row.agent("agent_id"), "bytes": row.whole("allocation_size", "alloc_size")})


def _counter(content: _Content, row: Row) -> None:
    value = _number(row.text("counter_value"))
    if value is None:
        content.integrity.drop("a counter without a number")
        return
    dispatch = row.text("process_id"), row.text("dispatch_id") or row.text("correlation_id")
    content.counters.add(dispatch, row.text("kernel_name"), _device(row.agent("agent_id")),
                         [(row.text("counter_name")[:200], value)], start=row.start(), end=row.end(),
                         work_items=row.dim("grid_size"), block=row.dim("workgroup_size"),
                         registers=row.whole("vgpr_count", "arch_vgpr_count"))


# rocprof's columns that are no counters; what stands behind them in results.csv is
_V1_COLUMNS = frozenset({
    "index", "kernelname", "gpu-id", "queue-id", "queue-index", "pid", "tid", "grd", "wgrp", "lds", "scr", "arch_vgpr",
    "accum_vgpr", "vgpr", "sgpr", "wave_size", "sig", "obj", "dispatchns", "beginns", "endns", "completens", "durationns", "fbar"})


def _v1_kernel(content: _Content, row: Row) -> None:
    """A dispatch of rocprof: a row of the timeline where it has times, and its counters where it has any."""
    values = [(row.spelled[name][:200], value) for name, text in row.cells.items()
              if name not in _V1_COLUMNS and (value := _number(text)) is not None]
    if not values:
        _kernel(content, row)
        return
    content.counters.add(row.text("index"), row.text("kernelname"), _device(row.agent("gpu-id")), values, start=row.start(),
                         end=row.end(), work_items=row.dim("grd"), block=row.dim("wgrp"), registers=row.whole("arch_vgpr", "vgpr"))


_NO_KERNELS = ("hip", "hsa_", "HIP_", "HSA_", "MARKER_", "KERNEL_DISPATCH", "MEMORY_", "SCRATCH_", "RCCL_", "roctx")


def _sum(content: _Content, row: Row) -> None:
    """A line of kernel_stats.csv, hip_stats.csv, results.stats.csv: calls of HIP stand beside the kernels, not among them."""
    name, calls, total = row.text("name"), row.whole("calls"), row.whole("totaldurationns")
    if not name or calls is None or total is None or len(content.sums) + len(content.calls) >= MAX_SUMS:
        content.integrity.drop("a line without name, calls or total")
        return
    mean, least, most = (_number(row.text(column)) for column in ("averagens", "minns", "maxns"))
    if name.lstrip("_").startswith(_NO_KERNELS) and "(" not in name:
        content.calls.append([name, calls, total, mean, least, most])
        return
    content.sums.append(KernelSum(name.removesuffix(".kd"), calls, total, mean_ns=mean, min_ns=least, max_ns=most,
                                  std_ns=_number(row.text("stddev"))))


class _Kind(NamedTuple):
    columns: tuple[str, ...]          # all of these, in lower case, are in the header
    what: str                         # as the report of a file counts them
    take: Callable[[_Content, Row], None]


KINDS = (
    _Kind(("counter_name", "counter_value", "kernel_name"), "counter_collection", _counter),
    _Kind(("kernel_name", "start_timestamp", "end_timestamp"), "kernel_trace", _kernel),
    _Kind(("direction", "start_timestamp", "end_timestamp"), "memory_copy_trace", _copy),
    _Kind(("function", "start_timestamp", "end_timestamp"), "api_trace", _call),
    _Kind(("kind", "operation", "start_timestamp", "end_timestamp"), "memory_trace", _memory),
    _Kind(("kernelname", "gpu-id", "queue-id"), "results", _v1_kernel),
    _Kind(("name", "calls", "totaldurationns"), "stats", _sum),
)


_MARKS = ("start_timestamp", "counter_name", "kernelname", "totaldurationns")      # one of them is in every header


def sniff(head: bytes) -> bool:
    """Tell whether the first line that is not empty is the header of one of the tables."""
    text = head[:1 << 16].removeprefix(b"\xef\xbb\xbf").lstrip()
    return _header(text.split(b"\n", 1)[0].decode("utf-8", "replace")) is not None


def _header(line: str) -> tuple[_Kind, list[str]] | None:
    if "," not in line or not any(mark in line.lower() for mark in _MARKS):
        return None
    names = [name.strip() for name in csv_cells(line)]
    lower = {name.lower() for name in names}
    kind = next((kind for kind in KINDS if all(column in lower for column in kind.columns)), None)
    return (kind, names) if kind else None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < 1e300 else None


def _device(index: int | None) -> Device:
    return Device(index or 0, "")


def read(source: Source) -> Trace | Report | Summary:
    """Raises TraceError where no row can be read."""
    integrity = Integrity()
    content = _Content(source, integrity)
    kind: _Kind | None = None
    spelled: dict[str, str] = {}
    for line in read_lines(source, MAX_LINE_BYTES, "rocprof", _HINT):
        if not line.strip():
            continue
        if (header := _header(line.removeprefix("\ufeff"))) is not None:
            kind, spelled = header[0], {name.lower(): name for name in header[1]}
            continue
        if kind is None:
            continue
        integrity.records_read += 1
        integrity.count(kind.what)
        if integrity.records_read > source.limits.records:
            raise TraceError(f"row {integrity.records_read:,}", f"more than {source.limits.records:,} rows",
                             "Record a shorter time.")
        cells = csv_cells(line)
        if len(cells) != len(spelled):
            integrity.drop("a row with too few or too many cells")
            continue
        kind.take(content, Row(dict(zip(spelled, cells, strict=True)), spelled))
    integrity.end_early(source.damage)
    return _finish(content)


def _finish(content: _Content) -> Trace | Report | Summary:
    integrity, rows = content.integrity, content.rows
    rows.flush()
    if rows.build.rows:
        if content.counters:
            integrity.remark("dispatches with counters beside a timeline: their counters are not shown", len(content.counters))
        trace = rows.build.finish(devices=[Device(index, "") for index in sorted(rows.devices)])
        settle([rows], integrity)
        return trace
    if content.sums or content.calls:
        settle([rows], integrity)
        columns = summary_columns("name: text | calls: count | total: ns | mean: ns | min: ns | max: ns")
        tables = [SummaryTable("Calls", columns, content.calls, "Sums that the tool wrote.")] if content.calls else []
        return Summary(SUMS_FORMAT, content.sums, tables, integrity)
    if content.counters:
        return content.counters.report(COUNTERS_FORMAT)
    raise TraceError("header", "the table has no row that can be read", _HINT)

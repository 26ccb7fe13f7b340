"""CSV of the CUTLASS profiler (`cutlass_profiler --output=file`): one row per problem and kernel that was tried → `Summary`.

Columns: tools/profiler/src/performance_report.cpp of NVIDIA/cutlass. Tags of the command line stand before `Problem`, the
operation's arguments between `Status` and `Bytes`. `Runtime` is in ms for one launch; `GB/s` is bytes / 2**30 / s and is
formed anew here in bytes per second.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from profiles.ingest.core.source import Source
from profiles.ingest.core.text_lines import csv_cells
from profiles.ingest.naming.names import clip_name
from profiles.ingest.trace import (
    CellRows,
    Integrity,
    KernelSum,
    Summary,
    SummaryColumn,
    SummaryTable,
    TraceError,
    summary_columns,
    with_rows,
)

FORMAT = "cutlass"
MAX_ROWS = 500_000
_REQUIRED = ("Problem", "Provider", "OperationKind", "Operation", "Disposition", "Status", "Runtime")
_RESULTS = frozenset({"Bytes", "Flops", "Flops/Byte", "Runtime", "GB/s", "GFLOPs"})
# arguments that say what is computed; all others say how
_PROBLEM = frozenset({
    "gemm_kind", "conv_kind", "m", "n", "k", "h", "w", "c", "r", "s", "p", "q", "d", "t", "z", "g", "A", "B", "C", "D", "E",
    "Activation", "Filter", "Output", "alpha", "beta", "batch_count", "pad_h", "pad_w", "stride_h", "stride_w", "dilation_h",
    "dilation_w", "conv_mode", "fill_mode", "side_mode", "diag_type", "num_groups", "problem-sizes"})
_GOOD = frozenset({"passed", "not_verified", "not_run"})           # with a time: it ran, and no check found it wrong
_BLOCK_BYTES, _MAX_LINE_BYTES = 1 << 20, 1 << 20
_HINT = "Run cutlass_profiler again with --output=results.csv and upload that file."


@dataclass
class Row:
    """One line, by the names of its header."""

    cells: dict[str, str]
    runtime_ns: float | None

    def number(self, column: str) -> float | None:
        return _number(self.cells.get(column, ""))


def sniff(head: bytes) -> bool:
    return any(_is_header(line) for line in head[:1 << 18].splitlines())


def _is_header(line: bytes) -> bool:
    names = line.decode("utf-8", "replace").lstrip("\ufeff").strip().split(",")
    return all(name in names for name in _REQUIRED)


def read(source: Source) -> Summary:
    """Raises TraceError where no row can be read."""
    integrity = Integrity()
    rows, arguments = _rows(source, integrity)
    if not rows:
        raise TraceError("header", "the table has no rows",
                         "No kernel matched, or the profiler was stopped before the first was done.")
    integrity.settle()
    integrity.end_early(source.damage)
    timed = [row for row in rows if row.runtime_ns is not None]
    wrong = Counter(row.cells["Disposition"] for row in rows if row.cells["Disposition"].lower() not in _GOOD)
    for disposition, count in wrong.items():
        integrity.remark(f"disposition “{disposition[:40]}”: listed, in no comparison", count)
    tables = [_best(timed, arguments), _all(rows, arguments), _dispositions(rows)]
    return Summary(FORMAT, [_kernel(row) for row in timed if _is_good(row)], with_rows(tables), integrity,
                   metadata={"operations": ", ".join(sorted({row.cells["OperationKind"] for row in rows}))[:300]})


def _is_good(row: Row) -> bool:
    return row.cells["Disposition"].lower() in _GOOD


def _kernel(row: Row) -> KernelSum:
    return KernelSum(clip_name(row.cells["Operation"], 8192) or row.cells["Provider"][:200], 1, round(row.runtime_ns or 0))


def _rows(source: Source, integrity: Integrity) -> tuple[list[Row], list[str]]:
    """Rows and the names of the arguments. A header may come again (--append), with other arguments (other operations)."""
    header: list[str] = []
    arguments: dict[str, None] = {}
    rows: list[Row] = []
    other = 0
    for line in _lines(source):
        if _is_header(line):
            header = _cells(line)
            arguments |= dict.fromkeys(name for name in header if name not in _REQUIRED and name not in _RESULTS)
            continue
        if not header or b"," not in line:
            other += bool(line.strip())
            continue
        integrity.records_read += 1
        cells = _cells(line)
        if len(rows) >= MAX_ROWS:
            integrity.drop(f"rows beyond the first {MAX_ROWS:,}")
        elif len(cells) != len(header):
            integrity.drop("a row with too few or too many cells")
        else:
            named = dict(zip(header, cells, strict=True))
            ms = _number(named["Runtime"])
            rows.append(Row(named, ms * 1e6 if ms is not None and 0 < ms < 1e9 else None))
    integrity.kinds["profiled kernel"] = integrity.records_read
    integrity.remark("lines of other output skipped", other)
    return rows, list(arguments)


def _lines(source: Source) -> Iterator[bytes]:
    rest = b""
    while block := source.read(_BLOCK_BYTES):
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
        source.progress("reading", 0)
        if len(rest) > _MAX_LINE_BYTES:
            raise TraceError(f"byte {source.position}", "a line longer than any that cutlass_profiler writes", _HINT)
    if rest:
        yield rest


def _cells(line: bytes) -> list[str]:
    return [cell.strip() for cell in csv_cells(line.decode("utf-8", "replace").lstrip("\ufeff").rstrip("\r"))]


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _problem(row: Row, arguments: list[str]) -> str:
    """What was computed, as the tool would be told: m=4096 n=4096 k=4096 A=f16:row …"""
    parts = [f"{name}={row.cells[name]}" for name in arguments if name in _PROBLEM and row.cells.get(name)]
    return " ".join([row.cells["OperationKind"], *parts])[:500]


def _rates(row: Row) -> tuple[float | None, float | None]:
    """(FLOP/s, bytes/s) from the work and the time; GFLOPs as printed where the work is not stated."""
    flops, moved, printed = row.number("Flops"), row.number("Bytes"), row.number("GFLOPs")
    seconds = row.runtime_ns / 1e9 if row.runtime_ns else None
    rate = flops / seconds if flops and seconds else printed * 1e9 if printed else None
    return rate, moved / seconds if moved and seconds else None


def _best(timed: list[Row], arguments: list[str]) -> SummaryTable:
    problems: dict[str, list[Row]] = {}
    for row in timed:
        if _is_good(row):
            problems.setdefault(_problem(row, arguments), []).append(row)
    rows: CellRows = []
    for problem, tried in problems.items():
        tried.sort(key=lambda row: row.runtime_ns or 0)
        best, second = tried[0], tried[1] if len(tried) > 1 else None
        rate, bandwidth = _rates(best)
        lead = 100.0 * ((second.runtime_ns or 0) / (best.runtime_ns or 1) - 1) if second else None
        rows.append([problem, best.cells["Operation"], best.cells["Provider"], best.runtime_ns, rate, bandwidth, len(tried), lead])
    columns = summary_columns("Problem: text | Fastest kernel: text | Provider: text | Time of a launch: ns | "
                              "Operations per second: FLOP/s | Bandwidth: B/s | Kernels tried: count | Ahead of the second: pct")
    return SummaryTable("Fastest kernel per problem", columns, rows,
                        "Of the kernels that ran and that no check found wrong.")


def _all(rows: list[Row], arguments: list[str]) -> SummaryTable:
    varying = [name for name in arguments if len({row.cells.get(name, "") for row in rows}) > 1 or name in ("m", "n", "k")]
    shown: CellRows = []
    for row in rows:
        rate, bandwidth = _rates(row)
        shown.append([row.cells["Problem"], row.cells["Operation"], row.cells["Provider"], row.cells["Disposition"],
                      row.cells["Status"], row.runtime_ns, rate, bandwidth, *(row.cells.get(name, "") for name in varying)])
    texts = ("Problem", "Kernel", "Provider", "Disposition", "Status")
    columns = [*(SummaryColumn(name, text=True) for name in texts),
               *summary_columns("Time of a launch: ns | Operations per second: FLOP/s | Bandwidth: B/s"),
               *(SummaryColumn(name[:60], text=True) for name in varying)]
    fixed = [f"{name}={rows[0].cells[name]}" for name in arguments if name not in varying and rows[0].cells.get(name)]
    note = f"The same in all rows: {', '.join(fixed)[:1000]}." if fixed else ""
    return SummaryTable("All kernels that were tried", columns, shown, note)


def _dispositions(rows: list[Row]) -> SummaryTable:
    counts = Counter((row.cells["Provider"], row.cells["Disposition"], row.cells["Status"]) for row in rows)
    return SummaryTable(
        "Outcomes", summary_columns("Provider: text | Disposition: text | Status: text | Kernels: count"),
        [[*key, count] for key, count in counts.most_common()], "Incorrect and failed kernels are in no comparison and no sum.")

"""Reports of `nsys stats` (CSV, JSON, and the text it prints unasked), one or several in a file, to a `Summary` or a `Trace`.

Files of `nsys stats` hold a table each; its standard output holds several, with lines of the tool between them. Tables of
single events (cuda_gpu_trace, cuda_api_trace, nvtx_pushpop_trace, cuda_kern_exec_trace) make a timeline; tables of sums make
a summary. Values are taken in base units whatever the columns' are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise

from profiles.ingest.core.source import Source
from profiles.ingest.core.text_lines import cells_of, csv_cells, read_lines, spans_of
from profiles.ingest.naming.names import is_collective
from profiles.ingest.nsys import stats_table
from profiles.ingest.nsys.stats_table import Table, is_header
from profiles.ingest.trace import Cell, Integrity, KernelSum, Summary, SummaryColumn, SummaryTable, Trace, TraceError

# ---- sums of `nsys stats` ----
# Sums of `nsys stats` (kernels, API calls, copies, ranges) to a `Summary`: exactly what the tool printed.

FORMAT = "nsys-stats"
_COUNTS = frozenset({"Instances", "Num Calls", "Calls", "Count", "QCount", "NVTX Inst", "Kern Inst"})
# what the columns are -> what people call the table; the first that fits
_TITLES = (
    (("gridxyz", "instances", "name"), "CUDA GPU kernels by grid and block (cuda_gpu_kern_gb_sum)"),
    (("kavg", "kernel name"), "Kernel launch and execution (cuda_kern_exec_sum)"),
    (("kern inst", "nvtx range"), "Kernels by NVTX range (nvtx_kern_sum)"),
    (("total proj time", "range"), "NVTX ranges on the GPU (nvtx_gpu_proj_sum)"),
    (("style", "range"), "NVTX ranges (nvtx_sum)"),
    (("category", "operation"), "CUDA GPU work (cuda_gpu_sum)"),
    (("num calls", "name"), "API calls"),
    (("instances", "name"), "CUDA GPU kernels (cuda_gpu_kern_sum)"),
    (("total time", "operation"), "CUDA GPU copies and sets by time (cuda_gpu_mem_time_sum)"),
    (("total", "operation"), "CUDA GPU copies and sets by size (cuda_gpu_mem_size_sum)"),
)


def title(table: Table) -> str:
    report_name = next((name for columns, name in _TITLES if table.has(*columns)), "nsys stats")
    return report_name if not table.title or f"({table.title})" in report_name else f"{report_name.split(' (')[0]} ({table.title})"


def summary(tables: list[Table], integrity: Integrity) -> Summary:
    """The kernels of the table that states them best, and every table as it is."""
    chosen = min((table for table in tables if _rank(table) is not None), key=lambda table: _rank(table) or 0, default=None)
    kernels = _kernels(chosen) if chosen else []
    if chosen is not None and chosen.has("kavg"):
        integrity.notes.append("This report has no total time: a kernel's total is its mean, rounded to 0.1 ns, times its "
                               "launches.")
    integrity.settle()
    return Summary(FORMAT, kernels, [_summary_table(table) for table in tables], integrity,
                   metadata={"reports": ", ".join(dict.fromkeys(title(table) for table in tables))})


def _rank(table: Table) -> int | None:
    """Which table's kernels are counted where a file has several: they sum the same launches."""
    for rank, columns in enumerate((("instances", "name", "total time"), ("category", "operation", "instances", "total time"),
                                    ("kavg", "count", "kernel name"))):
        if table.has(*columns) and not table.has("style"):
            return 2 * rank + table.has("gridxyz")
    return None


def _kernels(table: Table) -> list[KernelSum]:
    if table.has("kavg"):
        return [kernel for row in table.rows if (kernel := _execution_sum(table, row))]
    name = "operation" if table.has("category") else "name"
    rows = [row for row in table.rows if not table.has("category") or "KERNEL" in table.text(row, "category").upper()]
    return [KernelSum(
        name=table.text(row, name) or "kernel without a name", launches=table.whole(row, "instances") or 0,
        total_ns=table.whole(row, "total time") or 0, category=_category(table.text(row, name)), mean_ns=table.real(row, "avg"),
        p50_ns=table.real(row, "med"), min_ns=table.real(row, "min"), max_ns=table.real(row, "max"),
        std_ns=table.real(row, "stddev"), grid=table.triple(row, "gridxyz"), block=table.triple(row, "blockxyz")) for row in rows]


def _execution_sum(table: Table, row: list[Cell]) -> KernelSum | None:
    name, mean, launches = table.text(row, "kernel name"), table.real(row, "kavg"), table.whole(row, "count")
    if not name or mean is None or not launches:
        return None
    return KernelSum(name=name, launches=launches, total_ns=round(mean * launches), category=_category(name), mean_ns=mean,
                     p50_ns=table.real(row, "kmed"), min_ns=table.real(row, "kmin"), max_ns=table.real(row, "kmax"),
                     std_ns=table.real(row, "kstddev"))


def _category(name: str) -> str:
    return "communication" if is_collective(name) else "compute"


def _summary_table(table: Table) -> SummaryTable:
    columns = [table.column_header(index) for index in range(len(table.names))]
    return SummaryTable(
        title(table),
        [SummaryColumn(name, "count" if name in _COUNTS else unit, text) for name, unit, text in columns],
        [[table.value(row, index, text) for index, (_, _, text) in enumerate(columns)] for row in table.rows],
        note="As nsys stats summed it; percentages are of this table, rounded to 0.1.")


# ---- reports of `nsys stats --format csv` ----

_BLOCK_BYTES = 1 << 20
_MAX_LINE_CHARS = 16 << 20
_MAX_ROW_LINES = 100                # of a name with line breaks in it
MAX_CELLS = 20_000_000              # of all tables of one file
_NAMED = re.compile(r"\*\* .*?\((\w+)\):?\s*$|Processing \[.*\] with \[.*?(\w+)(?:\.py)?\]")
_HINT = "Export it again: nsys stats --format csv --output . report.nsys-rep"


def sniff(head: bytes) -> bool:
    text = head.decode("utf-8", "replace").removeprefix("\ufeff")
    if _first_object(text):
        return True
    lines = text.splitlines()[:10_000]
    return any(_header(line) for line in lines) or any(_ruled_header(*both) for both in pairwise(lines))


def _first_object(text: str) -> bool:
    """Is the first JSON object a row of a table?"""
    match = re.search(r"^\s*\[\s*(?=\{)", text, re.MULTILINE)
    if match is None:
        return False
    try:
        first, _ = json.JSONDecoder().raw_decode(text, match.end())
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and is_header(list(first))


def read(source: Source) -> Trace | Summary:
    """Raises TraceError where no table has a row."""
    integrity = Integrity()
    is_json = _first_object(source.peek().decode("utf-8", "replace").removeprefix("\ufeff"))
    tables = (_json_tables if is_json else _csv_tables)(source, integrity)
    integrity.end_early(source.damage)
    full = [table for table in tables if table.rows]
    for table in tables:
        kind = stats_table.title(table) if stats_table.is_trace(table) else title(table)
        integrity.count(kind, len(table.rows))
        integrity.records_read += len(table.rows)
    if not full:
        raise TraceError("header", "the tables of nsys stats have no rows", "nsys recorded nothing of what this report sums.")
    events = [table for table in full if stats_table.is_trace(table)]
    if not events:
        return summary(full, integrity)
    integrity.drop("rows of sums beside a table of events: upload them on their own",
                   sum(len(table.rows) for table in full if not stats_table.is_trace(table)))
    return stats_table.trace(source, events, integrity)


def _header(line: str) -> tuple[list[str], str] | None:
    """(columns, delimiter) where the line is the header of a table."""
    if "(" not in line or len(line) > 10_000:
        return None
    for delimiter in (",", ";", "\t"):
        cells = csv_cells(line.lstrip("\ufeff"), delimiter)
        if is_header(cells):
            return [cell.strip() for cell in cells], delimiter
    return None


def _ruled_header(line: str, rule: str) -> list[tuple[int, int]]:
    """The columns of a printed table whose header is `line` and whose line of dashes is `rule`; nothing where it is none."""
    spans = spans_of(rule)
    return spans if len(spans) > 2 and is_header(cells_of(line, spans)) else []


class _Reader:
    """Tables in lines of text: a header begins one, an empty line or a line of the tool ends it."""

    def __init__(self, integrity: Integrity) -> None:
        self.integrity, self.named = integrity, ""
        self.tables: list[Table] = []
        self._open, self._delimiter, self._cells = False, ",", 0
        self._pending: list[str] = []           # lines of a row with a line break in a name
        self._before, self._spans = "", list[tuple[int, int]]()     # the line before this one; columns of a printed table
        self.other = self.damaged = 0

    def take(self, line: str) -> None:
        if self._pending:
            self._row("\n".join([*self._pending, line]), [*self._pending, line])
            return
        before, self._before = self._before, line
        if spans := _ruled_header(before, line):
            self.tables.append(Table(self.named, cells_of(before, spans)))
            self._open, self._spans, self.named = True, spans, ""
            self.other -= 1                     # the header was taken for a line of the tool
            return
        if self._spans and self._open and line.strip():
            self._ruled_row(line)
            return
        self._spans = []
        header = _header(line)
        if header:
            self.tables.append(Table(self.named, header[0]))
            self._open, self._delimiter, self.named = True, header[1], ""
        elif not line.strip():
            self._open = False
        elif self._open and (line[:1].isdigit() or line[:1] in "\"-'" or self._delimiter in line):
            self._row(line, [line])
        else:
            self._open = False
            self.other += 1
            match = _NAMED.search(line[:4_000])
            self.named = (match[1] or match[2]) if match else self.named

    def _ruled_row(self, line: str) -> None:
        """A row of a printed table, or the rest of a name that was broken at the width of its column."""
        cells, rows = cells_of(line, self._spans), self.tables[-1].rows
        if rows and not any(cells[:-1]):
            first, last = self._spans[-1]
            whole = len(rows[-1][-1]) >= last - first
            rows[-1][-1] += cells[-1] if whole else f" {cells[-1]}"
            return
        self._add(cells)

    def _row(self, text: str, lines: list[str]) -> None:
        if text.count('"') % 2:
            self._pending = lines
            if len(lines) > _MAX_ROW_LINES or len(text) > _MAX_LINE_CHARS:
                self.damaged, self._pending = self.damaged + 1, []
            return
        self._pending = []
        cells, table = csv_cells(text, self._delimiter), self.tables[-1]
        if len(cells) != len(table.names):
            self.damaged += 1
            return
        self._add(cells)

    def _add(self, cells: list[str]) -> None:
        table = self.tables[-1]
        self._cells += len(cells)
        if self._cells > MAX_CELLS:
            raise TraceError("row " + format(len(table.rows), ","), f"more than {MAX_CELLS:,} cells",
                             "Upload the SQLite export (nsys export --type sqlite): it is read in columns.")
        table.rows.append(cells)

    def end(self) -> None:
        self.damaged += bool(self._pending)
        self.integrity.records_read += self.damaged
        self.integrity.drop("rows with too few or too many cells", self.damaged)
        self.integrity.remark("lines of other output skipped", self.other)


def _csv_tables(source: Source, integrity: Integrity) -> list[Table]:
    reader = _Reader(integrity)
    for line in read_lines(source, _MAX_LINE_CHARS, "nsys stats", _HINT):
        reader.take(line)
    reader.end()
    return reader.tables


def _json_tables(source: Source, integrity: Integrity) -> list[Table]:
    """Arrays of objects, one after the other; each with keys of its own is a table."""
    tables: list[Table] = []
    cells = damaged = 0
    for row in _objects(source):
        if not isinstance(row, dict):
            damaged += 1
            continue
        names = list(row)
        if not tables or tables[-1].names != names:
            if not is_header(names):
                damaged += 1
                continue
            tables.append(Table("", names))
        tables[-1].rows.append(list(row.values()))
        cells += len(names)
        if cells > MAX_CELLS:
            raise TraceError(f"byte {source.position}", f"more than {MAX_CELLS:,} cells",
                             "Upload the SQLite export (nsys export --type sqlite): it is read in columns.")
    integrity.records_read += damaged
    integrity.drop("JSON values that are no row of a table, or damaged", damaged)
    return tables


def _objects(source: Source) -> Iterator[object]:
    """Every object of the arrays; None for what cannot be decoded (the file is cut there)."""
    decoder = json.JSONDecoder()
    text, position, more = "", 0, True
    while more:
        block = source.read(_BLOCK_BYTES)
        more = bool(block)
        text, position = text[position:] + block.decode("utf-8", "replace"), 0
        source.progress("reading", 0)
        if len(text) > _MAX_LINE_CHARS:
            raise TraceError(f"byte {source.position}", "a row longer than any that nsys stats writes", _HINT)
        while (start := text.find("{", position)) >= 0:
            try:
                value, position = decoder.raw_decode(text, start)
            except (ValueError, RecursionError):
                position = start
                break
            yield value
        else:
            position = len(text)
    if text[position:].strip():
        yield None

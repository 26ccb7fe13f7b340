"""Reports of `nsys stats --format csv` and `--format json`, one or several in a file, to a `Summary` or a `Trace`.

Files of `nsys stats` hold a table each; its standard output holds several, with lines of the tool between them. Tables of
single events (cuda_gpu_trace, cuda_api_trace, nvtx_pushpop_trace, cuda_kern_exec_trace) make a timeline; tables of sums make
a summary. Values are taken in base units whatever the columns' are.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator

from profiles.ingest.core.source import Source
from profiles.ingest.core.text_lines import read_lines
from profiles.ingest.nsys import stats_sums, stats_trace
from profiles.ingest.nsys.stats_table import Table, is_header
from profiles.ingest.trace import Integrity, Summary, Trace, TraceError

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
    lines = text.splitlines()
    return any(_header(line) for line in lines[:10_000])


def _first_object(text: str) -> bool:
    """Is the first JSON object a row of a table?"""
    at = re.search(r"^\s*\[\s*(?=\{)", text, re.MULTILINE)
    if at is None:
        return False
    try:
        first, _ = json.JSONDecoder().raw_decode(text, at.end())
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and is_header(list(first))


def read(source: Source) -> Trace | Summary:
    """Raises TraceError where no table has a row."""
    integrity = Integrity()
    is_json = _first_object(source.peek().decode("utf-8", "replace").removeprefix("\ufeff"))
    tables = (_json_tables if is_json else _csv_tables)(source, integrity)
    if source.damage:
        integrity.truncated_at = source.damage.split(":")[0]
        integrity.notes.append(f"The compressed file ends early: {source.damage}.")
    full = [table for table in tables if table.rows]
    for table in tables:
        kind = stats_trace.title(table) if stats_trace.is_trace(table) else stats_sums.title(table)
        integrity.kinds[kind] = integrity.kinds.get(kind, 0) + len(table.rows)
        integrity.records_read += len(table.rows)
    if not full:
        raise TraceError("header", "the tables of nsys stats have no rows", "nsys recorded nothing of what this report sums.")
    events = [table for table in full if stats_trace.is_trace(table)]
    if not events:
        return stats_sums.summary(full, integrity)
    integrity.drop("rows of sums beside a table of events: upload them on their own",
                   sum(len(table.rows) for table in full if not stats_trace.is_trace(table)))
    return stats_trace.trace(source, events, integrity)


def _header(line: str) -> tuple[list[str], str] | None:
    """(columns, delimiter) where the line is the header of a table."""
    if "(" not in line or len(line) > 10_000:
        return None
    for delimiter in (",", ";", "\t"):
        cells = _cells(line.lstrip("\ufeff"), delimiter)
        if is_header(cells):
            return [cell.strip() for cell in cells], delimiter
    return None


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:                                       # a cell beyond the limit of the csv module: 128 kB
        return []


class _Reader:
    """Tables in lines of text: a header begins one, an empty line or a line of the tool ends it."""

    def __init__(self, integrity: Integrity) -> None:
        self.integrity, self.named = integrity, ""
        self.tables: list[Table] = []
        self._open, self._delimiter, self._cells = False, ",", 0
        self._pending: list[str] = []           # lines of a row with a line break in a name
        self.other = self.damaged = 0

    def take(self, line: str) -> None:
        if self._pending:
            self._row("\n".join([*self._pending, line]), [*self._pending, line])
            return
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

    def _row(self, text: str, lines: list[str]) -> None:
        if text.count('"') % 2:
            self._pending = lines
            if len(lines) > _MAX_ROW_LINES or len(text) > _MAX_LINE_CHARS:
                self.damaged, self._pending = self.damaged + 1, []
            return
        self._pending = []
        cells, table = _cells(text, self._delimiter), self.tables[-1]
        if len(cells) != len(table.names):
            self.damaged += 1
            return
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
    text, at, more = "", 0, True
    while more:
        block = source.read(_BLOCK_BYTES)
        more = bool(block)
        text, at = text[at:] + block.decode("utf-8", "replace"), 0
        source.progress("reading", 0)
        if len(text) > _MAX_LINE_CHARS:
            raise TraceError(f"byte {source.position}", "a row longer than any that nsys stats writes", _HINT)
        while (start := text.find("{", at)) >= 0:
            try:
                value, at = decoder.raw_decode(text, start)
            except (ValueError, RecursionError):
                at = start
                break
            yield value
        else:
            at = len(text)
    if text[at:].strip():
        yield None

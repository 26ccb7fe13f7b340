"""Tables of an SQLite file as numpy columns, read page by page: no SQL of the file is ever executed.

Views, triggers, virtual tables and generated columns of a stranger's database run nothing here, a cut or damaged file
gives every row whose page is whole, and a million rows of 17 columns take a second (Python's cursor: seven).

The file format: https://www.sqlite.org/fileformat2.html, sections 1.3 (header), 1.6 (b-tree pages), 2.1 (records).
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from profiles.ingest.arrays import Bools
from profiles.ingest.core.sqlite_rows import Bytes, Cells, Columns, Rows, cells, columns_of, integer_at
from profiles.ingest.trace import TraceError

MAGIC = b"SQLite format 3\0"
BATCH_BYTES = 4 << 20
RECORD_BYTES = 16 << 20             # a longer row is not read
_OVERFLOW_BATCH = 64 << 20          # of rows that continue on other pages, per batch
_SCHEMA_ROWS = 20_000
_DEPTH = 24                         # of a b-tree: 2 children per page would hold 16 M pages
_LEAF, _INNER = 13, 5


@dataclass
class Table:
    """A table of the file and what was lost of it."""

    name: str
    root: int
    columns: Columns
    pages_lost: int = 0             # missing or damaged
    first_lost: int = 0             # number of the first of them
    rows_lost: int = 0              # on pages that were read

    def lose(self, page: int) -> None:
        self.pages_lost += 1
        self.first_lost = self.first_lost or page


class Database:
    """An SQLite file open for reading. Raises TraceError where not even its first page can be read."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else None
        self.bytes: Bytes = np.frombuffer(self._map, np.uint8) if self._map else np.empty(0, np.uint8)
        head = bytes(self.bytes[:100])
        if len(head) < 100 or not head.startswith(MAGIC):
            raise TraceError("byte 0", "this is no SQLite database: its header is cut or damaged", _AGAIN)
        self.page_bytes = int.from_bytes(head[16:18], "big")
        self.page_bytes = 65_536 if self.page_bytes == 1 else self.page_bytes
        if self.page_bytes < 512 or self.page_bytes & (self.page_bytes - 1) or self.page_bytes - head[20] < 480:
            raise TraceError("byte 16", f"a damaged SQLite header: pages of {self.page_bytes} bytes", _AGAIN)
        self.usable = self.page_bytes - head[20]
        self.encoding = {2: "utf-16-le", 3: "utf-16-be"}.get(int.from_bytes(head[56:60], "big"), "utf-8")
        self.write_ahead = head[18] == 2
        self.pages = self.bytes.size // self.page_bytes
        self.pages_stated = int.from_bytes(head[28:32], "big")
        self._owner = np.zeros(self.pages + 2, np.uint32)    # a page belongs to one table …
        self._read = np.zeros(self.pages + 2, np.uint32)     # … and is read once per pass: circles end
        self._pass = 0
        self.not_tables: list[str] = []                      # views, virtual tables: named, never looked into
        self.schema = Table("sqlite_schema", 1, Columns(["type", "name", "tbl_name", "rootpage", "sql"]))
        self.tables = self._tables()

    @property
    def cut(self) -> str | None:
        """Return where the file ends before its end, or None."""
        if self.pages >= self.pages_stated:
            return None
        return f"byte {self.bytes.size} (page {self.pages + 1} of {self.pages_stated})"

    def _tables(self) -> dict[str, Table]:
        tables: dict[str, Table] = {}
        rows = 0
        for batch in self.batches(self.schema, self.schema.columns.names):
            listed = zip(batch.texts("type"), batch.texts("name"), batch.texts("sql", 1 << 20), batch.ints("rootpage").tolist(),
                         strict=True)
            for kind, name, sql, root in listed:
                columns = columns_of(sql or "") if kind == "table" else None
                if columns is not None and name and 1 < root <= max(self.pages, self.pages_stated):
                    tables.setdefault(name, Table(name, root, columns))
                elif kind in ("table", "view") and name:
                    self.not_tables.append(name[:200])
            rows += batch.count
            if rows > _SCHEMA_ROWS:
                raise TraceError("the schema", f"more than {_SCHEMA_ROWS:,} tables and indexes", "No profiler writes such a file.")
        return tables

    def batches(self, table: Table, names: Sequence[str]) -> Iterator[Rows]:
        """The rows of a table in batches, of the columns `names` (those that it lacks are missing)."""
        self._pass += 1
        table.pages_lost = table.first_lost = table.rows_lost = 0
        per_batch = max(1, BATCH_BYTES // self.page_bytes)
        pages: list[int] = []
        for page in self._leaves(table):
            pages.append(page)
            if len(pages) == per_batch:
                yield self._batch(table, pages, names)
                pages = []
        if pages:
            yield self._batch(table, pages, names)

    def _leaves(self, table: Table) -> Iterator[int]:
        """Leaf pages in the order of the rows."""
        now = self._pass
        stack = [(table.root, 0)]
        while stack:
            page, depth = stack.pop()
            if depth > _DEPTH or not self._take(page, table.root, now):
                table.lose(page)
                continue
            start = (page - 1) * self.page_bytes
            kind = int(self.bytes[start + (100 if page == 1 else 0)])
            if kind == _LEAF:
                yield page
            elif kind == _INNER:
                stack += [(child, depth + 1) for child in reversed(self._children(table, page))]
            else:
                table.lose(page)

    def _take(self, page: int, root: int, now: int) -> bool:
        """Is the page there, this table's and not yet read in this pass? It is, then."""
        if not 0 < page <= self.pages or self._owner[page] not in (0, root) or self._read[page] == now:
            return False
        self._owner[page], self._read[page] = root, now
        return True

    def _children(self, table: Table, page: int) -> list[int]:
        start = (page - 1) * self.page_bytes
        head = start + (100 if page == 1 else 0)
        count = integer_at(self.bytes, head + 3, 2)
        right = integer_at(self.bytes, head + 8, 4)
        if count > (self.usable - 12) // 2:
            table.lose(page)
            return []
        pointers = self.bytes[head + 12:head + 12 + 2 * count].reshape(-1, 2).astype(np.int64)
        places = pointers[:, 0] * 256 + pointers[:, 1]
        places = places[places <= self.usable - 4] + start
        children: list[int] = (self.bytes[places[:, None] + np.arange(4)].astype(np.int64) @ _BE4).tolist()
        return [*children, right]

    def _batch(self, table: Table, pages: Sequence[int], names: Sequence[str]) -> Rows:
        whole = self.bytes[:self.pages * self.page_bytes].reshape(self.pages, self.page_bytes)
        on_pages = cells(whole[np.array(pages) - 1], pages[0] == 1, self.usable)
        for place in np.flatnonzero(on_pages.damaged).tolist():
            table.lose(pages[place])
        buffer, lost = self._join_overflow(table, on_pages)
        table.rows_lost += on_pages.lost + int(np.count_nonzero(lost))
        keep = ~lost
        rows = Rows(buffer, on_pages.start[keep], on_pages.payload[keep], on_pages.rowid[keep], table.columns, names, self.encoding)
        if self._map:
            self._map.madvise(mmap.MADV_DONTNEED)            # what was read stays in the system's cache, not in this process
        table.rows_lost += rows.lost
        return rows

    def _join_overflow(self, table: Table, cells: Cells) -> tuple[Bytes, Bools]:
        """Rows that continue on overflow pages, put together behind the pages (`cells.start` changes); which could not be."""
        lost = np.zeros(cells.start.size, np.bool_)
        parts: list[Bytes] = [cells.buffer]
        offset, room = cells.buffer.size, _OVERFLOW_BATCH
        for row in np.flatnonzero(cells.payload > cells.local).tolist():
            begin, size, here = int(cells.start[row]), int(cells.payload[row]), int(cells.local[row])
            whole = None if size > min(RECORD_BYTES, room) else self._chain(
                table, cells.buffer[begin:begin + here], size - here, integer_at(cells.buffer, begin + here, 4))
            if whole is None:
                lost[row] = True
                continue
            cells.start[row] = offset
            parts.append(whole)
            offset, room = offset + size, room - size
        parts.append(np.zeros(16, np.uint8))                 # a window may look beyond the last byte
        return np.concatenate(parts), lost

    def _chain(self, table: Table, first: Bytes, left: int, page: int) -> Bytes | None:
        parts = [first]
        while left > 0:
            if not self._take(page, table.root, self._pass):
                return None
            start = (page - 1) * self.page_bytes
            parts.append(self.bytes[start + 4:start + 4 + min(left, self.usable - 4)])
            left -= self.usable - 4
            page = integer_at(self.bytes, start, 4)
        return np.concatenate(parts)


_BE4 = np.array([1 << 24, 1 << 16, 1 << 8, 1], np.int64)
_AGAIN = "Export the report again (`nsys export --type sqlite`) and copy the whole file."

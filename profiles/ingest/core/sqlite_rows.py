"""Cells of SQLite leaf pages and the records in them, decoded column by column over all rows of a batch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profiles.ingest.arrays import Bools, Floats, Ints
from profiles.ingest.core.events import MISSING

# Column names out of a CREATE TABLE statement, read as text: the statement is a stranger's and is never executed.

_TOKEN = re.compile(r"""(?P<skip>\s+|--[^\n]*|/\*.*?(?:\*/|$))
    |(?P<quoted>"(?:[^"]|"")*"|'(?:[^']|'')*'|`(?:[^`]|``)*`|\[[^\]]*\])
    |(?P<word>[^\s"'`\[\](),;/-]+)|(?P<sign>.)""", re.VERBOSE | re.DOTALL)
_CONSTRAINTS = frozenset({"CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN"})
MAX_COLUMNS = 2_000             # SQLite's own limit


class Columns:
    """The stored columns of a table in their order, and which one is the row id itself (INTEGER PRIMARY KEY)."""

    def __init__(self, names: list[str], rowid: str | None = None) -> None:
        self.names, self.rowid = names, rowid
        self.place = {name: place for place, name in reversed(list(enumerate(names)))}


def columns_of(sql: str) -> Columns | None:
    """Return the stored columns that a CREATE TABLE statement names, or None.

    None where this is no ordinary table: virtual, without row ids, made from a SELECT, or not understood.
    """
    tokens = _tokens(sql)
    head = [text.upper() for text, _ in _until_bracket(tokens)]
    if head[:2] != ["CREATE", "TABLE"] or "AS" in head[2:]:
        return None
    parts, rest = _parts(tokens)
    if "WITHOUT" in rest or not 0 < len(parts) <= MAX_COLUMNS:
        return None
    names: list[str] = []
    kinds: dict[str, str] = {}
    key: str | None = None
    for part in parts:
        words = [text.upper() for text, quoted in part if not quoted]
        if not part:
            return None
        if not part[0][1] and part[0][0].upper() in _CONSTRAINTS:
            key = key or _key_of(part, words)
            continue
        name = part[0][0]
        generated = "AS" in words[1:] and "(" in words
        if generated and "STORED" not in words:
            continue                                       # computed when asked for: not in the record
        names.append(name)
        kinds[name] = part[1][0].upper() if len(part) > 1 else ""
        if "PRIMARY" in words and "DESC" not in words:
            key = name
    return Columns(names, key if key is not None and kinds.get(key) == "INTEGER" else None)


def _key_of(part: list[tuple[str, bool]], words: list[str]) -> str | None:
    """The column of PRIMARY KEY (column), None where it names several."""
    if "PRIMARY" not in words or "," in words or "(" not in words:
        return None
    names = [text for text, _ in part]
    index = names.index("(")
    return names[index + 1] if len(names) > index + 1 else None


def _tokens(sql: str) -> Iterator[tuple[str, bool]]:
    for match in _TOKEN.finditer(sql):
        if match["quoted"]:
            text = match["quoted"]
            yield text[1:-1].replace(text[-1] * 2, text[-1]), True
        elif not match["skip"]:
            yield match["word"] or match["sign"], False


def _until_bracket(tokens: Iterator[tuple[str, bool]]) -> Iterator[tuple[str, bool]]:
    for token in tokens:
        if token == ("(", False):
            return
        yield token


def _parts(tokens: Iterator[tuple[str, bool]]) -> tuple[list[list[tuple[str, bool]]], set[str]]:
    """What stands between the outer brackets, divided at its commas; the words behind them."""
    parts: list[list[tuple[str, bool]]] = [[]]
    depth = 1
    for token in tokens:
        if token == ("(", False):
            depth += 1
        elif token == (")", False):
            depth -= 1
            if not depth:
                return parts, {text.upper() for text, _ in tokens}
        if token == (",", False) and depth == 1:
            parts.append([])
        else:
            parts[-1].append(token)
    return [], set()                                       # its brackets never close


Bytes = npt.NDArray[np.uint8]
_LEAF = 13
_SIZES = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0], np.int64)      # bytes of serial types 0-11
_INTEGERS = ((1, 1), (2, 2), (3, 3), (4, 4), (5, 6), (6, 8))           # serial type, bytes


def integer_at(data: Bytes, offset: int, size: int) -> int:
    """Unsigned, big endian."""
    return int.from_bytes(bytes(data[offset:offset + size]), "big")


def varints(data: Bytes, offsets: Ints) -> tuple[Ints, Ints]:
    """Return values and lengths of the variable-length integers that begin at `offsets`.

    Places beyond the data read its last byte.
    """
    last = data.size - 1
    first = data[np.minimum(offsets, last)]
    value, length = (first & 0x7F).astype(np.int64), np.ones(offsets.size, np.int64)
    rows = np.flatnonzero(first >= 0x80)
    for step in range(1, 9):
        if not rows.size:
            break
        byte = data[np.minimum(offsets[rows] + step, last)].astype(np.int64)
        value[rows] = value[rows] << 8 | byte if step == 8 else value[rows] << 7 | byte & 0x7F
        length[rows] = step + 1
        rows = rows[byte >= 0x80]
    return value, length


@dataclass
class Cells:
    """The cells of some leaf pages: where each row's payload begins in `buffer` and how much of it is on its page."""

    buffer: Bytes
    start: Ints
    payload: Ints              # bytes of the whole record
    local: Ints                # bytes of it on the page; the rest is on overflow pages
    rowid: Ints
    damaged: Bools          # per page: it holds nothing that can be read
    lost: int                               # cells that cannot be


def cells(pages: Bytes, first_is_header: bool, usable: int) -> Cells:
    """Return the cells of leaf pages (n, page bytes).

    `first_is_header`: page 1 of the file, whose first 100 bytes are its header.
    """
    count_pages, size = pages.shape
    buffer: Bytes = np.ascontiguousarray(pages).reshape(-1)
    base = np.arange(count_pages, dtype=np.int64) * size
    head = base + np.where(np.arange(count_pages) == 0, 100 if first_is_header else 0, 0)
    count = buffer[head + 3].astype(np.int64) * 256 + buffer[head + 4]
    damaged = (buffer[head] != _LEAF) | (8 + 2 * count > usable)
    count[damaged] = 0
    page = np.repeat(np.arange(count_pages), count)
    inside = np.arange(page.size) - np.repeat(np.cumsum(count) - count, count)
    pointer = head[page] + 8 + 2 * inside
    offset = base[page] + buffer[pointer].astype(np.int64) * 256 + buffer[pointer + 1]
    payload, width = varints(buffer, offset)
    rowid, more = varints(buffer, offset + width)
    start = offset + width + more
    local = _local(payload, usable)
    end = start + local + np.where(payload > local, 4, 0)
    good = (payload > 0) & (end <= base[page] + usable)
    used = np.bincount(page, np.where(good, end - offset, 0), minlength=count_pages)
    crowded = used > size                                   # cells lie on each other: no page that SQLite writes
    damaged |= crowded
    good &= ~crowded[page]
    lost = int(np.count_nonzero(~good & ~damaged[page]))
    return Cells(buffer, start[good], payload[good], local[good], rowid[good], damaged, lost)


def _local(payload: Ints, usable: int) -> Ints:
    """How much of a record lies on its leaf page (section 1.6: "X is U-35")."""
    least = (usable - 12) * 32 // 255 - 23
    spilled = least + (payload - least) % (usable - 4)
    return np.where(payload <= usable - 35, payload, np.where(spilled <= usable - 35, spilled, least))


class Rows:
    """Rows of a batch: columns are decoded when asked for. `lost`: records that contradict themselves, left out."""

    def __init__(self, buffer: Bytes, start: Ints, payload: Ints, rowid: Ints, columns: Columns, names: Sequence[str],
                 encoding: str) -> None:
        self.odd = 0                            # values of another type than asked for
        self._buffer, self._rowid, self._encoding = buffer, rowid, encoding
        self._alias = columns.rowid
        name_by_place = {columns.place[name]: name for name in names if name in columns.place}
        header, width = varints(buffer, start)
        offset, header_end, end = start + width, start + header, start + payload
        body = header_end.copy()
        bad = (header < width) | (header > payload)
        self._found: dict[str, tuple[Ints, Ints]] = {}
        for place in range(max(name_by_place, default=-1) + 1):
            kind, length = varints(buffer, offset)
            inside = offset < header_end
            kind = np.where(inside, kind, 0)    # a row older than the column: null
            offset = offset + np.where(inside, length, 0)
            size = np.where(kind < 12, _SIZES[np.clip(kind, 0, 11)], (kind - 12) // 2)
            bad |= (kind < 0) | (body + size > end) | (offset > header_end)
            if place in name_by_place:
                self._found[name_by_place[place]] = kind, body
            body = body + np.where(bad, 0, size)
        self.lost = int(np.count_nonzero(bad))
        if self.lost:
            good = ~bad
            self._rowid = rowid[good]
            self._found = {name: (kind[good], offset[good]) for name, (kind, offset) in self._found.items()}
        self.count = self._rowid.size

    def has(self, name: str) -> bool:
        return name in self._found or name == self._alias

    def ints(self, name: str, missing: int = MISSING) -> Ints:
        """Return whole numbers.

        Null, absent and what is none become `missing` (the latter counted in `odd`).
        """
        out = np.full(self.count, missing, np.int64)
        if name not in self._found:
            return self._rowid if name == self._alias else out
        kind, offset = self._found[name]
        for serial, size in _INTEGERS:
            rows = np.flatnonzero(kind == serial)
            if rows.size:
                out[rows] = self._integers(offset[rows] if rows.size < kind.size else offset, size)
        out[kind == 8], out[kind == 9] = 0, 1
        if name == self._alias:
            out = np.where(kind == 0, self._rowid, out)
        real = np.flatnonzero(kind == 7)
        if real.size:
            values = self._reals(offset[real])
            fits = np.abs(values) < 2.0**62
            out[real[fits]] = np.rint(values[fits]).astype(np.int64)
            self.odd += int(np.count_nonzero(~fits))
        self.odd += int(np.count_nonzero(kind >= 10))
        return out

    def _integers(self, offsets: Ints, size: int) -> Ints:
        value = self._buffer[offsets].astype(np.int8).astype(np.int64)
        for step in range(1, size):
            value = value << 8 | self._buffer[offsets + step]
        return value

    def _reals(self, offsets: Ints) -> Floats:
        values: Floats = self._buffer[offsets[:, None] + np.arange(8)].view(">f8").reshape(-1).astype(np.float64)
        return values

    def floats(self, name: str) -> Floats:
        """Return numbers, NaN where there is none."""
        if name not in self._found:
            return np.full(self.count, np.nan)
        whole = self.ints(name)
        out = np.where(whole == MISSING, np.nan, whole.astype(np.float64))
        kind, offset = self._found[name]
        real = np.flatnonzero(kind == 7)
        out[real] = self._reals(offset[real])
        return out

    def blobs(self, name: str, longest: int) -> list[bytes | None]:
        """Bytes of blobs and texts alike; None where there is none, or more than `longest`."""
        out: list[bytes | None] = [None] * self.count
        if name in self._found:
            kind, offset = self._found[name]
            size = np.where(kind >= 12, (kind - 12) // 2, 0)
            rows = np.flatnonzero((size > 0) & (size <= longest))
            data = self._buffer.data
            for row, begin, length in zip(rows.tolist(), offset[rows].tolist(), size[rows].tolist(), strict=True):
                out[row] = bytes(data[begin:begin + length])
        return out

    def texts(self, name: str, longest: int = 1 << 16) -> list[str | None]:
        """Texts, clipped to `longest` bytes; None where there is none."""
        out: list[str | None] = [None] * self.count
        if name not in self._found:
            return out
        kind, offset = self._found[name]
        self.odd += int(np.count_nonzero(((kind > 0) & (kind < 12)) | ((kind >= 12) & (kind % 2 == 0))))
        rows = np.flatnonzero((kind >= 13) & (kind % 2 == 1))
        if not rows.size:
            return out
        size = np.minimum((kind[rows] - 13) // 2, longest)
        data, encoding = self._buffer.data, self._encoding
        for row, begin, length in zip(rows.tolist(), offset[rows].tolist(), size.tolist(), strict=True):
            out[row] = str(data[begin:begin + length], encoding, "replace")
        return out

"""Rows as PostgreSQL's COPY reads them in binary, made by numpy: a row at a time costs a hundred times as much.

Format: PostgreSQL's manual, "COPY", section "Binary Format"; of arrays: `array_send` in its arrayfuncs.c.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from profiles.fleet.merge import Column, Hours
from profiles.fleet.tables import FactTable

HEAD, TAIL = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
PIECE = 20_000                      # rows that are packed at once: bounds the memory
INT2, INT8 = 21, 20                 # object identifiers of PostgreSQL's types
Bytes = npt.NDArray[np.uint8]


def packed_rows(table: FactTable, hours: Hours) -> Iterator[bytes]:
    """Yield what COPY … FROM STDIN (FORMAT BINARY) reads, columns as `FactTable.columns` names them."""
    yield HEAD
    for first in range(0, hours.rows, PIECE):
        last = min(first + PIECE, hours.rows)
        plain = _plain(table, hours.columns, first, last)
        if hours.starts is None or hours.bucket is None or hours.count is None:
            yield plain.tobytes()
            continue
        starts = hours.starts[first:last + 1]
        pairs = slice(int(starts[0]), int(starts[-1]))
        yield _with_arrays(plain, np.diff(starts), hours.bucket[pairs], hours.count[pairs])
    yield TAIL


def _plain(table: FactTable, columns: dict[str, Column], first: int, last: int) -> Bytes:
    """The fields of fixed size, shape (rows, bytes)."""
    names = ("at", *table.keys, *table.sums, *table.least, *table.most)
    kinds = {name: ">i4" if name == "at" else ">f8" if table.sums.get(name) == "f" else ">i8" for name in names}
    layout: list[tuple[str, str]] = [("fields", ">i2")]
    for name in names:
        layout += [(f"size of {name}", ">i4"), (name, kinds[name])]
    rows = np.empty(last - first, layout)
    rows["fields"] = len(table.columns)
    for name in names:
        rows[f"size of {name}"] = np.dtype(kinds[name]).itemsize
        rows[name] = columns[name][first:last]
    return rows.view(np.uint8).reshape(last - first, -1)


def _with_arrays(plain: Bytes, sizes: npt.NDArray[np.int64], bucket: npt.NDArray[np.int64], count: npt.NDArray[np.int64]) -> bytes:
    """Rows with their sketches behind them: two arrays of equal length each."""
    arrays = ((INT2, ">i2", bucket), (INT8, ">i8", count))
    row_bytes = plain.shape[1] + sum(_array_bytes(kind, sizes) for _, kind, _ in arrays)
    ends = np.cumsum(row_bytes)
    out = np.zeros(int(ends[-1]), np.uint8)
    at = ends - row_bytes
    _put(out, at, plain)
    at = at + plain.shape[1]
    nth = np.arange(bucket.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)       # of each pair in its row
    for type_id, kind, values in arrays:
        width = np.dtype(kind).itemsize
        some = sizes > 0
        head = np.zeros(sizes.size, [("size", ">i4"), ("dimensions", ">i4"), ("nulls", ">i4"), ("type", ">i4"), ("length", ">i4"),
                                     ("from", ">i4")])
        head["size"], head["dimensions"], head["type"] = _array_bytes(kind, sizes) - 4, some, type_id
        head["length"], head["from"] = sizes, 1
        whole = head.view(np.uint8).reshape(sizes.size, -1)
        _put(out, at[~some], whole[~some, :16])                         # an array of nothing has no dimension
        _put(out, at[some], whole[some])
        cells = np.empty(values.size, [("size", ">i4"), ("value", kind)])
        cells["size"], cells["value"] = width, values
        _put(out, np.repeat(at + 24, sizes) + nth * (4 + width), cells.view(np.uint8).reshape(values.size, 4 + width))
        at = at + _array_bytes(kind, sizes)
    return out.tobytes()


def _array_bytes(kind: str, sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.where(sizes > 0, 24 + sizes * (4 + np.dtype(kind).itemsize), 16)


def _put(out: Bytes, at: npt.NDArray[np.int64], rows: Bytes) -> None:
    """Copy each row of bytes to its place."""
    for column in range(rows.shape[1]):
        out[at + column] = rows[:, column]

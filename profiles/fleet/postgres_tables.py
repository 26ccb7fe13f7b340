"""The tables of the fleet's sums in PostgreSQL: as the migrations make them, and their partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
from django.db import connection

from profiles.fleet.merge import Column, Hours
from profiles.fleet.tables import BY_NAME, LEVELS, TABLES, FactTable, table_name

# Rows as PostgreSQL's COPY reads them in binary, made by numpy: a row at a time costs a hundred times as much.
#
# Format: PostgreSQL's manual, "COPY", section "Binary Format"; of arrays: `array_send` in its arrayfuncs.c.

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
    offset = ends - row_bytes
    _put(out, offset, plain)
    offset = offset + plain.shape[1]
    nth = np.arange(bucket.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)       # of each pair in its row
    for type_id, kind, values in arrays:
        width = np.dtype(kind).itemsize
        some = sizes > 0
        head = np.zeros(sizes.size, [("size", ">i4"), ("dimensions", ">i4"), ("nulls", ">i4"), ("type", ">i4"), ("length", ">i4"),
                                     ("from", ">i4")])
        head["size"], head["dimensions"], head["type"] = _array_bytes(kind, sizes) - 4, some, type_id
        head["length"], head["from"] = sizes, 1
        whole = head.view(np.uint8).reshape(sizes.size, -1)
        _put(out, offset[~some], whole[~some, :16])                         # an array of nothing has no dimension
        _put(out, offset[some], whole[some])
        cells = np.empty(values.size, [("size", ">i4"), ("value", kind)])
        cells["size"], cells["value"] = width, values
        _put(out, np.repeat(offset + 24, sizes) + nth * (4 + width), cells.view(np.uint8).reshape(values.size, 4 + width))
        offset = offset + _array_bytes(kind, sizes)
    return out.tobytes()


def _array_bytes(kind: str, sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.where(sizes > 0, 24 + sizes * (4 + np.dtype(kind).itemsize), 16)


def _put(out: Bytes, at: npt.NDArray[np.int64], rows: Bytes) -> None:
    """Copy each row of bytes to its place."""
    for column in range(rows.shape[1]):
        out[at + column] = rows[:, column]


PARTITION = {"hour": 24, "day": 32, "month": 128}   # `at` per partition: a day of hours, a month or so of days, four months or so
LOCK = 0x7269646765                                 # of writers that make partitions


def make_partitions(table: FactTable, level: str, at: Iterable[int]) -> None:
    name, size = table_name(table, level), PARTITION[level]
    numbers = sorted({hour // size for hour in at})
    with connection.cursor() as cursor:
        cursor.execute("SELECT relname FROM pg_inherits JOIN pg_class ON oid = inhrelid WHERE inhparent = %s::regclass", [name])
        there = {part for (part,) in cursor.fetchall()}
        missing = [number for number in numbers if f"{name}_{number}" not in there]
        if missing:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        for number in missing:
            cursor.execute(f"CREATE TABLE IF NOT EXISTS {name}_{number} PARTITION OF {name} "
                           f"FOR VALUES FROM ({number * size}) TO ({(number + 1) * size})")


def create_sql() -> list[str]:
    """The tables, as the migration makes them."""
    out = []
    for table in TABLES:
        kinds: Mapping[str, str] = {"i": "bigint", "f": "double precision"}
        columns = ["at integer NOT NULL", *(f"{name} bigint NOT NULL" for name in table.keys),
                   *(f"{name} {kinds[kind]} NOT NULL DEFAULT 0" for name, kind in table.sums.items()),
                   *(f"{name} bigint NOT NULL" for name in (*table.least, *table.most)),
                   *(["bucket smallint[] NOT NULL", "count bigint[] NOT NULL"] if table.has_sketch else [])]
        for level in LEVELS:
            name = table_name(table, level)
            out.append(f"CREATE TABLE {name} ({', '.join(columns)}) PARTITION BY RANGE (at)")
            for key in table.keys:
                if key in ("context", "signature", "kernel", "gpu"):
                    out.append(f"CREATE INDEX {name}_{key} ON {name} ({key}, at)")
            out.append(f"CREATE INDEX {name}_at ON {name} USING brin (at)")
    for name in ("totals", "contexts"):             # lists are read of these alone, without the sketches beside the sums
        table = BY_NAME[name]
        sums = ", ".join([*table.sums, *table.least, *table.most])
        for level in ("day", "month"):
            full_name = table_name(table, level)
            out.append(f"CREATE INDEX {full_name}_sums ON {full_name} (at, {', '.join(table.keys)}) INCLUDE ({sums})")
    return out

"""Any table as a file: CSV, JSON, Parquet or Arrow of the very rows that a page shows, written in bounded pieces.

CSV is made for spreadsheets: a text that begins with = + - @, a tab or a carriage return gets an apostrophe in front, so
that no spreadsheet takes a name from an uploaded file for a formula. The other forms hold every text as it is.

A table of JSON rows as a file to keep: the same rows that the page shows.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from django.http import HttpResponse

# A result's columns as people and JSON take them.

_EXACT = 2**53                  # the greatest whole number that every JSON reader keeps
TEXT_CHARS = 20_000             # of one cell on a page


def plain(table: pa.Table) -> pa.Table:
    """Return a table whose decimals are int64 or float64.

    DuckDB's sums of integers are decimals of 38 digits: int64 where they fit, else float64; other decimals float64.
    """
    for number, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type):
            column = table.column(number)
            try:
                column = column.cast(pa.int64() if field.type.scale == 0 else pa.float64())
            except pa.ArrowInvalid:
                column = column.cast(pa.float64())
            table = table.set_column(number, field.name, column)
    return table


def kind(type_: pa.DataType) -> str:
    """"number", "time", "boolean" or "text": how a page sorts, aligns and draws it."""
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return "number"
    if pa.types.is_temporal(type_):
        return "time"
    return "boolean" if pa.types.is_boolean(type_) else "text"


def columns(table: pa.Table) -> list[dict[str, str]]:
    return [{"name": field.name, "type": str(field.type), "kind": kind(field.type)} for field in table.schema]


def rows(table: pa.Table) -> list[list[Any]]:
    """Return the rows as lists of cells.

    NaN and infinity are null, whole numbers that JSON would round are text, what it has no word for too.
    """
    columns = [[cell(value) for value in list_values(column)] for column in table.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def list_values(column: Any) -> list[Any]:
    """Return a column's values.

    Times that Python has no words for (before the year 1, infinity, nanoseconds) are text.
    """
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError, ImportError):
        return list(column.cast(pa.string()).to_pylist())


def cell(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -_EXACT <= value <= _EXACT else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value if len(value) <= TEXT_CHARS else f"{value[:TEXT_CHARS]}… ({len(value):,} characters)"
    if isinstance(value, bytes):
        return value[:TEXT_CHARS // 2].hex()
    if isinstance(value, (list, dict, tuple)):
        return json.dumps(value, ensure_ascii=False, default=str)[:TEXT_CHARS]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def numbers(table: pa.Table, name: str) -> pa.Array | None:
    """Return a column as float64, null where it is no number.

    None where there is no such column of numbers.
    """
    position = table.schema.get_field_index(name)
    if position < 0 or kind(table.schema.field(position).type) != "number":
        return None
    return pc.cast(table.column(position), pa.float64(), safe=False).combine_chunks()


KINDS = {
    "csv": "text/csv; charset=utf-8", "json": "application/json", "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.file",
}
BATCH_ROWS = 50_000
_FORMULA = r"^[=+\-@\t\r]"


def decode_rows(raw: bytes) -> Any:
    """Decode the JSON of a long table.

    In a fifth of the time that Python's own parser takes and keeps every other thread waiting. Raises ValueError.
    """
    return msgspec.json.decode(raw)


def table_of(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return rows of JSON as columns.

    A column of mixed types becomes text; lists and objects become their JSON.
    """
    listed = list(rows)
    return pa.table({name: _column([row.get(name) for row in listed]) for name in columns})


def table_of_cells(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Return rows of cells as a table.

    `columns`: (name, "number" or "text"). Names may repeat: later ones are numbered.
    """
    names: list[str] = []
    for name in (_clean(name) for name, _ in columns):
        count = sum(other == name or re.fullmatch(re.escape(name) + r" \(\d+\)", other) is not None for other in names)
        names.append(f"{name} ({count + 1})" if count else name)
    cells = [[row[index] if index < len(row) else None for row in rows] for index in range(len(names))]
    return pa.Table.from_arrays([_column(values, kind == "text") for values, (_, kind) in zip(cells, columns, strict=True)], names)


def _column(values: list[Any], as_text: bool = False) -> pa.Array:
    kinds = {type(value) for value in values if value is not None}
    if not as_text and kinds and kinds <= {int, float}:
        with suppress(OverflowError):               # beyond any float: as text, with every digit
            if kinds == {int} and all(value is None or -2**63 <= value < 2**63 for value in values):
                return pa.array(values, pa.int64())
            return pa.array([None if value is None else float(value) for value in values], pa.float64())
    if not as_text and kinds == {bool}:
        return pa.array(values, pa.bool_())
    return pa.array([_text(value) for value in values], pa.string())


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list) and all(isinstance(text, str) for text in value):
        return _clean(" ".join(value))
    return _clean(json.dumps(value, ensure_ascii=False, default=_word))


def _clean(text: str) -> str:
    """Without lone surrogates: no file of text can hold them."""
    return text.encode("utf-8", "replace").decode()


def _word(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def table_response(table: pa.Table, name: str, kind: str) -> HttpResponse:
    """The table as an attachment NAME.KIND; `kind` is one of KINDS."""
    response = HttpResponse(b"".join(encode(table.schema, iter([table]), kind)), content_type=KINDS[kind])
    response["Content-Disposition"] = disposition(name, kind)
    return response


def disposition(name: str, ending: str) -> str:
    """Only letters that every system takes in a file's name."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:120] or "table"
    return f'attachment; filename="{plain}.{ending}"'


def encode(schema: pa.Schema, tables: Iterator[pa.Table], kind: str) -> Iterator[bytes]:
    """Yield a file in pieces, from tables of one schema in their order."""
    return {"csv": _csv, "json": _json, "parquet": _parquet, "arrow": _arrow}[kind](schema, tables)


class _Pieces(io.RawIOBase):
    """What was written since the last look."""

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._at = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._held.append(piece)
        self._at += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._at

    def take(self) -> bytes:
        out, self._held = b"".join(self._held), []
        return out


def _csv(schema: pa.Schema, tables: Iterator[pa.Table]) -> Iterator[bytes]:
    options = pyarrow.csv.WriteOptions(quoting_style="needed", quoting_header="needed", include_header=False, eol="\r\n")
    yield _header(schema.names)
    for table in tables:
        for batch in table.to_batches(BATCH_ROWS):
            out = io.BytesIO()
            shown = pa.table([_safe_texts(column) for column in batch.columns], names=[str(i) for i in range(batch.num_columns)])
            pyarrow.csv.write_csv(shown, out, options)
            yield out.getvalue()


def _header(names: Sequence[str]) -> bytes:
    def cell(name: str) -> str:
        safe = f"'{name}" if re.match(_FORMULA, name) else name
        return '"' + safe.replace('"', '""') + '"' if re.search(r'[",\r\n]', safe) else safe

    return (",".join(cell(name) for name in names) + "\r\n").encode()


def _safe_texts(column: pa.Array) -> pa.Array:
    """Texts without formulas; what is no plain value as its JSON."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        texts = [_word(value) if isinstance(value, bytes) else _text(value) for value in list_values(column)]
        column = pa.array(texts, pa.string())
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    return pc.if_else(pc.match_substring_regex(column, _FORMULA), pc.binary_join_element_wise("'", column, ""), column)


def _json(schema: pa.Schema, tables: Iterator[pa.Table]) -> Iterator[bytes]:
    yield b"["
    separator = b"\n"
    for table in tables:
        for batch in table.to_batches(BATCH_ROWS):
            rows = [json.dumps(row, ensure_ascii=False, default=_word).encode() for row in _finite(batch)]
            if rows:
                yield separator + b",\n".join(rows)
                separator = b",\n"
    yield b"\n]\n"


def _finite(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """JSON knows no NaN: unknown is null there."""
    columns = [pc.if_else(pc.is_finite(column), column, None) if pa.types.is_floating(column.type) else column
               for column in batch.columns]
    return [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*map(list_values, columns), strict=True)]


def _parquet(schema: pa.Schema, tables: Iterator[pa.Table]) -> Iterator[bytes]:
    out = _Pieces()
    with pq.ParquetWriter(out, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table)
            yield out.take()
    yield out.take()


def _arrow(schema: pa.Schema, tables: Iterator[pa.Table]) -> Iterator[bytes]:
    """Arrow's file format (Feather 2)."""
    out = _Pieces()
    with pa.ipc.new_file(out, schema) as writer:
        for table in tables:
            writer.write_table(table, BATCH_ROWS)
            yield out.take()
    yield out.take()


def rows_response(kind: str, name: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> HttpResponse:
    """Return a table of JSON rows as a file.

    `kind` of `exports.KINDS`; `name` without ending.
    """
    return table_response(table_of(columns, rows), name, kind)


def flat_response(kind: str, name: str, rows: Iterable[Mapping[str, Any]]) -> HttpResponse:
    """Return rows as a file whose objects become columns of their own.

    {"sol": {"sm_pct": 3}} is "sol.sm_pct".
    """
    flat = [_flat(row) for row in rows]
    columns = list(dict.fromkeys(column for row in flat for column in row))
    return rows_response(kind, name, columns or ["empty"], flat)


def _flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping) and value and len(prefix) < 200:
            out |= _flat(value, f"{prefix}{key}.")
        else:
            out[f"{prefix}{key}"] = value
    return out

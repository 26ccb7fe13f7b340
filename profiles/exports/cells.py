"""A result's columns as people and JSON take them."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

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

"""The fleet's tables in ClickHouse: SummingMergeTree by day or month; a sketch is rows of (bucket, count), so that merging is SUM.

A signature's kernel is a number of its own in each row: what PostgreSQL joins is read here. Rows are kept once per token
(`insert_deduplication_token`); rows of days and months come through a staged table, whose partition takes the place of theirs in
one step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from profiles.fleet.store import SAMPLED
from profiles.fleet.tables import BY_NAME, LEVELS, TABLES, FactTable, table_name

HALF = 2**32
REMEMBERED_BLOCKS = 10_000          # tokens that a table knows; an unfinished merge is resumed before a new one is begun
_KINDS = {"i": "Int64", "f": "Float64"}
# the sort key of each table: what is filtered most first
ORDER = {"kernels": ("kernel", "signature", "context"), "totals": ("kernel", "gpu_model"), "gpus": ("gpu", "context", "rank"),
         "gpu_kernels": ("gpu", "kernel", "signature", "context"), "telemetry": ("gpu",), "contexts": ("context",)}


def columns_of(table: FactTable) -> dict[str, str]:
    """Column -> type, `parts` included: ClickHouse forgets rows whose sums are all zero, and a GPU that was idle is a row."""
    return {"at": "Int32", **dict.fromkeys(ORDER[table.name], "Int64"), **{name: _KINDS[kind] for name, kind in table.sums.items()},
            **dict.fromkeys(table.least, "SimpleAggregateFunction(min, Int64)"),
            **dict.fromkeys(table.most, "SimpleAggregateFunction(max, Int64)"), "parts": "Int64"}


def sketch_columns(table: FactTable) -> dict[str, str]:
    return {"at": "Int32", **dict.fromkeys(ORDER[table.name], "Int64"), "bucket": "Int16", "count": "Int64"}


def sketch_name(table: FactTable, level: str) -> str:
    return f"{table_name(table, level)}_sketch"


def staged(name: str) -> str:
    return f"{name}_staged"


def pairs_of(table: FactTable, level: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the names of a table of rows and of its sketches, with their columns."""
    yield table_name(table, level), columns_of(table)
    if table.has_sketch:
        yield sketch_name(table, level), sketch_columns(table)


def create_sql() -> list[str]:
    """Return the statements. No list of columns to sum: with one, ClickHouse keeps any of several least values, not the least."""
    out = []
    for table in TABLES:
        for level in LEVELS:
            for name, columns in pairs_of(table, level):
                order = ", ".join([*ORDER[table.name], "at", *(["bucket"] if "bucket" in columns else [])])
                typed = ", ".join(f"{column} {kind}" for column, kind in columns.items())
                part = "intDiv(at, 24)" if level == "hour" else "at"
                for target in (name,) if level == "hour" else (name, staged(name)):
                    # what is staged twice on purpose must come twice
                    settings = f" SETTINGS non_replicated_deduplication_window = {REMEMBERED_BLOCKS}" if target == name else ""
                    out.append(f"CREATE TABLE IF NOT EXISTS {target} ({typed}) ENGINE = SummingMergeTree "
                               f"PARTITION BY {part} ORDER BY ({order}){settings}")
    return out


def upgrade_sql() -> list[str]:
    """Return what gives tables of before their newer columns: rows without an estimate are taken as they were seen."""
    out = []
    for level in LEVELS:
        name = table_name(BY_NAME["gpu_kernels"], level)
        for target in (name,) if level == "hour" else (name, staged(name)):
            for column, value in (("estimate_launches", "launches"), ("estimate_ns", "total_ns"), ("square", "total_ns")):
                kind = f"Float64 DEFAULT toFloat64({value})" + (f" * toFloat64({value})" if column == "square" else "")
                out.append(f"ALTER TABLE {target} ADD COLUMN IF NOT EXISTS {column} {kind}")
    return out


def roll_up_sql(table: FactTable, finer: str, level: str, at: int, span: tuple[int, int]) -> Iterator[str]:
    """Yield what makes the rows of one day or month anew of the finer rows in a span: staged, then in place in one step."""
    for (source, columns), (whole, _) in zip(pairs_of(table, finer), pairs_of(table, level), strict=True):
        keys = [*ORDER[table.name], *(["bucket"] if "bucket" in columns else [])]
        values = {name: f"{'min' if name in table.least else 'max' if name in table.most else 'sum'}({name})"
                  for name in columns if name not in ("at", *keys)}
        yield f"ALTER TABLE {staged(whole)} DROP PARTITION {at}"            # of a worker that died in between
        yield (f"INSERT INTO {staged(whole)} (at, {', '.join([*keys, *values])}) "
               f"SELECT {at}, {', '.join([*keys, *values.values()])} "
               f"FROM {source} WHERE at >= {span[0]} AND at < {span[1]} GROUP BY {', '.join(keys)}")
        yield f"ALTER TABLE {whole} REPLACE PARTITION {at} FROM {staged(whole)}"
        yield f"ALTER TABLE {staged(whole)} DROP PARTITION {at}"
        if finer == "hour":                     # parts of one key become one row, as ClickHouse merges
            yield f"OPTIMIZE TABLE {source} PARTITION {at} FINAL"


def whole_sum(column: str, where: str = "1") -> str:
    """Sum what may pass 2^63 over a fleet and months (10,000 GPUs fill it in ten days): high and low halves apart."""
    return f"(sumIf(intDiv({column}, {HALF}), {where}), sumIf({column} % {HALF}, {where}))"


def whole_number(halves: Sequence[int]) -> int:
    return halves[0] * HALF + halves[1]


def listed(keys: Iterable[Any]) -> str:
    return ", ".join(str(int(key)) for key in keys)


def inserted_type(kind: str) -> str:
    return "Int64" if kind.startswith("Simple") else kind


def numpy_type(kind: str) -> str:
    return {"Float64": "f8", "Int32": "i4", "Int16": "i2"}.get(kind, "i8")


# windows, time watched and time of them; then the same of rows that were not watched whole
COVERAGE = ", ".join(f"sumIf(windows, {part}), {whole_sum('observed_ns', part)}, {whole_sum('wall_ns', part)}"
                     for part in ("1", f"toFloat64(wall_ns) > toFloat64(observed_ns) * {SAMPLED}"))

"""The tables of the fleet's sums in PostgreSQL: as the migrations make them, and their partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from django.db import connection

from profiles.fleet.tables import BY_NAME, LEVELS, TABLES, FactTable, table_name

PARTITION = {"hour": 24, "day": 32, "month": 128}   # `at` per partition: a day of hours, a month or so of days, four months or so
LOCK = 0x7269646765                                 # of writers that make partitions


def make_partitions(table: FactTable, level: str, at: Iterable[int]) -> None:
    name, size = table_name(table, level), PARTITION[level]
    wanted = sorted({each // size for each in at})
    with connection.cursor() as cursor:
        cursor.execute("SELECT relname FROM pg_inherits JOIN pg_class ON oid = inhrelid WHERE inhparent = %s::regclass", [name])
        there = {part for (part,) in cursor.fetchall()}
        missing = [number for number in wanted if f"{name}_{number}" not in there]
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
            each = table_name(table, level)
            out.append(f"CREATE INDEX {each}_sums ON {each} (at, {', '.join(table.keys)}) INCLUDE ({sums})")
    return out

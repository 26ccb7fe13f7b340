"""The fleet's sums in PostgreSQL: partitioned tables, filled by COPY, sketches as two arrays of a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from django.db import connection, transaction

from profiles.fleet.days import (
    DAY_HOURS,
    coarsest_of,
    extent,
    forget_days,
    joined_parts,
    lock_day,
    lock_month,
    mark_compacted,
    mark_month_summed,
    mark_summed,
    mark_written,
    month_end,
    spans,
)
from profiles.fleet.merge import Hours, Merged
from profiles.fleet.naming import write_names
from profiles.fleet.postgres_tables import LOCK, PARTITION, make_partitions, packed_rows
from profiles.fleet.slow.compared import KINDS, GpuHours
from profiles.fleet.store import SAMPLED, Coverage, Forgotten, Question, SumRow, Window, answering_table, sum_row, watching_table
from profiles.fleet.tables import BY_NAME, LEVELS, TABLES, FactTable, table_name

_COVERAGE = ", ".join(f"coalesce(sum({name}) {part}, 0)" for part in (
    "", f"FILTER (WHERE wall_ns > observed_ns::float8 * {SAMPLED}::float8)") for name in ("windows", "observed_ns", "wall_ns"))
FIELDS_OF_HOUR = 16                 # that an hour's rows are sent in: each stays far below the 1 GB that a field may have
# group -> the expression that tells its rows apart, and what is joined for it
_CONTEXT = "JOIN profiles_fleetcontext c ON c.id = f.context"
_GROUPS = {
    "kernel": ("s.kernel_id", "JOIN profiles_fleetsignature s ON s.id = f.signature"), "signature": ("f.signature", ""),
    "build": ("c.build", _CONTEXT), "job": ("c.job", _CONTEXT), "model": ("c.model", _CONTEXT),
    "gpu_model": ("c.gpu_model", _CONTEXT), "gpu": ("f.gpu", ""), "host": ("g.host", "JOIN profiles_fleetgpu g ON g.id = f.gpu")}


class PostgresStore:
    """`profiles.fleet.store.FleetStore` over the rows' own database."""

    shares_transaction = True

    def write(self, merged: Merged, token: str = "") -> None:
        with transaction.atomic():
            write_names(merged)
            written: set[int] = set()
            for name, hours in merged.tables.items():
                table = BY_NAME[name]
                written |= set(np.unique(hours.columns["at"]).tolist())
                make_partitions(table, "hour", hours.columns["at"].tolist())
                _copy(table, hours)
            mark_written(written)

    def top(self, question: Question) -> tuple[list[SumRow], SumRow]:
        table, rows, params = self._sums(question)
        sampled = f"FILTER (WHERE estimate_ns > total_ns::float8 * {SAMPLED}::float8)"
        columns = (f"sum(launches), sum(total_ns), sum(estimate_launches), sum(estimate_ns) AS about, sum(estimate_ns) {sampled}, "
                   f"sum(square) {sampled}, {'min(min_ns), max(max_ns)' if table.least else 'NULL, NULL'}")
        limit = "" if question.limit is None else f" LIMIT {int(question.limit) + 1}"
        with connection.cursor() as cursor:                 # one scan: the sum of all groups is its first row
            cursor.execute(f"SELECT key, {columns} FROM ({rows}) r GROUP BY GROUPING SETS ((key), ()) "
                           f"ORDER BY grouping(key) DESC, about DESC, key{limit}", params)
            whole, *sums = [sum_row(row) for row in cursor.fetchall()]
            if table.has_sketch and sums:
                sketches = self._sketches(cursor, rows, params, [row.key for row in sums])
                sums = [SumRow(**{**row.__dict__, "sketch": sketches.get(row.key, {})}) for row in sums]
        return sums, whole

    @staticmethod
    def _sketches(cursor: Any, rows: str, given: Sequence[Any], keys: Sequence[Any]) -> dict[Any, dict[int, int]]:
        cursor.execute(f"SELECT key, p.bucket, sum(p.count) FROM ({rows}) r, unnest(r.bucket, r.count) AS p(bucket, count) "
                       f"WHERE key = ANY(%s) GROUP BY key, p.bucket", [*given, list(keys)])
        out: dict[Any, dict[int, int]] = {}
        for key, bucket, count in cursor.fetchall():
            out.setdefault(key, {})[bucket] = int(count)
        return out

    def coverage(self, question: Question) -> Coverage:
        rows, params = self._rows(watching_table(question), question, "0", "")
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {_COVERAGE} FROM ({rows}) r", params)
            return _coverage(cursor.fetchone())

    def over_time(self, question: Question, keys: Sequence[Any], step_hours: int) -> list[tuple[int, Any, int, int, float]]:
        _, rows, params = self._sums(question, coarsest_of(step_hours, question.window))
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT hour / %s * %s, key, sum(launches), sum(total_ns), sum(estimate_ns) FROM ({rows}) r "
                           f"WHERE key = ANY(%s) GROUP BY 1, 2 ORDER BY 1, 2", [step_hours, step_hours, *params, list(keys)])
            return [(int(hour), key, int(launches), int(total), float(about))
                    for hour, key, launches, total, about in cursor.fetchall()]

    def watched(self, question: Question, step_hours: int | None = None) -> list[tuple[int, Any, Coverage, int, float]]:
        key, join = _GROUPS[question.group]
        rows, params = self._rows(watching_table(question), question, key, join, coarsest_of(step_hours, question.window))
        step = step_hours or question.window.to_hour + 1
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT greatest(hour / %s * %s, %s), key, sum(total_ns), sum(estimate_ns), {_COVERAGE} "
                           f"FROM ({rows}) r GROUP BY 1, 2 ORDER BY 1, 2",
                           [step, step, question.window.from_hour, *params])
            return [(int(hour), key, _coverage(watched), int(total), float(estimate))
                    for hour, key, total, estimate, *watched in cursor.fetchall()]

    def watched_gpus(self, question: Question) -> list[tuple[int, int, Coverage, float]]:
        rows, params = self._rows(BY_NAME["gpus"], question, "f.gpu", "")
        with connection.cursor() as cursor:         # a GPU's sums stay far below 2^63
            cursor.execute("SELECT key, context, sum(windows)::bigint, sum(observed_ns)::bigint, sum(wall_ns)::bigint, "
                           f"sum(estimate_ns) FROM ({rows}) r GROUP BY 1, 2 ORDER BY 1, 2", params)
            return [(gpu, context, Coverage(*watched), estimate) for gpu, context, *watched, estimate in cursor.fetchall()]

    def telemetry(self, question: Question, step_hours: int | None = None,
                  columns: Sequence[str] = tuple(BY_NAME["telemetry"].sums)) -> list[tuple[int, int, dict[str, float]]]:
        table = BY_NAME["telemetry"]
        rows, params = self._rows(table, question, "f.gpu", "", coarsest_of(step_hours, question.window))
        step = step_hours or question.window.to_hour + 1
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT greatest(hour / %s * %s, %s), key, {', '.join(f'sum({name})::float8' for name in columns)} "
                           f"FROM ({rows}) r GROUP BY 1, 2 ORDER BY 1, 2", [step, step, question.window.from_hour, *params])
            return [(hour, gpu, dict(zip(columns, sums, strict=True))) for hour, gpu, *sums in cursor.fetchall()]

    def gpu_hours(self, question: Question) -> GpuHours:
        """Rows are sent packed, some thousand to a field: one at a time, sending takes three times as long."""
        table, pieces = BY_NAME["gpu_kernels"], list[bytes]()
        for part, joined in joined_parts(question.window):
            rows, params = self._rows(table, replace(question, window=part), "0", "", "hour")
            if not joined:                  # of an hour that is still written, a minute's parts each: PostgreSQL adds them up
                rows = (f"SELECT hour, gpu, signature, context, sum(launches)::bigint AS launches, "
                        f"sum(total_ns)::bigint AS total_ns, sum(log_sum) AS log_sum FROM ({rows}) r GROUP BY 1, 2, 3, 4")
            packed = " || ".join(f"{'float8send' if kind == 'f8' else 'int8send'}({name})" for name, kind in KINDS.items())
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT string_agg({packed}, ''::bytea) FROM ({rows}) r GROUP BY hour, mod(gpu, {FIELDS_OF_HOUR})",
                               params)
                pieces += [bytes(piece) for (piece,) in cursor.fetchall()]
        return GpuHours.of_packed(pieces)

    def extent(self) -> Window | None:
        return extent()

    def compact(self, day: int, before: int) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            row = lock_day(day)
            first, last = max(row.compacted, day * DAY_HOURS), min(before, (day + 1) * DAY_HOURS)
            if first < last:
                for table in TABLES:
                    _join_parts(cursor, table, first, last)
                mark_compacted(day, last)

    def roll_up(self, days: Sequence[int]) -> None:
        for day in days:
            self.compact(day, (day + 1) * DAY_HOURS)
            with transaction.atomic(), connection.cursor() as cursor:
                lock_day(day)
                for table in TABLES:
                    _sum_level(cursor, table, "hour", "day", day, (day * DAY_HOURS, (day + 1) * DAY_HOURS))
                mark_summed(day)

    def roll_up_months(self, months: Sequence[int]) -> None:
        for month in months:
            with transaction.atomic(), connection.cursor() as cursor:
                if lock_month(month):
                    for table in TABLES:
                        _sum_level(cursor, table, "day", "month", month, (month, month_end(month)))
                    mark_month_summed(month)

    def drop_before(self, level: str, at: int) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
            for table in TABLES:
                name = table_name(table, level)
                cursor.execute("SELECT relname FROM pg_inherits JOIN pg_class ON oid = inhrelid "
                               "WHERE inhparent = %s::regclass", [name])
                for (part,) in cursor.fetchall():
                    if (int(part.rsplit("_", 1)[1]) + 1) * PARTITION[level] <= at:
                        cursor.execute(f'DROP TABLE "{part}"')

    def forget(self, contexts: Sequence[int], gpu_model_keys: Sequence[int]) -> Forgotten:
        rows = 0
        with transaction.atomic(), connection.cursor() as cursor:
            gpus = _only_of(cursor, "gpus", "gpu", contexts)
            signatures = _only_of(cursor, "kernels", "signature", contexts)
            for table in TABLES:
                column, keys = ("context", contexts) if "context" in table.keys else ("gpu_model", gpu_model_keys) \
                    if "gpu_model" in table.keys else ("gpu", gpus)
                for level in LEVELS:
                    cursor.execute(f"DELETE FROM {table_name(table, level)} WHERE {column} = ANY(%s)", [list(keys)])
                    rows += cursor.rowcount
            some = {level: " UNION ".join(f"SELECT at FROM {table_name(table, level)}" for table in TABLES) for level in LEVELS}
            cursor.execute(f"SELECT day - DATE '1970-01-01' FROM profiles_fleetday WHERE day - DATE '1970-01-01' NOT IN "
                           f"(SELECT at / {DAY_HOURS} FROM ({some['hour']}) h UNION SELECT at FROM ({some['day']}) d) "
                           f"AND date_trunc('month', day)::date - DATE '1970-01-01' NOT IN (SELECT at FROM ({some['month']}) m)")
            forget_days([day for (day,) in cursor.fetchall()])
        return Forgotten(rows, gpus, signatures)

    def _sums(self, question: Question, coarsest: str = "month") -> tuple[FactTable, str, list[Any]]:
        """The table that answers a question, its rows with a `key` and an `hour`, and their arguments."""
        table = answering_table(question)
        key, join = ("f.kernel", "") if table.name == "totals" else _GROUPS[question.group]
        return (table, *self._rows(table, question, key, join, coarsest))

    @staticmethod
    def _rows(table: FactTable, question: Question, key: str, join: str, coarsest: str = "month") -> tuple[str, list[Any]]:
        params: list[Any] = []
        parts = []
        conditions = ""
        key_lists: list[Any] = []
        columns = ", ".join(f"f.{name}" for name in table.columns)
        for column, keys in question.where.items():
            name = {"gpu_model_key": "gpu_model"}.get(column, column)
            if name == "kernel" and "kernel" not in table.keys and "signature" in table.keys:
                conditions += " AND f.signature IN (SELECT id FROM profiles_fleetsignature WHERE kernel_id = ANY(%s))"
            elif name in table.keys:
                conditions += f" AND f.{name} = ANY(%s)"
            else:
                continue
            key_lists.append(list(keys))
        for level, low, high in spans(question.window, coarsest):
            hour = "f.at" if level == "hour" else f"f.at * {DAY_HOURS}"
            parts.append(f"SELECT {key} AS key, {hour} AS hour, {columns} FROM {table_name(table, level)} f {join} "
                         f"WHERE f.at >= %s AND f.at < %s{conditions}")
            params += [low, high, *key_lists]
        return " UNION ALL ".join(parts), params


def _coverage(numbers: Sequence[Any]) -> Coverage:
    windows, observed, wall, *sampled = map(int, numbers)
    return Coverage(windows, observed, wall, Coverage(sampled[0], sampled[1], sampled[2]))


def _only_of(cursor: Any, table: str, column: str, contexts: Sequence[int]) -> list[int]:
    """The values of a column that rows of these contexts have, and of no other."""
    rows = " UNION ALL ".join(f"SELECT {column}, context FROM {table_name(BY_NAME[table], level)}" for level in LEVELS)
    cursor.execute(f"SELECT {column} FROM ({rows}) r GROUP BY {column} HAVING bool_and(context = ANY(%s))", [list(contexts)])
    return [int(value) for (value,) in cursor.fetchall()]


def _copy(table: FactTable, hours: Hours) -> None:
    columns = ", ".join(table.columns)
    with connection.cursor() as cursor, cursor.copy(
            f"COPY {table_name(table, 'hour')} ({columns}) FROM STDIN (FORMAT BINARY)") as copy:
        for piece in packed_rows(table, hours):
            copy.write(piece)


def _join_parts(cursor: Any, table: FactTable, first: int, last: int) -> None:
    """Make one row of the parts of each key, in those hours where a fifth of the rows are more than keys."""
    hour, keys = table_name(table, "hour"), ", ".join(table.keys)
    cursor.execute(f"SELECT at FROM (SELECT at, count(*) AS parts FROM {hour} WHERE at >= %s AND at < %s GROUP BY at, {keys}) k "
                   f"GROUP BY at HAVING sum(parts) > 1.2 * count(*) ORDER BY at", [first, last])
    for (hour_number,) in cursor.fetchall():
        cursor.execute(f"CREATE TEMP TABLE parts ON COMMIT DROP AS SELECT * FROM {hour} WITH NO DATA")
        cursor.execute(_sum_sql(table, hour, "parts", "at"), [hour_number, hour_number + 1] * 2)
        cursor.execute(f"DELETE FROM {hour} WHERE at = %s", [hour_number])
        cursor.execute(f"INSERT INTO {hour} SELECT * FROM parts")
        cursor.execute("DROP TABLE parts")


def _sum_level(cursor: Any, table: FactTable, finer: str, level: str, at: int, span: tuple[int, int]) -> None:
    """Make the rows of one day or month anew of the finer rows in a span."""
    make_partitions(table, level, [at])
    whole = table_name(table, level)
    cursor.execute(f"DELETE FROM {whole} WHERE at = %s", [at])
    cursor.execute(_sum_sql(table, table_name(table, finer), whole, f"(at * 0 + {at})"), [*span, *span])


def _sum_sql(table: FactTable, source: str, target: str, at: str) -> str:
    """Sum the rows of `source` in a span of `at` by key into `target`; takes the span twice."""
    keys = ", ".join(table.keys)
    sums = ", ".join([*(f"sum({name})" for name in table.sums), *(f"min({name})" for name in table.least),
                      *(f"max({name})" for name in table.most)])
    names = ", ".join([*table.sums, *table.least, *table.most])
    if not table.has_sketch:
        return (f"INSERT INTO {target} (at, {keys}, {names}) SELECT {at}, {keys}, {sums} FROM {source} "
                f"WHERE at >= %s AND at < %s AND at >= %s AND at < %s GROUP BY {at}, {keys}")
    whole = ", ".join(f"{part} AS {name}" for part, name in zip(sums.split(", "), names.split(", "), strict=True))
    return f"""
        WITH whole AS (SELECT {at} AS at, {keys}, {whole} FROM {source} WHERE at >= %s AND at < %s GROUP BY {at}, {keys}),
        pairs AS (SELECT {at} AS at, {keys}, p.bucket, sum(p.count)::bigint AS count
                  FROM {source}, unnest(bucket, count) AS p(bucket, count) WHERE at >= %s AND at < %s
                  GROUP BY {at}, {keys}, p.bucket),
        lists AS (SELECT at, {keys}, array_agg(bucket ORDER BY bucket) AS bucket, array_agg(count ORDER BY bucket) AS count
                  FROM pairs GROUP BY at, {keys})
        INSERT INTO {target} (at, {keys}, {names}, bucket, count)
        SELECT at, {keys}, {names}, coalesce(bucket, '{{}}'), coalesce(count, '{{}}')
        FROM whole LEFT JOIN lists USING (at, {keys})"""

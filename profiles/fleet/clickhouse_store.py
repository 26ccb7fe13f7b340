"""The fleet's sums in ClickHouse, through clickhouse-connect. Names and days stay rows of PostgreSQL; keys travel as numbers.

Nothing counts twice and nothing is lost, though two databases are written: a merge is named in PostgreSQL before its rows are sent
(`services`), each insert is one block of one partition and carries that name (`insert_deduplication_token`), and batches are taken
away after all of them. A worker that dies in between leaves the name: the same batches are merged again, and what is there is
not inserted again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from profiles.fleet.clickhouse_tables import (
    COVERAGE,
    ORDER,
    columns_of,
    create_sql,
    inserted_type,
    listed,
    numpy_type,
    pairs_of,
    roll_up_sql,
    sketch_columns,
    sketch_name,
    upgrade_sql,
    whole_number,
    whole_sum,
)
from profiles.fleet.days import (
    DAY_HOURS,
    coarsest_of,
    day_number,
    extent,
    forget_days,
    lock_day,
    lock_month,
    mark_month_summed,
    mark_summed,
    mark_written,
    month_end,
    month_of,
    spans,
)
from profiles.fleet.merge import Hours, Merged
from profiles.fleet.models import FleetDay, FleetSignature
from profiles.fleet.naming import numbered, write_names
from profiles.fleet.slow.compared import KINDS, GpuHours
from profiles.fleet.store import SAMPLED, Coverage, Forgotten, Question, SumRow, Window, answering_table, sum_row, watching_table
from profiles.fleet.tables import BY_NAME, LEVELS, TABLES, FactTable, table_name

INSERT_ROWS = 500_000               # of one insert: one block, which is there whole or not at all
DROPPED = {"hour": 1, "day": 32, "month": 128}      # partitions are forgotten by so many, as PostgreSQL's are
_SETTINGS = {"async_insert": 0, "insert_deduplicate": 1, "max_query_size": 64 << 20, "max_partitions_per_insert_block": 0}


@lru_cache(maxsize=4)
def _client(url: str, process: int) -> Any:
    """A connection of this process, its tables made."""
    import clickhouse_connect  # an extra: only who has ClickHouse installs it

    client = clickhouse_connect.get_client(dsn=url, autogenerate_session_id=False, settings=_SETTINGS)
    for sql in (*create_sql(), *upgrade_sql()):
        client.command(sql)
    return client


class ClickHouseStore:
    """`profiles.fleet.store.FleetStore` over an address like clickhouse://user:password@host:8443/database?secure=1."""

    shares_transaction = False

    def __init__(self, url: str) -> None:
        self.url = url

    @property
    def client(self) -> Any:
        return _client(self.url, os.getpid())

    def write(self, merged: Merged, token: str = "") -> None:
        write_names(merged)
        written: set[int] = set()
        kernels = {key: kernel for key, (kernel, _) in merged.signatures.items()}
        for name, hours in merged.tables.items():
            table = BY_NAME[name]
            written |= set(np.unique(hours.columns["at"]).tolist())
            self.insert(table, "hour", hours, kernels, token)
        mark_written(written)

    def insert(self, table: FactTable, level: str, hours: Hours, kernels: dict[int, int], token: str = "") -> None:
        """Insert rows by partition and piece. `kernels`: signature -> kernel."""
        columns: dict[str, Any] = {**hours.columns, "parts": np.ones(hours.rows, np.int64)}
        if "kernel" in ORDER[table.name] and "kernel" not in columns:
            columns["kernel"] = np.array([kernels[key] for key in columns["signature"].tolist()], np.int64)
        self._insert(table_name(table, level), columns_of(table), columns, level, token)
        if hours.starts is not None:
            sizes = np.diff(hours.starts)
            pairs = {name: np.repeat(columns[name], sizes) for name in ("at", *ORDER[table.name])}
            self._insert(sketch_name(table, level), sketch_columns(table), {**pairs, "bucket": hours.bucket, "count": hours.count},
                         level, token)

    def _insert(self, name: str, kinds: dict[str, str], columns: dict[str, Any], level: str, token: str) -> None:
        day = columns["at"] // DAY_HOURS if level == "hour" else columns["at"]
        whole = {column: np.asarray(columns[column], numpy_type(kind)) for column, kind in kinds.items()}
        for number in np.unique(day).tolist():
            own = np.flatnonzero(day == number)
            for piece, first in enumerate(range(0, own.size, INSERT_ROWS)):
                rows = own[first:first + INSERT_ROWS]
                self.client.insert(name, [values[rows] for values in whole.values()], column_names=list(kinds),
                                   column_type_names=[inserted_type(kind) for kind in kinds.values()], column_oriented=True,
                                   settings={"insert_deduplication_token": f"{token}.{number}.{piece}"} if token else {})

    def top(self, question: Question) -> tuple[list[SumRow], SumRow]:
        table = answering_table(question)
        key, words = self._key(table, question)
        rows = self._rows(table, question, key)
        sampled = f"estimate_ns > toFloat64(total_ns) * {SAMPLED}"
        about = (f"sum(estimate_launches), sum(estimate_ns) AS about, sumIf(estimate_ns, {sampled}), sumIf(square, {sampled}), "
                 + ("min(min_ns), max(max_ns)" if table.least else "NULL, NULL"))
        columns = f"sum(launches), {whole_sum('total_ns')}, {about}"
        whole = _sums(self._answer(f"SELECT NULL, {columns} FROM ({rows})")[0], None)
        limit = "" if question.limit is None else f" LIMIT {int(question.limit)}"
        answer = self._answer(f"SELECT key, {columns} FROM ({rows}) GROUP BY key ORDER BY about DESC, key{limit}")
        sketches: dict[int, dict[int, int]] = {}
        if table.has_sketch and answer:
            key_list = listed([row[0] for row in answer])
            pairs = self._answer(f"SELECT key, bucket, sum(count) FROM ({self._rows(table, question, key, sketch=True)}) "
                                 f"WHERE key IN ({key_list}) GROUP BY key, bucket ORDER BY key, bucket")
            for group, bucket, count in pairs:
                sketches.setdefault(group, {})[bucket] = count
        out = []
        for row in answer:
            sums = _sums(row, words)
            out.append(SumRow(**{**sums.__dict__, "sketch": sketches.get(row[0], {}) if table.has_sketch else None}))
        return out, whole

    def coverage(self, question: Question) -> Coverage:
        rows = self._rows(watching_table(question), question, "0")
        return _coverage(self._answer(f"SELECT {COVERAGE} FROM ({rows})")[0])

    def over_time(self, question: Question, keys: Sequence[Any], step_hours: int) -> list[tuple[int, Any, int, int, float]]:
        table = answering_table(question)
        key, words = self._key(table, question)
        coarsest = coarsest_of(step_hours, question.window)
        numbers = keys if words is None else [number for number, word in enumerate(words) if word in set(keys)]
        if not numbers:
            return []
        answer = self._answer(f"SELECT intDiv(hour, {int(step_hours)}) * {int(step_hours)} AS step, key, sum(launches), "
                              f"{whole_sum('total_ns')}, sum(estimate_ns) "
                              f"FROM ({self._rows(table, question, key, coarsest=coarsest)}) "
                              f"WHERE key IN ({listed(numbers)}) GROUP BY step, key ORDER BY step, key")
        return [(step, _word(group, words), launches, whole_number(total), estimate)
                for step, group, launches, total, estimate in answer]

    def watched(self, question: Question, step_hours: int | None = None) -> list[tuple[int, Any, Coverage, int, float]]:
        table = watching_table(question)
        key, words = self._key(table, question)
        rows = self._rows(table, question, key, coarsest=coarsest_of(step_hours, question.window))
        answer = self._answer(f"SELECT {_step(question, step_hours)} AS step, key, {whole_sum('total_ns')}, sum(estimate_ns), "
                              f"{COVERAGE} FROM ({rows}) GROUP BY step, key ORDER BY step, key")
        return [(step, _word(group, words), _coverage(watched), whole_number(total), estimate)
                for step, group, total, estimate, *watched in answer]

    def watched_gpus(self, question: Question) -> list[tuple[int, int, Coverage, float]]:
        answer = self._answer("SELECT key, context, sum(windows), sum(observed_ns), sum(wall_ns), sum(estimate_ns) FROM "
                              f"({self._rows(BY_NAME['gpus'], question, 'gpu')}) GROUP BY key, context ORDER BY key, context")
        return [(gpu, context, Coverage(*watched), estimate) for gpu, context, *watched, estimate in answer]

    def telemetry(self, question: Question, step_hours: int | None = None,
                  columns: Sequence[str] = tuple(BY_NAME["telemetry"].sums)) -> list[tuple[int, int, dict[str, float]]]:
        table = BY_NAME["telemetry"]
        sums = ", ".join(f"sum({name})" for name in columns)
        rows = self._rows(table, question, "gpu", coarsest=coarsest_of(step_hours, question.window))
        answer = self._answer(f"SELECT {_step(question, step_hours)} AS step, key, {sums} "
                              f"FROM ({rows}) GROUP BY step, key ORDER BY step, key")
        return [(step, gpu, dict(zip(columns, map(float, values), strict=True))) for step, gpu, *values in answer]

    def gpu_hours(self, question: Question) -> GpuHours:
        rows = self._rows(BY_NAME["gpu_kernels"], question, "0", coarsest="hour")
        table = self.client.query_np(f"SELECT hour, gpu, signature, context, sum(launches) AS launches, sum(total_ns) AS total_ns, "
                                     f"sum(log_sum) AS log_sum FROM ({rows}) GROUP BY hour, gpu, signature, context")
        return GpuHours(*(np.array(table[name], kind) for name, kind in KINDS.items())) if len(table) else GpuHours.of_rows([])

    def extent(self) -> Window | None:
        return extent()

    def compact(self, day: int, before: int) -> None:
        """ClickHouse adds parts of one key up by itself."""

    def roll_up(self, days: Sequence[int]) -> None:
        from django.db import transaction

        for day in map(int, days):
            with transaction.atomic():
                lock_day(day)
                self._sum_level("hour", "day", day, (day * DAY_HOURS, (day + 1) * DAY_HOURS))
                mark_summed(day)

    def roll_up_months(self, months: Sequence[int]) -> None:
        from django.db import transaction

        for month in map(int, months):
            with transaction.atomic():
                if lock_month(month):
                    self._sum_level("day", "month", month, (month, month_end(month)))
                    mark_month_summed(month)

    def _sum_level(self, finer: str, level: str, at: int, span: tuple[int, int]) -> None:
        for table in TABLES:
            for sql in roll_up_sql(table, finer, level, at, span):
                self.client.command(sql)

    def drop_before(self, level: str, at: int) -> None:
        for table in TABLES:
            for name, _ in pairs_of(table, level):
                parts = self._answer("SELECT DISTINCT partition FROM system.parts WHERE active AND database = currentDatabase() "
                                     f"AND table = '{name}'")
                for number in sorted(int(part) for (part,) in parts):
                    end = (number // DROPPED[level] + 1) * DROPPED[level]
                    if (end * DAY_HOURS if level == "hour" else end) <= at:
                        self.client.command(f"ALTER TABLE {name} DROP PARTITION {number}")

    def forget(self, contexts: Sequence[int], gpu_model_keys: Sequence[int]) -> Forgotten:
        gpus, signatures = self._only_of("gpus", "gpu", contexts), self._only_of("kernels", "signature", contexts)
        rows, days, months = 0, set[int](), set[int]()
        for table in TABLES:
            column, keys = ("context", contexts) if "context" in table.keys else ("gpu_model", gpu_model_keys) \
                if "gpu_model" in table.keys else ("gpu", gpus)
            for level in LEVELS:
                for name, _ in pairs_of(table, level):
                    if keys:
                        condition = f"{column} IN ({listed(keys)})"
                        rows += self._answer(f"SELECT count() FROM {name} WHERE {condition}")[0][0]
                        self.client.command(f"ALTER TABLE {name} DELETE WHERE {condition} SETTINGS mutations_sync = 2")
                    day = f"intDiv(at, {DAY_HOURS})" if level == "hour" else "at"
                    (months if level == "month" else days).update(
                        int(number) for (number,) in self._answer(f"SELECT DISTINCT {day} FROM {name}"))
        every = map(day_number, FleetDay.objects.values_list("day", flat=True))
        forget_days([day for day in every if day not in days and month_of(day) not in months])
        return Forgotten(rows, gpus, signatures)

    def _only_of(self, table: str, column: str, contexts: Sequence[int]) -> list[int]:
        """The values of a column that rows of these contexts have, and of no other."""
        if not contexts:
            return []
        rows = " UNION ALL ".join(f"SELECT {column}, context FROM {table_name(BY_NAME[table], level)}" for level in LEVELS)
        return [int(value) for (value,) in self._answer(
            f"SELECT {column} FROM ({rows}) GROUP BY {column} HAVING min(context IN ({listed(contexts)})) = 1")]

    def _answer(self, sql: str) -> list[Any]:
        rows: list[Any] = self.client.query(sql).result_rows
        return rows

    @staticmethod
    def _key(table: FactTable, question: Question) -> tuple[str, list[str] | None]:
        """The expression that tells groups apart, and the words that its numbers stand for, in PostgreSQL's order."""
        group = question.group
        if group in ("kernel", "signature", "gpu"):
            return group, None
        ids, numbers, words = numbered(group)
        if not ids:
            return "-1", words
        column = "gpu" if group == "host" else "context"
        return f"transform({column}, [{listed(ids)}], [{listed(numbers)}], -1)", words

    @staticmethod
    def _rows(table: FactTable, question: Question, key: str, sketch: bool = False, *, coarsest: str = "month") -> str:
        conditions = ""
        for column, keys in question.where.items():
            name = {"gpu_model_key": "gpu_model"}.get(column, column)
            if name not in ORDER[table.name]:
                continue
            conditions += f" AND {name} IN ({listed(keys)})" if keys else " AND 0"
            if name == "signature" and "kernel" in ORDER[table.name]:      # rows lie in the order of kernels
                kernels = FleetSignature.objects.filter(id__in=list(keys)).values_list("kernel_id", flat=True).distinct()
                conditions += f" AND kernel IN ({listed(kernels)})" if kernels else " AND 0"
        columns = ", ".join(sketch_columns(table) if sketch else columns_of(table))
        parts = []
        for level, low, high in spans(question.window, coarsest):
            name = sketch_name(table, level) if sketch else table_name(table, level)
            hour = "at" if level == "hour" else f"at * {DAY_HOURS}"
            parts.append(f"SELECT {key} AS key, {hour} AS hour, {columns} FROM {name} "
                         f"WHERE at >= {low} AND at < {high}{conditions}")
        return " UNION ALL ".join(parts)


def _sums(row: Sequence[Any], words: list[str] | None) -> SumRow:
    return sum_row((_word(row[0], words) if row[0] is not None else None, row[1], whole_number(row[2]), *row[3:]))


def _coverage(numbers: Sequence[Any]) -> Coverage:
    every, sampled = ((part[0], whole_number(part[1]), whole_number(part[2])) for part in (numbers[:3], numbers[3:]))
    return Coverage(*every, Coverage(*sampled))


def _step(question: Question, step_hours: int | None) -> str:
    step = int(step_hours or question.window.to_hour + 1)
    return f"greatest(intDiv(hour, {step}) * {step}, {int(question.window.from_hour)})"


def _word(key: Any, words: list[str] | None) -> Any:
    return key if words is None else words[key]

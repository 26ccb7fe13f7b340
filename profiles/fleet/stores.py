"""Which store keeps the fleet's sums: one address decides.

The history of one store copied into another, hour by hour and day by day, as it is kept: nothing is summed anew.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
from django.conf import settings
from django.db import connection, transaction

from profiles.base.refused import Refused
from profiles.fleet.clickhouse_store import ClickHouseStore
from profiles.fleet.merge import Column, Hours
from profiles.fleet.models import FleetBatch, FleetSignature
from profiles.fleet.postgres_store import PostgresStore
from profiles.fleet.slow.compared import GpuHours
from profiles.fleet.store import Coverage, FleetStore, SumRow
from profiles.fleet.tables import LEVELS, TABLES, FactTable, table_name
from workers.scope import current

# ---- the store of who may not see the fleet's sums ----
# It answers as one that holds nothing.

_NOTHING = SumRow(None, 0, 0, 0.0, 0.0, 0.0, 0.0, None, None)


class UnseenStore:
    """`profiles.fleet.store.FleetStore` without rows; nothing is written through it."""

    shares_transaction = True

    def top(self, question: Any) -> tuple[list[SumRow], SumRow]:
        return [], _NOTHING

    def coverage(self, question: Any) -> Coverage:
        return Coverage()

    def extent(self) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        if name in ("over_time", "watched", "watched_gpus", "telemetry"):
            return lambda *question, **more: []
        if name == "gpu_hours":
            return lambda question: GpuHours.of_rows([])
        raise AttributeError(f"the fleet's sums are of the whole installation: {name} is not for a member of one project")


# ---- which store keeps the fleet's sums ----

def fleet_store() -> FleetStore:
    """Return the store that `RIDGEPOINT_FLEET_URL` names, PostgreSQL where it names none; an empty one for who may not see it."""
    if not current().fleet:
        return cast(FleetStore, UnseenStore())
    if settings.FLEET_URL:
        from profiles.fleet.clickhouse_store import ClickHouseStore

        return ClickHouseStore(settings.FLEET_URL)
    return PostgresStore()


log = logging.getLogger(__name__)
PIECE = 100_000                     # rows that are held at once


def move_to_clickhouse(url: str) -> dict[str, int]:
    """Copy every row of PostgreSQL's sums to ClickHouse; return how many by table.

    Each piece carries a token: a move that was interrupted is begun again, and copies what is missing. No batch may wait and no
    worker may merge meanwhile (the address decides where the next merge goes); PostgreSQL's rows stay.

    Raises:
        Refused: batches wait that are not merged yet.
    """
    waiting = FleetBatch.objects.filter(payload__isnull=False, error="").count()
    if waiting:
        raise Refused(f"{waiting} batches wait to be merged: stop the web and ingest processes once none does, then move")
    store, copied = ClickHouseStore(url), dict[str, int]()
    kernels = dict(FleetSignature.objects.values_list("id", "kernel_id"))
    for table in TABLES:
        for level in LEVELS:
            name = table_name(table, level)
            copied[name] = 0
            for number, hours in enumerate(_pieces(table, level)):
                store.insert(table, level, hours, kernels, f"move-{number}")
                copied[name] += hours.rows
            log.info("%s: %s rows", name, copied[name])
    return copied


def _pieces(table: FactTable, level: str) -> Iterator[Hours]:
    """Rows in the order of their keys: a second move makes the same pieces."""
    order = ", ".join(["at", *table.keys, *table.sums])
    with transaction.atomic(), connection.cursor() as plain:
        plain.execute(f"DECLARE moved NO SCROLL CURSOR FOR SELECT {', '.join(table.columns)} FROM {table_name(table, level)} "
                      f"ORDER BY {order}")
        while True:
            plain.execute(f"FETCH {PIECE} FROM moved")
            rows = plain.fetchall()
            if not rows:
                plain.execute("CLOSE moved")
                return
            yield _hours(table, rows)


def _hours(table: FactTable, rows: list[Any]) -> Hours:
    by_column = dict(zip(table.columns, zip(*rows, strict=True), strict=True))
    kinds = {name: np.float64 if table.sums.get(name) == "f" else np.int64 for name in table.columns}
    columns: dict[str, Column] = {
        name: np.array(values, kinds[name]) for name, values in by_column.items() if name not in ("bucket", "count")}
    if not table.has_sketch:
        return Hours(columns)
    starts = np.append(0, np.cumsum([len(sketch) for sketch in by_column["bucket"]]))
    bucket, count = (np.array([value for sketch in by_column[name] for value in sketch], np.int64) for name in ("bucket", "count"))
    return Hours(columns, starts, bucket, count)

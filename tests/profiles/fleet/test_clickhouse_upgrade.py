"""ClickHouse's tables of before estimates by GPU get their columns, and rows of then count as they were seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from profiles.fleet.clickhouse_store import ClickHouseStore
from profiles.fleet.clickhouse_tables import create_sql, upgrade_sql
from profiles.fleet.days import mark_written
from profiles.fleet.store import Question, Window
from tests.profiles.fleet.chdb_server import chdb_server

pytest.importorskip("chdb")
pytestmark = [pytest.mark.django_db, pytest.mark.process]
NEWER = ("estimate_launches", "estimate_ns", "square")
TABLES = ("fleet_gpu_kernels_hour",
          *(f"fleet_gpu_kernels_{level}{staged}" for level in ("day", "month") for staged in ("", "_staged")))
DAY, GPU = 20_760, 7
HOUR = DAY * 24 + 5


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ClickHouseStore]:
    with chdb_server(tmp_path / "data") as url:
        yield ClickHouseStore(url)


def columns(store: ClickHouseStore) -> dict[str, tuple[str, ...]]:
    return {name: tuple(row[0] for row in store.client.query(f"DESCRIBE TABLE {name}").result_rows) for name in TABLES}


def sums(store: ClickHouseStore) -> tuple[object, ...]:
    (row,), whole = store.top(Question(Window(DAY * 24, DAY * 24 + 24), "gpu", {"kernel": [11]}, None))
    assert row.key == GPU and row.estimate_ns == whole.estimate_ns
    return row.launches, row.total_ns, row.estimate_launches, row.estimate_ns


def test_rows_without_estimates_count_as_they_were_seen(store: ClickHouseStore) -> None:
    client = store.client
    for name in TABLES:
        for column in NEWER:
            client.command(f"ALTER TABLE {name} DROP COLUMN {column}")
    assert not any(set(NEWER) & set(found) for found in columns(store).values())
    kept = "at, gpu, kernel, signature, context, launches, total_ns, log_sum, parts"
    for launches, total_ns in ((3, 3000), (5, 2_000_000_000)):         # parts of one key, as two merges write them
        client.command(f"INSERT INTO fleet_gpu_kernels_hour ({kept}) "
                       f"VALUES ({HOUR}, {GPU}, 11, 12, 13, {launches}, {total_ns}, 20.5, 1)")
    mark_written([HOUR])
    for _ in range(2):                                                  # every connection says it again
        for sql in (*create_sql(), *upgrade_sql()):
            client.command(sql)
    assert all(set(NEWER) <= set(found) for found in columns(store).values())
    expected = (8, 2_000_003_000, 8.0, 2_000_003_000.0)
    assert sums(store) == expected
    client.command(f"INSERT INTO fleet_gpu_kernels_hour ({kept}, {', '.join(NEWER)}) "
                   f"VALUES ({HOUR}, {GPU}, 11, 12, 13, 2, 1000, 10.0, 1, 20.0, 10000.0, 4e7)")
    sampled = (10, 2_000_004_000, 28.0, 2_000_013_000.0)
    assert sums(store) == sampled
    store.roll_up([DAY])                                                # its parts are joined, and the day answers
    assert sums(store) == sampled
    square = client.query("SELECT sum(square) FROM fleet_gpu_kernels_day").result_rows[0][0]
    assert square == pytest.approx(3000.0**2 + 2e9**2 + 4e7) and store.gpu_hours(
        Question(Window(HOUR, HOUR + 1), "gpu", {}, None)).rows() == [(HOUR, GPU, 12, 13, 10, 2_000_004_000, 51.0)]

"""Sums in ClickHouse, batches in PostgreSQL: wherever a merge dies between the two, nothing is lost and nothing counts twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from profiles.fleet import services
from profiles.fleet.clickhouse_store import ClickHouseStore
from profiles.fleet.clickhouse_tables import create_sql
from profiles.fleet.feed import Read, batches
from profiles.fleet.models import FleetBatch
from profiles.fleet.store import Question, Window
from tests.profiles.fleet.chdb_server import chdb_server
from tests.profiles.fleet.records import HOUR_NS, START_NS, make_records, write_records
from tests.scale import DEEP
from workers.agent.wire import pack

pytest.importorskip("chdb")
pytestmark = [pytest.mark.django_db, pytest.mark.process]
HOUR = START_NS // HOUR_NS


class Dies(RuntimeError):
    pass


class Dying(ClickHouseStore):
    """Dies at its n-th insert, before it or after it, or when all are done."""

    left, after = 0, False

    def _insert(self, *arguments: Any) -> None:
        if self.left == 0 and not self.after:
            raise Dies
        super()._insert(*arguments)
        self.left -= 1
        if self.left < 0:
            raise Dies


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with chdb_server(tmp_path_factory.mktemp("clickhouse") / "data") as url:
        yield url


def accept(tmp_path: Path, seed: int) -> int:
    path = write_records(tmp_path / f"{seed}.jsonl.gz", make_records(200, seed=seed, hours=30))
    for batch in batches(path, Read()):
        services.batch_accept(pack(batch))
    return sum(each["dur_ns"] for each in make_records(200, seed=seed, hours=30))


def test_a_merge_that_dies_at_any_insert_is_done_again_once(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    good, total_ns = ClickHouseStore(address), 0
    for sql in create_sql():
        good.client.command(f"TRUNCATE TABLE {sql.split('EXISTS ')[1].split()[0]}")
    inserts = 9                                             # of a merge without sensors: five tables, four of them with sketches
    moments = [*((n, False) for n in range(inserts)), (0, True), (3, True), (6, True)]
    for seed, (left, after) in enumerate(moments if DEEP else (*moments[:2], *moments[5:9:3], *moments[-2:]), 1):
        total_ns += accept(tmp_path, 2 * seed)
        dying = Dying(address)
        dying.left, dying.after = left, after
        monkeypatch.setattr(services, "fleet_store", lambda store=dying: store)
        with pytest.raises(Dies):
            services.merge_waiting()
        assert FleetBatch.objects.filter(payload__isnull=False).exists()
        total_ns += accept(tmp_path, 2 * seed + 1)          # others come before it is done again: they are a merge of their own
        monkeypatch.setattr(services, "fleet_store", lambda: good)
        services.merge_waiting()
        assert not FleetBatch.objects.filter(payload__isnull=False).exists()
        for group in ("kernel", "signature", "gpu", "job"):
            rows, whole = good.top(Question(Window(HOUR, HOUR + 30), group, {}, None))
            assert (whole.launches, whole.total_ns) == (400 * seed, total_ns), (left, after, group)
            assert sum(sum((row.sketch or {}).values()) for row in rows) == 400 * seed


def test_a_merge_that_is_named_keeps_its_batches(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dying = Dying(address)
    monkeypatch.setattr(services, "fleet_store", lambda: dying)
    accept(tmp_path, 101)
    with pytest.raises(Dies):
        services.merge_waiting()
    named = set(FleetBatch.objects.filter(merge__isnull=False).values_list("pk", flat=True))
    accept(tmp_path, 102)
    with pytest.raises(Dies):
        services.merge_waiting()
    assert set(FleetBatch.objects.filter(merge__isnull=False).values_list("pk", flat=True)) == named

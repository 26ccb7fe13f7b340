"""Workers that are killed, that merge at once, and days that are summed meanwhile: totals stay exact. Processes are real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.db import connection, connections
from django.utils import timezone

from profiles.fleet import services
from profiles.fleet.days import date_of, day_number
from profiles.fleet.feed import Read, batches
from profiles.fleet.models import FleetAgent, FleetBatch, FleetDay
from profiles.fleet.postgres_store import PostgresStore
from profiles.fleet.store import Question, Window
from profiles.fleet.tables import LEVELS, TABLES, table_name
from tests.profiles.fleet.records import HOUR_NS, START_NS, make_records, write_records
from tests.profiles.fleet.test_robust_batches import KIND, PATH, good
from workers.agent.wire import pack

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.process, pytest.mark.deep]
ROOT = Path(__file__).resolve().parents[3]
HOUR, HOURS, RECORDS = START_NS // HOUR_NS, 30, 150
AGENTS = 1000 if "RIDGEPOINT_DEEP" in os.environ else 60


@pytest.fixture(autouse=True)
def empty_sums(transactional_db: None) -> Iterator[None]:
    """The sums are no models' tables: the flush of a transactional test knows nothing of them."""
    yield
    with connection.cursor() as cursor:
        for table in TABLES:
            for level in LEVELS:
                cursor.execute(f"TRUNCATE {table_name(table, level)}")


def accept(tmp_path: Path, seed: int) -> int:
    """One agent's batches; return the time of all launches in ns."""
    records = make_records(RECORDS, seed=seed, hours=HOURS)
    path = write_records(tmp_path / f"{seed}.jsonl.gz", records)
    for batch in batches(path, Read()):
        services.batch_accept(pack(batch))
    return sum(record["dur_ns"] for record in records)


@contextmanager
def worker(what: str = "merge") -> Iterator[subprocess.Popen[str]]:
    path, _, query = os.environ["DATABASE_URL"].partition("?")
    url = f"{path.rsplit('/', 1)[0]}/{connection.settings_dict['NAME']}" + (f"?{query}" if query else "")
    process = subprocess.Popen([sys.executable, "-m", "tests.profiles.fleet.merge_child", what], cwd=ROOT, text=True,
                               stdout=subprocess.PIPE, env={**os.environ, "DATABASE_URL": url})
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()


def drain(within_s: float = 60) -> None:
    end = time.monotonic() + within_s
    while FleetBatch.objects.filter(payload__isnull=False).exists():
        assert time.monotonic() < end, "batches still wait"
        services.merge_waiting()
        time.sleep(0.05)


def holds(seeds: int, total_ns: int) -> None:
    """By every table of sums, and by the buckets of sketches."""
    for group in ("kernel", "signature", "job", "gpu"):
        rows, whole = PostgresStore().top(Question(Window(HOUR, HOUR + HOURS), group, {}, None))
        assert (whole.launches, whole.total_ns) == (RECORDS * seeds, total_ns), group
        assert sum(sum((row.sketch or {}).values()) for row in rows) == whole.launches


@pytest.mark.deep_only
def test_a_worker_killed_at_random_moments_loses_and_doubles_nothing(tmp_path: Path) -> None:
    chance, total_ns = np.random.default_rng(3), 0
    for turn in range(6):
        total_ns += accept(tmp_path, 2 * turn) + accept(tmp_path, 2 * turn + 1)
        with worker() as process:
            time.sleep(float(chance.uniform(0, 0.3)))
            process.send_signal(signal.SIGKILL)
    drain()
    holds(12, total_ns)


@pytest.mark.deep_only
def test_two_workers_at_once_while_batches_come_and_days_are_summed(tmp_path: Path) -> None:
    total_ns = 0
    with worker(), worker(), worker("tend"):
        for seed in range(15):
            total_ns += accept(tmp_path, seed)
            rows, whole = PostgresStore().top(Question(Window(HOUR, HOUR + HOURS), "kernel", {}, None))
            assert whole.launches <= RECORDS * (seed + 1) and sum(row.launches for row in rows) == whole.launches
        drain()
        holds(15, total_ns)
    PostgresStore().roll_up(sorted(map(day_number, FleetDay.objects.values_list("day", flat=True))))
    holds(15, total_ns)


def test_rows_that_come_while_a_day_is_summed_are_seen(tmp_path: Path) -> None:
    """The writer waits for the sum, and then is newer than it, whatever its clock said before."""
    total_ns = accept(tmp_path, 1)
    services.merge_waiting()
    days = sorted(map(day_number, FleetDay.objects.values_list("day", flat=True)))
    total_ns += accept(tmp_path, 2)
    began, summed = threading.Event(), PostgresStore()

    def later() -> None:
        began.set()
        services.merge_waiting()
        connections.close_all()

    from django.db import transaction

    with transaction.atomic():
        for day in days:                                    # as roll_up does, held open while the other writes
            summed.roll_up([day])
        thread = threading.Thread(target=later)
        thread.start()
        began.wait()
        time.sleep(0.5)
    thread.join()
    holds(2, total_ns)


def test_days_are_summed_when_they_rest_and_hours_joined_when_they_ended(tmp_path: Path) -> None:
    total_ns = accept(tmp_path, 1) + accept(tmp_path, 2)
    services.merge_waiting(limit=1)
    assert services.days_to_sum() == [] and services.wake_fleet([]) == []
    FleetDay.objects.update(written=timezone.now() - timedelta(minutes=30))
    days = sorted(map(day_number, FleetDay.objects.values_list("day", flat=True)))
    assert services.days_to_sum() == days and services.wake_fleet([7]) == [] and services.wake_fleet([]) == [0]
    assert services.fleet_tend() == days and services.days_to_sum() == [] and services.fleet_tend() == []
    holds(2, total_ns)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*), count(DISTINCT (at, kernel, gpu_model)) FROM fleet_totals_hour")
        rows, keys = cursor.fetchone()
        assert rows < 1.3 * keys
    total_ns += accept(tmp_path, 3)
    services.merge_waiting()
    holds(3, total_ns)                                       # of hours, until the day is summed again
    FleetDay.objects.update(written=timezone.now() - timedelta(minutes=20), rolled=timezone.now() - timedelta(minutes=30))
    assert services.fleet_tend() == days
    holds(3, total_ns)


def test_batches_that_wait_wake_a_merge(tmp_path: Path) -> None:
    accept(tmp_path, 1)
    assert services.wake_fleet([]) == []                     # a moment later more hosts' minutes are merged at once
    FleetBatch.objects.update(received=timezone.now() - timedelta(seconds=services.MERGE_AFTER_S + 1))
    oldest = FleetBatch.objects.order_by("pk").values_list("pk", flat=True)[0]
    assert services.wake_fleet([oldest]) == [] and services.wake_fleet([]) == [oldest]


def test_batches_of_before_the_clock_was_set_back_wake_a_merge(tmp_path: Path) -> None:
    """They were received in an hour: nobody waits until then."""
    accept(tmp_path, 1)
    FleetBatch.objects.update(received=timezone.now() + timedelta(hours=1))
    oldest = FleetBatch.objects.order_by("pk").values_list("pk", flat=True)[0]
    assert services.wake_fleet([]) == [oldest]


def test_what_is_older_than_kept_is_forgotten_and_what_came_late_is_not(tmp_path: Path, settings: Any) -> None:
    total_ns = accept(tmp_path, 1)
    services.merge_waiting()
    settings.FLEET_KEEP_HOURS_DAYS = settings.FLEET_KEEP_DAYS_DAYS = 3
    services.fleet_tend()
    holds(1, total_ns)                                       # fed just now: kept, however old its launches are
    FleetDay.objects.update(written=timezone.now() - timedelta(days=4))
    FleetBatch.objects.update(received=timezone.now() - timedelta(days=4))
    services.fleet_tend()                                    # closes the days; their hours go once what was accepted is merged
    holds(1, total_ns)
    FleetDay.objects.update(closed=timezone.now() - timedelta(minutes=11))
    services.fleet_tend()
    old = sum(date_of(day) < timezone.now().date() - timedelta(days=3) for day in map(day_number, FleetDay.objects.values_list(
        "day", flat=True)))
    assert old == FleetDay.objects.count() and not FleetBatch.objects.exists()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM fleet_kernels_hour")
        assert cursor.fetchone()[0] == 0


def test_many_agents_returning_at_once_drain_without_an_error(api: Any, alice: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tries again while it is asked to wait; the limit is so low that many are."""
    payloads = [good(f"agent-{number}") for number in range(AGENTS)]
    monkeypatch.setattr(services, "MOST_WAITING_BYTES", AGENTS // 10 * len(payloads[0]))
    client_of = threading.local()
    codes: list[int] = []

    def send(payload: bytes) -> int:
        if not hasattr(client_of, "one"):
            client_of.one = api(alice)
        for _ in range(2000):
            answer = client_of.one.post(PATH, payload, content_type=KIND)
            codes.append(answer.status_code)
            if answer.status_code != 429:
                return int(answer.status_code)
            time.sleep(0.2)
        return 429

    with worker(), ThreadPoolExecutor(16, initializer=connections.close_all) as pool:
        assert set(pool.map(send, payloads)) == {200}
        list(pool.map(lambda _: connections.close_all(), range(64)))
        drain()
    assert set(codes) <= {200, 429} and codes.count(200) == AGENTS
    assert FleetAgent.objects.count() == AGENTS
    _, whole = PostgresStore().top(Question(Window(HOUR, HOUR + 1), "kernel", {}, None))
    assert whole.launches == AGENTS * 400

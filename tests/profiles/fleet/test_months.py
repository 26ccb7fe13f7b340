"""Months are summed of days by themselves; each launch counts once, and what a month's sum cannot answer is said."""

from __future__ import annotations

import io
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from profiles.fleet import services
from profiles.fleet.days import closed_days, date_of, day_number, extent, month_end, month_of, months_to_sum, spans, too_coarse
from profiles.fleet.models import FleetDay, FleetMonth
from profiles.fleet.store import Window
from tests.profiles.fleet.records import HOUR_NS, START_NS, make_records, write_records

pytestmark = pytest.mark.django_db
DAY_NS = 24 * HOUR_NS
BACK_DAYS = 100                             # its launches are of July: whole months lie between them and today
FIRST = START_NS // DAY_NS - BACK_DAYS
MONTH = month_of(FIRST)


def records(seed: int, days: int = 0, count: int = 1500, hours: int = 60) -> list[dict[str, Any]]:
    return [{**each, "ts_ns": each["ts_ns"] - (BACK_DAYS - days) * DAY_NS} for each in make_records(count, seed=seed, hours=hours)]


def feed(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl.gz"
    call_command("fleet", "feed", str(write_records(path, rows)), stdout=io.StringIO())


def rest(minutes: int = 11) -> None:
    """Let what came lie so long that it is summed."""
    FleetDay.objects.update(written=timezone.now() - timedelta(minutes=minutes))


def rows_of(name: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {name}")
        return int(cursor.fetchone()[0])


def total(client: Client, query: str = "") -> tuple[int, int]:
    found = client.get(f"{reverse('api-fleet-top')}?{query}").json()
    return found["launches"], found["total_ns"]


@pytest.fixture
def visitor(client: Client, alice: Any) -> Client:
    client.force_login(alice)
    return client


def test_a_month_that_ended_is_summed_and_again_when_a_row_comes_late(visitor: Client, tmp_path: Path) -> None:
    first, late = records(1), records(2, days=1, count=300, hours=5)
    feed(tmp_path, first)
    assert services.fleet_tend() == [] and not FleetMonth.objects.exists()
    rest()
    services.fleet_tend()
    assert [day_number(each) for each in FleetMonth.objects.values_list("month", flat=True)] == [MONTH]
    whole = Window(24 * MONTH, 24 * month_end(MONTH))
    assert spans(whole) == [("month", MONTH, month_end(MONTH))] and rows_of("fleet_totals_month")
    sums = 1500, sum(each["dur_ns"] for each in first)
    query = f"from={date_of(MONTH)}&to={date_of(month_end(MONTH))}"
    assert total(visitor, query) == sums
    feed(tmp_path, late)
    both = 1800, sums[1] + sum(each["dur_ns"] for each in late)
    assert total(visitor, query) == both and "month" not in {level for level, _, _ in spans(whole)}
    assert services.wake_fleet([]) == [] and months_to_sum(day_number(timezone.now().date())) == []     # its days come first
    rest()
    FleetDay.objects.update(rolled=timezone.now() - timedelta(minutes=30))
    services.fleet_tend()
    assert spans(whole) == [("month", MONTH, month_end(MONTH))] and total(visitor, query) == both
    assert services.wake_fleet([]) == []


def test_the_current_month_is_not_summed() -> None:
    today = day_number(timezone.now().date())
    FleetDay.objects.create(day=date_of(month_of(today)), written=timezone.now(), rolled=timezone.now() + timedelta(minutes=1))
    assert months_to_sum(today) == [] and months_to_sum(month_end(month_of(today))) == [month_of(today)]


def forget_finer(settings: Any, hours: int = 30, days: int = 60) -> None:
    """Let time pass until days and their hours are forgotten."""
    settings.FLEET_KEEP_HOURS_DAYS, settings.FLEET_KEEP_DAYS_DAYS = hours, days
    old = timezone.now() - timedelta(days=70)
    FleetDay.objects.update(written=old, rolled=old)
    FleetMonth.objects.update(rolled=old)
    for _ in range(2):                      # closed in one turn, forgotten in a later one
        services.fleet_tend()
        FleetDay.objects.filter(closed__isnull=False).update(closed=old)
        FleetMonth.objects.filter(closed__isnull=False).update(closed=old)
    with connection.cursor() as cursor:     # partitions reach over more days than one month
        cursor.execute("SELECT count(*) FROM fleet_totals_day WHERE at < %s", [month_end(MONTH)])
        if cursor.fetchone()[0]:
            for table in ("kernels", "totals", "gpus", "gpu_kernels", "telemetry", "contexts"):
                cursor.execute(f"DELETE FROM fleet_{table}_day WHERE at < %s", [month_end(MONTH)])


def test_when_days_are_forgotten_months_answer_and_the_rest_is_said(visitor: Client, tmp_path: Path, settings: Any) -> None:
    rows = records(1)
    feed(tmp_path, rows)
    rest()
    services.fleet_tend()
    forget_finer(settings)
    assert rows_of("fleet_totals_hour") == rows_of("fleet_totals_day") == 0
    found = extent()
    assert found and found.from_hour == 24 * MONTH          # of what is kept as a month, the month begins the extent
    assert total(visitor) == (1500, sum(each["dur_ns"] for each in rows))
    part = f"from={date_of(FIRST)}&to={date_of(FIRST + 2)}"
    answer = visitor.get(f"{reverse('api-fleet-top')}?{part}").json()
    assert answer["rows"] == [] and answer["gaps"] == [
        f"{date_of(FIRST)} 00:00 to {date_of(FIRST + 2)} 00:00 UTC is left out: only sums of whole months are kept of it"]
    for page in ("fleet", "fleet-utilisation", "fleet-gpus"):
        assert "only sums of whole months are kept of it" in visitor.get(f"{reverse(page)}?{part}").content.decode(), page
    assert visitor.get(f"{reverse('api-fleet-gpus')}?{part}").json()["gaps"]
    whole = visitor.get(f"{reverse('fleet')}?from={date_of(MONTH)}&to={date_of(month_end(MONTH))}").content.decode()
    assert "No chart in steps of a day" in whole and "_attn_fwd" in whole


def test_an_hour_of_a_day_whose_hours_are_forgotten_is_said(visitor: Client, tmp_path: Path, settings: Any) -> None:
    feed(tmp_path, records(1))
    rest()
    services.fleet_tend()
    forget_finer(settings, days=800)
    start = 24 * (FIRST + 1)
    assert too_coarse(Window(start, start + 24)) == [] and too_coarse(Window(start, start + 24), "hour") == [
        ("day", Window(start, start + 24))]
    assert too_coarse(Window(start + 3, start + 24)) == [("day", Window(start + 3, start + 24))]


def test_rows_that_a_forgotten_level_would_need_are_refused(visitor: Client, tmp_path: Path, settings: Any) -> None:
    rows = records(1)
    feed(tmp_path, rows)
    rest()
    services.fleet_tend()
    forget_finer(settings)
    before = total(visitor)
    assert closed_days([FIRST + 1]) == [FIRST + 1]
    with pytest.raises(CommandError, match="only the sum of that day or its month is kept"):
        feed(tmp_path, records(5, days=1, count=50, hours=2))
    assert total(visitor) == before
    feed(tmp_path, records(6, days=40, count=70, hours=2))  # a day of which nothing was ever kept
    assert total(visitor)[0] == before[0] + 70


def test_a_row_that_came_before_its_day_was_closed_opens_it(tmp_path: Path, settings: Any) -> None:
    feed(tmp_path, records(1))
    rest()
    services.fleet_tend()
    settings.FLEET_KEEP_HOURS_DAYS = 30
    old = timezone.now() - timedelta(days=40)
    FleetDay.objects.update(written=old, rolled=old)
    services.fleet_tend()
    assert not FleetDay.objects.filter(closed=None).exists() and rows_of("fleet_totals_hour")
    from profiles.fleet.feed import Read, batches
    from profiles.fleet.merge import merge
    from profiles.fleet.stores import fleet_store

    late = records(5, days=1, count=50, hours=1)
    fleet_store().write(merge(list(batches(write_records(tmp_path / "late.jsonl.gz", late), Read()))))
    assert FleetDay.objects.filter(closed=None).count() == 1 and closed_days([FIRST + 1]) == []

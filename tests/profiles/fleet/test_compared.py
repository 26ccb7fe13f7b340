"""Hours that rest are compared once: pages say of them what they say without, and rows that come late are seen."""

from __future__ import annotations

import io
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.core.management import call_command
from django.utils import timezone

from profiles.fleet import services
from profiles.fleet.models import FleetHour
from profiles.fleet.slow import compared_services
from profiles.fleet.slow.compared import GpuHours, compare, joined, packed, unpacked
from profiles.fleet.slow.gpu_selectors import slow_gpus
from profiles.fleet.slow.slow_gpus import judge_compared
from profiles.management.fleet_demo import forget_simulated
from tests.profiles.fleet.records import HOUR_NS, START_NS, make_records, write_records
from tests.profiles.fleet.test_slow_gpus import fleet

HOUR = START_NS // HOUR_NS
FILTERS: list[dict[str, str]] = [{}, {"job": "job-0"}, {"gpu_model": "NVIDIA H200"}, {"host": "host-0"}, {"kernel": "rms_norm"},
                                 {"simulated": "no"}, {"job": "job-1", "build": "b2"}]


@pytest.mark.parametrize("seed", range(4))
def test_hours_compared_one_by_one_are_judged_as_all_at_once(seed: int) -> None:
    """Some kept, some compared now, of several models: the levels are the very same numbers."""
    chance = np.random.default_rng(seed)
    rows = [row for row in fleet(seed, 12, 30, 5, slow=(3, 1.2, 10, 30)) if chance.random() < 0.9]
    models = {gpu: ("H200", "A100")[gpu % 2 if seed % 2 else 0] for gpu in range(12)}
    hours = [compare(GpuHours.of_rows([row for row in rows if row[0] == hour]), models) for hour in range(30)]
    parts = [unpacked(packed(part)) if chance.random() < 0.7 else part for part in hours]
    assert judge_compared(joined(parts), models) == judge_compared(compare(GpuHours.of_rows(rows), models), models)
    assert judge_compared(joined([]), models) == []


def feed(tmp_path: Path, rows: list[dict[str, Any]], *words: str) -> None:
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl.gz"
    call_command("fleet", "feed", str(write_records(path, rows)), *words, stdout=io.StringIO())


def rest() -> None:
    FleetHour.objects.update(written=timezone.now() - timedelta(minutes=11))
    services.fleet_tend()


def kept() -> list[int]:
    return list(FleetHour.objects.filter(compared__isnull=False).order_by("hour").values_list("hour", flat=True))


def answers() -> list[dict[str, Any]]:
    return [slow_gpus(asked).as_json() for asked in FILTERS]


@pytest.mark.django_db
def test_pages_say_the_same_of_hours_that_are_kept_and_see_what_comes_late(tmp_path: Path) -> None:
    feed(tmp_path, make_records(6000, hours=12, slow={3: (1.4, 5)}))
    services.fleet_tend()
    assert kept() == []                                     # they do not rest yet
    before = answers()
    rest()
    assert kept() == list(range(HOUR, HOUR + 12)) and answers() == before
    assert [row["gpu_uuid"] for row in before[0]["rows"] if row["verdict"] == "SLOWER"] == ["GPU-0003"]
    late = [{**each, "ts_ns": each["ts_ns"] + 4 * HOUR_NS} for each in make_records(900, seed=2, hours=1, slow={5: (3.0, 0)})]
    feed(tmp_path, late)
    assert kept() == [hour for hour in range(HOUR, HOUR + 12) if hour != HOUR + 4]
    seen = answers()
    compared = [sum(row["launches"] for row in answer[0]["rows"]) for answer in (before, seen)]
    assert compared[1] >= compared[0] + 800                 # few of them have no three others beside them
    rest()
    assert len(kept()) == 12 and answers() == seen


@pytest.mark.django_db
def test_the_hours_of_many_gpus_end_with_one_that_rests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compared_services, "MOST_GPU_HOURS", 8 * 3)
    feed(tmp_path, make_records(4000, hours=8))
    rest()
    assert kept() == list(range(HOUR + 5, HOUR + 8))         # no more than are looked at
    feed(tmp_path, [{**each, "ts_ns": each["ts_ns"] + 7 * HOUR_NS} for each in make_records(200, seed=2, hours=1)])
    found = slow_gpus({}).window
    assert found is not None and (found.from_hour, found.to_hour) == (HOUR + 4, HOUR + 7)
    rest()
    found = slow_gpus({}).window
    assert found is not None and (found.from_hour, found.to_hour) == (HOUR + 5, HOUR + 8)


@pytest.mark.django_db
def test_what_simulated_gpus_were_compared_with_goes_with_them(tmp_path: Path) -> None:
    feed(tmp_path, make_records(3000, hours=3), "--simulated")
    feed(tmp_path, [{**each, "gpu_uuid": f"real-{each['gpu_uuid']}", "host": f"real-{each['host']}", "job": "real"}
                    for each in make_records(3000, seed=3, hours=3)])
    rest()
    assert len(kept()) == 3 and len(slow_gpus({}).rows) == 16
    forget_simulated()
    assert len(slow_gpus({}).rows) == 8
    rest()
    assert len(kept()) == 3 and len(slow_gpus({}).rows) == 8

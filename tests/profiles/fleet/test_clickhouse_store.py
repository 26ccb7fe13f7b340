"""ClickHouse answers as PostgreSQL does: the same records in both, every query of the protocol. Its engine is a child process."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from django.core.management import call_command

from profiles.fleet.clickhouse_store import ClickHouseStore
from profiles.fleet.clickhouse_tables import create_sql, sketch_name
from profiles.fleet.days import day_number, month_end, month_of, spans
from profiles.fleet.feed import Read, batches
from profiles.fleet.merge import Merged, key_of, merge
from profiles.fleet.models import FleetContext, FleetDay, FleetGpu, FleetKernel, FleetSignature
from profiles.fleet.postgres_store import PostgresStore
from profiles.fleet.store import GROUPS, Question, Window
from profiles.fleet.tables import BY_NAME
from tests.profiles.fleet.chdb_server import chdb_server
from tests.profiles.fleet.records import HOUR_NS, START_NS, make_records, write_records
from tests.scale import DEEP
from workers.agent.launches import Gpu
from workers.agent.wire import make_batch

pytest.importorskip("chdb")
pytestmark = [pytest.mark.django_db, pytest.mark.process]
HOUR, HOURS = START_NS // HOUR_NS, 60
RECORDS = 2000 if DEEP else 700         # of each seed


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with chdb_server(tmp_path_factory.mktemp("clickhouse") / "data") as url:
        yield url


@pytest.fixture
def clickhouse(address: str) -> ClickHouseStore:
    store = ClickHouseStore(address)
    for sql in create_sql():
        store.client.command(f"TRUNCATE TABLE {sql.split('EXISTS ')[1].split()[0]}")
    return store


def sampled(seed: int) -> Merged:
    """Windows of a tenth of the time and sensors, from several hosts, in one merge."""
    chance = np.random.default_rng(seed)
    made = []
    for host in range(3):
        measured = [{"minute": (HOUR + hour) * 60 + minute, "gpu": Gpu(f"GPU-{host * 4 + gpu:04}", "NVIDIA H200", f"host-{host}"),
                     "samples": 60, "sm_pct": chance.uniform(0, 100), "power_w": 700.0, "throttle_s": chance.uniform(0, 9),
                     **({"temperature_c": 61.5} if minute % 2 else {})}
                    for hour in range(0, HOURS, 7) for minute in (0, 31) for gpu in range(4)]
        made.append(make_batch(f"agent-{host}", seed, 0, [], measured))
    return merge(made)


@cache
def merges(seed: int) -> tuple[Merged, Merged]:
    """Of records, and of windows."""
    with TemporaryDirectory() as folder:
        path = write_records(Path(folder) / "records.jsonl.gz", make_records(RECORDS, seed=seed, hours=HOURS))
        return merge(list(batches(path, Read()))), sampled(seed)


def fill(*stores: Any, seeds: tuple[int, ...] = (1, 2)) -> None:
    for seed in seeds:
        for number, each in enumerate(merges(seed)):
            for store in stores:
                store.write(each, f"{seed}-{number}")


def fill_months(*stores: Any) -> tuple[int, int]:
    """Records and windows of two months; return the months."""
    for seed, days in ((1, 0), (2, 31), (3, 24)):
        for number, merged in enumerate(deepcopy(merges(seed))):
            for hours in merged.tables.values():
                hours.columns["at"] = hours.columns["at"] - 24 * days       # type: ignore[operator]
            for store in stores:
                store.write(merged, f"{seed}-{number}")
    last = month_of(HOUR // 24)
    return month_of(last - 1), last


def questions(part: int | None = None) -> list[Question]:
    """All; or of those about everything one window, of the others each filter and each group once, and those that differ most."""
    every, first = list(_questions()), 3 * len(GROUPS)
    return every if part is None else [*every[part:first:3], *every[first + part:-1:len(GROUPS) + 1], every[2], every[-1]]


def _questions() -> Iterator[Question]:
    contexts = dict(FleetContext.objects.values_list("job", "id"))
    gpus = list(FleetGpu.objects.order_by("id").values_list("id", flat=True))
    wheres: list[dict[str, list[int]]] = [
        {}, {"context": [contexts["job-0"]]}, {"gpu": gpus[:3]},
        {"kernel": [key_of("kernel", "_attn_fwd"), key_of("kernel", "rms_norm")]},
        {"signature": list(FleetSignature.objects.order_by("id").values_list("id", flat=True)[:2])},
        {"context": list(contexts.values()), "gpu_model_key": [key_of("gpu_model", "NVIDIA H200", False)]},
        {"context": list(contexts.values()), "gpu_model_key": [key_of("gpu_model", "no such", False)]},
        {"gpu": gpus[:5], "kernel": [key_of("kernel", "rms_norm")]}]
    windows = [Window(HOUR, HOUR + HOURS), Window(HOUR + 3, HOUR + 51), Window(HOUR + 500, HOUR + 501)]
    for number, (where, group) in enumerate(itertools.product(wheres, GROUPS)):
        for window in windows if not where else windows[number % 2:][:1]:
            yield Question(window, group, where, None)
    yield Question(windows[0], "signature", {}, 3)


def same(one: Any, other: Any) -> bool:
    """Equal, floats within the rounding of a sum in another order."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) or isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return bool(one == other)


def compare(one: Any, other: Any, asked: Question) -> int:
    """Every method; return how many rows were compared."""
    (rows, whole), (rows2, whole2) = one.top(asked), other.top(asked)
    assert same([row.__dict__ for row in (*rows, whole)], [row.__dict__ for row in (*rows2, whole2)])
    assert one.coverage(asked) == other.coverage(asked)
    keys, seen = [row.key for row in rows[:4]], len(rows)
    if asked.where and asked.window.from_hour != HOUR:      # a question is a round trip: the lists of all, the rest of every other
        return seen
    for step in (1, 24)[:1 if asked.where else 2]:
        assert same(sorted(one.over_time(asked, keys, step)), sorted(other.over_time(asked, keys, step)))
    if asked.group not in ("kernel", "signature"):
        for step in (None, 5):
            found, found2 = ([[*row[:2], *row[2].__dict__.values(), *row[3:]]
                              for row in sorted(store.watched(asked, step), key=str)] for store in (one, other))
            assert same(found, found2)
            seen += len(found)
    if asked.group == "gpu":
        for step in (None, 24):
            assert same(one.telemetry(asked, step), other.telemetry(asked, step))
        assert same(one.gpu_hours(asked).rows(), other.gpu_hours(asked).rows())
    return seen


@pytest.mark.parametrize("summed", [
    pytest.param("hours", marks=pytest.mark.deep_only), "days",
    pytest.param("some days, written again", marks=pytest.mark.deep_only)])
def test_every_answer_is_postgresqls(tmp_path: Path, clickhouse: ClickHouseStore, summed: str) -> None:
    postgres = PostgresStore()
    fill(postgres, clickhouse)
    days = sorted(map(day_number, FleetDay.objects.values_list("day", flat=True)))
    if summed == "days":
        for store in (postgres, clickhouse):
            store.roll_up(days)
    elif summed != "hours":
        for _ in range(2):
            for store in (postgres, clickhouse):
                store.roll_up(days[:2])
        more = merge(list(batches(write_records(tmp_path / "more.jsonl.gz", make_records(500, seed=9, hours=20)), Read())))
        for store in (postgres, clickhouse):
            store.write(more, "more")
    assert postgres.extent() == clickhouse.extent()
    asked = questions({"hours": 0, "days": 1}.get(summed))              # every question of hours and days together
    assert sum(compare(postgres, clickhouse, each) for each in asked) > 2 * len(asked)
    assert FleetKernel.objects.count() == 5


@pytest.mark.parametrize("state", [
    pytest.param("both", marks=pytest.mark.deep_only), "one written again",
    pytest.param("days forgotten", marks=pytest.mark.deep_only)])
def test_every_answer_from_months_is_postgresqls(tmp_path: Path, clickhouse: ClickHouseStore, state: str) -> None:
    both = (PostgresStore(), clickhouse)
    first, last = fill_months(*both)
    begin, end = 24 * first, 24 * month_end(last)
    windows = [Window(begin, end), Window(begin - 5, HOUR + 30), Window(begin + 75, end)]
    groups = (GROUPS, GROUPS[::3], GROUPS[1::3]) if DEEP else (GROUPS[::2], GROUPS[1::4], GROUPS[3::4])     # each once at least
    asked = [Question(window, group, where, None) for number, window in enumerate(windows) for where, group in [
        *(({}, group) for group in groups[number]),
        ({"kernel": [key_of("kernel", "rms_norm")]}, "build"),
        ({"gpu": list(FleetGpu.objects.order_by("id").values_list("id", flat=True)[:3])}, "signature")]]
    of_hours = [both[0].top(each)[1].launches for each in asked]
    assert of_hours[0] == 3 * RECORDS and 0 < of_hours[len(groups[0]) + 2] < of_hours[0]
    days = sorted(map(day_number, FleetDay.objects.values_list("day", flat=True)))
    for store in both:
        store.roll_up(days)
        store.roll_up_months([first, last])
        store.roll_up_months([first])
    assert [level for level, _, _ in spans(windows[0])] == ["month"]
    assert [level for level, _, _ in spans(windows[0], "day")].count("day") > 1
    if state == "one written again":
        more = merge(list(batches(write_records(tmp_path / "more.jsonl.gz", make_records(500, seed=9, hours=20)), Read())))
        for store in both:
            store.write(more, "more")
        assert spans(windows[0])[0] == ("month", first, last) and "hour" in {level for level, _, _ in spans(windows[0])}
    if state == "days forgotten":
        for store in both:
            store.drop_before("hour", 24 * month_end(last))
            store.drop_before("day", (last // 32 + 2) * 32)
    answered = [both[0].top(each)[1].launches for each in asked]
    if state == "both":
        assert answered == of_hours
    whole = len(groups[0])
    assert answered[:whole] == [each + 500 * (state == "one written again") for each in of_hours[:whole]]
    assert sum(compare(*both, each) for each in asked) > len(asked)


def test_what_is_older_is_forgotten_alike(clickhouse: ClickHouseStore) -> None:
    postgres = PostgresStore()
    fill(postgres, clickhouse)
    days = sorted(map(day_number, FleetDay.objects.values_list("day", flat=True)))
    for store in (postgres, clickhouse):
        store.roll_up(days[:2])
        store.drop_before("hour", (days[0] + 1) * 24)
        store.drop_before("day", days[1])
    asked = questions(0)[::1 if DEEP else 2]
    assert sum(compare(postgres, clickhouse, each) for each in asked) > 3 * len(asked)


def test_rows_of_one_token_stay_once_and_parts_of_one_key_are_added_up_by_clickhouse_itself(clickhouse: ClickHouseStore) -> None:
    fill(clickhouse)
    asked = Question(Window(HOUR, HOUR + HOURS), "kernel")
    before = clickhouse.top(asked)
    fill(clickhouse, seeds=(2,))
    assert clickhouse.top(asked) == before and before[1].launches == 2 * RECORDS
    days = sorted(map(day_number, FleetDay.objects.values_list("day", flat=True)))
    name = sketch_name(BY_NAME["kernels"], "hour")
    count = f"SELECT count(), sum(count), uniqExact(at, signature, context, bucket) FROM {name}"
    rows, launches, keys = clickhouse.client.query(count).result_rows[0]
    clickhouse.roll_up(days)
    assert rows > keys and clickhouse.client.query(count).result_rows == [(keys, launches, keys)]


def test_a_move_copies_the_history_once(clickhouse: ClickHouseStore, address: str) -> None:
    postgres = PostgresStore()
    fill(postgres)
    postgres.roll_up(sorted(map(day_number, FleetDay.objects.values_list("day", flat=True)))[:2])
    for _ in range(2):                                      # the second finds everything there
        call_command("fleet", "move", address, stdout=io.StringIO())
    assert sum(compare(postgres, clickhouse, asked) for asked in questions(0)[::3]) > 15


def test_what_is_forgotten_is_the_same(tmp_path: Path, clickhouse: ClickHouseStore) -> None:
    kept, gone = make_records(600, seed=3, hours=30), [{**each, "gpu_uuid": f"SIM-{each['rank']}", "job": "made up"} for each in
                                                       make_records(400, seed=4, hours=30)]
    both = [PostgresStore(), clickhouse]
    for number, records in enumerate((kept, gone)):
        for batch in batches(write_records(tmp_path / f"{number}.jsonl.gz", records), Read(), simulated=number == 1):
            for store in both:
                store.write(merge([batch]), f"{number}-{batch.sequence}")
    contexts = list(FleetContext.objects.filter(simulated=True).values_list("id", flat=True))
    found = [store.forget(contexts, [key_of("gpu_model", "NVIDIA H200", True)]) for store in both]
    assert set(found[0].gpus) == set(found[1].gpus) and len(found[0].gpus) == 8 and found[0].rows and found[1].rows
    for group in ("kernel", "job", "gpu"):
        question = Question(Window(HOUR, HOUR + HOURS), group, {}, None)
        tops = [{row.key: (row.launches, row.total_ns) for row in store.top(question)[0]} for store in both]
        assert tops[0] == tops[1] and sum(launches for launches, _ in tops[0].values()) == 600

"""Records of a file through the wire, the merge and the store: sums are exact, quantiles within 1 %, nothing counts twice."""

from __future__ import annotations

import gzip
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from profiles.fleet import services
from profiles.fleet.models import FleetBatch, FleetDay
from profiles.fleet.postgres_tables import create_sql
from profiles.fleet.stores import fleet_store
from tests.profiles.fleet.records import HOUR_NS, START_NS, make_records, write_records

pytestmark = pytest.mark.django_db


def run(*words: str) -> dict[str, Any]:
    out = io.StringIO()
    call_command("fleet", *words, "--json", stdout=out)
    return json.loads(out.getvalue())


def feed(tmp_path: Path, records: list[dict[str, Any]], name: str = "records.jsonl.gz") -> dict[str, Any]:
    return run("feed", str(write_records(tmp_path / name, records)))


def written(*words: str) -> str:
    """What a person reads who asks the command."""
    out = io.StringIO()
    call_command("fleet", *words, stdout=out)
    return out.getvalue()


def truth(records: list[dict[str, Any]], *keys: str) -> dict[Any, np.ndarray]:
    found: dict[Any, list[int]] = {}
    for record in records:
        key = tuple(tuple(record[name]) if isinstance(record[name], list) else record[name] for name in keys)
        found.setdefault(key if len(keys) > 1 else key[0], []).append(record["dur_ns"])
    return {key: np.array(values) for key, values in found.items()}


def agrees(rows: list[dict[str, Any]], expected: dict[Any, np.ndarray], *keys: str) -> None:
    assert len(rows) == len(expected)
    whole = sum(int(values.sum()) for values in expected.values())
    for row in rows:
        key = tuple(tuple(row[name]) if isinstance(row[name], list) else row[name] for name in keys)
        values = expected[key if len(keys) > 1 else key[0]]
        assert (row["launches"], row["total_ns"], row["min_ns"], row["max_ns"]) == (
            values.size, int(values.sum()), int(values.min()), int(values.max()))
        assert row["estimate_ns"] == row["total_ns"] and row["interval_pct"] is None
        assert row["share_pct"] == pytest.approx(100 * values.sum() / whole)
        for share, name in ((50, "p50_ns"), (95, "p95_ns")):
            assert row[name] == pytest.approx(np.percentile(values, share), rel=0.01)
    assert [row["total_ns"] for row in rows] == sorted((row["total_ns"] for row in rows), reverse=True)


GROUPS = {"kernel": ("kernel",), "signature": ("kernel", "grid", "block", "shared_bytes"), "build": ("build",),
          "gpu": ("gpu_uuid",), "job": ("job",), "host": ("host",), "gpu_model": ("gpu_model",)}


def test_sums_are_those_of_the_records(tmp_path: Path) -> None:
    records = make_records(8000, hours=50)
    assert feed(tmp_path, records)["records"] == 8000
    for of_days in (False, True):
        if of_days:
            fleet_store().roll_up([day for day in range(START_NS // HOUR_NS // 24, (START_NS // HOUR_NS + 50) // 24 + 1)
                                   if FleetDay.objects.filter(day=f"{np.datetime64(day, 'D')}").exists()])
            assert not FleetDay.objects.filter(rolled=None).exists()
        for group, keys in GROUPS.items():
            agrees(run("top", "--group", group, "--limit", "0")["rows"], truth(records, *keys), *keys)


def test_a_part_of_the_time_and_filters(tmp_path: Path) -> None:
    records = make_records(8000, hours=80)
    feed(tmp_path, records)
    answers_of_a_part(records)
    fleet_store().roll_up([(day - np.datetime64("1970-01-01")).astype(int).item() for day in
                           map(np.datetime64, FleetDay.objects.values_list("day", flat=True))])
    answers_of_a_part(records)


def answers_of_a_part(records: list[dict[str, Any]]) -> None:
    low, high = START_NS + 5 * HOUR_NS, START_NS + 71 * HOUR_NS
    own = [each for each in records if low <= each["ts_ns"] < high]
    span = ("--from", str(low // 10**9), "--to", str(high // 10**9), "--limit", "0")
    agrees(run("top", *span)["rows"], truth(own, "kernel"), "kernel")
    of_job = [each for each in own if each["job"] == "job-1"]
    agrees(run("top", *span, "--job", "job-1")["rows"], truth(of_job, "kernel"), "kernel")
    agrees(run("top", *span, "--kernel", "_attn_fwd", "--group", "build")["rows"],
           truth([each for each in own if each["kernel"] == "_attn_fwd"], "build"), "build")
    agrees(run("top", *span, "--host", "host-1", "--group", "gpu")["rows"],
           truth([each for each in own if each["host"] == "host-1"], "gpu_uuid"), "gpu_uuid")
    on_gpu = run("top", *span, "--gpu", "GPU-0003")["rows"]             # kernels of one GPU: sums without quantiles
    assert {row["kernel"]: row["total_ns"] for row in on_gpu} == {
        kernel: int(values.sum()) for kernel, values in truth([e for e in own if e["gpu_uuid"] == "GPU-0003"], "kernel").items()}
    assert run("top", "--job", "no such job")["rows"] == []


def test_the_same_file_counts_once_and_another_adds_up(tmp_path: Path) -> None:
    records, more = make_records(2000, seed=1), make_records(2000, seed=2)
    feed(tmp_path, records)
    again = feed(tmp_path, records)
    assert again["records"] == 2000 and again["batches"] == 0 and again["duplicate_batches"] == 1
    feed(tmp_path, more, "more.jsonl.gz")
    agrees(run("top", "--limit", "0")["rows"], truth(records + more, "kernel"), "kernel")
    assert not FleetBatch.objects.filter(payload__isnull=False).exists()


def test_lines_that_are_no_records_are_counted_and_named(tmp_path: Path) -> None:
    good = make_records(10)
    lines = [json.dumps(each) for each in good]
    bad = ["{", "[]", json.dumps({**good[0], "dur_ns": -1}), json.dumps({**good[0], "grid": [1, 1]}), json.dumps({"ts_ns": 1}),
           json.dumps({**good[0], "kernel": "a\0b"}), json.dumps({**good[0], "kernel": "x" * 100_000}), "[" * 10_000,
           json.dumps({**good[0], "ts_ns": 2**70}), "\xff"]
    path = tmp_path / "mixed.jsonl"
    path.write_text("\n".join([*lines[:5], *bad, "", *lines[5:]]), encoding="latin-1")
    said = run("feed", str(path))
    assert said["records"] == 10 and said["rejected"] == len(bad)
    assert sum(each["lines"] for each in said["reasons"]) == len(bad) and all(each["first_line"] > 5 for each in said["reasons"])
    agrees(run("top", "--limit", "0")["rows"], truth(good, "kernel"), "kernel")


@pytest.mark.parametrize(("content", "kind"), [
    (bytes(range(128, 256)) * 4000, r"binary data \(80 81 82"), (b"\0\n{}x\n" * 50, "binary data"),
    (b"SQLite format 3\0" + bytes(9000), "SQLite"),
    (b"ts_ns,dur_ns,kernel\n1,2,k\n", "the text 'ts_ns,dur_ns,kernel'"), (b'[\n  {"ts_ns": 1,\n "dur_ns": 2}\n]', "a JSON array")])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_a_file_of_something_else_is_refused_in_one_sentence(tmp_path: Path, content: bytes, kind: str, packed: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(CommandError, match=f"no JSON lines: it begins with .*{kind}"):
        run("feed", str(path))
    assert not FleetBatch.objects.exists()


def test_a_file_that_ends_early_keeps_what_came(tmp_path: Path) -> None:
    path = write_records(tmp_path / "cut.jsonl.gz", make_records(5000))
    path.write_bytes(path.read_bytes()[:-2000])
    said = run("feed", str(path))
    assert 0 < said["records"] < 5000 and "ends early" in said["warning"]
    assert sum(row["launches"] for row in run("top")["rows"]) == said["records"]


def test_a_minute_in_two_chunks_is_watched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profiles.fleet.feed.CHUNK", 700)
    records = make_records(5000)
    feed(tmp_path, records)
    found = run("top", "--limit", "0")
    agrees(found["rows"], truth(records, "kernel"), "kernel")
    first = found["rows"][0]
    line = next(line for line in written("top", "--limit", "1").splitlines() if line.endswith(first["name"]))
    assert f"{first['share_pct']:.1f} %" in line and f"{first['launches']:,} launches" in line
    minutes = {(each["gpu_uuid"], each["job"], each["build"], each["ts_ns"] // 60_000_000_000) for each in records}
    assert found["observed_ns"] == found["wall_ns"] == len(minutes) * 60_000_000_000 and found["complete"]


def test_gpus_that_are_slower_are_told_and_since_when(tmp_path: Path) -> None:
    feed(tmp_path, make_records(30_000, hours=30, slow={5: (1.08, 18)}))
    for of_days in (False, True):
        if of_days:                     # days that are summed still know their hours
            fleet_store().roll_up([(np.datetime64(day) - np.datetime64("1970-01-01")).astype(int).item()
                                   for day in FleetDay.objects.values_list("day", flat=True)])
        rows = {row["gpu_uuid"]: row for row in run("gpus")["rows"]}
        slow = rows.pop("GPU-0005")
        assert slow["verdict"] == "SLOWER" and slow["slower_pct"] == pytest.approx(8, abs=1.5)
        since = np.datetime64(slow["since"].removesuffix("Z"), "h").astype(int) - START_NS // HOUR_NS
        assert abs(since - 18) <= 1
        assert {row["verdict"] for row in rows.values()} == {"OK"} and len(rows) == 7


@pytest.mark.parametrize("most_gpu_hours", [50_000, 8 * 5])
def test_a_job_that_ended_weeks_before_the_others_is_judged_by_its_own_last_hours(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_gpu_hours: int) -> None:
    monkeypatch.setattr("profiles.fleet.slow.compared_services.MOST_GPU_HOURS", most_gpu_hours)
    ended = [{**each, "job": "ended"} for each in make_records(3000, slow={5: (1.3, 0)})]
    later = [{**each, "job": "later", "ts_ns": each["ts_ns"] + 25 * 24 * HOUR_NS} for each in make_records(800, seed=2)]
    feed(tmp_path, [*ended, *later])
    found = {row["gpu_uuid"]: row["verdict"] for row in run("gpus", "--job", "ended")["rows"]}
    assert len(found) == 8 and [gpu for gpu, verdict in found.items() if verdict == "SLOWER"] == ["GPU-0005"]


def test_of_many_gpus_the_last_hours_with_data_are_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profiles.fleet.slow.compared_services.MOST_GPU_HOURS", 8 * 5)
    records = make_records(8000, hours=20, slow={5: (1.2, 0)})
    feed(tmp_path, records)
    found = run("gpus")
    last = max(each["ts_ns"] for each in records) // HOUR_NS + 1
    moments = [np.datetime64(found[name].removesuffix("Z"), "h").astype(int) for name in ("from", "to")]
    assert moments == [last - 5, last]
    own = sum(each["ts_ns"] // HOUR_NS >= last - 5 for each in records)
    assert sum(row["launches"] for row in found["rows"]) <= own and found["rows"][0]["verdict"] == "SLOWER"


def test_gpus_without_others_to_compare_are_unknown(tmp_path: Path) -> None:
    feed(tmp_path, make_records(3000, gpus=2))
    rows = run("gpus")["rows"]
    assert {row["verdict"] for row in rows} == {"UNKNOWN"} and all(row["slower_pct"] is None and row["why"] for row in rows)


def described(schema: str) -> list[tuple[Any, ...]]:
    """Columns and indexes of the fleet's tables, without their partitions."""
    with connection.cursor() as cursor:
        cursor.execute("""SELECT relname, attname, format_type(atttypid, atttypmod), attnotnull, pg_get_expr(adbin, adrelid)
            FROM pg_partitioned_table JOIN pg_class c ON c.oid = partrelid JOIN pg_attribute ON attrelid = c.oid AND attnum > 0
            LEFT JOIN pg_attrdef ON adrelid = c.oid AND adnum = attnum
            WHERE relnamespace = %s::regnamespace AND relname LIKE 'fleet_%%' AND NOT attisdropped ORDER BY 1, 2""", [schema])
        columns = cursor.fetchall()
        cursor.execute("""SELECT indexname, replace(indexdef, %s, '') FROM pg_indexes JOIN pg_class ON relname = tablename
            AND relnamespace = schemaname::regnamespace WHERE schemaname = %s AND relkind = 'p' AND tablename LIKE 'fleet_%%'
            ORDER BY 1""", [f"{schema}.", schema])
        return [*columns, *cursor.fetchall()]


def test_the_migrations_make_the_tables_as_they_are_described() -> None:
    made = described("public")
    with connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA anew")
        cursor.execute("SET LOCAL search_path TO anew")
        for sql in create_sql():
            cursor.execute(sql)
        cursor.execute("SET LOCAL search_path TO public")
    assert made == described("anew") and len(made) > 200


def test_batches_are_acknowledged_once_and_merged_by_whoever_comes(tmp_path: Path) -> None:
    from profiles.fleet.feed import Read, batches
    from workers.agent.wire import pack

    path = write_records(tmp_path / "r.jsonl.gz", make_records(1000))
    payloads = [pack(batch) for batch in batches(path, Read())]
    twice = [services.batch_accept(payload)["duplicate"] for payload in (*payloads, *payloads)]
    assert twice == [False] * len(payloads) + [True] * len(payloads)
    assert services.merge_waiting() == len(payloads) and services.merge_waiting() == 0
    assert [services.batch_accept(payload)["duplicate"] for payload in payloads] == [True] * len(payloads)
    assert Counter(row["launches"] for row in run("top", "--group", "gpu_model")["rows"]) == {1000: 1}

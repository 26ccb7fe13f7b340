"""The fleet at scale, simulated: 10,000 GPUs of 1,250 hosts, accepted and merged, 30 days of history asked.

One process accepts and merges, as a web worker and an ingest worker do in turn; what counts for a core is its processor time and
PostgreSQL's together. History: one minute of the whole fleet stands for a day of each series (a day has every series once,
whatever its hours held), written and summed through the store for one day and copied at day level for the other 29.
RIDGEPOINT_BENCH_QUICK: a tenth of the hosts.
"""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from bench.fleet.rows import Fleet, fleet_batches, later
from workers.agent.wire import Batch, pack

ROUNDS, DAYS, ASKED = 4, 30, 20
START_MINUTE = 29_900_000 // 1440 * 1440 + 600          # ten o'clock of a day of November 2026
LEAST_GPUS, TOP_MS, SERIES_MS, MEMORY_RATIO = 5000, 300, 200, 1.1


def run() -> list[dict[str, Any]]:
    fleet = Fleet(125, 60) if "RIDGEPOINT_BENCH_QUICK" in os.environ else Fleet()
    empty()
    batches = fleet_batches(fleet, START_MINUTE)
    try:
        return [*_ingest(fleet, batches), *_history(fleet, batches)]
    finally:
        empty()


def _ingest(fleet: Fleet, batches: list[Batch]) -> list[dict[str, Any]]:
    from profiles.fleet import services

    accept_s, merge_s, spent_s, peaks, size = [], [], [], [], 0
    for minute in range(ROUNDS):
        payloads = [pack(batch) for batch in later(batches, minute)]
        size = sum(map(len, payloads))
        spent, began = processor_s(), time.perf_counter()
        for payload in payloads:
            services.batch_accept(payload)
        between = time.perf_counter()
        merged = services.merge_waiting()
        merge_s.append(time.perf_counter() - between)
        accept_s.append(between - began)
        spent_s.append(processor_s() - spent)
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        assert merged == len(payloads)
    spent, flat = statistics.median(spent_s[1:]), peaks[-1] / peaks[1]
    gpus = fleet.gpus * 60 / spent
    what = f"a minute of {fleet.gpus:,} simulated GPUs ({len(batches):,} batches, {size / 1e6:.0f} MB)"
    return [
        {"what": f"{what}: GPUs per ingest core", "measured": f"{gpus:,.0f}",
         "reference": f"{spent:.1f} s of processor time, database included", "ratio": gpus / LEAST_GPUS,
         "budget": f"≥ {LEAST_GPUS:,}", "ok": gpus >= LEAST_GPUS},
        {"what": "accepting one batch", "measured": f"{1e3 * statistics.median(accept_s) / len(batches):.1f} ms",
         "reference": f"merging it {1e3 * statistics.median(merge_s) / len(batches):.1f} ms", "ratio": None, "budget": "",
         "ok": None},
        {"what": f"peak memory over {ROUNDS} merges of it", "measured": f"{peaks[-1] / 1e6:.0f} MB",
         "reference": f"after the second {peaks[1] / 1e6:.0f} MB", "ratio": flat, "budget": f"≤ {MEMORY_RATIO:g}×",
         "ok": flat <= MEMORY_RATIO}]


def _history(fleet: Fleet, batches: list[Batch]) -> list[dict[str, Any]]:
    from profiles.fleet import selectors
    from profiles.fleet.days import mark_summed, mark_written
    from profiles.fleet.merge import merge
    from profiles.fleet.stores import fleet_store

    store, day = fleet_store(), START_MINUTE // 1440 - DAYS
    empty()
    moved = [*later(batches, (day - START_MINUTE // 1440) * 1440)]
    pieces = [merge(moved[first:first + 500]) for first in range(0, len(moved), 500)]
    for piece in pieces:
        store.write(piece)
    parts = _bytes("hour")
    began = time.perf_counter()
    store.roll_up([day])
    roll_s = time.perf_counter() - began
    hour_bytes, _ = _bytes("hour"), _copy_days(day)
    for each in range(day, day + DAYS):
        mark_written([each * 24])
        mark_summed(each)
    _analyze()
    day_bytes = _bytes("day") / DAYS
    asked = {"from": f"{day * 86400}", "to": f"{(day + DAYS) * 86400}"}
    top = selectors.top(asked)
    question = selectors.question_of({**asked, "group": "signature"}, 20)
    assert question is not None and len(top.rows) == 20
    one = next(iter(pieces[0].signatures))
    series = replace(question, where={"signature": [one]})
    rows = []
    for what, budget, call in (
            (f"top 20 kernels over {DAYS} days", TOP_MS, lambda: selectors.top(asked)),
            (f"top 20 jobs over {DAYS} days", TOP_MS, lambda: selectors.top({**asked, "group": "job"})),
            (f"top 20 kernels of one job over {DAYS} days", None, lambda: selectors.top({**asked, "job": "simulated-job-000"})),
            (f"top 20 signatures over {DAYS} days", None, lambda: selectors.top({**asked, "group": "signature"})),
            ("one series over them, by day", SERIES_MS, lambda: store.over_time(series, [one], 24))):
        p95, p50 = _timed(call, ASKED if budget else 3)
        rows.append({"what": what, "measured": f"p95 {p95:.0f} ms", "reference": f"median {p50:.0f} ms",
                     "ratio": p95 / budget if budget else None,
                     "budget": f"< {budget} ms" if budget else "", "ok": p95 < budget if budget else None})
    return [*rows,
            {"what": "summing an hour of it to a day", "measured": f"{roll_s:.1f} s", "reference": f"{fleet.gpus:,} GPUs",
             "ratio": None, "budget": "", "ok": None},
            {"what": "disk per GPU-day, days", "measured": f"{day_bytes / fleet.gpus / 1e3:.1f} kB",
             "reference": f"hours {24 * hour_bytes / fleet.gpus / 1e3:.0f} kB, in parts {24 * parts / fleet.gpus / 1e3:.0f} kB",
             "ratio": day_bytes / (24 * hour_bytes), "budget": "", "ok": None}]


def _timed(call: Callable[[], Any], times: int) -> tuple[float, float]:
    """p95 and median in ms; the first call is not counted."""
    taken = []
    for _ in range(times + 1):
        began = time.perf_counter()
        call()
        taken.append(1e3 * (time.perf_counter() - began))
    taken = sorted(taken[1:])
    return taken[int(0.95 * (len(taken) - 1) + 0.5)], statistics.median(taken)


def processor_s() -> float:
    """Of this process and of PostgreSQL's, those that ended included."""
    own, home = time.process_time(), str(Path(os.environ["RIDGEPOINT_HOME"]).resolve())
    for process in psutil.process_iter(["name"]):
        try:
            if process.info["name"] == "postgres" and process.cwd().startswith(home):
                used = process.cpu_times()
                own += used.user + used.system + used.children_user + used.children_system
        except psutil.Error:            # it ended while it was looked at
            continue
    return own


def _copy_days(day: int) -> None:
    from django.db import connection

    from profiles.fleet.postgres_tables import make_partitions
    from profiles.fleet.tables import TABLES, table_name

    with connection.cursor() as cursor:
        for table in TABLES:
            name = table_name(table, "day")
            make_partitions(table, "day", range(day, day + DAYS))
            rest = ", ".join(table.columns[1:])
            for each in range(day + 1, day + DAYS):
                cursor.execute(f"INSERT INTO {name} (at, {rest}) SELECT %s, {rest} FROM {name} WHERE at = %s", [each, day])


def _analyze() -> None:
    from django.db import connection

    from profiles.fleet.tables import TABLES, table_name

    with connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(f"VACUUM ANALYZE {table_name(table, 'day')}")


def _bytes(level: str) -> int:
    from django.db import connection

    from profiles.fleet.tables import TABLES, table_name

    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(sum(pg_total_relation_size(inhrelid)), 0) FROM pg_inherits "
                       "WHERE inhparent::regclass::text = ANY(%s)", [[table_name(table, level) for table in TABLES]])
        return int(cursor.fetchone()[0])


def empty() -> None:
    from django.db import connection

    from profiles.fleet.tables import LEVELS, TABLES, table_name

    with connection.cursor() as cursor:
        for table in TABLES:
            for level in LEVELS:
                cursor.execute(f"TRUNCATE {table_name(table, level)}")
        cursor.execute("TRUNCATE profiles_fleetagent, profiles_fleetbatch, profiles_fleetday, profiles_fleetmonth, "
                       "profiles_fleetkernel, profiles_fleetsignature, profiles_fleetcontext, profiles_fleetgpu CASCADE")

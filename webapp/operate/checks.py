"""What the status page, its API and `manage.py doctor` look at while everything runs: one function each, in `RUNNING`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import psycopg
from django.db import DatabaseError, connection
from redis.exceptions import RedisError

from profiles.base.answers import Facts
from webapp import overview, schema
from workers import disk, jobs
from workers.metrics.facts import queue_states

OK, WARN, BAD = "ok", "warn", "bad"
LATE_S = 600.0                  # an entry that waits longer has nobody who serves it
LEAST_POSTGRESQL = 140_000      # of Django 5.2
SKEW_WARN_S = 1.0               # between two hosts' clocks


@dataclass(frozen=True)
class Check:
    """`says`: what was found; `hint`: what to do about it; `facts`: the same as numbers."""

    name: str
    state: str
    says: str
    hint: str = ""
    facts: Facts = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def database() -> Check:
    """Return whether PostgreSQL answers, how fast, and its size and connections."""
    began_s = time.perf_counter()
    with connection.cursor() as cursor:
        cursor.execute("""SELECT current_setting('server_version'), pg_database_size(current_database()),
                          (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
                          current_setting('max_connections')::int, current_setting('server_version_num')::int""")
        version, size_bytes, used, most, number = cursor.fetchone()
    ms = 1e3 * (time.perf_counter() - began_s)
    facts = {"version": version, "ms": round(ms, 2), "bytes": size_bytes, "connections": used, "max_connections": most}
    says = f"PostgreSQL {version.split()[0]} · {ms:.1f} ms · {used} of {most} connections · {disk.size(size_bytes)}"
    if number < LEAST_POSTGRESQL:
        return Check("Database", BAD, says, f"move to PostgreSQL {LEAST_POSTGRESQL // 10_000} or later", facts)
    if used > 0.9 * most:
        return Check("Database", WARN, says, "raise max_connections, or run fewer workers", facts)
    return Check("Database", OK, says, facts=facts)


def migrations() -> Check:
    """Return whether the tables are those of this code."""
    if later := schema.unknown():
        return Check("Migrations", BAD, f"{len(later)} unknown here: {', '.join(later[:5])}",
                     "start the later version that made them, or restore a backup from before", {"unknown": later})
    names = sorted(f"{app}.{name}" for app, name in schema.pending())
    if names:
        says = f"{len(names)} pending: {', '.join(names[:5])}"
        return Check("Migrations", BAD, says, "run manage.py migrate", {"pending": names})
    return Check("Migrations", OK, "none pending", facts={"pending": []})


def valkey() -> Check:
    """Return whether Valkey answers, how fast, and its memory."""
    began_s = time.perf_counter()
    info = jobs.connection().info()
    ms = 1e3 * (time.perf_counter() - began_s)
    version = info.get("valkey_version") or info.get("redis_version", "")
    facts = {"version": version, "ms": round(ms, 2), "bytes": info.get("used_memory", 0)}
    says = f"{version} · {ms:.1f} ms · {disk.size(facts['bytes'])}"
    if info.get("aof_last_write_status", "ok") != "ok" or info.get("rdb_last_bgsave_status", "ok") != "ok":
        return Check("Valkey", BAD, f"{says} · cannot write its log", "make room on its disk", facts)
    return Check("Valkey", OK, says, facts=facts)


def disks() -> list[Check]:
    """Return the room on each disk of this host."""
    return [Check(f"Disk: {place.title}", BAD if place.is_short else OK,
                  f"{disk.size(place.free_bytes)} of {disk.size(place.total_bytes)} free, {disk.size(place.rest_bytes)} kept",
                  "uploads and captures are refused: " + disk.HINT if place.is_short else "", place.as_json())
             for place in disk.places()]


def worker_disks() -> list[Check]:
    """Return the disks of other hosts whose workers have too little room."""
    disks_by_host = {worker.get("host", "?"): worker.get("disks", []) for worker in jobs.workers()}
    return [Check(f"Disk of {host}: {', '.join(place['names'])}", BAD, f"{disk.size(place['free_bytes'])} free",
                  "its workers take no files and captures: make room there", {**place, "host": host})
            for host, places in disks_by_host.items() for place in places if place.get("short") and host != jobs.host()]


def workers() -> Check:
    """Return how many workers serve each queue, and what nobody serves."""
    alive = jobs.workers()
    counts = {queue: sum(queue in worker.get("queues", ()) for worker in alive) for queue in jobs.QUEUES}
    says = " · ".join(f"{queue} {count}" for queue, count in counts.items() if count) or "none"
    lacking = [worker for worker in overview.missing_workers(alive) if worker["queue"] != "gpu"]
    hint = "; ".join(f"{worker['what'].rstrip('.')}: {worker['start']}" for worker in lacking)
    return Check("Workers", WARN if lacking else OK, says, hint, {"by_queue": counts})


def queues() -> Check:
    """Return what waits, and how long the oldest does."""
    states = queue_states()
    facts: Facts = {"waiting": {state.name: state.waiting for state in states},
                    "oldest_s": {state.name: state.oldest_s for state in states}}
    says = " · ".join(f"{state.name} {state.waiting}, oldest {_duration(state.oldest_s or 0)}" for state in states if state.waiting)
    late = [state.name for state in states if (state.oldest_s or 0) > LATE_S]
    hint = f"start a worker: manage.py worker {late[0]}" if late else ""
    return Check("Queues", WARN if late else OK, says or "empty", hint, facts)


def clocks() -> Check:
    """Return how far the clocks of web, database and workers lie apart; each is compared with Valkey's."""
    with connection.cursor() as cursor:
        before_s = time.time()
        cursor.execute("SELECT extract(epoch FROM clock_timestamp())")
        [database_time] = cursor.fetchone()
        database_s = float(database_time) - (before_s + time.time()) / 2
    web_s = jobs.clock_skew_s()
    skews = {"web": web_s, "database": web_s + database_s, "Valkey": 0.0}
    skews |= {str(worker.get("host")): worker["clock_skew_s"] for worker in jobs.workers() if "clock_skew_s" in worker}
    apart_s = max(skews.values()) - min(skews.values())
    facts: Facts = {"skew_s": {name: round(value, 4) for name, value in skews.items()}, "apart_s": round(apart_s, 4)}
    if apart_s <= SKEW_WARN_S:
        return Check("Clocks", OK, f"{_duration(apart_s)} apart", facts=facts)
    middle_s = sorted(skews.values())[len(skews) // 2]
    worst = max(skews, key=lambda name: abs(skews[name] - middle_s))
    return Check("Clocks", WARN, f"{_duration(apart_s)} apart: {worst} differs from the others",
                 "let NTP set the clocks (timedatectl, chronyc tracking)", facts)


Function = Callable[[], Check | list[Check]]
Table = Sequence[tuple[str, Function]]
RUNNING: Table = (
    ("Database", database),
    ("Migrations", migrations),
    ("Valkey", valkey),
    ("Disk", disks),
    ("Disks of workers", worker_disks),
    ("Workers", workers),
    ("Queues", queues),
    ("Clocks", clocks),
)


def run(table: Table) -> list[Check]:
    """Return what every function of a table found; one that cannot look says why and holds up none."""
    results: list[Check] = []
    for name, function in table:
        try:
            result = function()
        except (DatabaseError, psycopg.Error, RedisError, OSError) as error:
            text = " ".join(str(error).split())[:300] or type(error).__name__
            earlier_check = next((check for check in results if check.says == text), None)
            result = (Check(name, WARN, f"unknown: see {earlier_check.name}") if earlier_check else
                      Check(name, BAD, text, "start it (make run), or see its log and its disk"))
        results += result if isinstance(result, list) else [result]
    return results


def worst(checks: Sequence[Check]) -> str:
    """Return the gravest state."""
    return max((check.state for check in checks), key=(OK, WARN, BAD).index, default=OK)


def _duration(seconds: float) -> str:
    for factor, unit in ((1e-3, "ms"), (1, "s"), (60, "min"), (3600, "h")):
        if seconds < factor * (1000 if factor < 1 else 60) or unit == "h":
            return f"{seconds / factor:.3g} {unit}"
    raise AssertionError

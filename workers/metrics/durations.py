"""How long jobs took and how they ended: counted in Valkey, because a task's process ends with it.

Lost with Valkey's data, which a scraper sees as any counter that begins anew.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

import redis

from workers import jobs

log = logging.getLogger(__name__)
KEY = "ridgepoint:job-seconds"
BUCKETS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0)       # s
SERIES = 200                # tasks × endings that are told


@dataclass(frozen=True)
class Durations:
    """One task and ending: `counts` jobs by bucket, the last one above all of BUCKETS."""

    task: str
    status: str
    counts: tuple[int, ...]
    sum_s: float


def count_job(task: str, status: str, seconds: float) -> None:
    """Count a job that ended. Best effort: Valkey may be away."""
    name = f"{task}:{status}"
    try:
        with jobs.connection().pipeline() as batch:
            batch.hincrby(KEY, f"{name}:{bisect_left(BUCKETS, seconds)}", 1)
            batch.hincrbyfloat(KEY, f"{name}:sum", round(seconds, 3))
            batch.execute()
    except redis.RedisError as error:
        log.warning("a job's duration was not counted: %s", error)


def durations() -> Iterator[Durations]:
    """Return what was counted, by task and ending."""
    kept: dict[tuple[str, str], dict[str, float]] = {}
    for key, value in jobs.connection().hgetall(KEY).items():
        task, status, what = str(key, "utf-8").split(":") if isinstance(key, bytes) else key.split(":")
        kept.setdefault((task, status), {})[what] = float(value)
    for (task, status), values in sorted(kept.items())[:SERIES]:
        counts = tuple(int(values.get(str(index), 0)) for index in range(len(BUCKETS) + 1))
        yield Durations(task, status, counts, values.get("sum", 0.0))

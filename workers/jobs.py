"""Queues, progress and the workers' own announcements. Imports nothing of ours: everybody may import it.

The row of a job is the truth; a queue entry only wakes a worker and carries the row's id.
"""

from __future__ import annotations

import json
import logging
import secrets
from datetime import timedelta
from functools import lru_cache
from typing import Any

import redis
from channels.layers import get_channel_layer
from django.conf import settings
from django.db.models import Q
from django.db.models.functions import Now
from rq import Queue

log = logging.getLogger(__name__)
QUEUES = ("ingest", "compile", "gpu", "replay", "messages")
TASKS = {
    "ingest": "workers.tasks.ingest_profile",
    "analyse": "workers.tasks.analyse_profile",
    "builds": "workers.tasks.compare_builds",
    "tune": "workers.tasks.run_tune",
    "compile": "workers.tasks.run_compile",
    "assist": "workers.tasks.run_assist",
    "capture": "workers.tasks.run_capture",
    "ceilings": "workers.tasks.run_ceilings",
    "suite": "workers.tasks.run_suite",
    "operators": "workers.tasks.describe_operators",
    "series": "workers.tasks.run_series",
    "notify": "workers.messages.send",
}
STALE_AFTER = timedelta(seconds=8)      # a running row whose heartbeat (one in 2 s) is older belongs to nobody
_WORKERS_KEY = "ridgepoint:worker:"
_ANNOUNCE_TTL_S = 15


@lru_cache(maxsize=1)
def connection() -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL)


def enqueue(queue: str, task: str, row_id: int) -> None:
    """Wake a worker of `queue` for the row. Twice does no harm: the task claims the row by a conditional update."""
    Queue(queue, connection=connection()).enqueue(
        TASKS[task], row_id, job_id=f"{task}-{row_id}-{secrets.token_hex(4)}", job_timeout=-1, result_ttl=0, failure_ttl=3600)


def waiting(task: str) -> set[int]:
    """Ids of the rows that an entry of any queue is still to wake for `task`."""
    entries = [job_id for name in QUEUES for job_id in Queue(name, connection=connection()).get_job_ids()]
    return {int(job_id.split("-")[1]) for job_id in entries if job_id.startswith(f"{task}-")}


def waiting_for(task: str, row_id: int) -> int:
    """How many entries of any queue are still to wake a worker for this row and task."""
    entries = [job_id for name in QUEUES for job_id in Queue(name, connection=connection()).get_job_ids()]
    return sum(job_id.startswith(f"{task}-{row_id}-") for job_id in entries)


def others_waiting(queue: str) -> bool:
    """Whether anything waits in the queue that is not an entry for helpers."""
    return any(not job_id.startswith("assist-") for job_id in Queue(queue, connection=connection()).get_job_ids())


def alive() -> Q:
    """Of rows that workers hold: those whose worker beat lately. Hosts' clocks differ: the database's alone writes and compares."""
    return Q(heartbeat__gte=Now() - STALE_AFTER)


def dead() -> Q:
    """Of rows that workers should hold: those whose worker gave no sign of life for too long."""
    return Q(heartbeat=None) | Q(heartbeat__lt=Now() - STALE_AFTER)


def publish(topic: str, event: str, data: dict[str, Any]) -> None:
    """Send {"topic", "event", "data"} to every page that watches `topic`: "profile.7", "tune.3", "capture.2", "home".

    Best effort: a page catches up from the rows, so a Redis that is away must not end a job.
    """
    message = {"type": "live.message", "topic": topic, "event": event, "data": data}
    # What RedisPubSubChannelLayer.group_send does, without an event loop and a connection per message (0.1 ms, not 2.6).
    channel = f"{settings.CHANNEL_PREFIX}__group__live.{topic}"
    try:
        connection().publish(channel, get_channel_layer().serialize(message))
    except redis.RedisError as error:
        log.warning("%s %s was not published: %s", topic, event, error)


def announce(worker: str, facts: dict[str, Any]) -> None:
    """A worker says that it lives: queues, host, pid, GPU, tools and why a tool is missing. Kept for 15 s."""
    connection().set(_WORKERS_KEY + worker, json.dumps(facts), ex=_ANNOUNCE_TTL_S)


def retire(worker: str) -> None:
    connection().delete(_WORKERS_KEY + worker)


def workers() -> list[dict[str, Any]]:
    """The workers that announced themselves in the last 15 s, by name."""
    client = connection()
    keys = sorted(client.scan_iter(_WORKERS_KEY + "*"))
    values = client.mget(keys) if keys else []
    return [{"name": key.decode().removeprefix(_WORKERS_KEY), **json.loads(value)}
            for key, value in zip(keys, values, strict=True) if value]

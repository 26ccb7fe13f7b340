"""Queues, progress and the workers' own announcements: everybody may import it. Of ours it needs `clock`, `trail` and `spans`.

The row of a job is the truth; a queue entry only wakes a worker and carries the row's id.
"""

from __future__ import annotations

import json
import logging
import secrets
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

import redis
from channels.layers import get_channel_layer
from django.conf import settings
from django.db import transaction
from redis.backoff import ConstantBackoff
from redis.retry import Retry
from rq import Queue

from workers import clock, spans, trail
from workers.scope import Scope, current

log = logging.getLogger(__name__)
QUEUES = ("ingest", "small", "compile", "gpu", "replay", "messages")
# Small uploads, and all that takes seconds and follows on uploads, have a queue of their own: whoever reads files serves it, and so
# does the replay worker, so that a large file, or one that takes long, keeps nobody waiting.
SMALL = "small"
WITH_SMALL = {"ingest", "replay"}
TASKS = {
    "ingest": "workers.tasks.ingest_profile",
    "follow": "workers.tasks.follow_profile",
    "analyse": "workers.tasks.analyse_profile",
    "builds": "workers.tasks.compare_builds",
    "tune": "workers.tasks.run_tune",
    "compile": "workers.tasks.run_compile",
    "assist": "workers.tasks.run_assist",
    "check": "workers.tasks.run_check",
    "candidate": "workers.tasks.run_candidate",
    "code": "workers.tasks.run_code",
    "capture": "workers.tasks.run_capture",
    "ceilings": "workers.tasks.run_ceilings",
    "suite": "workers.tasks.run_suite",
    "operators": "workers.tasks.describe_operators",
    "series": "workers.tasks.run_series",
    "notify": "workers.messages.send",
    "fleet": "workers.tasks.merge_fleet",
    "join": "workers.tasks.join_captures",
    "engine": "workers.tasks.run_engine_capture",
    "schedules": "workers.tasks.run_schedules",
    "production": "workers.tasks.watch_production",
    "keeping": "workers.tasks.run_keeping",
    "talk": "webapp.threads.tasks.send",
}
INGEST_THIS = "workers.tasks.ingest_this"       # for who reads an upload of its own, without the queue
# task -> wakes a worker for rows that are due, of who imports workers and is imported by none of them: told when apps are ready
WAKES: dict[str, Callable[[Collection[int]], list[int]]] = {}
FIRST = {"suite"}           # a build of CI waits for it: before tune jobs that are queued already
HOME = "home"
_WORKERS_KEY = "ridgepoint:worker:"
_ANNOUNCE_TTL_S = 15
CONNECT_S = 5


@lru_cache(maxsize=1)
def connection() -> redis.Redis:
    """Return the process's client of Valkey."""
    if not settings.WEB_PROCESS:
        return redis.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=CONNECT_S, **settings.REDIS_OPTIONS)
    # A page waits for nobody long: redis-py would try ten times, each for up to 5 s where Valkey is stopped.
    retry = Retry(ConstantBackoff(0.1), retries=2, supported_errors=(redis.ConnectionError,))
    return redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2, retry=retry,
                                **settings.REDIS_OPTIONS)


def served_by(queues: Sequence[str]) -> list[str]:
    """Return the queues that a worker started for `queues` serves."""
    return list(dict.fromkeys([*queues, *([SMALL] if WITH_SMALL & set(queues) else [])]))


def enqueue(queue: str, task: str, row_id: int) -> None:
    """Wake a worker of `queue` for the row. Twice does no harm: the task claims the row by a conditional update."""
    Queue(queue, connection=connection()).enqueue(
        TASKS[task], row_id, job_id=f"{task}-{row_id}-{secrets.token_hex(4)}", at_front=task in FIRST, job_timeout=-1,
        result_ttl=0, failure_ttl=3600,
        meta={"request_id": trail.request_id(), "trace": spans.carried(), "put_s": clock.now_s()})


def enqueue_on_commit(queue: str, task: str, row_id: int) -> None:
    """Enqueue when the transaction is committed. Where that fails, the row stands all the same and the sweep wakes it later."""
    transaction.on_commit(lambda: enqueue(queue, task, row_id), robust=True)      # Django cannot log the failure of a partial


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


def home_of(scope: Scope) -> str:
    """Return the topic on which a project tells what is new; "home" alone is that of the whole installation."""
    return HOME if scope.sees is None else f"{HOME}.{scope.sees}"


def publish(topic: str, event: str, data: Mapping[str, Any]) -> None:
    """Send {"topic", "event", "data"} to every page that watches `topic`: "profile.7", "tune.3", "capture.2", "home".

    Best effort: a page catches up from the rows, so a Redis that is away must not end a job.
    """
    message = {"type": "live.message", "topic": topic, "event": event, "data": data}
    # What RedisPubSubChannelLayer.group_send does, without an event loop and a connection per message (0.1 ms, not 2.6).
    channel = f"{settings.CHANNEL_PREFIX}__group__live.{home_of(current()) if topic == HOME else topic}"
    try:
        layer: Any = get_channel_layer()        # of channels_redis, which has no types
        connection().publish(channel, layer.serialize(message))
    except redis.RedisError as error:
        log.warning("%s %s was not published: %s", topic, event, error)


def announce(worker: str, facts: dict[str, Any]) -> None:
    """A worker says that it lives: queues, host, pid, GPU, tools and why a tool is missing. Kept for 15 s."""
    connection().set(_WORKERS_KEY + worker, json.dumps(facts), ex=_ANNOUNCE_TTL_S)


def take_turn(key: str, lasts_ms: int) -> bool:
    """Return whether this one is the first who asks within `lasts_ms`.

    A key that lasts longer is from before Valkey's clock was set back, by so much: whatever it turns away would rest as long.
    """
    client = connection()
    if client.set(key, 1, nx=True, px=lasts_ms):
        return True
    if client.pttl(key) <= lasts_ms:      
        return False
    client.delete(key)
    return bool(client.set(key, 1, nx=True, px=lasts_ms))


def clock_skew_s() -> float:
    """This host's clock less Valkey's, in seconds; right to half of what the question takes."""
    before_s = time.time()
    seconds, microseconds = connection().time()
    return (before_s + time.time()) / 2 - (seconds + microseconds / 1e6)


def host() -> str:
    """This host, as workers call it."""
    return socket.gethostname()


def retire(worker: str) -> None:
    connection().delete(_WORKERS_KEY + worker)


def workers() -> list[dict[str, Any]]:
    """The workers that announced themselves in the last 15 s, by name; what lasts longer is from before a clock was set back."""
    client = connection()
    keys = sorted(client.scan_iter(_WORKERS_KEY + "*"))
    with client.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.get(key)
            pipe.pttl(key)
        replies = pipe.execute()
    return [{"name": key.decode().removeprefix(_WORKERS_KEY), **json.loads(value)}
            for key, value, lasts_ms in zip(keys, replies[::2], replies[1::2], strict=True)
            if value and lasts_ms <= 1000 * _ANNOUNCE_TTL_S]

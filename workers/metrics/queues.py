"""What waits in the queues, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

from rq import Queue
from rq.job import Job

from workers import clock, jobs


@dataclass(frozen=True)
class QueueState:
    """`oldest_s`: since the first entry was put in; None where nothing waits."""

    name: str
    waiting: int
    oldest_s: float | None


def queue_states() -> list[QueueState]:
    """Return every queue."""
    return [_state(name) for name in jobs.QUEUES]


def _state(name: str) -> QueueState:
    queue = Queue(name, connection=jobs.connection())
    waiting, first = queue.count, queue.get_job_ids(0, 1)
    entry = Job.fetch_many(first, connection=jobs.connection())[0] if first else None
    if entry is None or entry.enqueued_at is None:      # taken meanwhile
        return QueueState(name, waiting, None)
    put_s = float(entry.meta.get("put_s") or entry.enqueued_at.timestamp())        # RQ's own time is that of the host that put it
    return QueueState(name, waiting, max(0.0, clock.now_s() - put_s))

"""What waits in the queues, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

from rq import Queue
from rq.job import Job

from workers import clock, jobs

MOST_LOOKED_AT = 100        # from the front: `jobs.FIRST` are put there before older ones


@dataclass(frozen=True)
class QueueState:
    """`oldest_s`: since the entry that waits longest was put in; None where nothing waits."""

    name: str
    waiting: int
    oldest_s: float | None


def queue_states() -> list[QueueState]:
    """Return every queue."""
    return [_state(name) for name in jobs.QUEUES]


def _state(name: str) -> QueueState:
    queue = Queue(name, connection=jobs.connection())
    waiting, first = queue.count, queue.get_job_ids(0, MOST_LOOKED_AT)
    entries = Job.fetch_many(first, connection=jobs.connection()) if first else []
    # RQ's own time is that of the host that put it; an entry may have been taken meanwhile
    put_s = [float(entry.meta.get("put_s") or entry.enqueued_at.timestamp()) for entry in entries if entry and entry.enqueued_at]
    return QueueState(name, waiting, max(0.0, clock.now_s() - min(put_s)) if put_s else None)

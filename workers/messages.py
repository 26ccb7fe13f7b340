"""The task of the queue `messages`, served by a process of its own beside ingest.

It imports what sends messages and nothing else: a worker that does no more is a small one.
"""

from __future__ import annotations

import logging

from tuner.gate.channels.sending_services import TASK, send_deliveries, wake_due_deliveries
from workers import jobs

log = logging.getLogger(__name__)


def wake() -> None:
    """Wake messages that are due again."""
    wake_due_deliveries(jobs.waiting(TASK))
    for task, wakes in jobs.WAKES.items():
        wakes(jobs.waiting(task))


def send(_: int) -> None:
    """Send every message that is due, as the rows say."""
    if ids := send_deliveries():
        log.info("messages %s: tried", ", ".join(map(str, ids)))

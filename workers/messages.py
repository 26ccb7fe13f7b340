"""What the queue `messages` wakes. A process of its own serves it: no file that is being read holds back a verdict.

It imports what sends messages and nothing else: a worker that does no more is a small one.
"""

from __future__ import annotations

import logging

from tuner.notify.sending_services import TASK, deliveries_send, deliveries_wake
from workers import jobs

log = logging.getLogger(__name__)


def wake() -> None:
    """What is due again, by this worker's own sweep: it needs no other."""
    deliveries_wake(jobs.waiting(TASK))


def send(_: int) -> None:
    """Every message that is due; which ones, the rows say."""
    if ids := deliveries_send():
        log.info("messages %s: tried", ", ".join(map(str, ids)))

"""What the workers of the queue `messages` do for threads: mails that are due. Found by the sweep as messages of channels are."""

from __future__ import annotations

from collections.abc import Collection

from workers import jobs

TASK = "talk"


def connect() -> None:
    """Let every worker's sweep look for what is due."""
    jobs.WAKES[TASK] = wake


def wake(waiting: Collection[int]) -> list[int]:
    """Wake a worker where something is due and no entry of the queue does; return the id of a row."""
    from webapp.forges import sending_services as forges  # here and below: commands need none of it
    from webapp.threads import notices

    for waker in (notices.wake_due, forges.wake_due):
        if ids := waker(waiting):
            return ids
    return []


def send(_: int) -> None:
    """Send everything that is due, as the rows say."""
    from webapp.forges import sending_services as forges
    from webapp.threads import notices

    for sender in (notices.send_due, forges.send_due):
        sender()

"""A running row's sign of life: without it for 8 s, the row belongs to nobody and is taken again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import Error, connection, models
from django.utils import timezone

log = logging.getLogger(__name__)
BEAT_EVERY_S = 2.0


@contextmanager
def beating(model: type[models.Model], row_id: int, worker: str | None = None) -> Iterator[None]:
    """Keep `heartbeat` of the row fresh while the block runs, as long as the row says that `worker` (if given) holds it.

    From a thread with a database connection of its own: the block may be deep in a C library for longer than 8 s.
    """
    done = threading.Event()
    thread = threading.Thread(target=_beat, args=(model, row_id, worker, done), name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(timeout=BEAT_EVERY_S * 2)


def _beat(model: type[models.Model], row_id: int, worker: str | None, done: threading.Event) -> None:
    mine = model._default_manager.filter(pk=row_id, heartbeat__isnull=False)     # ended rows clear it
    if worker is not None:
        mine = mine.filter(worker=worker)
    while not done.wait(BEAT_EVERY_S):
        try:
            mine.update(heartbeat=timezone.now())
        except Error as error:          # a database that restarts: the next beat opens a new connection
            log.warning("heartbeat of %s %s: %s", model.__name__, row_id, error)
            connection.close()
    connection.close()

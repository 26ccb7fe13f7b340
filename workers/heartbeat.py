"""A running row's sign of life: without it for 8 s, the row belongs to nobody and is taken again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import models
from django.db.models.functions import Now

from workers.ticking import ticking

BEAT_EVERY_S = 2.0


@contextmanager
def beating(model: type[models.Model], row_id: int, worker: str | None = None) -> Iterator[None]:
    """Keep `heartbeat` of the row fresh while the block runs, as long as the row says that `worker` (if given) holds it.

    From a thread with a database connection of its own: the block may be deep in a C library for longer than 8 s.
    """
    mine = model._default_manager.filter(pk=row_id, heartbeat__isnull=False)     # ended rows clear it
    if worker is not None:
        mine = mine.filter(worker=worker)
    with ticking(BEAT_EVERY_S, lambda: mine.update(heartbeat=Now()), f"heartbeat of {model.__name__} {row_id}"):
        yield

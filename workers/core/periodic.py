"""Work repeated in a thread while a block runs: any work, and a row's heartbeat.

Stop requests, polled in a thread: the search may be deep in a compiler meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from django.db import Error, connection
from django.db.models.functions import Now

from workers.leases import BEAT_EVERY_S, Leases

log = logging.getLogger(__name__)


@contextmanager
def run_periodically(every_s: float, work: Callable[[], object], name: str) -> Iterator[None]:
    """Call `work` every `every_s` seconds, over the thread's own database connection.

    A database that restarts costs one turn: the next one opens a new connection.
    """
    done = threading.Event()

    def run() -> None:
        while not done.wait(every_s):
            try:
                work()
            except Error as error:
                log.warning("%s: %s", name, error)
                connection.close()
        connection.close()

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(timeout=max(2.0, every_s * 2))


@contextmanager
def keep_heartbeat(leases: Leases[Any], row_id: int, worker: str) -> Iterator[None]:
    """Keep the row's `heartbeat` fresh while the block runs, as long as `worker` holds it.

    From a thread with a database connection of its own: the block may be deep in a C library for longer than 8 s.
    """
    mine = leases.rows_held_by(worker).filter(pk=row_id, heartbeat__isnull=False)      # ended rows clear it
    with run_periodically(BEAT_EVERY_S, lambda: mine.update(heartbeat=Now()), f"heartbeat of {leases.model.__name__} {row_id}"):
        yield


LOOK_EVERY_S = 0.2           # how soon a Stop is seen


class Stopped(Exception):
    """A stop or a pause was asked for."""


class Stoppable(Protocol):
    """Work in a child that another thread can end."""

    def stop(self) -> None: ...


class Stop:
    """Set soon after a stop is asked for; ends the runner at once."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._runner: Stoppable | None = None

    def __call__(self) -> bool:
        return self._event.is_set()

    def tell(self, runner: Stoppable) -> None:
        """Name the runner to end."""
        self._runner = runner
        if self():
            runner.stop()

    def set(self) -> None:
        """Stop, and end the runner."""
        self._event.set()
        if self._runner is not None:
            self._runner.stop()

    def check(self) -> None:
        """Raise Stopped when set."""
        if self():
            raise Stopped

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds`; return whether it is set."""
        return self._event.wait(seconds)


@contextmanager
def watch_for_stop(over: Callable[[], bool], turn: Callable[[], object] = lambda: None) -> Iterator[Stop]:
    """Poll `over` while the block runs; call `turn` as often, and once more at the end."""
    stop = Stop()

    def look() -> None:
        if not stop() and over():
            stop.set()
        turn()

    try:
        with run_periodically(LOOK_EVERY_S, look, "stop"):
            yield stop
    finally:
        turn()

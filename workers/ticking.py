"""Something done again and again in a thread of its own while a block runs: the block may be deep in a C library meanwhile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import Error, connection

log = logging.getLogger(__name__)


@contextmanager
def ticking(every_s: float, work: Callable[[], object], name: str) -> Iterator[None]:
    """Call `work` every so many seconds, over a database connection of the thread's own, until the block ends.

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

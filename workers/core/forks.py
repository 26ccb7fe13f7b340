"""Forks that wait until other threads of the process rest.

A child has the locks of the moment it was forked at, and not the thread that would let go of them: of a module that this thread was
importing the child waits for ever, with its row's heartbeat fresh.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)
WAITS_S = 20.0          # a thread that works longer waits for a server, and imports nothing meanwhile
_at_work = threading.RLock()


@contextmanager
def hold_forks() -> Iterator[None]:
    """Let no `quiet` fork begin while the block runs: for what a thread does beside the one that forks."""
    with _at_work:
        yield


@contextmanager
def quiet() -> Iterator[None]:
    """Run the block, which forks, once no other thread is in `hold_forks`; at the latest after WAITS_S."""
    is_locked = _at_work.acquire(timeout=WAITS_S)
    if not is_locked:
        log.warning("a thread has been at work for %.0f s: the task is begun beside it", WAITS_S)
    try:
        yield
    finally:
        if is_locked:
            _at_work.release()

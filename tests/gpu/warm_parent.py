"""The warm parent of processes behind walls, as the worker of a GPU keeps it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from workers.core import gpu, warm
from workers.tune import own

READY_S = 15.0          # what a parent does between requests, as on a worker that waits for its first job


@contextmanager
def warm_parent(card: gpu.Gpu) -> Iterator[warm.Keeper]:
    """Keep one whose forks do what is asked behind walls meanwhile; it is ready, and was idle for READY_S."""
    keeper = warm.Keeper(own.warm_environ(), card.cc, warm.WALLED)
    warm.keep(keeper, walled=True)
    keeper.tend()
    while keeper.parent is not None and not keeper.parent.ready:
        time.sleep(0.05)
        keeper.tend()
    time.sleep(READY_S)
    try:
        yield keeper
    finally:
        warm.keep(None, walled=True)
        keeper.close()

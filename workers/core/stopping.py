"""Stop requests, polled in a thread: the search may be deep in a compiler meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from workers.core.periodic import run_periodically

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

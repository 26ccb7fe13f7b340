"""Stop, seen from a thread of its own: the search may be deep in a compiler when someone presses the button."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from workers.ticking import ticking

LOOK_EVERY_S = 0.2           # how soon a Stop is seen


class Stopped(Exception):
    """Someone asked for the end, or for a pause."""


class Stoppable(Protocol):
    """Whatever works in a child: from another thread it is told to end."""

    def stop(self) -> None: ...


class Stop:
    """Set soon after someone asks for the end of the job; tells the runner, whatever it does at that moment."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._runner: Stoppable | None = None

    def __call__(self) -> bool:
        return self._event.is_set()

    def tell(self, runner: Stoppable) -> None:
        self._runner = runner
        if self():
            runner.stop()

    def set(self) -> None:
        self._event.set()
        if self._runner is not None:
            self._runner.stop()

    def check(self) -> None:
        if self():
            raise Stopped

    def wait(self, seconds: float) -> bool:
        return self._event.wait(seconds)


@contextmanager
def watched(over: Callable[[], bool], turn: Callable[[], object] = lambda: None) -> Iterator[Stop]:
    """Asks `over` a few times a second while the block runs; `turn` is called as often, and once more at the end."""
    stop = Stop()

    def look() -> None:
        if not stop() and over():
            stop.set()
        turn()

    try:
        with ticking(LOOK_EVERY_S, look, "stop"):
            yield stop
    finally:
        turn()

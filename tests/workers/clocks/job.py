"""A job that holds the clocks of a GPU in a process of its own: says so, and ends when its input does.

A fork of the tests' process, which has imported all of it (a new one spends two seconds on that), and as a worker's task in every
other way: a session of its own, its own environment, dead by whatever signal comes.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import signal
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from django.conf import settings

from tests.workers.clocks.library import LIBRARY
from tuner.clocks.wish import ClockWish
from workers.clocks import hold
from workers.core.child import SandboxError

WAIT_S = 60.0


class Job:
    """words  UUID BY GRAPHICS [MEMORY_MHZ] [persistence] [required]"""

    def __init__(self, environ: Mapping[str, str], *words: str) -> None:
        (given, self._given), (self._said, said) = os.pipe(), os.pipe()
        self._process = multiprocessing.get_context("fork").Process(
            target=_become, args=(environ, words, given, said))
        self._process.start()
        os.close(given)
        os.close(said)
        assert self._process.pid is not None
        self.pid = self._process.pid

    def told(self) -> dict[str, Any]:
        """Return what it says once it holds them, or why it does not."""
        with os.fdopen(self._said) as said:
            line = said.readline()
        assert line, "the job said nothing"
        return dict(json.loads(line))

    def wait(self) -> int | None:
        """Return how it ended; its input closes if it is still open."""
        if self._given >= 0:
            os.close(self._given)
            self._given = -1
        self._process.join(WAIT_S)
        return self._process.exitcode


def _become(environ: Mapping[str, str], words: tuple[str, ...], given: int, said: int) -> None:
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for descriptor in sorted({*map(int, os.listdir("/proc/self/fd"))} - {0, 1, 2, given, said}):
        with suppress(OSError):                 # of the listing itself
            os.close(descriptor)                # of other jobs too: their input would not end before this one does
    os.environ.clear()
    os.environ.update(environ)
    settings.HOME = environ["RIDGEPOINT_HOME"]
    tempfile.tempdir = None                     # it was found for another environment
    ctypes.CDLL(os.path.join(environ["LD_LIBRARY_PATH"], LIBRARY))      # a path that is read when a program starts, and no later
    _hold(given, said, *words)


def _hold(given: int, said: int, uuid: str, by: str, graphics: str, *rest: str) -> None:
    memory = next((word for word in rest if word.isdigit()), "")
    wish = ClockWish.read(graphics, memory, "persistence" in rest, "required" in rest)
    with os.fdopen(said, "w") as answer, os.fdopen(given) as held_until:
        try:
            with hold.hold_as(wish, uuid, by) as told:
                print(json.dumps(told), file=answer, flush=True)
                held_until.read()
        except SandboxError as error:
            print(json.dumps({"failed": error.what, "hint": error.hint}), file=answer, flush=True)

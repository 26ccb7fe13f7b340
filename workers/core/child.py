"""A process that answers requests over two pipes and may crash or hang.

A fork of the worker's warm parent, which never opened CUDA, where there is one (workers.core.warm), else a new process: CUDA does
not survive a fork. It dies with this process, however that ends.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tuner.tuning import wire
from tuner.tuning.trial import cleaned
from workers.core import warm

PROJECT = Path(__file__).resolve().parents[2]
TAIL_BYTES = 4000
POLL_S = 0.05
# What the code of others (a target's, a build's, a team's package) has no business with.
PRIVATE = ("DATABASE_URL", "REDIS_URL", "RIDGEPOINT_SECRET_KEY", "RIDGEPOINT_SECRET_KEY_OLD", "RIDGEPOINT_EMAIL_URL",
           "PGPASSWORD", "PGPASSFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_S3_ACCESS_KEY_ID",
           "AWS_S3_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN")       # libpq and django-storages read these


def safe_environment() -> dict[str, str]:
    """Return this worker's environment without what is private to it."""
    return {name: value for name, value in os.environ.items() if name not in PRIVATE}


class SandboxError(Exception):
    """A session that cannot go on, whatever the configuration."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


class ChildDied(Exception):
    """The child ended before it answered."""
    pass


class ChildHung(Exception):
    """The child did not answer in time and was killed."""
    pass


class Stopped(Exception):
    """The request was given up because a stop was asked for."""
    pass


class Child:
    """A process that leads its group, its output apart from the protocol's pipes."""

    process: subprocess.Popen[bytes] | warm.ForkedProcess

    def __init__(self, module: str, environ: Mapping[str, str]) -> None:
        to_child, self._write = os.pipe()
        self._read, from_child = os.pipe()
        self._output = tempfile.TemporaryFile()      # noqa: SIM115  closed with the child
        self._decoder = wire.Decoder()
        try:
            self.process = self._start(module, environ, to_child, from_child)
        finally:
            os.close(to_child)
            os.close(from_child)

    def _start(self, module: str, environ: Mapping[str, str], to_child: int, from_child: int
               ) -> subprocess.Popen[bytes] | warm.ForkedProcess:
        """Return the process that serves the two pipes."""
        return warm.fork(module, environ, to_child, from_child, self._output.fileno()) or warm.spawner(os.getpid()).submit(
            subprocess.Popen, [sys.executable, "-m", module, str(to_child), str(from_child), str(os.getpid())],
            cwd=PROJECT, env={**safe_environment(), **environ}, stdin=subprocess.DEVNULL, stdout=self._output,
            stderr=subprocess.STDOUT, pass_fds=(to_child, from_child), start_new_session=True).result()

    @property
    def alive(self) -> bool:
        """Return whether the process runs."""
        return self.process.poll() is None

    def ask(self, message: dict[str, Any], limit_s: float, stop: threading.Event) -> dict[str, Any]:
        """Send and wait for the answer. Raises ChildDied, ChildHung or Stopped; then the child is dead."""
        try:
            wire.write(self._write, message)
            return self._answer(time.monotonic() + limit_s, limit_s, stop)
        except BrokenPipeError as error:
            raise ChildDied(self.kill()) from error
        except ValueError as error:
            raise ChildDied(f"sent what is no message ({error}); {self.kill()}") from error

    def _answer(self, end: float, limit_s: float, stop: threading.Event) -> dict[str, Any]:
        while True:
            answer = self._decoder.next()
            if answer is not None:
                return answer
            if stop.is_set():
                self.kill()
                raise Stopped
            if time.monotonic() > end:
                self.kill()
                raise ChildHung(f"no answer within {limit_s:g} s")
            ready, _, _ = select.select([self._read], [], [], POLL_S)
            if ready:
                data = os.read(self._read, 65536)
                if not data:
                    raise ChildDied(self.kill())
                self._decoder.feed(data)

    def kill(self) -> str:
        """End the process group; return how the child ended and its last output. Repeatable."""
        died = self.process.poll()
        if died is None:
            with suppress(subprocess.TimeoutExpired):
                died = self.process.wait(POLL_S) if self._has_closed_output() else None
        self._end_group()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(10)             # the driver may need a moment to tear a running kernel down
        return f"{_ending_text(died)}{self._tail()}"

    def _end_group(self) -> None:
        if isinstance(self.process, warm.ForkedProcess):
            self.process.end_group()
            return
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def _has_closed_output(self) -> bool:
        """Return whether the child closed its end: its exit status is worth a short wait."""
        return bool(select.select([self._read], [], [], 0)[0])

    def _tail(self) -> str:
        size = os.fstat(self._output.fileno()).st_size
        text = os.pread(self._output.fileno(), TAIL_BYTES, max(0, size - TAIL_BYTES)).decode(errors="replace").strip()
        return f"; it printed: {cleaned(text)}" if text else ""

    def close(self) -> None:
        """End the child."""
        self.kill()
        if isinstance(self.process, warm.ForkedProcess):
            self.process.close()
        for fd in (self._read, self._write):
            with suppress(OSError):
                os.close(fd)
        self._read = self._write = -1
        self._output.close()


def _ending_text(status: int | None) -> str:
    if status is None:
        return "killed"
    if status < 0:
        return f"died of {signal.Signals(-status).name}"
    return f"exited with status {status}"

"""Keep a few processes running under one terminal: prefixed logs, restarts with back-off, one clean stop.

Standard library only, one thread: a selector waits for the children's output, and a tick looks after the rest.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO

TICK_S = 0.1
STOP_WITHIN_S = 10.0            # after that, kill
FIRST_DELAY_S, MAX_DELAY_S = 0.5, 30.0
STEADY_AFTER_S = 60.0           # a child that ran this long starts again without delay
_COLOURS = (36, 33, 35, 32, 34, 96, 93, 95)
_STOPPED = (0, -signal.SIGTERM, 128 + signal.SIGTERM)       # uvicorn dies of the signal again after its clean stop
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


@dataclass
class Child:
    """One supervised process. `fds`: descriptors that it inherits."""

    name: str
    command: Sequence[str]
    env: dict[str, str] = field(default_factory=dict)
    fds: tuple[int, ...] = ()
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    start_at: float = 0.0       # monotonic seconds; not before
    delay_s: float = 0.0

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None


class Supervisor:
    """`run` returns when a signal asked to stop and every child is gone."""

    def __init__(self, children: Sequence[Child], out: BinaryIO | None = None) -> None:
        self.children = list(children)
        self.out = out or sys.stderr.buffer
        self.width = max(len(child.name) for child in children)
        self.colour = os.isatty(self.out.fileno()) and not os.environ.get("NO_COLOR")
        self.selector = selectors.DefaultSelector()
        self.partial: dict[int, bytes] = {}
        self.stopping = 0       # how many signals came

    def run(self, on_tick: Callable[[], None] = lambda: None) -> None:
        """`on_tick` is called about ten times a second while nothing asked to stop."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._asked_to_stop)
        while not self.stopping:
            self._start_due()
            on_tick()
            self._pump(TICK_S)
            self._reap()
        self._stop_all()

    def say(self, text: str) -> None:
        self._line("ridgepoint", text.encode(), 97)

    def _asked_to_stop(self, number: int, frame: object) -> None:
        self.stopping += 1

    def _start_due(self) -> None:
        for child in self.children:
            if child.process is None and time.monotonic() >= child.start_at:
                self._start(child)

    def _start(self, child: Child) -> None:
        child.process = subprocess.Popen(
            child.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **child.env}, pass_fds=child.fds,
            start_new_session=True,         # Ctrl-C reaches us alone; we stop the children in our own way
            preexec_fn=_die_with_parent)
        child.started = time.monotonic()
        assert child.process.stdout is not None
        os.set_blocking(child.process.stdout.fileno(), False)
        self.selector.register(child.process.stdout, selectors.EVENT_READ, child)

    def _reap(self) -> None:
        for child in self.children:
            if child.process is None or child.process.poll() is None:
                continue
            steady = time.monotonic() - child.started > STEADY_AFTER_S
            child.delay_s = 0.0 if steady else min(MAX_DELAY_S, max(FIRST_DELAY_S, child.delay_s * 2))
            child.start_at = time.monotonic() + child.delay_s
            self.say(f"{child.name} {_ended(child.process.returncode)}; starting it again in {child.delay_s:.1f} s")
            self._forget(child)

    def _forget(self, child: Child) -> None:
        if child.process is None or child.process.stdout is None:
            return
        while self._read(child):
            pass
        with suppress(KeyError):        # a grandchild may hold the other end open
            self.selector.unregister(child.process.stdout)
        child.process.stdout.close()
        child.process = None

    def _pump(self, wait_s: float) -> None:
        for key, _ in self.selector.select(wait_s):
            self._read(key.data)

    def _read(self, child: Child) -> bool:
        """Pass on whole lines, keep the rest for its end; False when there is nothing more for now."""
        assert child.process is not None and child.process.stdout is not None
        fd = child.process.stdout.fileno()
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return False
        *lines, rest = (self.partial.pop(fd, b"") + data).split(b"\n")
        if data and rest:
            self.partial[fd] = rest
        elif rest:
            lines.append(rest)
        if not data:
            with suppress(KeyError):
                self.selector.unregister(child.process.stdout)
        colour = _COLOURS[self.children.index(child) % len(_COLOURS)]
        for line in lines:
            self._line(child.name, line, colour)
        return bool(data)

    def _line(self, name: str, text: bytes, colour: int) -> None:
        label = name.ljust(max(self.width, len("ridgepoint")))
        prefix = f"\033[{colour}m{label} │\033[0m " if self.colour else f"{label} | "
        self.out.write(prefix.encode() + text + b"\n")
        self.out.flush()

    def _stop_all(self) -> None:
        self.say("stopping")
        self._signal(signal.SIGTERM)
        end, asked = time.monotonic() + STOP_WITHIN_S, self.stopping
        while any(child.running for child in self.children):
            self._pump(TICK_S)
            if self.stopping > asked or time.monotonic() > end:     # a second Ctrl-C, or patience ended
                self._signal(signal.SIGKILL)
                end = time.monotonic() + STOP_WITHIN_S
        for child in self.children:
            if child.process is not None and child.process.returncode not in _STOPPED:
                self.say(f"{child.name} {_ended(child.process.returncode)}")
            self._forget(child)

    def _signal(self, number: int) -> None:
        for child in self.children:
            if child.running and child.process is not None:
                child.process.send_signal(number)


def _ended(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)

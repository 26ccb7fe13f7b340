"""Keeps processes running under one terminal: prefixed logs (or JSON ones), restarts, one clean stop.

One thread looks after the children; each watch (of what is no child: the shared servers, the address) has a thread of its own.
Whatever goes wrong is said and tried again, and holds up nothing else.

Own code, because no kept process manager fits: supervisor 4.3 gives a child up after `startretries`, its pause has no bound
and its children outlive a kill -9 of it; circus brings pyzmq and tornado, honcho does not restart. None could keep PostgreSQL
and Valkey, which other commands start and stop as well: the larger part of this would remain beside it.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import BinaryIO

TICK_S = 0.1
STOP_WITHIN_S = 10.0            # after that, kill
STAGGER_S = 3.0                 # about what a process takes to import its code
WATCHES_END_WITHIN_S = 2.0
_COLOURS = (36, 33, 35, 32, 34, 96, 93, 95)
_STOPPED = (0, -signal.SIGTERM, 128 + signal.SIGTERM)       # uvicorn dies of the signal again after its clean stop
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


@dataclass
class Pause:
    """A pause after trouble: none after `steady_s` of quiet, then doubling up to `longest_s`."""

    first_s: float = 0.5
    longest_s: float = 30.0
    steady_s: float = 60.0
    now_s: float = 0.0

    def grow(self, quiet_s: float) -> float:
        """Return the pause after trouble that came after `quiet_s` seconds without any."""
        self.now_s = 0.0 if quiet_s > self.steady_s else min(self.longest_s, max(self.first_s, self.now_s * 2))
        return self.now_s


@dataclass
class Watch:
    """A check repeated forever; `look` returns what it did, or None, and may raise or hang."""

    name: str
    look: Callable[[], str | None]
    every_s: float
    pause: Pause = field(default_factory=Pause)


@dataclass
class Child:
    """A supervised process; `fds`: descriptors that it inherits."""

    name: str
    command: Sequence[str]
    env: dict[str, str] = field(default_factory=dict)
    fds: tuple[int, ...] = ()
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    start_at: float = 0.0       # monotonic seconds; not before
    pause: Pause = field(default_factory=Pause)

    @property
    def is_running(self) -> bool:
        """Return whether the process runs."""
        return self.process is not None and self.process.poll() is None


class Supervisor:
    """Runs children until a signal asks to stop and every child is gone."""

    def __init__(self, children: Sequence[Child], out: BinaryIO | None = None, *, as_json: bool = False) -> None:
        self.children = list(children)
        self.as_json = as_json
        self.out = out or sys.stderr.buffer
        self.width = max(len(child.name) for child in children)
        self.colour = os.isatty(self.out.fileno()) and not os.environ.get("NO_COLOR")
        self.selector = selectors.DefaultSelector()
        self.partial: dict[int, bytes] = {}
        self.stopping = 0       # how many signals came
        self.ending = threading.Event()
        self.writing = threading.Lock()

    def run(self, watches: Sequence[Watch] = ()) -> None:
        """Run children and watches until a signal asks to stop."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        threads = [threading.Thread(target=self._repeat, args=(watch,), daemon=True) for watch in watches]
        for thread in threads:
            thread.start()
        self._stagger()
        while not self.stopping:
            for child in self.children:
                self._tend(child)
            self._pump(TICK_S)
        self.ending.set()
        self._stop_all()
        end = time.monotonic() + WATCHES_END_WITHIN_S
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _stagger(self) -> None:
        """Let no more children import their code at once than there are processors: the first ones are there sooner."""
        now, at_once = time.monotonic(), max(2, os.cpu_count() or 1)
        for index, child in enumerate(self.children):
            child.start_at = now + index // at_once * STAGGER_S

    def say(self, text: str) -> None:
        """Print a line."""
        self._line("ridgepoint", text.encode(errors="replace"), 97)

    def _repeat(self, watch: Watch) -> None:
        """Look until the end; trouble or work done make the next look wait longer."""
        trouble_at, wait_s = time.monotonic(), 0.0
        while not self.ending.wait(wait_s):
            try:
                done = watch.look()
                wait_s = watch.every_s
                if done:
                    wait_s = max(wait_s, watch.pause.grow(time.monotonic() - trouble_at))
                    self.say(done)
            except Exception as error:
                wait_s = max(watch.every_s, watch.pause.grow(time.monotonic() - trouble_at))
                done = f"{watch.name}: {_error_line(error)}; looking again in {wait_s:.1f} s"
                self.say(done)
            if done:
                trouble_at = time.monotonic()

    def _on_signal(self, number: int, frame: object) -> None:
        self.stopping += 1

    def _tend(self, child: Child) -> None:
        try:
            if child.process is None and time.monotonic() >= child.start_at:
                self._start(child)
            elif child.process is not None and child.process.poll() is not None:
                self._reap(child, child.process.returncode)
        except Exception as error:      # no memory or no process left for it, say
            pause_s = self._try_again(child)
            self.say(f"{child.name} was not started: {_error_line(error)}; trying again in {pause_s:.1f} s")

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

    def _reap(self, child: Child, code: int) -> None:
        pause_s = self._try_again(child)
        self._forget(child)
        self.say(f"{child.name} {_ending_text(code)}; starting it again in {pause_s:.1f} s")

    def _try_again(self, child: Child) -> float:
        now = time.monotonic()
        pause_s = child.pause.grow(now - child.started if child.process else 0.0)
        child.start_at = now + pause_s
        return pause_s

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
        """Pass on whole lines and keep the rest; False when there is nothing more now."""
        assert child.process is not None and child.process.stdout is not None
        fd = child.process.stdout.fileno()
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
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
        line = _json_line(name, text) if self.as_json else prefix.encode() + text
        with self.writing, suppress(OSError, ValueError):       # a full disk or a closed terminal under the log ends nobody
            self.out.write(line + b"\n")
            self.out.flush()

    def _stop_all(self) -> None:
        self.say("stopping")
        self._signal(signal.SIGTERM)
        end, stop_count = time.monotonic() + STOP_WITHIN_S, self.stopping
        while any(child.is_running for child in self.children):
            self._pump(TICK_S)
            if self.stopping > stop_count or time.monotonic() > end:     # a second Ctrl-C, or patience ended
                self._signal(signal.SIGKILL)
                end = time.monotonic() + STOP_WITHIN_S
        for child in self.children:
            if child.process is not None and child.process.returncode not in _STOPPED:
                self.say(f"{child.name} {_ending_text(child.process.returncode)}")
            self._forget(child)

    def _signal(self, number: int) -> None:
        for child in self.children:
            if child.is_running and child.process is not None:
                child.process.send_signal(number)


def _json_line(name: str, text: bytes) -> bytes:
    """Return the line of a child that writes JSON with the child's name in it; what is none becomes the message of one."""
    process = json.dumps({"process": name})
    if text.startswith(b'{"') and text.endswith(b"}"):
        return process[:-1].encode() + b", " + text[1:]
    now = datetime.now(UTC).isoformat()
    return json.dumps({"process": name, "time": now, "level": "info", "logger": "supervisor",
                       "message": text.decode(errors="replace")}, ensure_ascii=False).encode()


def _error_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:600]


def _ending_text(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)

"""Starts a private server: one lock, never two servers, growing pauses between tries.

The lock is the file `.lock` of the folder, held by flock through one open file that the server inherits from its starter.
It is free again only when the starter, the server and the server's children are gone. So a server is dead when its process
is, however late it answers, and a starter that dies half-way leaves no gap in which a second server could start.
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import logging
import os
import re
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

# Server processes by /proc; a pid alone may be reused or a zombie's.

_COMM_LENGTH = 15       # the kernel keeps that many characters of a program's name


def is_server(pid: int, programs: Collection[str], folder: Path) -> bool:
    """Return whether `pid` runs one of the programs inside `folder`; stopped ones count, zombies not."""
    return _state(pid, programs) not in ("", "Z", "X") and _works_in(pid, folder)


def find_servers(programs: Collection[str], folder: Path) -> list[int]:
    """Return the pids of the programs that run inside `folder`, without those that another one of them started."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if is_server(pid, programs, folder) and not _state(_parent(pid), programs)]


def title(pid: int) -> str:
    """Return the command line of a process, or what it wrote there; "" for one that is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def _state(pid: int, programs: Collection[str]) -> str:
    """Return the one-letter state of a process that runs one of the programs, "" for any other."""
    try:
        before, _, after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        named = before.partition("(")[2] in {program[:_COMM_LENGTH] for program in programs}
        return after.split()[0] if named else ""
    except (OSError, IndexError):
        return ""


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def _works_in(pid: int, folder: Path) -> bool:
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd")) == folder
    except OSError:
        return False


FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 5.0       # between two tries of a server that ends by itself
POLL_S = 0.02
SAY_AFTER_S = 5.0                           # how long a wait is silent
_DISK_IS_FULL_BYTES = 1 << 20
_LOG_PREFIX = re.compile(r"^(?:\S+ \S+ \S+ \[\d+\] |\d+:\w \d.*? [#*.-] )")     # of PostgreSQL, of Valkey
_TELLING = re.compile(r"FATAL|PANIC|ERROR| # ")

log = logging.getLogger(__name__)


class CannotStart(Exception):
    """A server that ended by itself, try after try; the text names the cause."""


class Answer(enum.Enum):
    READY = "ready"
    STARTING = "starting"       # it says that it reads its data or recovers: however long that takes
    SILENT = "silent"


@dataclass(frozen=True)
class Repair:
    """`text`: what was done; `undo` is called where the server ends all the same."""

    text: str
    undo: Callable[[], None]


class Server(ABC):
    """A private server; `folder` holds lock and log, `works_in` is its working directory."""

    name: ClassVar[str]
    programs: ClassVar[tuple[str, ...]]
    stop_signal: ClassVar[int]
    kill_signal: ClassVar[int]      # where the first one does not help

    def __init__(self, folder: Path, works_in: Path) -> None:
        self.folder, self.works_in = folder, works_in
        folder.mkdir(parents=True, exist_ok=True)

    @property
    @abstractmethod
    def log(self) -> Path: ...

    @abstractmethod
    def answer(self) -> Answer:
        """Ask the server, for 1 s at most."""

    @abstractmethod
    def pid(self) -> int | None:
        """Return the process id of the live server; None for a zombie's, a reused or a missing one."""

    @abstractmethod
    def spawn(self, lock: int) -> subprocess.Popen[bytes]:
        """Prepare a first start and start the process, which inherits the descriptor `lock`."""

    def is_running(self) -> bool:
        """Return whether its process lives; one system call."""
        return is_locked(self.folder)

    @abstractmethod
    def clear_orphans(self) -> None:
        """End what a dead server left running, where that keeps the lock."""

    def repair(self, exit_code: int, cause: str) -> Repair | None:
        """Remove what may have caused an end at start; None where there is nothing."""
        return None


class Start:
    """A server on its way up: `step` until True, then `close`.

    silent_s: how long a live server may say nothing; ending_s: how long one that ends by itself is tried again.
    """

    def __init__(self, server: Server, *, silent_s: float = 60, ending_s: float = 5,
                 say: Callable[[str], None] = log.warning) -> None:
        self.server, self.silent_s, self.ending_s, self.say = server, silent_s, ending_s, say
        self.lock: int | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.tries, self.pause_s, self.next_try, self.first_end = 0, 0.0, 0.0, 0.0
        self.log_from = self._log_size()
        self.began = self.heard = time.monotonic()
        self.said = self.repaired = False
        self.undo: Callable[[], None] | None = None

    def step(self) -> bool:
        """Do what can be done without waiting; True when the server answers.

        Raises CannotStart when it ends again and again, TimeoutError when it lives and says nothing.
        """
        if self.lock is None:
            self.lock = take_lock(self.server.folder)
            if self.lock is not None and self.server.pid() is None:
                self._spawn()
                return False
        answer = self.server.answer()
        if answer is Answer.READY:
            return True
        if answer is Answer.STARTING:
            self.heard = time.monotonic()
        if self.lock is None:
            self.server.clear_orphans()     # one of them may hold it
        elif self.process is not None and self.process.poll() is not None:
            self._handle_end(self.process.returncode)
        elif self.process is None and self.server.pid() is None and time.monotonic() >= self.next_try:
            self._spawn()
        self._check_patience()
        return False

    def close(self) -> None:
        """Leave the lock to the server alone."""
        if self.lock is not None:
            os.close(self.lock)         # never LOCK_UN, which would free the server's copy too
            self.lock = None

    def _spawn(self) -> None:
        assert self.lock is not None
        self.log_from = self._log_size()
        self.process = self.server.spawn(self.lock)
        self.tries, self.heard = self.tries + 1, time.monotonic()
        if self.tries == 1:
            self.began = self.heard         # a first cluster takes seconds to be made

    def _handle_end(self, code: int) -> None:
        now, cause = time.monotonic(), self._log_cause()
        self.process, self.first_end = None, self.first_end or now
        self.server.clear_orphans()
        if self.undo:
            self.undo()
            self.undo = None
        elif not self.repaired and (repair := self.server.repair(code, cause)):
            self.repaired, self.undo, self.began = True, repair.undo, now
            self.say(repair.text)
            return
        if now - self.first_end >= self.ending_s:
            raise CannotStart(f"{self.server.name} cannot start (tried {self.tries} times): {cause}")
        self.pause_s = min(MAX_PAUSE_S, max(FIRST_PAUSE_S, self.pause_s * 2))
        self.next_try = now + self.pause_s

    def _check_patience(self) -> None:
        now = time.monotonic()
        if self.process is None and self.next_try > now:        # between two tries nobody can answer
            self.heard = now
        if now - self.heard > self.silent_s:
            raise TimeoutError(f"{self.server.name} ({self._lock_holder()}) did not answer in {self.silent_s:.0f} s: "
                               f"{self._log_cause()}")
        if not self.said and now - self.began > SAY_AFTER_S:
            self.said = True
            self.say(f"waiting for {self.server.name} ({self._lock_holder()}): {self._log_cause()}")

    def _log_size(self) -> int:
        return self.server.log.stat().st_size if self.server.log.exists() else 0

    def _lock_holder(self) -> str:
        pid = self.server.pid()
        return f"process {pid}" if pid else "no process yet"

    def _log_cause(self) -> str:
        """Return the telling lines of its log since the start, in one line."""
        try:
            with open(self.server.log, "rb") as file:
                file.seek(self.log_from)
                lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
        except OSError as error:
            lines = [str(error)]
        telling = max((i for i, line in enumerate(lines) if _TELLING.search(line)), default=len(lines) - 1)
        last = lines[max(0, telling - 1):telling + 1]       # what led to it often stands in the line before
        if disk_is_full(self.server.folder):
            last.append(f"no space left on the disk of {self.server.folder}")       # nor for a word in the log
        return "; ".join(_LOG_PREFIX.sub("", line).strip() for line in last)[-600:] or f"it said nothing in {self.server.log}"


def wait(*starts: Start) -> None:
    """Return when every server answers. Raises as `Start.step`."""
    waiting = list(starts)
    for start in waiting:
        start.heard = time.monotonic()          # it was begun long ago where imports took long: nobody listened meanwhile
    try:
        while waiting:
            waiting = [start for start in waiting if not start.step()]
            if waiting:
                time.sleep(POLL_S)
    finally:
        for start in starts:
            start.close()


def stop(server: Server, within_s: float) -> None:
    """Ask the server to end, and kill it after `within_s`; returns when it is gone."""
    pid = server.pid()
    if pid is None:
        return

    def lives() -> bool:
        return is_server(pid, server.programs, server.works_in)

    for number in (server.stop_signal, server.kill_signal):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            os.kill(pid, signal.SIGCONT)
        end = time.monotonic() + within_s
        while lives() and time.monotonic() < end:
            time.sleep(POLL_S)
        if not lives():
            return
    log.warning("%s (process %d) does not end", server.name, pid)


def disk_is_full(folder: Path) -> bool:
    """Return whether the folder's disk is full."""
    return shutil.disk_usage(folder).free < _DISK_IS_FULL_BYTES


def take_lock(folder: Path) -> int | None:
    """Return an open descriptor that holds the folder's lock; None where somebody else holds it."""
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def is_locked(folder: Path) -> bool:
    """Return whether a server or its starter holds the folder's lock."""
    try:
        lock = os.open(folder / ".lock", os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False

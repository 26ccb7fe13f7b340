"""A worker's warm parent: a process with torch and Triton imported, whose forks measure and compile.

A fork answers in a hundredth of a second where a new process needs six. The worker keeps one (`Keeper`), ready before the first
job; the process of a task inherits the way to it. Where it cannot serve, `Child` starts a new process as ever, and says why.

Forks that go behind walls come of a second one (warm_walled), which was started without any of the worker's variables: a fork has
its parent's memory, and with it all that the parent ever read.

Triton's binaries lie in a folder of each process, removed with it.
"""

from __future__ import annotations

import json
import logging
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

PREFIX = "ridgepoint-triton-"


def cache_folder() -> Path:
    """Return a new folder for this process; those of killed processes are removed."""
    for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        owner = left.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))


log = logging.getLogger(__name__)
PROJECT = Path(__file__).resolve().parents[2]
MODULE, WALLED = "tuner.tuning.measure.fork_server", "workers.core.warm_walled"
OFF = "RIDGEPOINT_WARM_PARENT"      # "0": none is kept, and every child is a new process
START_S, FORK_S = 60.0, 20.0        # until it must have imported everything; until a fork must have said that it lives
AGAIN_S = 30.0                      # between starts that fail
REPORT_BYTES, TAIL_BYTES = 1 << 16, 2000
# Read when they are used, not when torch or Triton is imported: a fork may have others than its parent.
READ_LATE = frozenset({
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TRITON_CACHE_DIR", "TRITON_CACHE_MANAGER", "TRITON_REMOTE_CACHE_BACKEND",
    "RIDGEPOINT_TRITON_REDIS", "RIDGEPOINT_OPERATOR_PACKAGES", "TMPDIR", "RIDGEPOINT_OWN_KERNEL", "CUDA_CACHE_DISABLE"})


class NotWarm(Exception):
    """Nothing was forked; the text says why."""


@lru_cache(maxsize=1)
def spawner(pid: int) -> ThreadPoolExecutor:
    """Return the thread that spawns all children of this process: the kernel ends a child with its spawner."""
    return ThreadPoolExecutor(1, thread_name_prefix="spawn")


class ForkedProcess:
    """A fork as subprocess.Popen shows a process; the warm parent waits for it and ends it."""

    def __init__(self, pid: int, control: socket.socket) -> None:
        self.pid, self._control = pid, control
        self.returncode: int | None = None
        self._hearing = threading.Lock()                # who watches its bounds asks as well

    def poll(self) -> int | None:
        """Return how it ended; None while it runs."""
        return self._hear(0.0)

    def wait(self, timeout: float) -> int:
        """Wait for its end. Raises subprocess.TimeoutExpired."""
        end_s = time.monotonic() + timeout
        while self.returncode is None:
            left_s = end_s - time.monotonic()
            if self._hear(max(0.0, left_s)) is None and left_s <= 0:
                raise subprocess.TimeoutExpired("a fork of the warm parent", timeout)
        return self.returncode

    def end_group(self) -> None:
        """Kill it and what it started; who is reaped already left nothing."""
        if self.returncode is None:
            with suppress(OSError):
                self._control.send(b"end", socket.MSG_NOSIGNAL)

    def close(self) -> None:
        """Give the way to it up, which ends it."""
        self._control.close()

    def _hear(self, wait_s: float) -> int | None:
        if self.returncode is None and self._control.fileno() >= 0 and select.select([self._control], [], [], wait_s)[0]:
            with self._hearing:
                if self.returncode is None:
                    try:
                        answer = json.loads(self._control.recv(4096) or b"{}")
                    except (OSError, ValueError):
                        answer = {}
                    self.returncode = int(answer.get("exit", -signal.SIGKILL))    # silence: the parent died, and its forks with it
        return self.returncode


class WarmParent:
    """The process, from its start; `environ` as its forks have it, but for READ_LATE."""

    def __init__(self, environ: Mapping[str, str], compute_capability: str = "9.0", module: str = MODULE) -> None:
        self._environ = dict(environ)
        self._folder = cache_folder()
        if module == WALLED:
            self._folder.chmod(0o755)                   # its forks read it as nobody
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._requests.settimeout(FORK_S)
        self._report, report = os.pipe()
        os.set_blocking(self._report, False)
        self._output = tempfile.TemporaryFile()         # noqa: SIM115  closed with the process
        self._heard = b""
        self.ready: dict[str, Any] = {}                 # what it said when it was ready
        self.retire = ""                                # why another one should take its place
        try:
            self.process = spawner(os.getpid()).submit(
                subprocess.Popen, [sys.executable, "-m", module, str(theirs.fileno()), str(report), str(os.getpid()),
                                   compute_capability],
                cwd=PROJECT, env={**self._environ, "TRITON_CACHE_DIR": str(self._folder)}, stdin=subprocess.DEVNULL,
                stdout=self._output, stderr=subprocess.STDOUT, pass_fds=(theirs.fileno(), report), start_new_session=True).result()
        finally:
            theirs.close()              # what is asked of a process that died is then refused at once
            os.close(report)

    def fork(self, module: str, environ: Mapping[str, str], to_child: int, from_child: int, output: int,
             walls: Mapping[str, Any] | None = None, *, streams: bool = False) -> ForkedProcess:
        """Return a fork that runs `module`; callable from any thread and from forks of the worker. Raises NotWarm.

        Its variables are the parent's and `environ`: what an import set in this process meanwhile is nothing for children.
        walls    of `sandboxed.spec_of`: it goes behind them first; the folder of its parent's libraries is seen there too
        streams  the descriptors are its standard input, output and error; else the first two are named to it
        """
        if differing := self._differing(environ):
            raise NotWarm(f"its variables differ: {', '.join(differing)}")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            request: dict[str, Any] = {"module": module, "environ": {**self._environ, **environ}, "streams": streams}
            if walls is not None:
                request["walls"] = {**walls, "read": [*walls["read"], str(self._folder)]}
            body = json.dumps(request).encode()
            socket.send_fds(self._requests, [body], [to_child, from_child, output, theirs.fileno()], socket.MSG_NOSIGNAL)
            theirs.close()
            answer = self._first_word(ours)
        except (OSError, ValueError) as error:
            ours.close()
            raise NotWarm(f"the warm parent does not answer ({type(error).__name__}: {error})") from error
        finally:
            theirs.close()
        if "pid" not in answer:
            ours.close()
            raise NotWarm(str(answer.get("refused") or "the warm parent died"))
        return ForkedProcess(int(answer["pid"]), ours)

    @staticmethod
    def _first_word(control: socket.socket) -> dict[str, Any]:
        """Return {"pid"} or {"refused"}; {} where the parent is gone. It may still be importing."""
        if not select.select([control], [], [], START_S)[0]:
            raise TimeoutError(f"nothing within {START_S:.0f} s")
        answer = json.loads(control.recv(4096) or b"{}")
        return answer if isinstance(answer, dict) else {}

    def _differing(self, environ: Mapping[str, str]) -> list[str]:
        return sorted(name for name, value in environ.items() if name not in READ_LATE and self._environ.get(name) != value)

    def look(self) -> bool:
        """Read what it reported; return whether it lives."""
        with suppress(BlockingIOError):
            while piece := os.read(self._report, REPORT_BYTES):
                self._heard += piece
        *lines, self._heard = self._heard.split(b"\n")
        for line in lines:
            report = json.loads(line)
            if report.get("ready"):
                self.ready = report
            self.retire = str(report.get("retire") or self.retire)
        return self.process.poll() is None

    def tail(self) -> str:
        """Return the end of what it printed."""
        size = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), TAIL_BYTES, max(0, size - TAIL_BYTES)).decode(errors="replace").strip()

    def close(self) -> None:
        """End it, and its forks with it."""
        self._requests.close()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        with suppress(OSError):
            os.close(self._report)
        self._output.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class Keeper:
    """Sees to it that a worker has a warm parent: `tend` is called often, from one thread."""

    def __init__(self, environ: Mapping[str, str], compute_capability: str = "9.0", module: str = MODULE) -> None:
        self._environ, self._capability, self._module = dict(environ), compute_capability, module
        self.parent: WarmParent | None = None
        self.why = ""                       # why there is none, or why the last one went
        self._next_start_s = 0.0
        self._said_ready = False

    def tend(self, busy: bool = False) -> None:
        """Start one where there is none; replace one that died, or that retires while no task of the worker uses it."""
        parent = self.parent
        if parent is not None and not parent.look():
            self.why = f"it ended with {parent.process.returncode}; it printed: {parent.tail()[-500:]}"
            log.warning("the warm parent is gone, children start anew: %s", self.why)
            self._drop(AGAIN_S)
        elif parent is not None and parent.retire and not busy:
            self.why = parent.retire
            log.info("the warm parent is replaced: %s", self.why)
            self._drop(0.0)
        if self.parent is None and time.monotonic() >= self._next_start_s:
            self._next_start_s = time.monotonic() + AGAIN_S
            try:
                self.parent = WarmParent(self._environ, self._capability, self._module)
            except OSError as error:
                self.why = f"it does not start: {error}"
                log.warning("no warm parent, children start anew: %s", error)
        if self.parent is not None and self.parent.ready and not self._said_ready:
            self._said_ready, report = True, self.parent.ready
            log.info("the warm parent is ready after %s s%s", report.get("seconds"),
                     "".join(f"; without {what}" for what in report.get("without", [])))

    def state(self) -> dict[str, Any]:
        """Return what the worker announces: {"ready", "seconds"} or {"why"}."""
        if self.parent is None:
            return {"ready": False, "why": self.why or "it was not started"}
        report = self.parent.ready
        return {"ready": bool(report), **({"seconds": report.get("seconds")} if report else {}),
                **({"retires": self.parent.retire} if self.parent.retire else {}), **({"last": self.why} if self.why else {})}

    def close(self) -> None:
        """End it."""
        self._drop(0.0)

    def _drop(self, again_s: float) -> None:
        if self.parent is not None:
            self.parent.close()
        self.parent, self._said_ready = None, False
        self._next_start_s = time.monotonic() + again_s


_kept: dict[bool, Keeper] = {}      # of this process, by whether its forks go behind walls; forks of this process inherit it
_complained: set[str] = set()
_lock = threading.Lock()


def keep(keeper: Keeper | None, *, walled: bool = False) -> None:
    """Let children of this process, and of its forks, be forks of this keeper's parent; None: of nobody's."""
    _kept.pop(walled, None)
    if keeper is not None:
        _kept[walled] = keeper


def is_wanted() -> bool:
    """Return whether this host's owner lets workers keep a warm parent."""
    return os.environ.get(OFF) != "0"


def fork(module: str, environ: Mapping[str, str], to_child: int, from_child: int, output: int,
         walls: Mapping[str, Any] | None = None, *, streams: bool = False) -> ForkedProcess | None:
    """Return a fork of this worker's warm parent; None where it keeps none or it cannot serve, which the log says once."""
    keeper = _kept.get(walls is not None)
    parent = keeper.parent if keeper is not None else None
    if parent is None:
        return None
    try:
        return parent.fork(module, environ, to_child, from_child, output, walls, streams=streams)
    except NotWarm as error:
        with _lock:
            if str(error) not in _complained:
                _complained.add(str(error))
                log.warning("%s starts as a new process: %s", module, error)
        return None

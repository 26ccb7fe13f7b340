"""Forks on request: the loop of the warm parent (tuner.tuning.measure.warm), which says what may be forked and what a fork renews.

Started by workers.core.warm as `python -m tuner.tuning.measure.fork_server REQUESTS_FD REPORT_FD PARENT_PID [COMPUTE_CAPABILITY]`.

request   a message of a socket: {"module", "environ"} and descriptors: requests and answers of the child (tuner.tuning.wire), its
          output (with "streams" the three are its standard input, output and error), and a socket of its own, over which follow
          {"pid"} or {"refused": why}, then {"exit": status}. The child is killed when its asker sends anything there or is gone.
          With "walls" too, from a parent that has none of a worker's variables: the fork goes behind them before it is anything
          else (workers.core.warm_walled).
report    JSON lines: {"ready", …}, then {"retire": why} where a new parent is better
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tuner.tuning import wire

WallIn = Callable[[dict[str, Any], Collection[int]], None]      # (walls, descriptors to keep); raises where there can be none
PROJECT = Path(__file__).resolve().parents[3]
MAX_REQUEST_BYTES = 1 << 20
DESCRIPTORS = 4
MAX_FORKS = 2000                # then a new parent starts, whatever it looks like
MAX_GROWTH_BYTES = 512 << 20    # of its own memory since it was ready
LOOK_AT_CODE_S = 0.5
IDLE_S = 0.5
OUTSIDE = 0                     # the parent of the first process behind walls, as that sees it
ALSO_STAMPED = ("torch", "torch.version", "triton", "triton._C.libtriton")      # of what is installed


# Triton's helper library, into the parent's own cache folder: built beside the imports, which take longer. It links CUDA's library
# and calls nothing of it.
HELPER = ("import sys; from tuner.tuning import wire; wire.enter_child(int(sys.argv[1])); "
          "from triton.backends.nvidia.driver import CudaUtils; CudaUtils()")


def main(argv: list[str], wall_in: WallIn | None = None, also: Sequence[str] = ()) -> None:
    """Become a warm parent; `wall_in` puts a fork behind walls, `also` names modules that it has imported too."""
    wire.enter_child(int(argv[2]))
    helper = subprocess.Popen([sys.executable, "-c", HELPER, str(os.getpid())], cwd=PROJECT, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    importlib.import_module("tuner.tuning.measure.warm").main(argv, helper, wall_in, also)


def code_stamp() -> int:
    """Return a number that changes when a file of ours that is loaded, torch or Triton changes on disk."""
    files = {str(file) for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))
             and str(file).startswith(str(PROJECT)) and "site-packages" not in str(file)}
    files |= {str(file) for name in ALSO_STAMPED if (file := getattr(sys.modules.get(name), "__file__", None))}
    stamps = []
    for file in sorted(files):
        try:
            stat = os.stat(file)
            stamps.append((file, stat.st_mtime_ns, stat.st_size))
        except OSError:
            stamps.append((file, 0, 0))
    return hash(tuple(stamps))


def own_bytes() -> int:
    """Return this process's private memory in bytes."""
    with suppress(OSError), open("/proc/self/status") as file:
        return sum(int(line.split()[1]) << 10 for line in file if line.startswith("RssAnon:"))
    return 0


class Server:
    """Forks on request, kills forks whose asker is gone, and says how they ended.

    why_not  asked before each fork: why there may be none, "" where it may
    renew    called in each fork, its variables set: renews what a new process has of its own; returns why it cannot serve, or ""
    wall_in  puts a fork behind the walls of its request; without it such a request is refused
    """

    def __init__(self, requests: socket.socket, report_fd: int, why_not: Callable[[], str] = lambda: "",
                 renew: Callable[[], str] = lambda: "", wall_in: WallIn | None = None) -> None:
        self._requests, self._report_fd, self._forbidden, self._renew = requests, report_fd, why_not, renew
        self._wall_in = wall_in
        self._controls: dict[int, socket.socket] = {}           # by the fork's pid
        self._forks, self._retiring = 0, ""
        self._stamp, self._stamped_s, self._bytes = code_stamp(), time.monotonic(), own_bytes()
        self._wake_read, self._wake_write = os.pipe()

    def report(self, message: Mapping[str, Any]) -> None:
        """Write a line for the worker."""
        with suppress(OSError):
            os.write(self._report_fd, json.dumps(message).encode() + b"\n")

    def serve(self, prepare: Callable[[], None] = lambda: None, more: Iterator[None] | None = None) -> None:
        """Serve until the other end of the requests is closed.

        prepare  done as soon as nothing is asked for: who waits already is served first
        more     a piece of it whenever nothing was asked for IDLE_S and no fork lives
        """
        is_prepared, is_more = False, more is not None
        for fd in (self._wake_read, self._wake_write):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        with selectors.PollSelector() as ready:                 # has no descriptor that a fork would inherit
            ready.register(self._requests, selectors.EVENT_READ, None)
            ready.register(self._wake_read, selectors.EVENT_READ, None)
            while True:
                events = ready.select(0 if not is_prepared else IDLE_S if is_more and not self._controls else None)
                if not events and not is_prepared:
                    prepare()
                    is_prepared = True
                elif not events and more is not None:
                    is_more = next(more, self) is not self
                    self._bytes = own_bytes()
                for key, _ in events:
                    if key.fileobj is self._requests:
                        message = self._take()
                        if message is None:
                            return
                        if (forked := self._start(*message)) is not None:
                            ready.register(self._controls[forked], selectors.EVENT_READ, forked)
                    elif key.fd == self._wake_read:
                        with suppress(BlockingIOError):
                            os.read(self._wake_read, 4096)
                    else:                                       # told to end it, or its asker is gone
                        ready.unregister(key.fileobj)
                        end_group(key.data)
                self._reap(ready)

    def _take(self) -> tuple[bytes, list[int]] | None:
        data, fds, _, _ = socket.recv_fds(self._requests, MAX_REQUEST_BYTES, DESCRIPTORS)
        return (data, fds) if data else None

    def _start(self, data: bytes, fds: list[int]) -> int | None:
        """Fork for a request; return the fork's pid."""
        try:
            request = json.loads(data)
            to_child, from_child, output, control_fd = fds
        except ValueError:
            for fd in fds:
                os.close(fd)
            return None
        control = socket.socket(fileno=control_fd)
        try:
            if why := self._why_not():
                send(control, {"refused": why})
                control.close()
                return None
            sys.stdout.flush()
            sys.stderr.flush()
            parent = os.getpid()
            try:
                pid = os.fork()
            except OSError as error:        # too little memory, too many processes: those that live go on
                send(control, {"refused": f"nothing can be forked: {error}"})
                control.close()
                return None
            if pid:
                self._controls[pid] = control
                self._forks += 1
                return pid
            self._close_inherited()
            become(request, parent, (to_child, from_child, output), control, self._renew, self._wall_in)
            os._exit(70)                    # never reached
        finally:
            for fd in (to_child, from_child, output):
                os.close(fd)

    def _close_inherited(self) -> None:
        """Close what belongs to the parent alone."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for fd in (self._wake_read, self._wake_write, self._report_fd):
            os.close(fd)
        self._requests.close()
        for other in self._controls.values():
            other.close()

    def _why_not(self) -> str:
        """Return why nothing is forked any more; "" where it may. A parent that only grew serves until it is replaced."""
        if time.monotonic() - self._stamped_s > LOOK_AT_CODE_S:
            self._stamped_s = time.monotonic()
            if code_stamp() != self._stamp:
                return self._retire("its code, torch or Triton changed on disk")
            if (grown := own_bytes() - self._bytes) > MAX_GROWTH_BYTES:
                self._retire(f"it grew by {grown >> 20} MiB")
        if self._forks >= MAX_FORKS:
            self._retire(f"it forked {self._forks} times")
        why = self._forbidden()
        return self._retire(why) if why else ""

    def _retire(self, why: str) -> str:
        if why != self._retiring:
            self._retiring = why
            self.report({"retire": why})
        return why

    def _reap(self, ready: selectors.BaseSelector) -> None:
        """Say of every fork that ended how, and end what it left behind in its group while its number is still its own."""
        for pid, control in list(self._controls.items()):
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                continue
            end_group(pid)
            _, status = os.waitpid(pid, 0)
            with suppress(KeyError, ValueError):
                ready.unregister(control)
            send(control, {"exit": os.waitstatus_to_exitcode(status)})
            control.close()
            del self._controls[pid]


def end_group(pid: int) -> None:
    """Kill a fork and all that it started; it may not lead its group yet."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def send(control: socket.socket, message: Mapping[str, Any]) -> None:
    """Tell the asker; one that is gone needs no answer."""
    with suppress(OSError):
        control.send(json.dumps(message).encode(), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


def become(request: Mapping[str, Any], parent: int, pipes: tuple[int, int, int], control: socket.socket,
           renew: Callable[[], str], wall_in: WallIn | None = None) -> None:
    """Be the program that was asked for, in a fork, and end with it."""
    status, pid = 1, os.getpid()
    try:
        wire.enter_child(parent)
        os.setsid()
        streams = take_streams(pipes, asks_by_them=bool(request.get("streams")))
        os.environ.clear()
        os.environ.update(request["environ"])
        refused, above = "", parent
        if "walls" in request:
            refused, above = enter_walls(request["walls"], wall_in, (*streams, control.fileno())), OUTSIDE
        importlib.invalidate_caches()
        if refused := refused or renew():
            send(control, {"refused": refused})
        else:
            send(control, {"pid": pid})
            control.close()
            run_module(str(request["module"]), [*map(str, streams), str(above)] if streams else [])
            status = 0
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def take_streams(pipes: tuple[int, int, int], *, asks_by_them: bool) -> tuple[int, ...]:
    """Make the pipes this process's standard streams, or its output alone; return the descriptors that it is told of."""
    to_child, from_child, output = pipes
    os.dup2(output, 2)
    if asks_by_them:
        os.dup2(to_child, 0)
        os.dup2(from_child, 1)
        for pipe in pipes:                  # who listens waits for the end of the streams
            os.close(pipe)
        return ()
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(output, 1)
    return to_child, from_child


def enter_walls(walls: dict[str, Any], wall_in: WallIn | None, kept: Collection[int]) -> str:
    """Go behind the walls with these descriptors; return why that cannot be, or ""."""
    if wall_in is None:
        return "this warm parent builds no walls"
    try:
        wall_in(walls, kept)
    except Exception as error:
        return f"no walls: {error}"[:500]
    return ""


def run_module(name: str, arguments: Sequence[str]) -> None:
    """Run a module as `python -m` does; one that is loaded begins at its `main`."""
    sys.argv = [name, *arguments]
    if callable(main := getattr(sys.modules.get(name), "main", None)):
        main(list(arguments))
    else:
        runpy.run_module(name, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])

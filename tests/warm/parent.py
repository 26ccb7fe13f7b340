"""Processes of a run of tests that have imported torch, Triton and what the tests' children are; the children are forks of them.

    python -m tests.warm.parent …        as workers.core.warm starts one

To import all that takes 3 s of processor time in each new process, a fork a hundredth. It is the warm parent that a worker keeps
for children behind walls (workers.core.warm_walled), started without this process's variables; beside the forks behind walls it
has forks without them. That new processes answer the same: tests/tuner/bring/test_check.py, own/test_own.py.

Kernels are decorated for the compiler or for the interpreter when they are imported, so there is one for each of both. All
processes of `make test` share theirs (tests.warm.shared); another run starts its own when the first test needs it.
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO

from tests.warm import child, program, shared
from tuner.tuning import wire
from workers.core import sandbox_inside, warm, warm_walled
from workers.tune import own

INTERPRETER = "TRITON_INTERPRET"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Parent(warm.WarmParent):
    """Its forks have whatever variables they are given: what torch and Triton read as they are imported, no test changes."""

    def __init__(self, interprets: bool) -> None:
        super().__init__({**own.warm_environ(), **ONE_THREAD, INTERPRETER: str(int(interprets))}, module=__name__)
        self._folder.chmod(0o755)               # its forks behind walls read it as nobody

    def _differing(self, environ: Mapping[str, str]) -> list[str]:
        return []

    @property
    def way(self) -> tuple[socket.socket, str]:
        """What another process needs to ask it: the socket of its requests, and its folder."""
        return self._requests, str(self._folder)


class Joined(Parent):
    """One that another process of this run started."""

    def __init__(self, requests: socket.socket, folder: str) -> None:
        self._environ: dict[str, str] = {}
        self._requests, self._folder = requests, Path(folder)

    def close(self) -> None:
        self._requests.close()


@cache
def parent(interprets: bool = False) -> Parent:
    """Return this run's parent, which is started when the first test needs it."""
    way = shared.ask(interprets)
    started = Joined(*way) if way is not None else Parent(interprets)
    atexit.register(started.close)
    return started


@contextmanager
def offered() -> Iterator[None]:
    """Let processes that are started meanwhile share parents of this one."""
    started: dict[bool, Parent] = {}

    def make(interprets: bool) -> tuple[socket.socket, str]:
        if interprets not in started or not started[interprets].look():
            started[interprets] = Parent(interprets)
        return started[interprets].way

    try:
        with shared.offered(make):
            yield
    finally:
        for each in started.values():
            each.close()


def fork(module: str, environ: Mapping[str, str], to_child: int, from_child: int, output: int, *, interprets: bool = False
         ) -> warm.ForkedProcess:
    """Return a fork that runs a module with these variables; the descriptors are its standard input, output and error."""
    try:
        return parent(interprets).fork(module, environ, to_child, from_child, output, streams=True)
    except warm.NotWarm:                        # it died
        parent.cache_clear()
        return parent(interprets).fork(module, environ, to_child, from_child, output, streams=True)


@contextmanager
def forks_behind_walls(*, interprets: bool = False) -> Iterator[warm.Keeper]:
    """Let children behind walls be forks of it meanwhile, as in a worker that keeps a parent."""
    keeper = warm.Keeper({})
    keeper.parent = parent(interprets)
    warm.keep(keeper, walled=True)
    try:
        yield keeper
    finally:
        warm.keep(None, walled=True)


class Fork:
    """A fork that runs a module, in place of a new `python -m module`, as tuner.bring.process shows one.

    environ  added to this process's; it names descriptors, of which the fork has its own
    output   descriptor of its standard output and error
    """

    def __init__(self, module: str, environ: Mapping[str, str], output: int) -> None:
        asked, ask = os.pipe()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            socket.send_fds(ours, [b"."], [asked, *(int(environ[name]) for name in child.DESCRIPTORS)])
            os.close(asked)
            self._process = fork(child.__name__, {**os.environ, **environ, child.MODULE: module, child.FOLDER: os.getcwd()},
                                 theirs.fileno(), output, output)
        self.stdin = open(ask, "wb", buffering=0)       # noqa: SIM115 - who asks closes it
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def poll(self) -> int | None:
        return self._process.poll()

    def wait(self, timeout: float | None = None) -> None:
        """Wait for its end. Raises subprocess.TimeoutExpired."""
        self._process.wait(warm.START_S if timeout is None else timeout)


WITHIN_S = 250.0


def run_program(text: str, *arguments: str, **environ: str) -> tuple[str, str]:
    """Return what a Python program printed on standard output and on standard error; it must end well.

    It begins as under `python -c`, with nothing that an earlier one left: it may patch, aim and set whatever it likes.

    arguments  its sys.argv[1:]
    environ    added to this process's environment; TRITON_INTERPRET="1" has kernels interpreted, not compiled
    """
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        asked.write(program.request(text, arguments))
        asked.seek(0)
        process = fork(program.__name__, {**os.environ, "CUDA_VISIBLE_DEVICES": "", **environ}, asked.fileno(), out.fileno(),
                       err.fileno(), interprets=environ.get(INTERPRETER) == "1")
        try:
            code = process.wait(WITHIN_S)
        finally:
            process.close()                     # which ends it
        said, complained = _text(out), _text(err)
    assert code == 0, f"ended with {code}:\n{complained[-4000:]}"
    return said, complained


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def serve(requests_fd: int, report_fd: int) -> None:
    """Be that process until who started it is gone."""
    from tuner.tuning.measure.fork_server import Server
    from tuner.tuning.measure.warm import freeze, import_modules, renew, touched_cuda, use_compiler
    from tuner.tuning.operators import OPERATORS

    without = import_modules([*sorted({each.kernel_module for each in OPERATORS.values()}), *warm_walled.ALSO])
    if os.environ[INTERPRETER] == "0":
        without += use_compiler("9.0")
    with suppress(KeyError):                # torch is missing
        sys.modules["tuner.bring.child"].make_ready()
    freeze()

    class Lasting(Server):
        """Forks to the end of the run, whose code is that of its beginning."""

        def _why_not(self) -> str:
            return touched_cuda()

    server = Lasting(socket.socket(fileno=requests_fd), report_fd, renew=renew, wall_in=sandbox_inside.enter_fork)
    server.report({"ready": True, "seconds": 0.0, "threads": 1, "without": without})
    server.serve()
    os._exit(0)


if __name__ == "__main__":
    wire.enter_child(int(sys.argv[3]))
    serve(int(sys.argv[1]), int(sys.argv[2]))

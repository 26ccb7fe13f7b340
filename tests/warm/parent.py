"""One process of a run of tests that has imported torch, Triton and what the tests' children are; the children are forks of it.

    python -m tests.warm.parent …        as workers.core.warm starts it

To import all that takes 3 s of processor time in each new process, a fork a hundredth. It is the warm parent that a worker keeps
for children behind walls (workers.core.warm_walled), started without this process's variables; beside the forks behind walls it
has forks without them. That new processes answer the same: tests/tuner/bring/test_check.py, own/test_own.py.
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache

from tests.warm import child
from tuner.tuning import wire
from workers.core import sandbox_inside, warm, warm_walled
from workers.tune import own


class Parent(warm.WarmParent):
    """Its forks have whatever variables they are given: what torch and Triton read as they are imported, no test changes."""

    def _differing(self, environ: Mapping[str, str]) -> list[str]:
        return []


@cache
def parent() -> Parent:
    """Return this process's parent, started when the first test needs it."""
    started = Parent(own.warm_environ(), module=__name__)
    atexit.register(started.close)
    return started


@contextmanager
def forks_behind_walls() -> Iterator[None]:
    """Let children behind walls be forks of it meanwhile, as in a worker that keeps a parent."""
    keeper = warm.Keeper({})
    keeper.parent = parent()
    warm.keep(keeper, walled=True)
    try:
        yield
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
            self._process = _must_fork({**os.environ, **environ, child.MODULE: module, child.FOLDER: os.getcwd()},
                                       theirs.fileno(), output)
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


def _must_fork(environ: Mapping[str, str], to_child: int, output: int) -> warm.ForkedProcess:
    try:
        return parent().fork(child.__name__, environ, to_child, output, output, streams=True)
    except warm.NotWarm:                    # it died
        parent().close()
        parent.cache_clear()
        return parent().fork(child.__name__, environ, to_child, output, output, streams=True)


def serve(requests_fd: int, report_fd: int) -> None:
    """Be that process until who started it is gone."""
    from tuner.tuning.measure.fork_server import Server
    from tuner.tuning.measure.warm import freeze, import_modules, renew, touched_cuda, use_compiler
    from tuner.tuning.operators import OPERATORS

    without = import_modules([*sorted({each.kernel_module for each in OPERATORS.values()}), *warm_walled.ALSO])
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

"""Queries in processes that begin with DuckDB imported: from `child.main` on they run as the product's do.

Starting Python and importing DuckDB and Arrow takes 0.45 s of CPU, for each of 300 queries. One process per test worker imports
them once and copies itself for each query. Tests with the fixture `own_interpreter` start the product's own command.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from profiles.sql import process

# clone(CLONE_PARENT | SIGCHLD): the copy is a child of the test's process, as the product's child is one of the web process
COPY_ITSELF = """
import ctypes, os, signal, socket, sys
sys.path.insert(0, sys.argv[1])
from profiles.sql.child import main
libc, orders = ctypes.CDLL(None, use_errno=True), socket.socket(fileno=int(sys.argv[2]))
clone = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
while True:
    folder, handles, _, _ = socket.recv_fds(orders, 4096, 2)
    if not folder:
        os._exit(0)
    pid = libc.syscall(clone, 0x8000 | signal.SIGCHLD, 0, 0, 0, 0)
    if pid:
        for handle in handles:
            os.close(handle)
        orders.send(str(pid).encode())
        continue
    try:
        os.setsid()
        for number, handle in enumerate(handles):
            os.dup2(handle, number)
        os.closerange(3, 64)
        os.environ.clear()
        os.environ.update(LC_ALL="C.UTF-8", HOME=os.fsdecode(folder), TMPDIR=os.fsdecode(folder))
        os.chdir(folder)
        main()
    finally:
        os._exit(1)
"""


class Copy:
    """A child of this process that another one made: what `profiles.sql.process` asks of a Popen."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        if self.returncode is None:
            handle = os.pidfd_open(self.pid)
            ended = select.select([handle], [], [], timeout)[0]
            os.close(handle)
            if not ended:
                raise subprocess.TimeoutExpired("query", timeout or 0.0)
        return self.poll()


@pytest.fixture(scope="session")
def _template() -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    template = subprocess.Popen([sys.executable, "-I", "-c", COPY_ITSELF, str(process.ROOT), str(theirs.fileno())],
                                pass_fds=[theirs.fileno()])
    theirs.close()
    yield ours
    ours.close()
    template.wait(10)


@pytest.fixture(autouse=True)
def _copies(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "own_interpreter" in request.fixturenames:
        return
    orders: socket.socket = request.getfixturevalue("_template")
    one_at_a_time = threading.Lock()

    def start(folder: Path, given: IO[bytes], answer: IO[bytes], said: IO[bytes]) -> Copy:
        with one_at_a_time:
            socket.send_fds(orders, [os.fsencode(folder)], [given.fileno(), answer.fileno(), said.fileno()])
            return Copy(int(orders.recv(16)))

    monkeypatch.setattr(process, "_start", start)


@pytest.fixture
def own_interpreter() -> None:
    """Each query of this test has an interpreter of its own, as in the product."""

"""All processes of `make test` share their warm parents: who started them starts a parent for the first that asks.

`offered` listens on a socket whose path the processes have as a variable; what it answers is a parent's folder and the socket of
its requests, which may have several askers.
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PLACE = "RIDGEPOINT_TEST_PARENTS"
ANSWER_BYTES, WITHIN_S = 4096, 60.0


def ask(interprets: bool) -> tuple[socket.socket, str] | None:
    """Return the socket of a shared parent's requests, and its folder; None where none is offered."""
    if not (place := os.environ.get(PLACE)):
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as way:
        way.settimeout(WITHIN_S)
        way.connect(place)
        way.send(b"1" if interprets else b"0")
        folder, (number,), _, _ = socket.recv_fds(way, ANSWER_BYTES, 1)
    return socket.socket(fileno=number), folder.decode()


@contextmanager
def offered(make: Callable[[bool], tuple[socket.socket, str]]) -> Iterator[None]:
    """Answer processes that are started meanwhile; `make` starts the parent that is asked for, or returns it."""
    with (tempfile.TemporaryDirectory(prefix="rp-warm-") as folder,
          socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening):
        place = str(Path(folder, "s"))
        listening.bind(place)
        listening.listen()
        threading.Thread(target=_answer, args=(listening, make), daemon=True).start()
        os.environ[PLACE] = place
        try:
            yield
        finally:
            del os.environ[PLACE]


def _answer(listening: socket.socket, make: Callable[[bool], tuple[socket.socket, str]]) -> None:
    while True:
        try:
            way, _ = listening.accept()
        except OSError:                     # the run has ended
            return
        with way:
            requests, folder = make(way.recv(1) == b"1")
            socket.send_fds(way, [folder.encode()], [requests.fileno()])

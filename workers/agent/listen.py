"""The node agent's ears: jobs of this host on a UNIX socket. Nothing listens to the network."""

from __future__ import annotations

import os
import selectors
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workers.agent.link import Frames, MessageRefused, frame

MOST_JOBS = 1024
CHUNK = 1 << 18


class SocketTaken(OSError):
    """Another node agent listens there."""


class Listener:
    """`take(pid, message)` is called for each message and may return an answer, `gone(pid)` when a job's connection ends."""

    def __init__(self, path: str, take: Callable[[int, dict[str, Any]], dict[str, Any] | None],
                 gone: Callable[[int], None]) -> None:
        self.path, self._take, self._gone = path, take, gone
        self.refused = 0
        self.selector = selectors.DefaultSelector()
        Path(path).parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        self._clear(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(path)
        os.chmod(path, 0o666)                   # jobs run as anyone; what they may say is sums of their own
        self._socket.listen(128)
        self._socket.setblocking(False)
        self.selector.register(self._socket, selectors.EVENT_READ, None)
        self._jobs = 0

    def poll(self, seconds: float) -> None:
        """Take what comes within a time."""
        for key, _ in self.selector.select(max(0.0, seconds)):
            if key.data is None:
                self._accept()
            elif callable(key.data):
                key.data()
            else:
                self._read(key.fileobj, *key.data)

    def close(self) -> None:
        for key in list(self.selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self.selector.close()
        Path(self.path).unlink(missing_ok=True)

    def _accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return
        if self._jobs >= MOST_JOBS:
            connection.close()
            self.refused += 1
            return
        connection.setblocking(False)
        pid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        self._jobs += 1
        self.selector.register(connection, selectors.EVENT_READ, (pid, Frames()))

    def _read(self, connection: Any, pid: int, frames: Frames) -> None:
        try:
            data = connection.recv(CHUNK)
            for message in frames.feed(data):
                answer = self._take(pid, message)
                if answer is not None:
                    connection.sendall(frame(answer))
        except BlockingIOError:
            return
        except (OSError, MessageRefused):
            self.refused += 1
            data = b""
        if not data:
            self.selector.unregister(connection)
            connection.close()
            self._jobs -= 1
            self._gone(pid)

    @staticmethod
    def _clear(path: str) -> None:
        """Remove the socket of an agent that is gone."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(path)
            except FileNotFoundError:
                return
            except OSError:
                Path(path).unlink(missing_ok=True)
                return
        raise SocketTaken(f"another agent listens at {path}")

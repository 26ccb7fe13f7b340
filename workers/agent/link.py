"""Messages between the jobs of a host and its node agent: msgpack with a length before it, over a UNIX socket.

{"kind": "hello" | "state" | "window" | "capture", …}. A job waits for nobody: what does not go at once is dropped and counted.

The node agent listens to the jobs of its host there, and nothing listens to the network.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from workers.agent.launches import MOST, MOST_NAME, Context, Gpu, KernelSums, Signature, Window

SOCKET = "/run/ridgepoint/agent.sock"
MOST_MESSAGE = 8 << 20
MOST_QUEUED = 32
MOST_SUM = 2**50                    # of a window: 13 days in ns; thousands of them still add up in 64 bits
STATE_EVERY_S = 10.0
SEND_S = 1.0
_LENGTH = struct.Struct("<I")


class MessageRefused(ValueError):
    """What came over the socket is no message."""


def socket_path(environ: Mapping[str, str] = os.environ) -> str:
    """Return where the node agent of this host listens."""
    if environ.get("RIDGEPOINT_AGENT_SOCKET"):
        return environ["RIDGEPOINT_AGENT_SOCKET"]
    own = Path(environ.get("XDG_RUNTIME_DIR") or f"/tmp/ridgepoint-{os.getuid()}") / "ridgepoint" / "agent.sock"
    return SOCKET if os.path.exists(SOCKET) or os.access("/run", os.W_OK) or not own.exists() else str(own)


def frame(message: Mapping[str, Any]) -> bytes:
    data = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(data)) + data


class Frames:
    """Messages out of what a stream brings, in whatever pieces."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        self._held += data
        while len(self._held) >= _LENGTH.size:
            length = _LENGTH.unpack_from(self._held)[0]
            if length > MOST_MESSAGE:
                raise MessageRefused(f"a message of {length:,} bytes")
            if len(self._held) < _LENGTH.size + length:
                return
            body = bytes(self._held[_LENGTH.size:_LENGTH.size + length])
            del self._held[:_LENGTH.size + length]
            try:
                message = msgspec.msgpack.decode(body, type=dict[str, Any])
            except (msgspec.DecodeError, RecursionError) as error:
                raise MessageRefused(f"no message: {str(error)[:100]}") from error
            yield message


def window_message(window: Window) -> dict[str, Any]:
    kernels = window.kernels
    sizes = [(*signature.grid, *signature.block, signature.shared_bytes) for signature in kernels.signatures]
    return {"kind": "window", "context": list(window.context), "gpu": list(window.gpu), "start_ns": window.start_ns,
            "observed_ns": window.observed_ns, "stands_for_ns": window.stands_for_ns, "rank": window.rank,
            "kernels": [signature.kernel for signature in kernels.signatures], "sizes": np.array(sizes, "<i4").tobytes(),
            **{name: getattr(kernels, name).astype(kind).tobytes() for name, kind in _COLUMNS.items()}}


_COLUMNS = {"launches": "<i8", "total_ns": "<i8", "min_ns": "<i8", "max_ns": "<i8", "log_sum": "<f8", "buckets": "<i4",
            "bucket": "<i2", "count": "<i8"}


class _Window(msgspec.Struct):
    context: tuple[str, str, str, str, str, str, bool]
    gpu: tuple[str, str, str]
    start_ns: int
    observed_ns: int
    stands_for_ns: int
    rank: int
    kernels: list[str]
    sizes: bytes
    launches: bytes
    total_ns: bytes
    min_ns: bytes
    max_ns: bytes
    log_sum: bytes
    buckets: bytes
    bucket: bytes
    count: bytes


def read_window(message: Mapping[str, Any]) -> Window:
    """Return the window of a message.

    Raises:
        MessageRefused: another shape, or sums that contradict each other.
    """
    try:
        window = msgspec.convert(dict(message), _Window)
        kernels = _kernels(window)
    except (msgspec.ValidationError, ValueError) as error:
        raise MessageRefused(f"no window: {str(error)[:200]}") from error
    if not (0 <= window.start_ns < 2**62 and 0 <= window.observed_ns < MOST_SUM and 0 <= window.stands_for_ns < MOST_SUM
            and -1 <= window.rank < 2**31):
        raise MessageRefused("no window: its times or its rank are outside their limits")
    return Window(Context(*window.context), Gpu(*window.gpu), window.start_ns, window.observed_ns,
                  max(window.stands_for_ns, window.observed_ns), kernels, window.rank)


def _kernels(found: _Window) -> KernelSums:
    sizes = np.frombuffer(found.sizes, "<i4").reshape(-1, 7)
    columns: dict[str, Any] = {name: np.frombuffer(getattr(found, name), kind).astype(kind[1] + "8")
                               for name, kind in _COLUMNS.items()}
    bucket, count, buckets = (columns[name] for name in ("bucket", "count", "buckets"))
    rows = {column.size for name, column in columns.items() if name not in ("bucket", "count")} | {len(sizes), len(found.kernels)}
    if len(rows) > 1 or bucket.size != count.size:
        raise ValueError("columns of different lengths")
    if any(column.size and not (column.min() >= 0 and column.max() < MOST_SUM) for column in (sizes, *columns.values())):
        raise ValueError("sums outside their limits")               # NaN too
    if bucket.size and (bucket.max() > MOST or count.min() < 1 or count.sum(dtype=float) >= MOST_SUM):
        raise ValueError("buckets outside their limits")
    ends = np.cumsum(buckets)
    upto = np.append(0, np.cumsum(count))
    if (int(ends[-1]) if ends.size else 0) != bucket.size or \
            not np.array_equal(upto[ends] - upto[ends - buckets], columns["launches"]):
        raise ValueError("sums that contradict each other")
    signatures = [Signature(name[:MOST_NAME], (x, y, z), (bx, by, bz), shared)
                  for name, (x, y, z, bx, by, bz, shared) in zip(found.kernels, sizes.tolist(), strict=True)]
    return KernelSums(signatures, **columns)


class Link(threading.Thread):
    """A job's side: sends what is queued and, every STATE_EVERY_S, its state. `dropped`: windows that went nowhere."""

    def __init__(self, path: str, state: Callable[[], dict[str, Any]]) -> None:
        super().__init__(name="ridgepoint-agent-link", daemon=True)
        self.path, self.state = path, state
        self.dropped = self.sent = 0
        self.why = ""
        self._queue: deque[dict[str, Any]] = deque()
        self._wake, self._ended = threading.Event(), False
        self._socket: socket.socket | None = None

    def put(self, message: dict[str, Any]) -> None:
        """Queue a message; the oldest goes where too many wait."""
        self._queue.append(message)
        while len(self._queue) > MOST_QUEUED:
            self._queue.popleft()
            self.dropped += 1
        self._wake.set()

    def end(self) -> None:
        self._ended = True
        self._wake.set()

    def run(self) -> None:
        next_state_s = 0.0
        while not self._ended or self._queue:
            if time.monotonic() >= next_state_s:
                self._send(self.state())
                next_state_s = time.monotonic() + STATE_EVERY_S
            while self._queue:
                if not self._send(self._queue.popleft()):
                    self.dropped += 1
                    break
            if not self._ended:
                self._wake.wait(STATE_EVERY_S / 2)
                self._wake.clear()
        self._send(self.state())
        if self._socket is not None:
            self._socket.close()

    def _send(self, message: dict[str, Any]) -> bool:
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self._socket.settimeout(SEND_S)
                self._socket.connect(self.path)
            self._socket.sendall(frame(message))
        except (OSError, msgspec.EncodeError) as error:
            if self._socket is not None:
                self._socket.close()
            self._socket, self.why = None, f"no node agent at {self.path}: {error}"
            return False
        self.sent, self.why = self.sent + 1, ""
        return True


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

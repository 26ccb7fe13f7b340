"""Messages between the jobs of a host and its node agent: msgpack with a length before it, over a UNIX socket.

{"kind": "hello" | "state" | "window" | "capture", …}. A job waits for nobody: what does not go at once is dropped and counted.
"""

from __future__ import annotations

import os
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

from workers.agent.launches import MOST_NAME, Context, Gpu, KernelSum, Signature, Window
from workers.agent.sketch import MOST

SOCKET = "/run/ridgepoint/agent.sock"
MOST_MESSAGE = 8 << 20
MOST_QUEUED = 32
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
    kernels = [[each.signature.kernel, *each.signature.grid, *each.signature.block, each.signature.shared_bytes, each.launches,
                each.total_ns, each.min_ns, each.max_ns, each.log_sum, each.bucket.astype("<i2").tobytes(),
                each.count.astype("<i8").tobytes()] for each in window.kernels]
    return {"kind": "window", "context": list(window.context), "gpu": list(window.gpu), "start_ns": window.start_ns,
            "observed_ns": window.observed_ns, "stands_for_ns": window.stands_for_ns, "rank": window.rank, "kernels": kernels}


class _Window(msgspec.Struct):
    context: tuple[str, str, str, str, str, str, bool]
    gpu: tuple[str, str, str]
    start_ns: int
    observed_ns: int
    stands_for_ns: int
    rank: int
    kernels: list[tuple[str, int, int, int, int, int, int, int, int, int, int, int, float, bytes, bytes]]


def read_window(message: Mapping[str, Any]) -> Window:
    """Return the window of a message.

    Raises:
        MessageRefused: another shape, or sums that contradict each other.
    """
    try:
        found = msgspec.convert(dict(message), _Window)
        kernels = [_kernel(each) for each in found.kernels]
    except (msgspec.ValidationError, ValueError) as error:
        raise MessageRefused(f"no window: {str(error)[:200]}") from error
    if min(found.start_ns, found.observed_ns, found.stands_for_ns) < 0 or found.start_ns >= 2**62:
        raise MessageRefused("no window: its times are outside their limits")
    return Window(Context(*found.context), Gpu(*found.gpu), found.start_ns, found.observed_ns,
                  max(found.stands_for_ns, found.observed_ns), kernels, found.rank)


def _kernel(each: tuple[Any, ...]) -> KernelSum:
    name, *numbers = each[:12]
    bucket, count = np.frombuffer(each[13], "<i2").astype(np.int64), np.frombuffer(each[14], "<i8").astype(np.int64)
    if bucket.size != count.size or (bucket.size and (bucket.min() < 0 or bucket.max() > MOST or count.min() < 1)):
        raise ValueError("buckets outside their limits")
    if int(count.sum()) != numbers[7] or min(numbers) < 0 or max(numbers[:7]) >= 2**31 or max(numbers) >= 2**62:
        raise ValueError("sums that contradict each other")
    return KernelSum(Signature(name[:MOST_NAME], tuple(numbers[:3]), tuple(numbers[3:6]), numbers[6]), numbers[7], numbers[8],
                     numbers[9], numbers[10], each[12], bucket, count)


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

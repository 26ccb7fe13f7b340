"""Messages between worker and GPU child: length-prefixed JSON over two pipes.

request   {"do": name, …}
answer    {"ok": …} | {"rejected": {"reason", "message", "facts"}, "fatal": bool} | {"failed": {"what", "hint"}}
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import struct
import sys
from collections.abc import Callable
from typing import Any

from tuner.tuning.trial import Reason, cleaned

MAX_MESSAGE_BYTES = 16 * 2**20
MAX_FILE_BYTES = 512 * 2**20          # what a child may write to one file: its output, a compiler's temporary
_LENGTH = struct.Struct(">I")
_PR_SET_PDEATHSIG = 1

Handler = Callable[[dict[str, Any]], Any]


class Rejection(Exception):
    """A configuration that cannot be measured; `fatal`: the process is of no more use."""

    def __init__(self, reason: Reason, message: str, fatal: bool = False, **facts: Any) -> None:
        super().__init__(message)
        self.reason, self.message, self.fatal, self.facts = reason, message, fatal, facts

    def as_json(self) -> dict[str, Any]:
        return {"rejected": {"reason": self.reason.value, "message": self.message, "facts": self.facts}, "fatal": self.fatal}


class Failure(Exception):
    """A session that cannot go on: no GPU, no torch, a shape the kernel does not take."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


def encode(message: dict[str, Any]) -> bytes:
    """Return the bytes of a message."""
    body = json.dumps(message, allow_nan=False, separators=(",", ":")).encode()
    return _LENGTH.pack(len(body)) + body


class Decoder:
    """Turns bytes into messages. Raises ValueError on an overlong or malformed one."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Add bytes."""
        self._buffer += data

    def next(self) -> dict[str, Any] | None:
        """Return the next whole message; None until it is complete."""
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > MAX_MESSAGE_BYTES:
            raise ValueError(f"message of {length:,} bytes; at most {MAX_MESSAGE_BYTES:,}")
        if len(self._buffer) < _LENGTH.size + length:
            return None
        body = bytes(self._buffer[_LENGTH.size:_LENGTH.size + length])
        del self._buffer[:_LENGTH.size + length]
        message = json.loads(body)
        if not isinstance(message, dict):
            raise ValueError("message is not a JSON object")
        return cleaned(message) if b"\\u" in body else message


def write(fd: int, message: dict[str, Any]) -> None:
    """Write a message."""
    data = memoryview(encode(message))
    while data:
        data = data[os.write(fd, data):]


def serve(handlers: dict[str, Handler], read_fd: int, write_fd: int) -> None:
    """Answer requests in turn until the worker closes its end, or after a fatal answer."""
    decoder = Decoder()
    while True:
        request = decoder.next()
        if request is None:
            data = os.read(read_fd, 65536)
            if not data:
                return
            decoder.feed(data)
            continue
        answer = _answer(handlers[request["do"]], request)
        sys.stdout.flush()
        write(write_fd, answer)
        if answer.get("fatal"):
            return


def _answer(handler: Handler, request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"ok": handler(request)}
    except Rejection as refused:
        return refused.as_json()
    except Failure as failed:
        return {"failed": {"what": failed.what, "hint": failed.hint}}


def enter_child(parent_pid: int) -> None:
    """Die with the thread that spawned this process, and leave no core file."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:                # it died before the line above
        os._exit(0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    most = MAX_FILE_BYTES if hard == resource.RLIM_INFINITY else min(MAX_FILE_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal is the worker's to handle

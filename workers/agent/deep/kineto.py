"""Kineto's on-demand captures: the datagrams that it exchanges with a daemon named dynolog, answered by the node agent or, where
none runs, by a GPU worker.

A job that was started with KINETO_USE_DAEMON=1 asks every 5 s whether it should record. Datagram: {size_t size, char type[32]}
and a payload. "ctxt" {i32 gpu, i32 pid, i64 job} is answered with an i32; "req" {i32 type, i32 n, i64 job, i32 pids[n]} with the
text of a configuration, empty for nothing (libkineto/src/IpcFabricConfigClient.cpp and dynolog's ipcfabric). The daemon's
abstract name ends with a NUL that counts. The kernel says which process sent a datagram (SO_PASSCRED), by its number here: what it
calls itself counts within its own container only."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import struct
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

NAME = "\0dynolog\0"
HEADER = struct.Struct("<Q32s")
FORGET_S = 60.0                     # a process that did not ask for so long is gone
MOST_DATAGRAM = 65536
MOST_ANCESTORS = 16
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
MOST_PROCESSES = 4096
ASKS_EVERY_S, WARM_UP_S = 5.0, 5    # Kineto's own
TOO_LATE_S = 1.5                    # beside its warm-up: an order whose moment is nearer brings no trace (torch 2.13)
_START = re.compile(r"^PROFILE_START_TIME=([1-9]\d*)$", re.MULTILINE)
ACTIVITIES = "cpu_op,kernel,gpu_memcpy,gpu_memset,cuda_runtime,cuda_driver,user_annotation"


@dataclass
class Asking:
    """A process that asks for work. `own_pid`: what it calls itself, and so the files that it writes; `ancestors`: as it names
    them, nearest first."""

    pid: int
    job: int
    seen_s: float
    gpu: int | None = None
    orders: list[str] = field(default_factory=list)
    own_pid: int = 0
    ancestors: tuple[int, ...] = ()


def capture_config(path: str, request: str, steps: int = 0, duration_ms: int = 500, shapes: bool = True, start_ms: int = 0,
                   stacks: bool = False) -> str:
    """Return Kineto's configuration of one capture: so many steps where the job's optimizer counts them, else a time.

    The trace is written to `path` with the process id before its ending. `start_ms`: since 1970; 0: at once.
    """
    when = [f"PROFILE_START_ITERATION=0\nPROFILE_START_ITERATION_ROUNDUP=1\nACTIVITIES_ITERATIONS={steps}"] if steps else \
        [f"PROFILE_START_TIME={start_ms}\nACTIVITIES_DURATION_MSECS={duration_ms}"]
    lines = [f"ACTIVITIES_LOG_FILE={path}", f"REQUEST_TRACE_ID={request}", *when,
             f"PROFILE_REPORT_INPUT_SHAPES={'true' if shapes else 'false'}", f"PROFILE_WITH_STACK={'true' if stacks else 'false'}",
             f"ACTIVITY_TYPES={ACTIVITIES}{',python_function' if stacks else ''}"]
    return "\n".join(lines) + "\n"


def with_warm_up(config: str, now_unix_s: float) -> str:
    """Return a configuration with as much of Kineto's warm-up as lies before the moment at which it begins.

    An answer that comes some 50 ms late is read with the next question only, so that much is set aside.
    """
    match = _START.search(config)
    if match is None:
        return config
    left_s = int(match[1]) / 1e3 - now_unix_s - ASKS_EVERY_S - TOO_LATE_S
    return f"{config}ACTIVITIES_WARMUP_PERIOD_SECS={min(WARM_UP_S, max(0, int(left_s)))}\n"


def written_path(path: str, pid: int) -> Path:
    """Return where Kineto writes what was asked for under `path`."""
    base, dot, ending = path.rpartition(".")
    return Path(f"{base}_{pid}{dot}{ending}") if dot else Path(f"{path}_{pid}")


class KinetoDaemon:
    """Answers Kineto where no dynolog runs. `why`: what keeps it from that."""

    def __init__(self, environ: Mapping[str, str] = os.environ, name: str = NAME) -> None:
        folder = environ.get("KINETO_IPC_SOCKET_DIR")
        self.path = Path(folder, "dynolog") if folder else None
        self.processes: dict[int, Asking] = {}
        self.why = ""
        self.socket: socket.socket | None = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            if self.path:
                if not self.path.parent.exists():           # Kineto makes none, and binds its own sockets in it as anyone
                    self.path.parent.mkdir(parents=True)
                    self.path.parent.chmod(0o1777)
                self.path.unlink(missing_ok=True)
            self.socket.bind(str(self.path) if self.path else name)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self.socket.setblocking(False)
            if self.path:
                self.path.chmod(0o666)              # jobs run as anyone
        except OSError as error:
            self.why = f"a dynolog daemon listens already ({error}): captures are asked for there" if \
                error.errno == errno.EADDRINUSE else f"no socket for captures at {self.path or 'dynolog'}: {error}"
            self.socket.close()
            self.socket = None

    def poll(self) -> None:
        """Answer what lies in the socket."""
        while self.socket is not None:
            try:
                datagram, credentials, _, address = self.socket.recvmsg(MOST_DATAGRAM, socket.CMSG_SPACE(_CREDENTIALS.size))
            except OSError:                 # nothing more lies there, or it was closed
                return
            answer = self.answer(datagram, sender=_sender(credentials))
            if answer is not None and address:
                self._send(answer, address)

    def _send(self, answer: bytes, address: str | bytes) -> None:
        """A container may have mounted the folder elsewhere: then the name within it is tried here."""
        assert self.socket is not None
        try:
            self.socket.sendto(answer, address)
        except FileNotFoundError:
            if self.path is not None and isinstance(address, str) and address:
                with contextlib.suppress(OSError):
                    self.socket.sendto(answer, str(self.path.parent / Path(address).name))
        except OSError:                     # it is gone
            return

    def answer(self, datagram: bytes, now_s: float | None = None, sender: int = 0) -> bytes | None:
        """Return the datagram that answers one, None for what is no question. `sender`: the process, where the kernel says it."""
        now_s = time.monotonic() if now_s is None else now_s
        if len(datagram) < HEADER.size:
            return None
        _, raw = HEADER.unpack_from(datagram)
        kind, payload = raw.split(b"\0")[0], datagram[HEADER.size:]
        if kind == b"ctxt" and len(payload) >= 16:
            gpu, pid, job = struct.unpack_from("<iiq", payload)
            self._note(sender or pid, job, now_s, pid).gpu = gpu
            count = sum(1 for process in self.processes.values() if process.gpu == gpu)
            return HEADER.pack(4, b"ctxt") + struct.pack("<i", count)
        if kind == b"req" and len(payload) >= 16:
            _, count, job = struct.unpack_from("<iiq", payload)
            if not 0 < count <= (len(payload) - 16) // 4:
                return None
            pids = struct.unpack_from(f"<{count}i", payload, 16)        # the process, then its parents
            own = self._note(sender or pids[0], job, now_s, pids[0])
            own.ancestors = pids[1:MOST_ANCESTORS]
            text = with_warm_up(own.orders.pop(0), time.time()).encode() if own.orders else b""
            return HEADER.pack(len(text), b"req") + text
        return None

    def arm(self, pid: int, config: str) -> bool:
        """Give a process a configuration at its next question; return whether it asks at all."""
        own = self.processes.get(pid)
        if own is None or time.monotonic() - own.seen_s > FORGET_S or own.orders:
            return False
        own.orders.append(config)
        return True

    def forget(self, now_s: float | None = None) -> None:
        """Forget processes that are silent."""
        now_s = time.monotonic() if now_s is None else now_s
        for pid in [pid for pid, process in self.processes.items() if now_s - process.seen_s > FORGET_S]:
            del self.processes[pid]

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
            if self.path:
                self.path.unlink(missing_ok=True)

    def _note(self, pid: int, job: int, now_s: float, own_pid: int = 0) -> Asking:
        if len(self.processes) >= MOST_PROCESSES:
            self.forget(now_s)
        own = self.processes.setdefault(pid, Asking(pid, job, now_s))
        own.seen_s, own.own_pid = now_s, own_pid or own.own_pid or pid
        return own


def launchers(asking: Collection[Asking]) -> set[int]:
    """Return those that started others that ask, as torchrun: they import torch and run nothing on a GPU themselves.

    One that told Kineto of a GPU of its own is a worker all the same.
    """
    parents = {pid for process in asking for pid in process.ancestors}
    return {process.pid for process in asking if (process.own_pid or process.pid) in parents and process.gpu is None}


def _sender(credentials: Sequence[tuple[int, int, bytes]]) -> int:
    for level, kind, data in credentials:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and len(data) >= _CREDENTIALS.size:
            return int(_CREDENTIALS.unpack_from(data)[0])
    return 0

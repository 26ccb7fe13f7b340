"""Kineto's on-demand captures: the datagrams that it exchanges with a daemon named dynolog, answered by the node agent.

A job that was started with KINETO_USE_DAEMON=1 asks every 5 s whether it should record. Datagram: {size_t size, char type[32]}
and a payload. "ctxt" {i32 gpu, i32 pid, i64 job} is answered with an i32; "req" {i32 type, i32 n, i64 job, i32 pids[n]} with the
text of a configuration, empty for nothing (libkineto/src/IpcFabricConfigClient.cpp and dynolog's ipcfabric). The daemon's
abstract name ends with a NUL that counts."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

NAME = "\0dynolog\0"
HEADER = struct.Struct("<Q32s")
FORGET_S = 60.0                     # a process that did not ask for so long is gone
MOST_DATAGRAM = 65536
MOST_PROCESSES = 4096
ACTIVITIES = "cpu_op,kernel,gpu_memcpy,gpu_memset,cuda_runtime,cuda_driver,user_annotation"


@dataclass
class Asking:
    """A process that asks for work. `address`: where its answers go."""

    pid: int
    job: int
    seen_s: float
    gpu: int | None = None
    orders: list[str] = field(default_factory=list)


def capture_config(path: str, request: str, steps: int = 0, duration_ms: int = 500, shapes: bool = True,
                   activities: str = ACTIVITIES, start_ms: int = 0) -> str:
    """Return Kineto's configuration of one capture: so many steps where the job's optimizer counts them, else a time.

    The trace is written to `path` with the process id before its ending. `start_ms`: since 1970; 0: at once.
    """
    when = [f"PROFILE_START_ITERATION=0\nPROFILE_START_ITERATION_ROUNDUP=1\nACTIVITIES_ITERATIONS={steps}"] if steps else \
        [f"PROFILE_START_TIME={start_ms}\nACTIVITIES_DURATION_MSECS={duration_ms}"]
    lines = [f"ACTIVITIES_LOG_FILE={path}", f"REQUEST_TRACE_ID={request}", *when,
             f"PROFILE_REPORT_INPUT_SHAPES={'true' if shapes else 'false'}", "PROFILE_WITH_STACK=false",
             f"ACTIVITY_TYPES={activities}"]
    return "\n".join(lines) + "\n"


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
                self.path.unlink(missing_ok=True)
            self.socket.bind(str(self.path) if self.path else name)
            self.socket.setblocking(False)
        except OSError as error:
            self.why = f"a dynolog daemon listens already ({error}): captures are asked for there"
            self.socket.close()
            self.socket = None

    def poll(self) -> None:
        """Answer what lies in the socket."""
        while self.socket is not None:
            try:
                datagram, address = self.socket.recvfrom(MOST_DATAGRAM)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                return
            answer = self.answer(datagram)
            if answer is not None and address:
                try:
                    self.socket.sendto(answer, address)
                except OSError:             # it is gone
                    continue

    def answer(self, datagram: bytes, now_s: float | None = None) -> bytes | None:
        """Return the datagram that answers one, None for what is no question."""
        now_s = time.monotonic() if now_s is None else now_s
        if len(datagram) < HEADER.size:
            return None
        _, raw = HEADER.unpack_from(datagram)
        kind, payload = raw.split(b"\0")[0], datagram[HEADER.size:]
        if kind == b"ctxt" and len(payload) >= 16:
            gpu, pid, job = struct.unpack_from("<iiq", payload)
            self._note(pid, job, now_s).gpu = gpu
            count = sum(1 for each in self.processes.values() if each.gpu == gpu)
            return HEADER.pack(4, b"ctxt") + struct.pack("<i", count)
        if kind == b"req" and len(payload) >= 16:
            _, count, job = struct.unpack_from("<iiq", payload)
            if not 0 < count <= (len(payload) - 16) // 4:
                return None
            pids = struct.unpack_from(f"<{count}i", payload, 16)        # the process, then its parents
            own = self._note(pids[0], job, now_s)
            text = own.orders.pop(0).encode() if own.orders else b""
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
        for pid in [pid for pid, each in self.processes.items() if now_s - each.seen_s > FORGET_S]:
            del self.processes[pid]

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
            if self.path:
                self.path.unlink(missing_ok=True)

    def _note(self, pid: int, job: int, now_s: float) -> Asking:
        if len(self.processes) >= MOST_PROCESSES:
            self.forget(now_s)
        own = self.processes.setdefault(pid, Asking(pid, job, now_s))
        own.seen_s = now_s
        return own

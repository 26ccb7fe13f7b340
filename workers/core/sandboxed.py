"""A command of somebody else's behind walls: no network, no file but those named, no secret, bounded in everything it can use.

`sandbox_inside` builds the walls from Linux namespaces; here the command is started, listened to and ended. Memory is bounded for
each process by RLIMIT_DATA and for all together by looking every `LOOK_S`: a control group would need rights that workers lack.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from workers.core import warm
from workers.core.sandbox_inside import NO_WALLS, ROOM

LOOK_S = 0.1
ENDS_WITHIN_S = 5.0         # once it has closed its output, or is told to end
WITHOUT = "RIDGEPOINT_CHECK_WITHOUT_SANDBOX"        # "1": where the host lets no namespace be made, limits alone
INSIDE = Path(__file__).with_name("sandbox_inside.py")
PROJECT = Path(__file__).resolve().parents[2]
OURS = (PROJECT / "tuner", PROJECT / "profiles")        # of ours; nothing of what they import holds a secret
LEFT_MB = 512               # of the machine's memory: below it the command is ended, whatever it has itself
TAIL_BYTES = 2000
PIECE = 1 << 16


@dataclass(frozen=True)
class Bounds:
    """What all processes of a command may use together; `data_mb`, `file_mb` and `cpu_s` are of each alone."""

    wall_s: float = 600.0
    cpu_s: int = 600
    memory_mb: int = 8192
    data_mb: int = 8192
    processes: int = 256
    room_mb: int = 1024         # of files, which lie in memory
    files: int = 20_000
    file_mb: int = 256
    said_bytes: int = 8 << 20


@dataclass(frozen=True)
class Ending:
    """How a command ended: `why` is "" where it left by itself with `status`; `said` is the end of its standard error."""

    why: str
    status: int
    said: str = ""


def run(command: Sequence[str], given: bytes = b"", *, read: Sequence[Path] = (), devices: Sequence[Path] = (),
        environ: Mapping[str, str] | None = None,
        bounds: Bounds = Bounds(), on_line: Callable[[bytes], None] = lambda line: None,
        is_over: Callable[[], bool] = lambda: False, walls: bool = True, may_be_fork: bool = False) -> Ending:
    """Run the command with `given` as its standard input; tell each line of its standard output. It never outlives this call.

    read     folders and files that it sees, beside the system's programs and this Python
    devices  nodes below /dev that it may open: those of a GPU (workers.core.gpu.device_nodes); without walls all are there
    is_over  asked every LOOK_S: True ends it
    may_be_fork  a module of this Python, which a fork of the worker's warm parent runs where it keeps one behind walls
    """
    root = Path(tempfile.mkdtemp(prefix="ridgepoint-sandbox-"))
    spec = spec_of(command, root, read=read, devices=devices, environ=environ, bounds=bounds, walls=walls)
    try:
        started = (_fork(spec) if may_be_fork and walls else None) or _start(spec)
        watch = _Watch(started, bounds, is_over)
        try:
            watch.listen(given, on_line)
        finally:
            status = started.end()
    finally:
        shutil.rmtree(root, ignore_errors=True)
    text = bytes(watch.tail).decode(errors="replace").strip()
    if status == NO_WALLS and not watch.why:
        return Ending(f"this host lets no sandbox be made: {text}"[:300], NO_WALLS, text)
    return Ending(watch.why, status, text)


@dataclass(frozen=True)
class _Started:
    """The process outside the walls; `asked`, `told` and `wrong` are the other ends of its standard input, output and error."""

    process: subprocess.Popen[bytes] | warm.ForkedProcess
    asked: IO[bytes]
    told: IO[bytes]
    wrong: IO[bytes]

    def end(self) -> int:
        """End it and return its status. The first process inside dies with its parent, and with it all others there."""
        if isinstance(self.process, warm.ForkedProcess):
            try:
                self.process.end_group()
                return self.process.wait(ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:       # the warm parent is busy: it ends what nobody listens to
                return -signal.SIGKILL
            finally:
                self.process.close()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.wait()


def _start(spec: Mapping[str, Any]) -> _Started:
    process = subprocess.Popen([sys.executable, "-I", "-S", str(INSIDE), json.dumps(spec)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={}, cwd="/", start_new_session=True)
    assert process.stdin and process.stdout and process.stderr
    return _Started(process, process.stdin, process.stdout, process.stderr)


def _fork(spec: Mapping[str, Any]) -> _Started | None:
    """Return a fork of the warm parent that runs the command's module; None where none is kept."""
    (child_in, ask), (hear, child_out), (read_wrong, wrong) = os.pipe(), os.pipe(), os.pipe()
    try:
        process = warm.fork(spec["command"][-1], spec["env"], child_in, child_out, wrong, walls=spec, streams=True)
    finally:
        for theirs in (child_in, child_out, wrong):
            os.close(theirs)
    if process is None:
        for ours in (ask, hear, read_wrong):
            os.close(ours)
        return None
    return _Started(process, open(ask, "wb", buffering=0), open(hear, "rb", buffering=0), open(read_wrong, "rb", buffering=0))


def spec_of(command: Sequence[str], root: Path, *, read: Sequence[Path] = (), write: Sequence[Path] = (),
            devices: Sequence[Path] = (), environ: Mapping[str, str] | None = None, bounds: Bounds = Bounds(),
            walls: bool = True) -> dict[str, Any]:
    """Return what `sandbox_inside` is told: the command, its walls below `root`, its bounds; `write`: folders that it writes to."""
    home = ROOM if walls else str(root)
    return {**vars(bounds), "command": list(command), "walls": walls, "root": str(root),
            "read": sorted(map(str, {*_python_folders(), *read}), key=len), "write": list(map(str, write)),
            "devices": list(map(str, devices)),
            "env": {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "USER": "nobody", "HOME": home, "TMPDIR": home,
                    "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **(environ or {})}}


def _python_folders() -> set[Path]:
    """Return where this Python and its packages lie: a path file of an environment can name packages of another one."""
    own = {Path(sys.prefix), Path(sys.base_prefix)}
    packages = (Path(entry) for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages"))
    return own | {package for package in packages if package.is_dir() and not own.intersection(package.parents)}


@lru_cache(maxsize=1)
def why_not() -> str:
    """Return why nothing can be run behind walls on this host; "" where it can."""
    return run([sys.executable, "-c", "pass"], bounds=Bounds(wall_s=20, cpu_s=20, room_mb=16)).why


def may_go_without() -> bool:
    """Return whether this host's owner allows limits alone."""
    return os.environ.get(WITHOUT) == "1"


class _Watch:
    """Listens to a command and sees to its bounds."""

    def __init__(self, started: _Started, bounds: Bounds, is_over: Callable[[], bool]) -> None:
        self._started, self._bounds, self._is_over = started, bounds, is_over
        self._end_s = time.monotonic() + bounds.wall_s
        self.why = ""
        self.tail = bytearray()

    def listen(self, given: bytes, on_line: Callable[[bytes], None]) -> None:
        """Return when the command has ended or must be; `why` says which."""
        asked, told, wrong = self._started.asked, self._started.told, self._started.wrong
        rest, heard, left, look_s = bytearray(), 0, memoryview(given), 0.0
        with selectors.DefaultSelector() as ready, asked, told, wrong:
            for stream, event in ((asked, selectors.EVENT_WRITE), (told, selectors.EVENT_READ), (wrong, selectors.EVENT_READ)):
                os.set_blocking(stream.fileno(), False)
                ready.register(stream, event)
            while ready.get_map() and not self.why:
                for key, _ in ready.select(LOOK_S):
                    if key.fileobj is asked:
                        left = self._give(left)
                        if not left:
                            ready.unregister(asked)
                            asked.close()
                        continue
                    piece = os.read(key.fd, PIECE)
                    if not piece:
                        ready.unregister(key.fileobj)
                    heard += len(piece)
                    if key.fileobj is wrong:
                        self.tail = (self.tail + piece)[-TAIL_BYTES:]
                        continue
                    rest += piece
                    *lines, last = rest.split(b"\n")
                    rest = bytearray(last)
                    for line in lines:
                        on_line(bytes(line))
                if heard > self._bounds.said_bytes:
                    self.why = f"it printed more than {self._bounds.said_bytes >> 20} MiB"
                elif time.monotonic() >= look_s:
                    look_s = time.monotonic() + LOOK_S
                    self.why = self._why_over()
        if not self.why:
            with suppress(subprocess.TimeoutExpired):
                self._started.process.wait(ENDS_WITHIN_S)

    def _give(self, left: memoryview) -> memoryview:
        try:
            return left[os.write(self._started.asked.fileno(), left[:PIECE]):] if left else left
        except BlockingIOError:
            return left
        except BrokenPipeError:
            return left[len(left):]

    def _why_over(self) -> str:
        if self._is_over():
            return "stopped"
        if time.monotonic() > self._end_s:
            return f"it took longer than {self._bounds.wall_s:.0f} s"
        if uses_more(self._started.process.pid, self._bounds.memory_mb << 20):
            return f"it needs more memory than {self._bounds.memory_mb:,} MiB"
        if available_bytes() < LEFT_MB << 20:
            return "the machine has too little memory left"
        return ""


def uses_more(root: int, most_bytes: int) -> bool:
    """Return whether a process and everything below it use more memory than this: private, and shared but of no file on a disk.

    What forks share is counted once for each, which is quick, and only where that is too much by its share (proc(5), smaps_rollup).
    """
    pids = _processes_below(root)
    return (sum(_memory_of(pid, "status", (b"RssAnon:", b"RssShmem:")) for pid in pids) > most_bytes
            and sum(_memory_of(pid, "smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:"))
                    or _memory_of(pid, "status", (b"RssAnon:", b"RssShmem:")) for pid in pids) > most_bytes)


def _memory_of(pid: int, file: str, lines: tuple[bytes, ...]) -> int:
    """Return the sum of lines of a process's file, in bytes; 0 where it cannot be read."""
    try:
        with open(f"/proc/{pid}/{file}", "rb") as stream:
            return sum(int(line.split()[1]) << 10 for line in stream if line.startswith(lines))
    except (OSError, ValueError, IndexError):
        return 0


def _processes_below(root: int) -> list[int]:
    """Return a process and all below it, as each thread lists its children; by everyone's parent where the kernel has no lists."""
    pids, left = [], [root]
    while left:
        pid = left.pop()
        pids.append(pid)
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                    left += map(int, file.read().split())
        except FileNotFoundError:
            if os.path.exists(f"/proc/{pid}/task/{pid}/stat"):          # it lives, and the kernel has no such list
                return _processes_by_parent(root)
        except OSError:
            continue
    return pids


def _processes_by_parent(root: int) -> list[int]:
    below: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            with suppress(OSError, ValueError, IndexError), open(f"/proc/{entry}/stat", "rb") as file:
                below.setdefault(int(file.read().rpartition(b")")[2].split()[1]), []).append(int(entry))
    pids = [root]
    for pid in pids:                       # grows meanwhile
        pids += below.get(pid, [])
    return pids


def folder_bytes(folder: Path) -> int:
    """Return the bytes of the files under a folder; what goes away meanwhile counts nothing."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(path, name)).st_size
    return total


def available_bytes() -> int:
    """Return the memory that the machine could still give, in bytes; a large number where it does not tell."""
    with suppress(OSError), open("/proc/meminfo") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 1 << 62

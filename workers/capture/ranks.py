"""mpirun, mpiexec and srun on this worker: what each needs here, and the way to the ranks that it starts."""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profiles.base.refused import Refused
from profiles.capture.tools import launchers
from profiles.capture.tools.tool import program_help
from workers.capture.rank import SOCKET, short_path

AFTER_ONE_FAILED_S = 10         # Open MPI gives the others so long to write what they have; by itself 1 s


@dataclass(frozen=True)
class Launcher:
    """A launcher as it is used on this host."""

    words: tuple[str, ...] = ()                                 # beside the number of processes
    environ: Mapping[str, str] = field(default_factory=dict)
    through_rank: bool = False                                  # the worker reaches each rank itself
    grants_gpus: bool = False                                   # it chooses the GPUs among its own


def find_launcher(options: Any, gpus: int, environ: Mapping[str, str]) -> Launcher:
    """Return how the launcher of these options is used here. Raises Refused where it is not installed."""
    name = launchers.launcher_of(options)
    if name not in launchers.THROUGH_RANK:
        return Launcher()
    path = shutil.which(name, path=environ.get("PATH"))
    if path is None:
        raise Refused({"launcher": f"this worker has no {name} on its PATH: install it there, or choose torchrun"})
    torch = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    if name == "srun":
        words, grants_gpus = _srun(gpus, environ)
        return Launcher(words, torch, True, grants_gpus)
    return _mpirun(name, path, options.processes, torch)


def _mpirun(name: str, path: str, count: int, torch: Mapping[str, str]) -> Launcher:
    text = program_help([path, "--version"])
    if re.search(r"HYDRA|Intel\(R\) MPI", text):
        return Launcher(("-launcher", "fork", "-hosts", "localhost"), torch, True)       # in an allocation it would ask srun
    if not re.search(r"Open MPI|OpenRTE|PRRTE", text):
        raise Refused({"launcher": f"{path} is neither Open MPI nor MPICH: {' '.join(text.split())[:200] or 'no version'}"})
    # :count is the number of slots here, so that it neither refuses more ranks than cores nor starts some elsewhere. It binds each
    # of two ranks to one core otherwise, and refuses to run as root, whom a container's worker often is.
    root = ("--allow-run-as-root",) if os.geteuid() == 0 else ()
    patience = {f"{kind}_MCA_odls_base_sigkill_timeout": str(AFTER_ONE_FAILED_S) for kind in ("OMPI", "PRTE")}
    return Launcher((*root, "--host", f"localhost:{count}", "--bind-to", "none"), {**torch, **patience}, True)


def _srun(gpus: int, environ: Mapping[str, str]) -> tuple[tuple[str, ...], bool]:
    """Return the words, and whether Slurm chooses the GPUs: in an allocation a step has all of it, else it asks for its own."""
    node = environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]
    words = [f"--nodelist={node}", "--kill-on-bad-exit=1", "--mpi=none", "--cpu-bind=none", "--input=none"]
    if environ.get("SLURM_JOB_ID"):
        return (*words, "--overlap"), False
    sinfo = shutil.which("sinfo", path=environ.get("PATH"))
    grants_gpus = bool(gpus and sinfo and "gpu" in program_help([sinfo, "--noheader", f"--nodes={node}", "--format=%G"]))
    return (*words, "--job-name=ridgepoint", *([f"--gpus={gpus}"] if grants_gpus else [])), grants_gpus


def _free_port() -> int:
    """Return a port of this host that nobody has now, for the ranks' meeting."""
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])


class Ranks:
    """Connections of the ranks: a byte is a signal for a rank's command, the end kills it and everything that it started."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / SOCKET
        self._listener = socket.socket(socket.AF_UNIX)
        with short_path(str(folder)) as path:
            self._listener.bind(path)
        self._listener.listen(launchers.MAX_PROCESSES)
        self._connections: list[socket.socket] = []
        self._sent = b""

    def fileno(self) -> int:
        return self._listener.fileno()

    def accept(self) -> None:
        """Take a rank; what was sent to the others before is for it as well."""
        connection, _ = self._listener.accept()
        self._connections.append(connection)
        if self._sent:
            self._tell(connection)

    def send(self, asked: int) -> bool:
        """Send all a signal, as `reaper.send` reads it; return whether there are any yet."""
        self._sent = bytes([asked])
        for connection in self._connections:
            self._tell(connection)
        return bool(self._connections)

    def _tell(self, connection: socket.socket) -> None:
        with suppress(OSError):                 # it ended just now
            connection.sendall(self._sent)

    def close(self) -> None:
        for endpoint in (self._listener, *self._connections):
            endpoint.close()
        self._path.unlink(missing_ok=True)

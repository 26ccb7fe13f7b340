"""Runs a command as one rank of a job that mpirun, mpiexec or srun started on this host.

    python rank.py LAUNCHER FOLDER COMMAND…

Sets what torch reads and these launchers do not set: RANK, WORLD_SIZE and LOCAL_RANK. Then runs the command under the reaper,
whose asker is the worker: by a socket in FOLDER it sends signals, and once it is gone the command is killed with everything that
it started. Not by the launcher: what srun starts are children of slurmd, and mpirun kills a second after it passed a signal on.

Each line of output is marked with its rank and written at once: launchers mark what they happen to read, parts of lines too.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# rank, number of ranks, rank on this host: the first of a launcher whose rank is there
VARIABLES = {
    "mpirun": (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
               ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID")),
    "srun": (("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),),
}
VARIABLES["mpiexec"] = VARIABLES["mpirun"]
SOCKET = "ranks"
GPUS = "RIDGEPOINT_LEASED_GPUS"         # Slurm writes CUDA_VISIBLE_DEVICES anew
EXIT_NO_RANK = 78
LINE_BYTES = 64 * 1024                  # a longer line is written in parts


def main(argv: list[str]) -> int:
    launcher, folder, *command = argv
    names = next((names for names in VARIABLES[launcher] if names[0] in os.environ), None)
    if names is None:
        variables = ", ".join(variable[0] for variable in VARIABLES[launcher])
        print(f"ridgepoint: {launcher} cannot be used: it set none of {variables}", flush=True)
        return EXIT_NO_RANK
    rank, size, local = (os.environ.get(name, "") for name in names)
    os.environ.update(RANK=rank, WORLD_SIZE=size, LOCAL_RANK=local or rank)
    if gpus := os.environ.pop(GPUS, ""):
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus
    try:
        with socket.socket(socket.AF_UNIX) as asker, short_path(folder) as path:
            asker.connect(path)
            os.dup2(asker.fileno(), 0)
    except OSError as error:
        print(f"ridgepoint: rank {rank} does not reach the worker in {folder}: {error.strerror}", flush=True)
        return EXIT_NO_RANK
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    import psutil

    from workers.core import reaper

    def pass_on(number: int, _: Any) -> None:           # of a launcher that ends all because one rank failed
        for child in psutil.Process().children():
            child.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    marking = mark_output(f"[rank {rank}] ".encode())
    status = reaper.main(command)
    for output in (1, 2):           # the last to hold the pipe: the thread reads its end
        os.close(output)
    marking.join()
    return status


@contextmanager
def short_path(folder: str) -> Iterator[str]:
    """Give a path of the socket in a folder that is no longer than the 107 bytes that an address may have."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)


def mark_output(mark: bytes) -> threading.Thread:
    """Put a pipe in place of both outputs, whose lines a thread writes to what was standard output."""
    reader, write = os.pipe()
    whole = os.dup(1)

    def copy() -> None:
        with open(reader, "rb") as lines:
            while line := lines.readline(LINE_BYTES):
                left = memoryview(mark + line.rstrip(b"\n") + b"\n")
                while left:
                    left = left[os.write(whole, left):]

    for output in (1, 2):
        os.dup2(write, output)
    os.close(write)
    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    return thread


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

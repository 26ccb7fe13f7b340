"""A small disk for the data folder, which a load may fill without harm to anything else."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SIZE = "1500m"


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """Mount a disk in memory at `folder`; False where only root may."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=755", "tmpfs", str(folder)],
                             capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path, left_bytes: int) -> Path:
    """Return a file that takes what is free on the disk of `folder`, less `left_bytes`."""
    ballast = folder / "ballast"
    with open(ballast, "wb") as file:
        while (free := os.statvfs(folder)).f_bavail * free.f_frsize > left_bytes:
            size = free.f_bavail * free.f_frsize - left_bytes
            try:
                os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, size)
            except OSError:                     # somebody else was faster: what is left meanwhile
                continue
            break
    return ballast

"""Folders of Triton's binaries, each of one process and removed with it."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "ridgepoint-triton-"


def cache_folder() -> Path:
    """Return a new folder for this process; those of killed processes are removed."""
    for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        owner = left.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))

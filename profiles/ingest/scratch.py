"""Folders for one piece of work that do not outlive the process that works, however it ends.

Who is killed cleans nothing up. So each folder is locked by its process, which the kernel undoes with it, and whoever makes
the next folder removes those that nobody holds any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "ridgepoint-work-"


@contextmanager
def folder() -> Iterator[Path]:
    """Give an empty folder under TMPDIR, removed with all that is in it.

    Raises OSError where none can be made.
    """
    sweep()
    path, lock = _make_folder()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def sweep() -> None:
    """Remove the folders of processes that are gone."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):          # somebody else's, or gone meanwhile
            lock = _lock(path)
            try:
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)


def _make_folder() -> tuple[Path, int]:
    """A new folder and its lock; made again where another's sweep came between the two."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            lock = _lock(path)
            if path.is_dir():
                return path, lock
            os.close(lock)


def _lock(path: Path) -> int:
    """The descriptor that holds the folder. Raises BlockingIOError where another process does."""
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock

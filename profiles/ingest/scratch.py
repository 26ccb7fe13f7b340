"""Folders and numbers on disk for one piece of work: they do not outlive the process that works, however it ends.

Who is killed cleans nothing up. So each folder is locked by its process, which the kernel undoes with it, and whoever makes
the next folder removes those that nobody holds any more.

Numbers of an ingest lie there that are too large to be held.
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
from typing import Any

import numpy as np
import numpy.typing as npt

from profiles.ingest.trace import TraceError

Column = npt.NDArray[Any]


class Spool:
    """A file without a name: it is gone with the process, however that ends."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="ridgepoint-spool-", buffering=0)    # noqa: SIM115  (lives as long as this)
        self._end = 0

    def write(self, values: Column) -> int:
        """Returns where the values begin. Raises TraceError when the disk is full."""
        offset = self._end
        view = memoryview(np.ascontiguousarray(values).view(np.uint8).data).cast("B") if values.size else memoryview(b"")
        try:
            while view:
                done = self._write(view)
                view = view[done or 0:]
                self._end += done or 0
        except OSError as error:
            raise TraceError("temporary folder", f"cannot be written ({error.strerror or error})",
                             "An ingest needs room for about a quarter of the unpacked file: free some, or set TMPDIR.") from error
        return offset

    def _write(self, view: memoryview) -> int | None:
        return self._file.write(view)

    def read(self, position: int, count: int, kind: Any) -> Column:
        """Return `count` values of a kind from a position on."""
        size = count * np.dtype(kind).itemsize
        parts, got = [], 0
        while got < size:
            part = os.pread(self._file.fileno(), size - got, position + got)
            if not part:
                raise OSError("the spool ends before its rows")
            parts.append(part)
            got += len(part)
        return np.frombuffer(parts[0] if len(parts) == 1 else b"".join(parts), kind)

    def close(self) -> None:
        self._file.close()


class Records:
    """Fixed records of one kind on disk, in parts of which each is sorted as the caller likes."""

    def __init__(self, kind: npt.DTypeLike) -> None:
        self.kind = np.dtype(kind)
        self.rows = 0
        self.parts: list[tuple[int, int]] = []          # where, how many
        self._spool: Spool | None = None

    def write(self, part: Column) -> None:
        if part.size:
            self._spool = self._spool or Spool()
            self.parts.append((self._spool.write(part.view(np.uint8)), part.size))
            self.rows += part.size

    def read(self, number: int, first: int = 0, last: int | None = None) -> Column:
        offset, rows = self.parts[number]
        last = rows if last is None else last
        if self._spool is None or last <= first:
            return np.empty(0, self.kind)
        return self._spool.read(offset + first * self.kind.itemsize, last - first, self.kind)


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

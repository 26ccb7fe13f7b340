"""Files below a folder, listed and opened within bounds: no link is followed, whoever may write into the folder.

Each part of a path is opened from the one above it (`openat`, O_NOFOLLOW), so a folder that is replaced by a link meanwhile leads
nowhere. Files with several names (hard links) and what is no plain file are left out."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

TRACES = (".json", ".json.gz", ".pickle", ".hatchet", ".msgpack")      # endings of what vLLM and SGLang write
ANOTHERS = "capture-"               # of processes, by an agent (`deep.captures`)
MOST_FILES, MOST_LISTED, MOST_DEPTH = 64, 20_000, 3


class FolderProblem(Exception):
    """A folder that cannot be listed, or holds too much: why."""


@dataclass(frozen=True)
class Listed:
    """`name`: below the folder. `inode`: device and number; a file that has others by the time it is opened is another one."""

    name: str
    size: int
    inode: tuple[int, int] = (0, 0)


def is_below(path: str, root: str) -> bool:
    """Return whether an absolute path is a folder or lies below it, as it is written: no "." and no ".."."""
    parts = path.split("/")
    return path.startswith("/") and not {".", ".."} & set(parts) and "" not in parts[1:] and "\0" not in path and (
        path == root or path.startswith(root.rstrip("/") + "/"))


def allowing(path: str, roots: Sequence[str]) -> str:
    """Return the root that a folder lies below, "" where none allows it."""
    return next((root for root in roots if is_below(path.rstrip("/") or "/", root)), "")


def list_files(root: str, below: str = "", endings: tuple[str, ...] = TRACES) -> list[Listed]:
    """Return plain files with one of the endings in the folder `below` of a root, at most MOST_DEPTH levels deep.

    Raises:
        FolderProblem: there is no such folder, or it holds more than MOST_LISTED names.
    """
    files: list[Listed] = []
    looked = 0
    with _folder(root, below) as top:
        for prefix, folder in _walk(top):
            with os.scandir(folder) as entries:
                for entry in entries:
                    looked += 1
                    if looked > MOST_LISTED:
                        raise FolderProblem(f"{root} holds more than {MOST_LISTED:,} files")
                    if entry.name.endswith(endings) and (status := _stat(entry.name, folder)):
                        files.append(Listed(prefix + entry.name, status.st_size, (status.st_dev, status.st_ino)))
    return files


def open_file(root: str, below: str, listed: Listed) -> BinaryIO:
    """Return a listed file, open for reading. Raises FolderProblem where it is another one by now."""
    *folders, name = listed.name.split("/")
    with _folder(root, "/".join(filter(None, [below, *folders]))) as folder:
        try:
            number = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        except OSError as error:
            raise FolderProblem(f"{listed.name}: {error.strerror}") from error
    status = os.fstat(number)
    if not _is_plain(status) or (status.st_dev, status.st_ino) != listed.inode:
        os.close(number)
        raise FolderProblem(f"{listed.name} was replaced meanwhile")
    return os.fdopen(number, "rb")


def fresh(files: Sequence[Listed], known: Collection[str], prefix: str) -> list[Listed]:
    """Return what came since a capture began: files whose names hold its prefix, else all; at most MOST_FILES.

    Names tell what is new, not times: clocks of file servers differ.
    """
    came = [file for file in files if file.size and file.name not in known
            and not file.name.rsplit("/", 1)[-1].startswith(ANOTHERS)]
    own = [file for file in came if prefix in file.name.rsplit("/", 1)[-1]]
    return sorted(own or came, key=lambda each: each.name)[:MOST_FILES]


@contextmanager
def _folder(root: str, below: str) -> Iterator[int]:
    """The root may be reached through links: whoever configured it named it. What lies below may not."""
    number = -1
    try:
        number = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for part in filter(None, below.split("/")):
            if part in (".", ".."):
                raise FolderProblem("no '.' and no '..' in the folder's path")
            upper, number = number, os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=number)
            os.close(upper)
        yield number
    except OSError as error:
        raise FolderProblem(f"{'/'.join(filter(None, [root, below]))}: {error.strerror}") from error
    finally:
        if number >= 0:
            os.close(number)


def _walk(top: int, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, int]]:
    yield prefix, top
    if depth >= MOST_DEPTH:
        return
    with os.scandir(top) as entries:
        names = [entry.name for _, entry in zip(range(MOST_LISTED), entries, strict=False) if entry.is_dir(follow_symlinks=False)]
    for name in sorted(names):
        try:
            folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
        except OSError:             # it went away, is a link by now, or is not ours to read
            continue
        try:
            yield from _walk(folder, f"{prefix}{name}/", depth + 1)
        finally:
            os.close(folder)


def _stat(name: str, folder: int) -> os.stat_result | None:
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    return status if _is_plain(status) else None


def _is_plain(told: os.stat_result) -> bool:
    return stat.S_ISREG(told.st_mode) and told.st_nlink == 1

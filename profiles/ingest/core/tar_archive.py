"""The entries of a tar archive, read header by header (POSIX.1-2017, "ustar Interchange Format" and pax; GNU long names).

Names are only shown, never followed: nothing is written to a path of the archive. Sparse files, links and devices are left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from profiles.ingest.core.containers import BLOCK_BYTES, File, Stream, is_tar_header
from profiles.ingest.core.zip_archive import is_ignored, printable_name
from profiles.ingest.trace import TraceError

MAX_ENTRIES = 65_536
_LONG_NAME_BYTES = 1 << 16           # of a name that stands in an entry of its own
_FILES = (b"0", b"\0", b"7")         # types of entries that are files


@dataclass(frozen=True)
class Entry:
    """One file of the archive."""

    name: str
    offset: int                      # of its content
    bytes: int


def entries(file: IO[bytes]) -> tuple[list[Entry], str | None]:
    """Return the files of the archive and what is wrong with it. Raises TraceError where it holds no file at all."""
    size = file.seek(0, os.SEEK_END)
    files: list[Entry] = []
    damage: str | None = None
    for entry in _walk(file, size):
        if entry.offset + entry.bytes > size:
            damage = f"byte {size} of the tar archive: it ends within {printable_name(entry.name)}"
        if not is_ignored(entry.name):
            files.append(entry)
    if not files:
        raise TraceError("byte 0", "a tar archive without a readable file in it", "Upload the profile itself.")
    return files, damage


def _walk(file: IO[bytes], size: int) -> Iterator[Entry]:
    offset, name = 0, ""
    for _ in range(MAX_ENTRIES):
        file.seek(offset)
        head = file.read(BLOCK_BYTES)
        if not is_tar_header(head):
            return
        length, kind = _number(head[124:136]), head[156:157]
        content = offset + BLOCK_BYTES
        if kind == b"L":                                     # GNU: the name of the next entry
            name = file.read(min(length, _LONG_NAME_BYTES)).rstrip(b"\0").decode("utf-8", "replace")
        elif kind == b"x":                                   # pax: attributes of the next entry
            name = _pax_path(file.read(min(length, _LONG_NAME_BYTES))) or name
        else:
            if kind in _FILES:
                yield Entry((name or _name(head))[:1000], content, length)
            name = ""
        offset = content + -(-length // BLOCK_BYTES) * BLOCK_BYTES
        if offset >= size:
            return


def _number(field: bytes) -> int:
    """Octal digits, or of large files the number itself behind a set bit."""
    if field[:1] == b"\x80":
        return int.from_bytes(field[1:], "big")
    text = field.strip(b" \0")
    return int(text, 8) if text and all(48 <= digit < 56 for digit in text) else 0


def _name(head: bytes) -> str:
    name = head[:100].split(b"\0")[0].decode("utf-8", "replace")
    prefix = head[345:500].split(b"\0")[0].decode("utf-8", "replace") if head[257:263] == b"ustar\0" else ""
    return f"{prefix}/{name}" if prefix else name


def _pax_path(data: bytes) -> str:
    """The path among "length key=value" lines."""
    for line in data.split(b"\n"):
        key, _, value = line.partition(b" ")[2].partition(b"=")
        if key == b"path":
            return value.decode("utf-8", "replace")
    return ""


class _Section:
    """The bytes of one entry."""

    def __init__(self, file: File, entry: Entry) -> None:
        self.file, self.at, self.left = file, entry.offset, entry.bytes
        self.damage: str | None = None

    def read(self, size: int) -> bytes:
        length = min(size, self.left)
        self.file.file.seek(self.at)
        block = self.file.read(length)
        self.at += len(block)
        self.left -= len(block)
        if len(block) < length:
            self.left = 0
            self.damage = f"byte {self.at} of the tar archive: the entry ends before its end"
        return block


def open_entry(file: File, entry: Entry) -> Stream:
    """Return the content of one entry."""
    return _Section(file, entry)

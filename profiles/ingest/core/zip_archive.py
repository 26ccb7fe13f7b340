"""The entries of a zip archive, read from its central directory (APPNOTE.TXT 6.3.10, §4.3), never from its names' paths.

An archive whose end is missing is walked from its start instead: every local header up to the first entry whose size
only stood in the directory.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from profiles.ingest.core.containers import ChecksumStream, File, Inflate, Stream, Unzstd
from profiles.ingest.trace import TraceError

MAX_ENTRIES = 65_536
_MAX_DIRECTORY_BYTES = 64 << 20
_END, _END64, _LOCATOR64 = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_ENTRY = struct.Struct("<4s6H3L5H2L")            # central directory file header
_LOCAL = struct.Struct("<4s5H3L2H")              # local file header
_FULL = 0xFFFFFFFF                               # the real value stands in the zip64 extra field
_STORED, _DEFLATED, _ZSTD, _ZSTD_OLD = 0, 8, 93, 20
_HINT = "Unpack the archive and upload the profile inside."


@dataclass(frozen=True)
class Entry:
    """One file of the archive. `packed_bytes` None: only the end of its stream tells."""

    name: str
    method: int
    encrypted: bool
    offset: int                                  # of its local header
    packed_bytes: int | None
    crc: int | None


def entries(file: IO[bytes]) -> tuple[list[Entry], str | None]:
    """Return the files of the archive and what is wrong with it.

    Folders and a system's own files are left out.

    Raises TraceError where it holds no entry at all or claims more than any real one.
    """
    size = file.seek(0, os.SEEK_END)
    where = _directory(file, size)
    if where is None:
        listed, damage = list(_walk(file, size)), f"byte {size} of the zip archive: it ends before its directory"
    else:
        listed, damage = _list_entries(file, *where), None
    files = [entry for entry in listed if not is_ignored(entry.name)]
    if not files:
        raise TraceError("byte 0" if damage is None else damage.split(":")[0], "a zip archive without a readable file in it",
                         "Upload the profile itself.")
    return files, damage


def is_ignored(name: str) -> bool:
    """Tell whether an entry is a folder, or a file that a system puts beside others."""
    base = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return name.endswith("/") or name.startswith("__MACOSX/") or base.startswith(".") or base in ("Thumbs.db", "desktop.ini")


def _directory(file: IO[bytes], size: int) -> tuple[int, int, int] | None:
    """(first byte, bytes, shift) of the central directory; `shift` is what stands before the archive's own start."""
    tail_bytes = min(size, 65_557)
    file.seek(size - tail_bytes)
    tail = file.read(tail_bytes)
    position = tail.rfind(_END)
    if position < 0 or len(tail) - position < 22:
        return None
    length, offset = struct.unpack_from("<2L", tail, position + 12)
    end = size - tail_bytes + position
    if _FULL in (length, offset) and position >= 20 and tail[position - 20:position - 16] == _LOCATOR64:
        file.seek(min(struct.unpack_from("<Q", tail, position - 12)[0], size))
        record = file.read(56)
        if len(record) < 56 or record[:4] != _END64:
            return None
        length, offset = struct.unpack_from("<2Q", record, 40)
        end = file.tell() - 56
    start = end - length
    return (start, length, start - offset) if 0 <= offset <= start else None


def _list_entries(file: IO[bytes], start: int, length: int, shift: int) -> list[Entry]:
    if length > _MAX_DIRECTORY_BYTES:
        raise TraceError(f"byte {start}", f"a zip archive whose directory takes {length} bytes", _HINT)
    file.seek(start)
    data = file.read(length)
    out: list[Entry] = []
    position = 0
    while position + _ENTRY.size <= len(data) and data[position:position + 4] == b"PK\x01\x02":
        if len(out) == MAX_ENTRIES:
            raise TraceError(f"byte {start + position}", f"a zip archive of more than {MAX_ENTRIES} entries", _HINT)
        (_, _, _, flags, method, _, _, crc, packed, plain, name_bytes, extra_bytes, comment_bytes, _, _, _,
         offset) = _ENTRY.unpack_from(data, position)
        text = data[position + _ENTRY.size:position + _ENTRY.size + name_bytes]
        extra = data[position + _ENTRY.size + name_bytes:position + _ENTRY.size + name_bytes + extra_bytes]
        packed, offset = _zip64(extra, plain, packed, offset)
        out.append(Entry(_name(text, flags), method, bool(flags & 0x2041), offset + shift, packed, crc))
        position += _ENTRY.size + name_bytes + extra_bytes + comment_bytes
    return out


def _zip64(extra: bytes, plain: int, packed: int, offset: int) -> tuple[int, int]:
    """The 64-bit values of extra field 1: only those whose 32-bit field is full stand in it, in this order."""
    position = 0
    while position + 4 <= len(extra):
        kind, size = struct.unpack_from("<2H", extra, position)
        if kind == 1:
            field = extra[position + 4:position + 4 + size]
            values = iter(struct.unpack(f"<{len(field) // 8}Q", field[:len(field) // 8 * 8]))
            plain, packed, offset = [next(values, value) if value == _FULL else value for value in (plain, packed, offset)]
        position += 4 + size
    return packed, offset


def _name(text: bytes, flags: int) -> str:
    return text.decode("utf-8" if flags & 0x800 else "cp437", "replace")[:1000]


def _walk(file: IO[bytes], size: int) -> Iterator[Entry]:
    """Entries of an archive without a directory, from the local headers as far as these lead."""
    position = 0
    for _ in range(MAX_ENTRIES):
        file.seek(position)
        head = file.read(_LOCAL.size)
        if len(head) < _LOCAL.size or head[:4] != b"PK\x03\x04":
            return
        _, _, flags, method, _, _, crc, packed, plain, name_bytes, extra_bytes = _LOCAL.unpack(head)
        name = _name(file.read(name_bytes), flags)
        packed, _ = _zip64(file.read(extra_bytes), plain, packed, 0)
        unknown = bool(flags & 8)                # sizes and checksum follow the content
        yield Entry(name, method, bool(flags & 0x2041), position, None if unknown else packed, None if unknown else crc)
        if unknown:
            return
        position += _LOCAL.size + name_bytes + extra_bytes + packed
        if position >= size:
            return


class _Section:
    """The packed bytes of one entry."""

    def __init__(self, file: File, entry: Entry) -> None:
        self.file = file
        self.damage: str | None = None
        file.file.seek(max(entry.offset, 0))
        head = file.file.read(_LOCAL.size)
        if len(head) < _LOCAL.size or head[:4] != b"PK\x03\x04":
            raise TraceError(f"byte {entry.offset}",
                             f"no zip entry where the archive's directory says that {printable_name(entry.name)} is",
                             "Zip or copy the file again.")
        self.at = entry.offset + _LOCAL.size + sum(struct.unpack_from("<2H", head, 26))
        self.left = entry.packed_bytes

    def read(self, size: int) -> bytes:
        length = size if self.left is None else min(size, self.left)
        self.file.file.seek(self.at)
        block = self.file.read(length)
        self.at += len(block)
        if self.left is not None:
            self.left -= len(block)
            if len(block) < length:
                self.damage = f"byte {self.at} of the zip archive: the entry ends before its end"
        return block


def open_entry(file: File, entry: Entry) -> Stream:
    """Return the content of one entry.

    Raises TraceError where it is encrypted or packed in a way that is not read.
    """
    if entry.encrypted:
        raise TraceError(f"byte {entry.offset}", f"the zip entry {printable_name(entry.name)} is encrypted",
                         "Unpack it with its password and upload the profile inside.")
    section = _Section(file, entry)
    if entry.method == _STORED:
        return ChecksumStream(section, printable_name(entry.name), entry.crc)
    if entry.method == _DEFLATED:
        return ChecksumStream(Inflate(section), printable_name(entry.name), entry.crc)
    if entry.method in (_ZSTD, _ZSTD_OLD):
        return ChecksumStream(Unzstd(section), printable_name(entry.name), entry.crc)
    raise TraceError(f"byte {entry.offset}", f"the zip entry {printable_name(entry.name)} is packed by method {entry.method}; "
                     "stored, deflate and zstd are read", _HINT)


def printable_name(name: str) -> str:
    """Return a name from the archive for a sentence: printable, at most 80 characters."""
    text = "".join(c if c.isprintable() else "�" for c in name)
    return f"“{text if len(text) <= 80 else text[:30] + '…' + text[-49:]}”"

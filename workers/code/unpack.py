"""Files of an archive into a folder: bounded bytes and entries, no links, nothing outside. The archive is hostile until read."""

from __future__ import annotations

import gzip
import io
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from workers.core.child import SandboxError

CHUNK = 1 << 20
MOST_NAME, MOST_DEPTH = 400, 30
MOST_DIRECTORY_BYTES = 8 << 20       # of a zip file's list of entries
_ZIP_END = struct.Struct("<4s4H2LH")


@dataclass(frozen=True)
class Bounds:
    """What an archive may hold, unpacked."""

    bytes: int = 1 << 30
    entries: int = 50_000


@dataclass
class Unpacked:
    """`links`: those of a repository, which are left out."""

    files: int = 0
    bytes: int = 0
    entries: int = 0
    links: int = 0


class Readable(Protocol):
    """What bytes are read from."""

    def read(self, size: int = -1, /) -> bytes: ...


class _Bounded(io.RawIOBase):
    """A stream that ends with an error after so many bytes: a header may promise any length."""

    def __init__(self, stream: Readable, most: int) -> None:
        self._stream, self._left = stream, most

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise _too_large()
        return data


def unpack_archive(data: bytes, folder: Path, bounds: Bounds) -> Unpacked:
    """Write the files of a .tar.gz or .zip. Raises SandboxError."""
    try:
        if data[:4] == b"PK\x03\x04":
            found = _unpack_zip(data, folder, bounds)
        else:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as plain:
                found = unpack_tar(plain, folder, bounds, links=False)
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError, ValueError, RuntimeError) as error:
        raise SandboxError(f"the archive cannot be read: {error}"[:300], "a .tar.gz or .zip file") from error
    if not found.files:
        raise SandboxError("the archive holds no file", "a .tar.gz or .zip file")
    return found


def unpack_tar(stream: Readable, folder: Path, bounds: Bounds, *, links: bool,
               say: Callable[[Unpacked], None] = lambda found: None) -> Unpacked:
    """Write the files of a tar stream; `links`: they are left out, else refused. Raises SandboxError and tarfile.TarError."""
    found = Unpacked()
    bounded: Any = _Bounded(stream, bounds.bytes + (bounds.entries + 100) * 2048)
    with tarfile.open(fileobj=bounded, mode="r|") as archive:
        for member in archive:
            _count(found, bounds)
            archive.members = []                     # type: ignore[attr-defined]       # it keeps every header it read
            if member.isdir():
                _inside(folder, member.name).mkdir(parents=True, exist_ok=True)
            elif member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse():
                content = archive.extractfile(member)
                if content is not None:
                    _write(content, _inside(folder, member.name), bool(member.mode & 0o100), found, bounds)
            elif links and (member.issym() or member.islnk()):
                found.links += 1
            else:
                raise SandboxError(f"the archive holds {member.name[:80]!r}, which is a link or no plain file", "leave links out")
            say(found)
    return found


def _unpack_zip(data: bytes, folder: Path, bounds: Bounds) -> Unpacked:
    at = data.rfind(b"PK\x05\x06")
    if at < 0 or len(data) - at < _ZIP_END.size:
        raise SandboxError("the archive is cut short", "upload it again")
    directory = _ZIP_END.unpack_from(data, at)
    if directory[5] > MOST_DIRECTORY_BYTES or data[max(0, at - 20):at].startswith(b"PK\x06\x07"):
        raise SandboxError(f"the archive holds more than {bounds.entries:,} entries", "leave out what the kernels do not need")
    found = Unpacked()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for entry in archive.infolist():
            _count(found, bounds)
            kind = stat.S_IFMT(entry.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR) or entry.flag_bits & 1:
                raise SandboxError(f"the archive holds {entry.filename[:80]!r}, which is a link, encrypted or no plain file",
                                   "leave links out")
            if entry.is_dir():
                _inside(folder, entry.filename).mkdir(parents=True, exist_ok=True)
            else:
                with archive.open(entry) as content:
                    _write(content, _inside(folder, entry.filename), bool(entry.external_attr >> 16 & 0o100), found, bounds)
    return found


def _count(found: Unpacked, bounds: Bounds) -> None:
    found.entries += 1
    if found.entries > bounds.entries:
        raise SandboxError(f"the archive holds more than {bounds.entries:,} entries", "leave out what the kernels do not need")


def _inside(folder: Path, name: str) -> Path:
    """Return where an entry goes. Raises SandboxError for a name that leads elsewhere."""
    parts = [part for part in name.rstrip("/").split("/") if part not in ("", ".")]
    if (not parts or name.startswith("/") or ".." in parts or "\\" in name or not name.isprintable() or len(name) > MOST_NAME
            or len(parts) > MOST_DEPTH or any(len(part.encode()) > 255 for part in parts)):
        raise SandboxError(f"the archive holds {name[:80]!r}, which cannot be a file inside of it",
                           "names are relative, without .. and control characters")
    return folder.joinpath(*parts)


def _write(content: IO[bytes], path: Path, runs: bool, found: Unpacked, bounds: Bounds) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise SandboxError(f"the archive holds {path.name[:80]!r} as a file and as a folder", "pack it again")
    with path.open("wb") as file:
        while chunk := content.read(CHUNK):
            found.bytes += len(chunk)
            if found.bytes > bounds.bytes:
                raise _too_large()
            file.write(chunk)
    path.chmod(0o755 if runs else 0o644)
    found.files += 1


def _too_large() -> SandboxError:
    return SandboxError("the archive is larger than this worker unpacks", "leave out what the kernels do not need")

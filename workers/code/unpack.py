"""Files of an archive into a folder: bounded bytes and entries, no links, nothing outside. The archive is hostile until read."""

from __future__ import annotations

import gzip
import io
import stat
import struct
import tarfile
import time
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
MOST_HEADER_BYTES = 64 << 10         # of a long name or of pax records before one entry, and of all global ones together
# headers whose content tarfile reads whole
_LONG = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_UNPACKED_BY_PIECES = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)     # zipfile unpacks bzip2 and lzma without a bound
_LEAVE_OUT = "leave out what the kernels do not need"
_ZIP_END = struct.Struct("<4s4H2LH")


@dataclass(frozen=True)
class Bounds:
    """What an archive may hold, unpacked, and how long that may take."""

    bytes: int = 1 << 30
    entries: int = 50_000
    seconds: float = 300.0


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


class _Clock:
    """Ends what takes too long."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._end_s = seconds, time.monotonic() + seconds

    def check(self) -> None:
        if time.monotonic() > self._end_s:
            raise SandboxError(f"the archive is not unpacked within {self._seconds:.0f} s", _LEAVE_OUT)


class _Bounded(io.RawIOBase):
    """A stream that ends with an error after so many bytes, or so long: a header may promise any length."""

    def __init__(self, stream: Readable, most: int, clock: _Clock) -> None:
        self._stream, self._left, self._clock = stream, most, clock

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        self._clock.check()
        data = self._stream.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise _too_large()
        return data


def unpack_archive(data: bytes, folder: Path, bounds: Bounds, *, links: bool = False) -> Unpacked:
    """Write the files of a .tar.gz or .zip; `links` of a .tar.gz: they are left out, else refused. Raises SandboxError."""
    try:
        if data[:4] == b"PK\x03\x04":
            summary = _unpack_zip(data, folder, bounds)
        else:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as plain:
                summary = unpack_tar(plain, folder, bounds, links=links)
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError, ValueError, RuntimeError) as error:
        raise SandboxError(f"the archive cannot be read: {error}"[:300], "a .tar.gz or .zip file") from error
    if not summary.files:
        raise SandboxError("the archive holds no file", "a .tar.gz or .zip file")
    return summary


def unpack_tar(stream: Readable, folder: Path, bounds: Bounds, *, links: bool,
               say: Callable[[Unpacked], None] = lambda found: None) -> Unpacked:
    """Write the files of a tar stream; `links`: they are left out, else refused. Raises SandboxError and tarfile.TarError."""
    summary = Unpacked()
    clock = _Clock(bounds.seconds)
    bounded: Any = _Bounded(stream, bounds.bytes + (bounds.entries + 100) * 2048, clock)
    try:
        with tarfile.open(fileobj=bounded, mode="r|", tarinfo=_bounded_headers()) as archive:
            _write_members(archive, folder, summary, bounds, clock, links=links, say=say)
    except RecursionError as error:         # tarfile reads a header that follows another one by calling itself
        raise _long_header() from error
    return summary


def _write_members(archive: tarfile.TarFile, folder: Path, unpacked: Unpacked, bounds: Bounds, clock: _Clock, *, links: bool,
                   say: Callable[[Unpacked], None]) -> None:
    for member in archive:
        _count(unpacked, bounds)
        archive.members = []                     # type: ignore[attr-defined]       # it keeps every header it read
        if member.isdir():
            _inside(folder, member.name).mkdir(parents=True, exist_ok=True)
        elif member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse():
            content = archive.extractfile(member)
            if content is not None:
                _write(content, _inside(folder, member.name), bool(member.mode & 0o100), unpacked, bounds, clock)
        elif links and (member.issym() or member.islnk()):
            unpacked.links += 1
        else:
            raise _no_plain_file(member.name)
        say(unpacked)


def _bounded_headers() -> type[tarfile.TarInfo]:
    """Return the reader of one archive's headers: it refuses those that tarfile would take into memory whatever their length."""
    global_bytes = 0

    class Header(tarfile.TarInfo):
        @classmethod
        def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Any:
            nonlocal global_bytes
            header = super().frombuf(buf, encoding, errors)
            global_bytes += header.size if header.type == tarfile.XGLTYPE else 0
            if header.type in _LONG and max(header.size, global_bytes) > MOST_HEADER_BYTES:
                raise _long_header()
            if header.type == tarfile.GNUTYPE_SPARSE:       # its map goes on in as many blocks as it likes
                raise _no_plain_file(header.name)
            return header

        def _proc_gnusparse_10(self, *given: Any) -> None:      # pax: its map stands in the file, as long as that
            raise _no_plain_file(self.name)

    return Header


def _unpack_zip(data: bytes, folder: Path, bounds: Bounds) -> Unpacked:
    offset = data.rfind(b"PK\x05\x06")
    if offset < 0 or len(data) - offset < _ZIP_END.size:
        raise SandboxError("the archive is cut short", "upload it again")
    directory = _ZIP_END.unpack_from(data, offset)
    if directory[5] > MOST_DIRECTORY_BYTES or data[max(0, offset - 20):offset].startswith(b"PK\x06\x07"):
        raise SandboxError(f"the archive holds more than {bounds.entries:,} entries", _LEAVE_OUT)
    summary, clock = Unpacked(), _Clock(bounds.seconds)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for entry in archive.infolist():
            _count(summary, bounds)
            kind = stat.S_IFMT(entry.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR) or entry.flag_bits & 1:
                raise SandboxError(f"the archive holds {entry.filename[:80]!r}, which is a link, encrypted or no plain file",
                                   "leave links out")
            if entry.compress_type not in _UNPACKED_BY_PIECES:
                raise SandboxError(f"the archive holds {entry.filename[:80]!r}, which is packed by neither store nor deflate",
                                   "pack it again")
            if entry.is_dir():
                _inside(folder, entry.filename).mkdir(parents=True, exist_ok=True)
            else:
                with archive.open(entry) as content:
                    _write(content, _inside(folder, entry.filename), bool(entry.external_attr >> 16 & 0o100), summary, bounds,
                           clock)
    return summary


def _count(unpacked: Unpacked, bounds: Bounds) -> None:
    unpacked.entries += 1
    if unpacked.entries > bounds.entries:
        raise SandboxError(f"the archive holds more than {bounds.entries:,} entries", _LEAVE_OUT)


def _inside(folder: Path, name: str) -> Path:
    """Return where an entry goes. Raises SandboxError for a name that leads elsewhere."""
    parts = [part for part in name.rstrip("/").split("/") if part not in ("", ".")]
    if (not parts or name.startswith("/") or ".." in parts or "\\" in name or not name.isprintable() or len(name) > MOST_NAME
            or len(parts) > MOST_DEPTH or any(len(part.encode()) > 255 for part in parts)):
        raise SandboxError(f"the archive holds {name[:80]!r}, which cannot be a file inside of it",
                           "names are relative, without .. and control characters")
    return folder.joinpath(*parts)


def _write(content: IO[bytes], path: Path, runs: bool, unpacked: Unpacked, bounds: Bounds, clock: _Clock) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise SandboxError(f"the archive holds {path.name[:80]!r} as a file and as a folder", "pack it again")
    with path.open("wb") as file:
        while chunk := content.read(CHUNK):
            clock.check()
            unpacked.bytes += len(chunk)
            if unpacked.bytes > bounds.bytes:
                raise _too_large()
            file.write(chunk)
    path.chmod(0o755 if runs else 0o644)
    unpacked.files += 1


def _no_plain_file(name: str) -> SandboxError:
    return SandboxError(f"the archive holds {name[:80]!r}, which is a link or no plain file", "leave links out")


def _long_header() -> SandboxError:
    return SandboxError(f"the archive holds a header longer than {MOST_HEADER_BYTES >> 10} KiB", _LEAVE_OUT)


def _too_large() -> SandboxError:
    return SandboxError("the archive is larger than this worker unpacks", _LEAVE_OUT)

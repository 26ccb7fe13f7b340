"""Hostile archives: links, names that lead outside, bombs, half files. Nothing is written outside, and the reason is said."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from workers.code.unpack import Bounds, unpack_archive
from workers.core.child import SandboxError

BOUNDS = Bounds(bytes=100_000, entries=20)


def tar(*members: tuple[str, bytes | None, dict[str, object]]) -> bytes:
    """A .tar.gz of (name, content, header fields)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content, fields in members:
            info = tarfile.TarInfo(name)
            for field, value in fields.items():
                setattr(info, field, value)
            info.size = len(content or b"")
            archive.addfile(info, io.BytesIO(content or b""))
    return out.getvalue()


def zipped(*entries: tuple[str, bytes, int]) -> bytes:
    """A .zip of (name, content, mode)."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, mode in entries:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, content)
    return out.getvalue()


@pytest.mark.parametrize("make", [
    lambda: tar(("src", None, {"type": tarfile.DIRTYPE}), ("src/a.py", b"A = 1", {"mode": 0o4755}), ("./b.py", b"", {})),
    lambda: zipped(("src/", b"", 0o40755), ("src/a.py", b"A = 1", 0o104755), ("b.py", b"", 0)),
])
def test_files_are_written_without_their_owners_and_special_bits(tmp_path: Path, make: Callable[[], bytes]) -> None:
    found = unpack_archive(make(), tmp_path, BOUNDS)
    assert (found.files, found.bytes, found.entries) == (2, 5, 3)
    assert (tmp_path / "src" / "a.py").read_text() == "A = 1" and (tmp_path / "src" / "a.py").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "b.py").stat().st_mode & 0o7777 == 0o644


LINK = {"type": tarfile.SYMTYPE, "linkname": "/etc"}
NO_LINK = "which is a link or no plain file"
NO_NAME = "cannot be a file inside of it"


HOSTILE = [
    (tar(("a", None, LINK), ("a/passwd", b"x", {})), NO_LINK),
    (tar(("a", None, {"type": tarfile.LNKTYPE, "linkname": "../../secret"})), NO_LINK),
    (tar(("a", None, {"type": tarfile.FIFOTYPE})), NO_LINK), (tar(("a", None, {"type": tarfile.CHRTYPE})), NO_LINK),
    (tar(("../a", b"x", {})), NO_NAME), (tar(("/a", b"x", {})), NO_NAME), (tar(("a/../../b", b"x", {})), NO_NAME),
    (tar(("a\nb", b"x", {})), NO_NAME), (tar(("a\\..\\b", b"x", {})), NO_NAME), (tar(("/".join("a" * 40), b"x", {})), NO_NAME),
    (tar((".", b"x", {})), NO_NAME), (tar(("x" * 300, b"x", {})), NO_NAME),
    (tar(("a", b"x", {}), ("a", None, {"type": tarfile.DIRTYPE})), "cannot be read"),
    (tar(("a/b", b"x", {}), ("a", b"x", {})), "as a file and as a folder"),
    (tar(*((f"f{at}", b"", {}) for at in range(21))), "more than 20 entries"),
    (tar(("a", b"\0" * 200_000, {})), "larger than this worker unpacks"),
    (tar(("a", b"\0" * 60_000, {}), ("b", b"\0" * 60_000, {})), "larger than this worker unpacks"),
    (gzip.compress(b"\0" * 50_000_000), "holds no file"), (gzip.compress(b"no tar " * 1000), "cannot be read"),
    (tar(("a", b"x" * 5000, {}))[:-30], "cannot be read"), (b"\x1f\x8b", "cannot be read"), (b"\x1f\x8bjunk", "cannot be read"),
    (zipped(("a", b"/etc/passwd", 0o120777)), "which is a link"), (zipped(("../a", b"x", 0)), NO_NAME),
    (zipped(("/a", b"x", 0)), NO_NAME), (zipped(*((f"f{at}", b"", 0) for at in range(21))), "more than 20 entries"),
    (zipped(("a", b"\0" * 10_000_000, 0)), "larger than this worker unpacks"),
    (zipped(("a", b"x", 0))[:-10], "cut short"), (b"PK\x03\x04", "cut short"),
    (b"PK\x03\x04" + b"PK\x05\x06" + b"\xff" * 18, "entries"),
]


@pytest.mark.parametrize(("data", "words"), HOSTILE, ids=map(str, range(len(HOSTILE))))
def test_what_is_hostile_is_refused_and_nothing_leads_outside(tmp_path: Path, data: bytes, words: str) -> None:
    inside = tmp_path / "inside" / "deep"
    inside.mkdir(parents=True)
    with pytest.raises(SandboxError, match=words):
        unpack_archive(data, inside, BOUNDS)
    assert {path for path in tmp_path.rglob("*") if not path.is_relative_to(inside)} == {tmp_path / "inside"}
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))


def raw(name: str, kind: bytes, content: bytes = b"", size: int | None = None) -> bytes:
    """A header and its content, in whole blocks."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(content) if size is None else size
    return info.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


def pax(**records: str) -> bytes:
    lines = b""
    for name, value in records.items():
        rest = f" {name.replace('__', '.')}={value}\n".encode()
        length = len(rest) + 1
        while len(str(length)) + len(rest) != length:
            length += 1
        lines += str(length).encode() + rest
    return lines


MIB = 1 << 20
LONG_HEADERS = {
    "a GNU long name": lambda: raw("././@LongLink", tarfile.GNUTYPE_LONGNAME, b"\0" * (60 * MIB)),
    "a GNU long link": lambda: raw("././@LongLink", tarfile.GNUTYPE_LONGLINK, b"\0" * (60 * MIB)),
    "pax records": lambda: raw("x", tarfile.XHDTYPE, b"\0" * (60 * MIB)),
    "global pax records": lambda: raw("x", tarfile.XGLTYPE, b"\0" * (60 * MIB)),
    "many global pax records": lambda: b"".join(
        raw("x", tarfile.XGLTYPE, pax(**{f"k{at}": "v" * 60_000})) + raw(f"f{at}", tarfile.REGTYPE) for at in range(19)),
    "many long names": lambda: raw("././@LongLink", tarfile.GNUTYPE_LONGNAME, b"a" * 100) * 2000,
    "a sparse map in blocks": lambda: raw("x", tarfile.GNUTYPE_SPARSE)[:482] + b"\x01" + bytes(29) + b"\x01" * (60 * MIB),
    "a sparse map in the file": lambda: raw("p", tarfile.XHDTYPE, pax(GNU__sparse__major="1", GNU__sparse__minor="0"))
    + raw("f", tarfile.REGTYPE, b"9999999\n" + b"1\n" * (30 * MIB)),
}


@pytest.mark.parametrize("name", LONG_HEADERS)
def test_a_header_takes_no_memory_whatever_its_length(tmp_path: Path, name: str) -> None:
    data = gzip.compress(LONG_HEADERS[name](), 1)
    tracemalloc.start()
    try:
        with pytest.raises(SandboxError, match=r"header longer than 64 KiB|no plain file|cannot be read: bad checksum"):
            unpack_archive(data, tmp_path, Bounds(bytes=100 * MIB, entries=50))
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()


def test_a_long_name_within_the_bound_is_read(tmp_path: Path) -> None:
    name = "/".join(["folder" * 10] * 4)
    unpack_archive(gzip.compress(raw("././@LongLink", tarfile.GNUTYPE_LONGNAME, name.encode() + b"\0")
                                 + raw("cut", tarfile.REGTYPE, b"A = 1") + bytes(1024)), tmp_path, BOUNDS)
    assert (tmp_path / name).read_bytes() == b"A = 1"


@pytest.mark.parametrize("data", [lzma.compress(bytes(MIB)), bz2.compress(bytes(MIB))])
def test_what_is_packed_otherwise_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(SandboxError, match="cannot be read"):
        unpack_archive(data, tmp_path, BOUNDS)


@pytest.mark.parametrize("packed_by", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_that_unpacks_whole_pieces_at_once_is_refused(tmp_path: Path, packed_by: int) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", packed_by) as archive:
        archive.writestr("a", bytes(60 * MIB))
    with pytest.raises(SandboxError, match="packed by neither store nor deflate"):
        unpack_archive(out.getvalue(), tmp_path, BOUNDS)


@pytest.mark.parametrize("make", [lambda: tar(("a", bytes(60 * MIB), {})), lambda: zipped(("a", bytes(60 * MIB), 0))])
def test_it_ends_in_time(tmp_path: Path, make: Callable[[], bytes]) -> None:
    with pytest.raises(SandboxError, match="not unpacked within 0 s"):
        unpack_archive(make(), tmp_path, Bounds(seconds=0.01))


def test_a_header_that_promises_gigabytes_takes_no_memory(tmp_path: Path) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 8 << 30
    with pytest.raises(SandboxError, match=r"cannot be read|header longer"):
        unpack_archive(gzip.compress(header.tobuf() + b"\0" * 10_000_000), tmp_path, BOUNDS)
    lies = bytearray(zipped(("a", b"x" * 10, 0)))
    struct.pack_into("<L", lies, 22, 1 << 31)                       # the size in the entry's own header
    unpack_archive(bytes(lies), tmp_path, BOUNDS)
    assert (tmp_path / "a").read_bytes() == b"x" * 10

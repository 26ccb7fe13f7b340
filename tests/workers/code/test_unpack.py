"""Hostile archives: links, names that lead outside, bombs, half files. Nothing is written outside, and the reason is said."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
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


def test_a_header_that_promises_gigabytes_takes_no_memory(tmp_path: Path) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 8 << 30
    with pytest.raises(SandboxError, match=r"cannot be read|larger"):
        unpack_archive(gzip.compress(header.tobuf() + b"\0" * 10_000_000), tmp_path, BOUNDS)
    lies = bytearray(zipped(("a", b"x" * 10, 0)))
    struct.pack_into("<L", lies, 22, 1 << 31)                       # the size in the entry's own header
    unpack_archive(bytes(lies), tmp_path, BOUNDS)
    assert (tmp_path / "a").read_bytes() == b"x" * 10

"""Wrappings of an upload taken off as it streams: gzip, zstd, the one profile of a zip or tar archive, a text in UTF-16.

A cut or damaged stream ends early and says where in `damage`; it raises only where nothing can be had from it.
"""

from __future__ import annotations

import codecs
import zlib
from abc import ABC, abstractmethod
from typing import IO, Protocol

import zstandard
from isal import igzip_lib

from profiles.ingest.trace import TraceError

BLOCK = 4 << 20
BLOCK_BYTES = 512                      # of a tar archive
ZSTD_WINDOW_BYTES = 1 << 27            # what the zstd tool itself accepts; larger windows need as much memory
_ZSTD_FEED = 2048                      # compressed bytes a step: a block of 4 may stand for 128 KiB
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
_MARKS = ((b"\xff\xfe\0\0", "UTF-32", "utf-32"), (b"\0\0\xfe\xff", "UTF-32", "utf-32"), (b"\xff\xfe", "UTF-16", "utf-16"),
          (b"\xfe\xff", "UTF-16", "utf-16"))
_JSON_OR_CSV = (b"{", b"[", b'"', b"#", b"=", b" ")
_Damaged: tuple[type[Exception], ...] = (igzip_lib.IsalError, EOFError, ValueError)  # type: ignore[assignment]


def wrapping(head: bytes) -> str | None:
    """"gzip", "zstd", "zip", "tar", "UTF-16" or "UTF-32" where the content starts like one."""
    if head[:2] == _GZIP:
        return "gzip"
    if head[:4] == _ZSTD or _skippable(head):
        return "zstd"
    if head[:4] in _ZIP:
        return "zip"
    return "tar" if is_tar_header(head[:BLOCK_BYTES]) else _wide_text(head)[0]


def is_tar_header(block: bytes) -> bool:
    """Tell whether a block of 512 bytes is the header of a tar entry: its checksum is the sum of its other bytes."""
    digits = block[148:156].strip(b" \0")
    if len(block) < BLOCK_BYTES or not block[:1].strip(b"\0") or not digits or not all(48 <= digit < 56 for digit in digits):
        return False
    return int(digits, 8) == sum(block[:148]) + 8 * 32 + sum(block[156:])


def _wide_text(head: bytes) -> tuple[str | None, str]:
    """Kind and codec of a text of 2 or 4 bytes a character: by its mark, or where the first characters are ASCII."""
    for mark, kind, codec in _MARKS:
        if head.startswith(mark):
            return kind, codec
    start = head[:64]
    if len(start) >= 16 and start[:1] in _JSON_OR_CSV and not start[1::2].strip(b"\0") and 0 not in start[::2]:
        return "UTF-16", "utf-16-le"
    if len(start) >= 16 and start[1:2] in _JSON_OR_CSV and not start[::2].strip(b"\0") and 0 not in start[1::2]:
        return "UTF-16", "utf-16-be"
    return None, ""


def _skippable(head: bytes) -> bool:
    """A zstd frame of the user's own data (0x184D2A50 to …5F), which tools may write first."""
    return len(head) >= 8 and head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50


class Stream(Protocol):
    @property
    def damage(self) -> str | None: ...

    def read(self, size: int) -> bytes: ...


class File:
    """A file on disk: the upload itself, or a spooled archive. `done` is the furthest byte that was read."""

    damage: str | None = None

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.done = 0

    def read(self, size: int) -> bytes:
        block = self.file.read(size)
        self.done = max(self.done, self.file.tell())
        return block


class Head:
    """A stream with its first bytes, which were read to recognise it, put back."""

    def __init__(self, inner: Stream, head: bytes) -> None:
        self.inner, self.head = inner, head

    @property
    def damage(self) -> str | None:
        return self.inner.damage

    def read(self, size: int) -> bytes:
        if not self.head:
            return self.inner.read(size)
        out, self.head = self.head[:size], self.head[size:]
        return out


class _Unpacked(ABC):
    """What the unpacking streams share: `_next` gives some bytes or ends the stream."""

    kind = ""

    def __init__(self, inner: Stream) -> None:
        self.inner, self.pending, self.taken = inner, b"", 0
        self.damage: str | None = None
        self.ended = False

    def read(self, size: int) -> bytes:
        parts: list[bytes] = []
        got = 0
        while got < size and not self.ended:
            block = self._next(size - got)
            parts.append(block)
            got += len(block)
        return b"".join(parts)

    @abstractmethod
    def _next(self, size: int) -> bytes:
        """At most `size` bytes; none where more input is needed or the stream has ended."""

    def _feed(self) -> bytes:
        block, self.pending = self.pending or self.inner.read(BLOCK), b""
        self.taken += len(block)
        return block

    def _end(self, damage: str | None) -> bytes:
        """The stream ends here; what damaged the wrapping around it comes first."""
        self.ended = True
        self.damage = self.inner.damage or (damage and f"byte {self.taken} of the {self.kind} stream: {damage}")
        return b""


class _Deflated(_Unpacked):
    """What gzip members and zip entries share: `_after` says what follows the end of a deflate stream."""

    _inflate: igzip_lib.IgzipDecompressor

    def _next(self, size: int) -> bytes:
        block = self._feed() if self._inflate.needs_input else b""
        if self._inflate.needs_input and not block:
            return self._end("it ends before its end mark")
        try:
            out: bytes = self._inflate.decompress(block, size)
        except _Damaged as error:
            return self._end(f"it is damaged ({error})")
        if self._inflate.eof:
            self._after()
        return out

    @abstractmethod
    def _after(self) -> None: ...


class Gunzip(_Deflated):
    """Gzip members one after the other."""

    kind = "gzip"

    def __init__(self, inner: Stream) -> None:
        super().__init__(inner)
        self._start()

    def _start(self) -> None:
        self._inflate = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)

    def _after(self) -> None:
        self._next_member()

    def _next_member(self) -> None:
        self.pending = self._inflate.unused_data
        while len(self.pending) < 2 and (more := self.inner.read(BLOCK)):
            self.pending += more
        if self.pending[:2] == _GZIP:
            self._start()
            return
        self._end("bytes that are not gzip follow its end" if self.pending.strip(b"\0") else None)


class Unzstd(_Unpacked):
    """Zstd frames one after the other, skippable ones too, fed in small steps: a step's output stays below 64 MiB."""

    kind = "zstd"

    def __init__(self, inner: Stream) -> None:
        super().__init__(inner)
        self._tool = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES)
        self._frame = self._tool.decompressobj()
        self._block, self._at, self._out = b"", 0, b""
        self._inside = False                              # a frame has begun and not ended

    def _next(self, size: int) -> bytes:
        if not self._out:
            self._step()
        out, self._out = self._out[:size], self._out[size:]
        return out

    def _step(self) -> None:
        if self._at == len(self._block):
            self._block, self._at = self._feed(), 0
            if not self._block:
                self._end("it ends before its end mark" if self._inside else None)
                return
        piece = self._block[self._at:self._at + _ZSTD_FEED]
        self._at += len(piece)
        if not self._inside and self._foreign(piece):
            return
        try:
            self._out = self._frame.decompress(piece)
        except zstandard.ZstdError as error:
            self._end(f"it is damaged or needs a window of more than {ZSTD_WINDOW_BYTES >> 20} MiB ({error})")
            return
        self._inside = True
        if self._frame.eof:
            self._at -= len(self._frame.unused_data)
            self._frame, self._inside = self._tool.decompressobj(), False

    def _foreign(self, piece: bytes) -> bool:
        """Between frames: padding is skipped, anything else that is no frame ends the stream."""
        if piece.strip(b"\0") == b"":
            return True
        while len(self._block) - self._at + len(piece) < 8 and (more := self.inner.read(BLOCK)):
            self._block += more
            self.taken += len(more)
        start = self._block[self._at - len(piece):][:8]
        if start[:4] == _ZSTD or _skippable(start):
            return False
        self._end("bytes that are not zstd follow its end")
        return True


class Inflate(_Deflated):
    """A raw deflate stream, the content of a zip entry."""

    kind = "zip entry's"

    def __init__(self, inner: Stream) -> None:
        super().__init__(inner)
        self._inflate = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_DEFLATE)

    def _after(self) -> None:
        self._end(None)


class ChecksumStream:
    """A zip entry's content with its checksum compared at the end."""

    def __init__(self, inner: Stream, name: str, crc: int | None) -> None:
        self.inner, self.name, self.crc = inner, name, crc
        self.damage: str | None = None
        self._sum, self._bytes = 0, 0

    def read(self, size: int) -> bytes:
        block = self.inner.read(size)
        self._sum, self._bytes = zlib.crc32(block, self._sum), self._bytes + len(block)
        if len(block) < size and self.damage is None:
            self.damage = self.inner.damage
            if self.damage is None and self.crc is not None and self._sum != self.crc:
                self.damage = f"byte {self._bytes} of {self.name}: the entry's checksum does not match its content"
        return block


class BoundedStream:
    """A stream whose every byte is counted against what an upload may expand to."""

    def __init__(self, inner: Stream, allowed: int, why: tuple[str, str]) -> None:
        self.inner, self.allowed, self.why, self.given = inner, allowed, why, 0

    @property
    def damage(self) -> str | None:
        return self.inner.damage

    def read(self, size: int) -> bytes:
        block = self.inner.read(size)
        self.count(len(block))
        return block

    def count(self, size: int) -> None:
        self.given += size
        if self.given > self.allowed:
            raise TraceError(f"byte {self.allowed}", *self.why)


def empty_error(kind: str, damage: str) -> TraceError:
    return TraceError(damage.split(":")[0], f"a {kind} file of which nothing can be unpacked ({damage})",
                      "Compress or copy the file again.")


class Recoded(_Unpacked):
    """A text in UTF-16 or UTF-32 as UTF-8: what Windows' tools write where their output is redirected."""

    kind = "UTF-16"

    def __init__(self, inner: Stream, codec: str) -> None:
        super().__init__(inner)
        self._decoder, self._out = codecs.getincrementaldecoder(codec)("replace"), b""

    def _next(self, size: int) -> bytes:
        if not self._out:
            block = self._feed()
            text = self._decoder.decode(block, final=not block)
            self._out = text.encode("utf-8", "replace")
            if not block and not self._out:
                return self._end(None)
        out, self._out = self._out[:size], self._out[size:]
        return out


def unpacker(kind: str, inner: Stream) -> Stream:
    if kind in ("UTF-16", "UTF-32"):
        head = inner.read(64)
        return Recoded(Head(inner, head), _wide_text(head)[1])
    return Gunzip(inner) if kind == "gzip" else Unzstd(inner)

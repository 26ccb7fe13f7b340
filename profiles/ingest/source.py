"""Bytes of an upload as a reader wants them: decompressed by content, counted, bounded, never whole in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from isal import igzip_lib

from profiles.trace import TraceError

HEAD_BYTES = 1 << 20          # what a reader may look at to recognise its format
_GZIP = b"\x1f\x8b"
_BLOCK = 4 << 20
_MAX_LAYERS = 3
_Damaged: type[Exception] = igzip_lib.IsalError  # type: ignore[assignment]  # the stub calls it an instance
Progress = Callable[[str, int, int, int], None]     # phase, done bytes of the upload, its size, records so far


@dataclass(frozen=True)
class Limits:
    """How much one upload may cost. Honest traces shrink 30 times; beyond `free_bytes` none shrinks `expansion` times."""

    expanded_bytes: int = 64 << 30
    free_bytes: int = 1 << 30
    expansion: int = 150
    record_bytes: int = 128 << 20        # one record, or all text before the first
    records: int = 200_000_000


class _Stream(Protocol):
    damage: str | None

    def read(self, size: int) -> bytes: ...


class _File:
    """The upload itself."""

    damage: str | None = None

    def __init__(self, path: Path) -> None:
        self.file = path.open("rb")
        self.done = 0

    def read(self, size: int) -> bytes:
        block = self.file.read(size)
        self.done += len(block)
        return block


class _Gunzip:
    """Gzip members one after the other. A cut or damaged stream ends early and says where in `damage`."""

    def __init__(self, inner: _Stream, head: bytes) -> None:
        self.inner, self.pending, self.taken = inner, head, 0
        self.damage: str | None = None
        self._ended = False
        self._start()

    def _start(self) -> None:
        self._inflate = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)

    def _feed(self) -> bytes:
        block, self.pending = self.pending or self.inner.read(_BLOCK), b""
        self.taken += len(block)
        return block

    def read(self, size: int) -> bytes:
        parts: list[bytes] = []
        got = 0
        while got < size and not self._ended:
            block = self._next(size - got)
            parts.append(block)
            got += len(block)
        return b"".join(parts)

    def _next(self, size: int) -> bytes:
        block = self._feed() if self._inflate.needs_input else b""
        if self._inflate.needs_input and not block:
            self.damage = self.inner.damage or f"byte {self.taken} of the gzip stream: it ends before its end mark"
            self._ended = True
            return b""
        try:
            out: bytes = self._inflate.decompress(block, size)
        except (_Damaged, EOFError, ValueError) as error:
            self.damage = f"byte {self.taken} of the gzip stream: it is damaged ({error})"
            self._ended = True
            return b""
        if self._inflate.eof:
            self._next_member()
        return out

    def _next_member(self) -> None:
        self.pending = self._inflate.unused_data
        while len(self.pending) < 2 and (more := self.inner.read(_BLOCK)):
            self.pending += more
        if self.pending[:2] == _GZIP:
            self._start()
            return
        self._ended = True
        self.damage = self.inner.damage
        if self.pending.strip(b"\0"):
            self.damage = f"byte {self.taken} of the gzip stream: bytes that are not gzip follow its end"


class Source:
    """An upload opened for one reader. Use as a context manager."""

    def __init__(self, path: str | Path, progress: Progress | None = None, limits: Limits | None = None) -> None:
        self.path = Path(path)
        self.limits = limits or Limits()
        self.total_bytes = self.path.stat().st_size
        self.layers: list[str] = []              # "gzip" for every wrapping taken off
        self.position = 0                        # expanded bytes handed out
        self._progress = progress
        self._file = _File(self.path)
        self._stream: _Stream = self._file
        self._head = b""
        self._expanded = 0
        self._open()

    def _open(self) -> None:
        head = self._stream.read(_BLOCK)
        while head[:2] == _GZIP:
            if len(self.layers) == _MAX_LAYERS:
                raise TraceError("byte 0", f"gzip within gzip more than {_MAX_LAYERS} times",
                                 "Unpack the file and upload what is inside.")
            self.layers.append("gzip")
            self._stream = _Gunzip(self._stream, head)
            head = self._stream.read(HEAD_BYTES)
            if not head and self._stream.damage:
                raise TraceError(self._stream.damage.split(":")[0], "a gzip file of which nothing can be unpacked "
                                 f"({self._stream.damage})", "Compress or copy the file again.")
        self._head = head
        self._expanded = len(head)

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *error: Any) -> None:
        self._file.file.close()

    @property
    def damage(self) -> str | None:
        """Where and how the compressed stream ended early, once its end was reached."""
        return self._stream.damage

    @property
    def done_bytes(self) -> int:
        """Bytes of the upload consumed so far: with `total_bytes` the progress."""
        return self._file.done

    def peek(self, size: int = HEAD_BYTES) -> bytes:
        """The first bytes of the content (at most HEAD_BYTES), which `read` hands out again."""
        while len(self._head) < size and (more := self._stream.read(size - len(self._head))):
            self._head += more
            self._expanded += len(more)
        return self._head[:size]

    def read(self, size: int) -> bytes:
        """The next bytes of the content; fewer only at its end. Raises TraceError beyond `limits.expanded_bytes`."""
        out, self._head = self._head[:size], self._head[size:]
        if len(out) < size:
            more = self._stream.read(size - len(out))
            self._expanded += len(more)
            out = out + more if out else more
        self.position += len(out)
        self._bound()
        return out

    def _bound(self) -> None:
        if self._expanded > self.limits.expanded_bytes:
            raise TraceError(f"byte {self.position}", f"the content expands to more than {self.limits.expanded_bytes} bytes",
                             "Profile fewer steps, or raise the limit of expanded bytes.")
        if self._expanded > max(self.limits.free_bytes, self.limits.expansion * self.total_bytes):
            raise TraceError(f"byte {self.position}", f"the content expands to more than {self.limits.expansion} times the upload",
                             "No profiler writes such a file. If it is honest, upload it unpacked.")

    def progress(self, phase: str, records: int) -> None:
        if self._progress:
            self._progress(phase, self.done_bytes, self.total_bytes, records)

    @contextmanager
    def as_file(self) -> Iterator[Path]:
        """The content as a plain file: the upload itself, or an unpacked copy that lives as long as the context."""
        if not self.layers:
            yield self.path
            return
        with tempfile.TemporaryDirectory(prefix="ridgepoint-") as folder:
            plain = Path(folder) / "content"
            with plain.open("wb") as out:
                while block := self.read(_BLOCK):
                    out.write(block)
                    self.progress("unpacking", 0)
            yield plain



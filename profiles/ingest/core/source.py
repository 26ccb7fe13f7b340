"""Bytes of an upload as a reader wants them: unwrapped by content, counted, bounded, never whole in memory."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from profiles.ingest import scratch
from profiles.ingest.core import tar_archive, zip_archive
from profiles.ingest.core.containers import BLOCK, BoundedStream, File, Head, Stream, empty_error, unpacker, wrapping
from profiles.ingest.trace import TraceError

HEAD_BYTES = 1 << 20          # what a reader may look at to recognise its format
MAX_LOOKED_AT = 256           # entries of a zip archive whose first bytes are read to find the profile
_MAX_LAYERS = 3
_ARCHIVES: dict[str, Any] = {"zip": zip_archive, "tar": tar_archive}      # kind -> what lists its entries and opens one
Progress = Callable[[str, int, int, int], None]     # phase, done bytes of the upload, its size, records so far


@dataclass(frozen=True)
class Limits:
    """How much one upload may cost. Honest traces shrink 30 times; beyond `free_bytes` none shrinks `expansion` times."""

    expanded_bytes: int = 64 << 30
    free_bytes: int = 1 << 30
    expansion: int = 150
    record_bytes: int = 128 << 20        # one record, or all text before the first
    records: int = 200_000_000


class SeveralProfiles(TraceError):
    """An archive of more than one profile: `entries` are (number to pass as `Source(entry=…)`, name)."""

    def __init__(self, entries: Sequence[tuple[int, str]], kind: str = "zip") -> None:
        names = ", ".join(zip_archive.printable_name(name) for _, name in entries[:8]) + (", …" if len(entries) > 8 else "")
        self.entries = list(entries)
        self.ranks = len({re.sub(r"\d+", "#", name) for _, name in entries}) == 1
        super().__init__(
            f"{kind} directory", f"a {kind} archive of {len(entries)} profiles ({names})",
            "They are named like the ranks of one job: upload them together as the files of one profile." if self.ranks else
            "Upload each on its own, or the ranks of one job together as the files of one profile.")


class Source:
    """An upload opened for one reader. Use as a context manager.

    Of a zip archive the one entry is read whose first bytes `wanted` takes, or the one with the number `entry`; where
    several would do, SeveralProfiles is raised.
    """

    def __init__(self, path: str | Path, progress: Progress | None = None, limits: Limits | None = None,
                 wanted: Callable[[bytes], bool] | None = None, entry: int | None = None, written: str = "") -> None:
        self.path = Path(path)
        self.limits = limits or Limits()
        self.total_bytes = self.path.stat().st_size
        self.layers: list[str] = []              # "gzip", "zstd", "zip", "tar", "UTF-16" for every wrapping taken off
        self.position = 0                        # expanded bytes handed out
        self.written = written                   # when the file was last written, in words; "" where nobody says so
        self._progress = progress
        self._wanted, self._entry = wanted, entry
        self._archive_damage: str | None = None
        self._file = File(self.path.open("rb"))
        self._spooled: list[IO[bytes]] = []
        self._ended = False
        try:
            self._stream, self._head = self._open()
        except BaseException:
            self._close()
            raise
        self._taken = 0                          # of `_head`
        self._unpacked = self._limit(self._file)

    def _open(self) -> tuple[Stream, bytes]:
        stream: Stream = self._limit(self._file)
        head = stream.read(BLOCK)
        while kind := wrapping(head):
            self._layer(kind)
            if kind in _ARCHIVES:
                stream = self._limit(self._archive_entry(kind, Head(stream, head)))
            else:
                stream = self._limit(unpacker(kind, Head(stream, head)))
            head = stream.read(HEAD_BYTES)
            if not head and stream.damage:
                raise empty_error(kind, stream.damage)
        return stream, head

    def _layer(self, kind: str) -> None:
        if len(self.layers) == _MAX_LAYERS:
            within = " within ".join([*self.layers, kind])
            raise TraceError("byte 0", f"{within}: wrapped more than {_MAX_LAYERS} times",
                             "Unpack the file and upload what is inside.")
        self.layers.append(kind)

    def _limit(self, stream: Stream) -> BoundedStream:
        limits = self.limits
        ratio = max(limits.free_bytes, limits.expansion * self.total_bytes)
        if ratio < limits.expanded_bytes:
            return BoundedStream(stream, ratio, (f"the content expands to more than {limits.expansion} times the upload",
                                           "No profiler writes such a file. If it is honest, upload it unpacked."))
        return BoundedStream(stream, limits.expanded_bytes, (f"the content expands to more than {limits.expanded_bytes} bytes",
                                                       "Profile fewer steps, or raise the limit of expanded bytes."))

    def _archive_entry(self, kind: str, archive: Stream) -> Stream:
        """The profile of an archive; an archive that is itself packed is unpacked to a temporary file first."""
        file = self._file
        if len(self.layers) > 1:
            self._spooled.append(tempfile.TemporaryFile(prefix="ridgepoint-"))      # noqa: SIM115  # closed with the source
            while block := archive.read(BLOCK):
                self._spooled[-1].write(block)
                self.progress("unpacking", 0)
            file = File(self._spooled[-1])
        opened = _ARCHIVES[kind]
        entries, self._archive_damage = opened.entries(file.file)
        if len(entries) == 1:
            return _open(opened, file, entries[0])
        if self._entry is not None:
            if not 0 <= self._entry < len(entries):
                raise TraceError(f"{kind} directory", f"the archive has no entry {self._entry}", "Read its list of entries again.")
            chosen, self._entry = entries[self._entry], None
            return _open(opened, file, chosen)
        if len(entries) > MAX_LOOKED_AT:
            raise TraceError(f"{kind} directory", f"a {kind} archive of {len(entries)} files", "Upload the profile alone.")
        profiles = [number for number, entry in enumerate(entries) if self._takes(opened, file, entry)]
        if not profiles:
            names = ", ".join(zip_archive.printable_name(entry.name) for entry in entries[:8])
            raise TraceError(f"{kind} directory", f"none of the archive's {len(entries)} files is a profile known here ({names})",
                             "Unpack it and upload the profile inside.")
        if len(profiles) > 1:
            raise SeveralProfiles([(number, entries[number].name) for number in profiles], kind)
        return _open(opened, file, entries[profiles[0]])

    def _takes(self, opened: Any, file: File, entry: Any) -> bool:
        """Does the entry start like a profile, once its own wrappings are taken off?"""
        if self._wanted is None:
            return True
        try:
            stream: Stream = self._limit(_open(opened, file, entry))
            head = stream.read(HEAD_BYTES)
            for _ in range(_MAX_LAYERS - len(self.layers)):
                kind = wrapping(head)
                if kind is None or kind in _ARCHIVES:
                    break
                stream = self._limit(unpacker(str(kind), Head(stream, head)))
                head = stream.read(HEAD_BYTES)
        except TraceError:
            return False
        return wrapping(head) in _ARCHIVES or self._wanted(head)

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *error: Any) -> None:
        self._close()

    def _close(self) -> None:
        for file in (self._file.file, *self._spooled):
            file.close()

    @property
    def damage(self) -> str | None:
        """Return where and how the compressed stream ended early, once its end was reached."""
        return self._stream.damage or self._archive_damage

    @property
    def done_bytes(self) -> int:
        """Return the bytes of the upload consumed so far: with `total_bytes` the progress."""
        return self.total_bytes if self._ended else self._file.done

    def peek(self, size: int = HEAD_BYTES) -> bytes:
        """The first bytes of the content (at most HEAD_BYTES), which `read` hands out again."""
        while len(self._head) < size and (more := self._stream.read(size - len(self._head))):
            self._head += more
        return self._head[:size]

    def read(self, size: int) -> bytes:
        """Return the next bytes of the content; fewer only at its end.

        Raises TraceError beyond `limits.expanded_bytes`.
        """
        out = self._head[self._taken:self._taken + size]
        self._taken += len(out)
        if self._head and self._taken == len(self._head):
            self._head, self._taken = b"", 0
        if len(out) < size:
            more = self._stream.read(size - len(out))
            self._ended |= len(out) + len(more) < size
            out = out + more if out else more
        self.position += len(out)
        return out

    def count_expanded(self, size: int) -> None:
        """Count bytes that a reader unpacked itself against the limits of expansion."""
        self._unpacked.count(size)

    def progress(self, phase: str, records: int) -> None:
        if self._progress:
            self._progress(phase, self.done_bytes, self.total_bytes, records)

    @contextmanager
    def as_file(self) -> Iterator[Path]:
        """Give the content as a plain file.

        The upload itself, or an unpacked copy that lives as long as the context.
        """
        if not self.layers:
            yield self.path
            return
        with scratch.folder() as folder:
            plain = folder / "content"
            with plain.open("wb") as out:
                while block := self.read(BLOCK):
                    out.write(block)
                    self.progress("unpacking", 0)
            yield plain


def _open(opened: Any, file: File, entry: Any) -> Stream:
    stream: Stream = opened.open_entry(file, entry)
    return stream

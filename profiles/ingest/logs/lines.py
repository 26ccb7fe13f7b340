"""Complete lines of a log. A log that was killed or cut ends within a line, whose last number may have lost digits."""

from __future__ import annotations

from collections.abc import Iterator

from profiles.ingest.core.source import Source
from profiles.ingest.trace import Integrity

MAX_LINE_BYTES = 1 << 16
_BLOCK_BYTES, _HEAD_BYTES = 1 << 20, 1 << 16
_LONG = f"a line of more than {MAX_LINE_BYTES:,} bytes"
_CUT = "the last line, which has no end: its numbers may be cut"


def head_lines(head: bytes, most: int) -> list[str]:
    """Return the first `most` lines with something in them of a file's first bytes."""
    text = head[:_HEAD_BYTES].decode("utf-8", "replace").removeprefix("\ufeff")
    return [line.rstrip("\r") for line in text.split("\n") if line.strip()][:most]


def complete_lines(source: Source, integrity: Integrity) -> Iterator[str]:
    """Yield every line with something in it, undecodable bytes replaced; lines that are too long or cut are counted."""
    rest, skips = b"", False
    while block := source.read(_BLOCK_BYTES):
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            if skips or len(line) > MAX_LINE_BYTES:
                _leave_out(integrity, _LONG)
            elif not line.isspace() and line:
                yield line.decode("utf-8", "replace").removeprefix("\ufeff").rstrip("\r")
            skips = False
        if len(rest) > MAX_LINE_BYTES:
            rest, skips = b"", True
        source.progress("reading", integrity.records_read)
    if skips or rest.strip():
        _leave_out(integrity, _LONG if skips else _CUT)
        integrity.truncated_at = f"byte {source.position}"
    if source.damage:
        integrity.truncated_at = source.damage.split(":")[0]
        integrity.notes.append(f"The compressed file ends early: {source.damage}.")


def _leave_out(integrity: Integrity, why: str) -> None:
    integrity.records_read += 1
    integrity.drop(why)

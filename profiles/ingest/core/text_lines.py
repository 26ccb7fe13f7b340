"""Lines of a text that a tool printed, read in blocks."""

from __future__ import annotations

from collections.abc import Iterator

from profiles.ingest.core.source import Source
from profiles.ingest.trace import TraceError

_BLOCK_BYTES = 1 << 20


def read_lines(source: Source, most_bytes: int, tool: str, hint: str) -> Iterator[str]:
    r"""Yield the lines of a source without their ends (\n or \r\n), undecodable bytes replaced.

    Raises TraceError at a line longer than `most_bytes` and a block: no file of `tool` has one.
    """
    rest = b""
    while block := source.read(_BLOCK_BYTES):
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace").rstrip("\r")
        source.progress("reading", 0)
        if len(rest) > most_bytes:
            raise TraceError(f"byte {source.position}", f"a line longer than any that {tool} writes", hint)
    if rest:
        yield rest.decode("utf-8", "replace").rstrip("\r")

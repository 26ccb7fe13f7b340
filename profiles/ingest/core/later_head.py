"""JSON whose records begin far behind its start: what a reader would have to see to know it."""

from __future__ import annotations

import re

from profiles.ingest.core.source import HEAD_BYTES, Source

_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_KEPT_BYTES = 1 << 16                 # of the document's start: its first keys tell who wrote it


def later_head(source: Source, head: bytes) -> bytes | None:
    """Return the start of the document and the text from `traceEvents` on, as far as a reader looks.

    None where no array of that name begins within the bytes that all text before the records may have.
    """
    if len(head) < HEAD_BYTES or head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] != b"{":
        return None
    searched = 0
    while True:
        match = _ARRAY.search(head, searched)
        if match is not None:
            whole = source.peek(match.start() + HEAD_BYTES)
            return whole[:_KEPT_BYTES] + b"\n" + whole[match.start():]
        searched = max(0, len(head) - 64)
        more = source.peek(min(2 * len(head), source.limits.record_bytes))
        if len(more) <= len(head):
            return None
        head = more
        source.progress("reading", 0)

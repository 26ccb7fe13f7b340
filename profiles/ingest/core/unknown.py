"""What a file is that no reader takes: said by name, with what to do instead."""

from __future__ import annotations

import codecs
import re

from profiles.ingest.core.source import HEAD_BYTES, Source
from profiles.ingest.trace import TraceError

# JSON whose records begin far behind its start: what a reader would have to see to know it.

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


# first bytes -> what it is, what to do
_KNOWN: list[tuple[bytes, str, str]] = [
    (b"version https://git-lfs", "a Git LFS pointer, not the file it stands for",
     "Run `git lfs pull` where it was cloned and upload the real file."),
    (b"BZh", "a bzip2 archive", "Unpack it and upload the profile inside."),
    (b"\xfd7zXZ", "an xz archive", "Unpack it and upload the profile inside."),
    (b"NVR\0", "an Nsight Compute report", "Its reader (the ncu-report package) is missing here."),
    (b"%PDF", "a PDF document", ""),
    (b"\x89PNG", "a picture", ""),
    (b"\x7fELF", "a program", ""),
]


def refuse(head: bytes, formats: list[str]) -> TraceError:
    """The error for content that starts with `head`: what was seen, which formats are read."""
    formats_text = "Formats read: " + ", ".join(formats) + "; each also in gzip, zstd, zip or tar, and texts in UTF-16."
    if not head:
        return TraceError("byte 0", "the file is empty", "Check that the profiler finished writing, and upload it again.")
    for magic, what, hint in _KNOWN:
        if head.startswith(magic):
            return TraceError("byte 0", f"this is {what}", f"{hint} {formats_text}".strip())
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text:
        return TraceError("byte 0", "the file holds nothing but white space", formats_text)
    if b"Memory Timeline" in text[:4096] and text[:1] == b"<":
        return TraceError("byte 0", "this is PyTorch's memory timeline as a picture in a page",
                          'Export its numbers: prof.export_memory_timeline("memory.json", device="cuda:0")')
    if text[:1] == b"<":
        return TraceError("byte 0", "this is an HTML or XML page, probably an error or sign-in page saved as a file",
                          f"Download the profile itself. {formats_text}")
    if text[:1] in b"{[" and _is_text(text[:32]):
        return TraceError("byte 0", "this is JSON, but not of a profiler that is known here (no `traceEvents`)", formats_text)
    if b"\0" in head[:4096] or text[:1] in b"{[":
        return TraceError("byte 0", f"unknown binary content (it starts with {head[:8].hex(' ')})", formats_text)
    first = text.splitlines()[0][:60].decode("utf-8", "replace")
    return TraceError("line 1", f"unknown text content (it starts with “{first}”)", formats_text)


def _is_text(start: bytes) -> bool:
    """Tell whether a file begins as a text: a bracket alone may be a byte of anything. The last character may be cut."""
    try:
        return all(letter.isprintable() or letter.isspace() for letter in codecs.getincrementaldecoder("utf-8")().decode(start))
    except UnicodeDecodeError:
        return False

"""What lies behind the end of a JSON document: keys of its own, another document, or what a longer file left there.

A shorter trace written over a longer one leaves that one's end behind its own; `cat a.json b.json` makes two documents of one
file. Neither is part of the trace: its records are counted by their `ph`, in bounded memory, and not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec

from profiles.ingest.trace import Doubt

_BYTE = re.compile(r"trailing characters \(byte (\d+)\)")
_RECORD = re.compile(rb'"ph"\s*:\s*"[^"\\]{1,2}"')
_TIME = re.compile(rb'"ts"\s*:\s*"?(-?\d{1,20}(?:\.\d{1,9})?)(?=["\s,}])')
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})(?=[\s,}])')
_ARRAY = re.compile(rb'"traceEvents"\s*:')
_HEAD = 1 << 20                         # of a document: within it `traceEvents` comes before the first record
_SEAM = 256                             # of text that is looked at again with what follows it: longer than any pattern's match
_BLANK = b" \t\r\n\0,\x1a"


@dataclass
class Trailing:
    """Text that belongs to no key of the document. Times are of its own clock, in ns."""

    at: int                             # byte of the file's content
    size: int
    documents: int                      # 0: the rest of one
    records: int
    first_ns: int | None
    last_ns: int | None
    base_ns: int | None                 # epoch ns of its time 0, where it states one

    def doubt(self, base_ns: Any) -> Doubt:
        """Return it as a row of the integrity report, its times on the clock of the document before it, whose time 0 is given."""
        shift_ns = self.base_ns - base_ns if self.base_ns is not None and isinstance(base_ns, int) and abs(base_ns) < 2**62 else 0
        first_ns, last_ns = (None if time is None else time + shift_ns for time in (self.first_ns, self.last_ns))
        return Doubt("second_document" if self.documents else "rest_of_another_file", self.records, None, first_ns, last_ns,
                     by=self.documents or None, where=f"byte {self.at:,} to {self.at + self.size:,}")


def split_end(text: bytes, bare: bool) -> tuple[dict[str, Any] | None, int]:
    """Return the keys behind the array of records, and where in `text` the document ends.

    `text` begins behind the array's `]`; `bare`: the array is the document. None, and the end of the text, where the keys do not
    decode.
    """
    skipped = len(text) - len(text.lstrip(_BLANK))
    if bare and text[skipped:skipped + 1] != b'"':
        return {}, 0
    body = b"{" + text[skipped:]
    try:
        keys = msgspec.json.decode(body)
        return (keys if isinstance(keys, dict) else None), len(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        found = _BYTE.search(str(error))
        if found is None:
            return None, len(text)
        end = int(found[1]) - 1
        while end and body[end - 1:end] != b"}":            # the byte that the decoder names is behind the blanks that follow
            end -= 1
        try:
            keys = msgspec.json.decode(body[:end])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None, len(text)
        return (keys if isinstance(keys, dict) else None), skipped + end - 1


def read_trailing(first: bytes, at: int, more: Iterator[bytes]) -> Trailing | None:
    """Return what lies at byte `at` and behind it, None where nothing but blanks and closing brackets does."""
    blank = len(first) - len(first.lstrip(_BLANK + b"}]"))
    text, size = first[blank:], len(first) - blank
    while not text:
        following = next(more, b"")
        if not following:
            return None
        at += len(first)
        first = following
        blank = len(first) - len(first.lstrip(_BLANK + b"}]"))
        text, size = first[blank:], len(first) - blank
    at += blank
    records, arrays, base, times = 0, 0, None, _Times()
    is_document = _is_document(text)
    while True:
        following = next(more, b"")
        keep = min(_SEAM, len(text)) if following else 0    # matches that begin there are counted with what follows
        stop = len(text) - keep
        records, arrays = (count + sum(1 for match in pattern.finditer(text) if match.start() < stop or not keep)
                           for count, pattern in ((records, _RECORD), (arrays, _ARRAY)))
        for match in _TIME.finditer(text):
            if match.start() < stop or not keep:
                times.add(match[1])
        if base is None and (stated := _BASE.search(text)):
            base = int(stated[1])
        if not following:
            documents = max(1, arrays) if is_document and records else 0
            return Trailing(at, size, documents, records, times.first_ns, times.last_ns, base)
        size += len(following)
        text = text[stop:] + following


def _is_document(text: bytes) -> bool:
    """Whether text is that of a whole trace, not the end of one: an array, or an object with one before its first record."""
    if text[:1] == b"[":
        return True
    record, array = _RECORD.search(text, 0, _HEAD), text.find(b'"traceEvents"', 0, _HEAD)
    return text[:1] == b"{" and array >= 0 and (record is None or array < record.start())


class _Times:
    """First and last of texts of µs; 0 is what records without a time carry."""

    def __init__(self) -> None:
        self._least: tuple[float, bytes] | None = None
        self._most: tuple[float, bytes] | None = None

    def add(self, text: bytes) -> None:
        value = float(text)
        if value:
            if self._least is None or value < self._least[0]:
                self._least = value, text
            if self._most is None or value > self._most[0]:
                self._most = value, text

    @property
    def first_ns(self) -> int | None:
        return self._least and _nanoseconds(self._least[1])

    @property
    def last_ns(self) -> int | None:
        return self._most and _nanoseconds(self._most[1])


def _nanoseconds(text: bytes) -> int | None:
    value = int(Decimal(text.decode()) * 1000)
    return value if abs(value) < 2**62 else None

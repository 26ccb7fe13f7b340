"""Where records of a trace's text begin and end, told from their first keys: places to cut at, none of them certain."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from profiles.ingest.core.events import EVENTS, Event
from profiles.ingest.trace import Doubt

# What lies behind the end of a JSON document: keys of its own, another document, or what a longer file left there.
#
# A shorter trace written over a longer one leaves that one's end behind its own; `cat a.json b.json` makes two documents of one
# file. Neither is part of the trace: its records are counted by their `ph`, in bounded memory, and not read.

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
        match = _BYTE.search(str(error))
        if match is None:
            return None, len(text)
        end = int(match[1]) - 1
        while end and body[end - 1:end] != b"}":            # the byte that the decoder names is behind the blanks that follow
            end -= 1
        try:
            keys = msgspec.json.decode(body[:end])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None, len(text)
        return (keys if isinstance(keys, dict) else None), skipped + end - 1


def read_trailing(first: bytes, offset: int, more: Iterator[bytes]) -> Trailing | None:
    """Return what lies at byte `offset` and behind it, None where nothing but blanks and closing brackets does."""
    blank = len(first) - len(first.lstrip(_BLANK + b"}]"))
    text, size = first[blank:], len(first) - blank
    while not text:
        following = next(more, b"")
        if not following:
            return None
        offset += len(first)
        first = following
        blank = len(first) - len(first.lstrip(_BLANK + b"}]"))
        text, size = first[blank:], len(first) - blank
    offset += blank
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
            return Trailing(offset, size, documents, records, times.first_ns, times.last_ns, base)
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


# Decode one text of records in one call, and say where the damage is when it does not decode.

BYTE = re.compile(r"\(byte (\d+)\)")
_TRAILING = "trailing characters"


class Outcome(NamedTuple):
    """Of one attempt to decode. `at`: byte of the damage; `close`: byte behind the array's ] where it was met."""

    ok: bool
    events: list[Event]
    at: int | None = None
    close: int | None = None
    strangers: int = 0                       # values in the array that are no objects
    text: bytes = b""                        # what `events` was decoded from
    error: Exception | None = None


def decode_piece(text: bytes) -> Outcome | None:
    """Decode a piece that holds whole records and nothing else; None for anything but that."""
    outcome = attempt(text, 0, len(text), closed=True)
    return outcome if outcome.ok and outcome.close is None and not outcome.strangers else None


def attempt(data: bytes, pos: int, end: int, closed: bool) -> Outcome:
    text = b"".join((b"[", memoryview(data)[pos:end], b"]" if closed else b""))
    try:
        return Outcome(True, EVENTS.decode(text), text=text)
    except msgspec.ValidationError:
        return _decode_loosely(text, pos)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        offset = _byte(error)
        if offset is not None and _TRAILING in str(error):
            close = text.rindex(b"]", 0, offset) + 1
            try:
                return Outcome(True, EVENTS.decode(text[:close]), close=pos + close - 1, text=text[:close])
            except msgspec.ValidationError:
                return _decode_loosely(text[:close], pos)._replace(close=pos + close - 1)
        return Outcome(False, [], None if offset is None else pos + max(offset - 1, 0), error=error)


def _decode_loosely(text: bytes, pos: int) -> Outcome:
    """Records whose types surprised the typed decoder."""
    try:
        values = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        offset = _byte(error)
        if offset is not None and _TRAILING in str(error):
            close = text.rindex(b"]", 0, offset) + 1
            return _decode_loosely(text[:close], pos)._replace(close=pos + close - 1)
        return Outcome(False, [], None if offset is None else pos + max(offset - 1, 0), error=error)
    events = [event_of(value) for value in values if isinstance(value, dict)]
    return Outcome(True, events, strangers=len(values) - len(events))


def event_of(record: dict[str, Any]) -> Event:
    fields = {key: record[key] for key in ("ph", "cat", "name", "pid", "tid", "ts", "dur", "id") if key in record}
    return Event(**fields, args=msgspec.Raw(msgspec.json.encode(record.get("args") or {})))


def _byte(error: Exception) -> int | None:
    match = BYTE.search(str(error))
    return int(match[1]) if match else None


_KEY = rb'"(?:ph|name|cat|ts|pid|tid|id2?|dur|args|bp|s|tts|tdur|sf|cname|bind_id|flow_in|flow_out|scope|stack)"\s*:'
BOUNDARY = re.compile(rb"\}[\s,]*(?=\{\s*" + _KEY + rb")")
_CLOSE = re.compile(rb"\}[\s,]*(?=\]\s*(?:,|\}|$))")
_INNER = re.compile(rb"[,\]\}][\s,]*(?=\{\s*" + _KEY + rb")")
_SEPARATORS = re.compile(rb"[\s,]*")
TRIES = 24                               # ends and beginnings that are looked at for one damaged record


def skip_separators(data: bytes, pos: int) -> int:
    match = _SEPARATORS.match(data, pos)
    return match.end() if match else pos


def last_boundary(data: bytes) -> tuple[int, int]:
    for back in (1 << 16, 1 << 20, len(data)):
        matches = list(BOUNDARY.finditer(data, max(0, len(data) - back)))
        if matches:
            return matches[-1].start() + 1, matches[-1].end()
    return 0, 0


def boundary_after(data: bytes, goal: int, stop: tuple[int, int]) -> tuple[int, int]:
    match = BOUNDARY.search(data, goal) if goal < stop[0] else None
    return (match.start() + 1, match.end()) if match and match.end() < stop[1] else stop


def narrower(data: bytes, pos: int, end: int, offset: int | None, whole: bool) -> tuple[int, int] | None:
    """Return a boundary before the damage, or None.

    At the record that holds byte `offset`; with no byte known, somewhere nearer to `pos`.
    """
    limit = offset if offset is not None else end if whole else pos + (end - pos) // 8
    for back in (1 << 12, 1 << 17, limit - pos):
        matches = [match for match in BOUNDARY.finditer(data, max(pos, limit - back), min(limit + 256, end))
                 if match.end() <= limit]
        if matches:
            return matches[-1].start() + 1, matches[-1].end()
    if offset is None and not whole:                     # none before: the nearest behind, as long as it narrows
        match = BOUNDARY.search(data, limit, end)
        if match:
            return match.start() + 1, match.end()
    return None


def inner_record(data: bytes, pos: int, after: int) -> int | None:
    """Return where a whole record begins within damage that ends with it.

    `{{{{, {"ph": …}`.
    """
    end = data.rfind(b"}", pos, after) + 1
    for match in reversed(list(_INNER.finditer(data, pos + 1, end))[-TRIES:]):
        if attempt(data, match.end(), end, closed=True).ok:
            return match.end()
    return None


def ends(data: bytes, pos: int, stop: int, final: bool) -> Iterator[tuple[int, int]]:
    """Yield where the record at `pos` may end, nearest first.

    Before the next record, before the array's end, at the end.
    """
    for match in BOUNDARY.finditer(data, pos, stop + (0 if final else 256)):
        if match.end() > stop:
            return
        yield match.start() + 1, match.end()
    if final:
        for match in _CLOSE.finditer(data, pos):
            yield match.start() + 1, match.start() + 1
        text = data[pos:stop].rstrip(b" \t\r\n,")
        yield pos + len(text), stop
        whole = text.rfind(b"}") + 1                    # a whole record, and the begin of one that is cut off
        if 0 < whole < len(text):
            yield pos + whole, pos + whole

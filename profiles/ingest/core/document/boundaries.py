"""Where records of a trace's text begin and end, told from their first keys: places to cut at, none of them certain."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from profiles.ingest.core.events import EVENTS, Event

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
        at = _byte(error)
        if at is not None and _TRAILING in str(error):
            close = text.rindex(b"]", 0, at) + 1
            try:
                return Outcome(True, EVENTS.decode(text[:close]), close=pos + close - 1, text=text[:close])
            except msgspec.ValidationError:
                return _decode_loosely(text[:close], pos)._replace(close=pos + close - 1)
        return Outcome(False, [], None if at is None else pos + max(at - 1, 0), error=error)


def _decode_loosely(text: bytes, pos: int) -> Outcome:
    """Records whose types surprised the typed decoder."""
    try:
        values = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        at = _byte(error)
        if at is not None and _TRAILING in str(error):
            close = text.rindex(b"]", 0, at) + 1
            return _decode_loosely(text[:close], pos)._replace(close=pos + close - 1)
        return Outcome(False, [], None if at is None else pos + max(at - 1, 0), error=error)
    events = [event_of(value) for value in values if isinstance(value, dict)]
    return Outcome(True, events, strangers=len(values) - len(events))


def event_of(record: dict[str, Any]) -> Event:
    known = {key: record[key] for key in ("ph", "cat", "name", "pid", "tid", "ts", "dur", "id") if key in record}
    return Event(**known, args=msgspec.Raw(msgspec.json.encode(record.get("args") or {})))


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


def narrower(data: bytes, pos: int, end: int, at: int | None, whole: bool) -> tuple[int, int] | None:
    """Return a boundary before the damage, or None.

    At the record that holds byte `at`; with no byte known, somewhere nearer to `pos`.
    """
    limit = at if at is not None else end if whole else pos + (end - pos) // 8
    for back in (1 << 12, 1 << 17, limit - pos):
        matches = [match for match in BOUNDARY.finditer(data, max(pos, limit - back), min(limit + 256, end))
                 if match.end() <= limit]
        if matches:
            return matches[-1].start() + 1, matches[-1].end()
    if at is None and not whole:                     # none before: the nearest behind, as long as it narrows
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

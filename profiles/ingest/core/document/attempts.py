"""Decode one text of records in one call, and say where the damage is when it does not decode."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from profiles.ingest.core.events import EVENTS, Event

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

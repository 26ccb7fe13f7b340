"""Cut the text of a trace into pieces of whole records, decode each piece in one call, and lose only what is damaged.

The decoder is the judge: a cut is right when the piece decodes. Where it does not, the error's byte says where the
damage is; everything before it is decoded in one call, the record around it is mended or counted as lost, and reading
goes on behind it with small windows that grow again (so that a file of nothing but damage still costs linear time).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from profiles.ingest.core.damage import cleanse, mend
from profiles.ingest.core.document.boundaries import (
    BOUNDARY,
    BYTE,
    TRIES,
    Outcome,
    attempt,
    boundary_after,
    ends,
    event_of,
    inner_record,
    last_boundary,
    narrower,
    read_trailing,
    skip_separators,
    split_end,
)
from profiles.ingest.core.events import EXACT_TIMES, Event
from profiles.ingest.core.source import Source
from profiles.ingest.trace import Integrity, TraceError

CHUNK_BYTES = 2 << 20                    # its objects fit the processor's cache: measured best of 0.25 to 8 MB
_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_SMALL = 4096
_INNER_LEVELS = 4
_MEND_BYTES = 1 << 18
_NOTES = 8
_TRY_BYTES = 1 << 20                     # how far a damaged record is looked for its end
_MENDS = 3                               # of the tries, how many are mended and not only decoded
_PATIENCE_BYTES = 4 << 20                # of text mended, beyond which damage is only counted


class Pieces:
    """Iterate to get lists of `Event`; afterwards `head` and `tail` hold the keys around the array."""

    def __init__(self, source: Source, integrity: Integrity) -> None:
        self.source, self.integrity = source, integrity
        self.head: dict[str, Any] = {}
        self.tail: dict[str, Any] = {}
        self.records = 0
        self._bare = False                       # the array is the document
        self._buffer, self._offset = b"", 0      # undecoded text and its byte position in the content
        self._ended = False                      # the array's ] was seen
        self._begun = self._exhausted = False
        self._mended_bytes = 0
        self._text = b""                         # of the piece handed out last

    def __iter__(self) -> Iterator[list[Event]]:
        self._begin()
        final = False
        while not (final or self._ended):
            size = max(CHUNK_BYTES, len(self._buffer) // 2)       # a long record is looked at a few times, not per chunk
            more = self.source.read(size)
            final = len(more) < size
            self._buffer += more
            for events in self._decode(final):
                self.records += len(events)
                yield events
            self._check_limits()
            self.source.progress("reading", self.records)
        self._finish()

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._find_array()

    def cut(self) -> bytes | None:
        """Return the text of the next whole records, undecoded.

        None where only the rest is left, for the iterator.
        """
        self._begin()
        if self._exhausted or len(self._buffer) > self.source.limits.record_bytes:
            return None
        more = self.source.read(CHUNK_BYTES)
        self._exhausted = len(more) < CHUNK_BYTES
        self._buffer += more
        end, after = last_boundary(self._buffer)
        if self._exhausted or not end:
            return None if self._exhausted else b""
        text = self._buffer[skip_separators(self._buffer, 0):end]
        self._advance(after)
        return text

    def give_back(self, texts: list[bytes]) -> None:
        """Take back what `cut` gave, in its order: the iterator reads it again."""
        before = b"".join(text + b"," for text in texts)
        self._offset -= len(before)
        self._buffer = before + self._buffer

    def tell(self) -> None:
        self._check_limits()
        self.source.progress("reading", self.records)

    def exact_times(self, events: list[Event]) -> list[Any]:
        """Return the times of the piece handed out last as their texts (raw JSON).

        Where its text is still known.
        """
        return [record.ts for record in EXACT_TIMES.decode(self._text)] if self._text else [e.ts for e in events]

    def holds(self, text: bytes) -> bool:
        """Return whether the text of the piece handed out last contains `text`."""
        return text in self._text

    def again(self, decoder: msgspec.json.Decoder[list[Any]], events: list[Event]) -> list[Any] | None:
        """Return the piece handed out last in another form, record by record.

        None where its text is not known any more.
        """
        try:
            records = decoder.decode(self._text) if self._text else []
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return records if len(records) == len(events) else None

    # -- around the array

    def _find_array(self) -> None:
        text = self._buffer = self.source.read(CHUNK_BYTES)
        start = len(text) - len(text.removeprefix(b"\xef\xbb\xbf").lstrip())
        if text[start:start + 1] == b"[":
            self._bare = True
            self._advance(start + 1)
            return
        searched = 0
        while True:
            for match in _ARRAY.finditer(self._buffer, searched):
                if self._take_head(self._buffer[start:match.start()]):
                    self._advance(match.end())
                    return
            searched = max(0, len(self._buffer) - 64)
            more = self.source.read(CHUNK_BYTES)
            self._buffer += more
            if not more or len(self._buffer) > self.source.limits.record_bytes:
                raise TraceError(f"byte {len(self._buffer)}", "no `traceEvents` array was found up to here",
                                 "Export the trace again (`prof.export_chrome_trace`); this file holds no records.")

    def _take_head(self, text: bytes) -> bool:
        """Keys before the array. False where the name of the array was only found within a string or an inner object."""
        body = text.rstrip().rstrip(b",") + b"}"
        try:
            head = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            if text.count(b'"') % 2 or _is_within(body):
                return False
            head = mend(body)
            if head is None:
                self.integrity.notes.append("The keys before traceEvents are damaged: hardware and versions are unknown.")
            else:
                self.integrity.repair("damaged keys before traceEvents")
        self.head = head if isinstance(head, dict) else {}
        return True

    def _finish(self) -> None:
        end = self.source.position
        if self._ended:
            self._take_tail()
        elif not self.integrity.truncated_at:
            self.integrity.truncated_at = f"byte {end}"
            self.integrity.notes.append("The array of records is not closed: the file ends before its end, "
                                        "or the profiler never wrote the closing bracket.")
        if self.source.damage:
            self.integrity.truncated_at = self.integrity.truncated_at or f"byte {end}"
            self.integrity.notes.append(f"The compressed stream is incomplete: {self.source.damage}.")

    def _take_tail(self) -> None:
        limit = self.source.limits.record_bytes
        while len(self._buffer) < limit and (more := self.source.read(CHUNK_BYTES)):
            self._buffer += more
        tail, end = split_end(self._buffer, self._bare)
        if tail is None:
            text = self._buffer.strip().lstrip(b",").lstrip()
            tail = mend(b"{" + text) if text.endswith(b"}") else None
            if tail is None and text.strip(b"}"):
                self.integrity.notes.append("The keys after traceEvents are damaged and were not read.")
        self.tail = tail or {}
        trailing = read_trailing(self._buffer[end:], self._offset + end, iter(lambda: self.source.read(CHUNK_BYTES), b""))
        if trailing and trailing.records:
            what = "a second trace in the file" if trailing.documents else "another file behind the end"
            self._count_unread(f"of {what}", f"of {what}: not read", trailing.records)
            self.integrity.plausibility.append(trailing.doubt((self.head | self.tail).get("baseTimeNanoseconds")))
        elif trailing:
            self.integrity.notes.append(f"Behind the end of the trace, from byte {trailing.at:,}, the file holds "
                                        f"{trailing.size:,} bytes that are no records: they are not read.")

    # -- within the array

    def _advance(self, count: int) -> None:
        self._buffer = self._buffer[count:]
        self._offset += count

    def _check_limits(self) -> None:
        if len(self._buffer) > self.source.limits.record_bytes and not self._ended:
            self._lose("longer than the limit of one record", 0)
            self._advance(len(self._buffer) - 64)
        if self.records > self.source.limits.records:
            raise TraceError(f"byte {self._offset}", f"more than {self.source.limits.records} records",
                             "Profile fewer steps, or raise the limit of records.")

    def _lose(self, reason: str, offset: int, count: int = 1) -> None:
        self._count_unread("damaged text", reason, count)
        if len(self.integrity.notes) < _NOTES:
            self.integrity.notes.append(f"Record at byte {self._offset + offset}: {reason}.")

    def _count_unread(self, kind: str, reason: str, count: int) -> None:
        """Records that never become an `Event`: they have been read all the same, and their kinds add up with the others."""
        if not count:
            return
        self.records += count
        self.integrity.records_read += count
        self.integrity.count(kind, count)
        self.integrity.drop(reason, count)

    def _decode(self, final: bool) -> Iterator[list[Event]]:
        """Decode what can be decoded of the buffer; the rest stays in it. `final`: no more text will come."""
        data = self._buffer
        self._tried: set[str] = set()
        stop = (len(data), len(data)) if final else last_boundary(data)
        pos = skip_separators(data, 0)
        end, after = stop
        window = _SMALL
        while pos < stop[1] and not self._ended:
            whole = final and end == stop[0]            # reaches into the text behind the array
            outcome = attempt(data, pos, end, closed=not whole)
            if outcome.ok:
                self._ended = whole or outcome.close is not None
                yield self._keep_outcome(outcome)
                pos = skip_separators(data, after if outcome.close is None else outcome.close)
                window *= 8
            elif outcome.error and (clean := self._cleanse(data, pos, outcome.error)) is not None:
                data, pos = clean, 0
                stop = (len(data), len(data)) if final else last_boundary(data)
                end, after = stop
                continue
            else:
                nearer = narrower(data, pos, end, outcome.at, whole)
                if nearer:
                    end, after = nearer
                    continue
                result = self._damaged_record(data, pos, stop[1], final)
                if result is None:                       # its end may lie in text still to come
                    break
                events, pos = result
                yield events
                window = _SMALL
            end, after = boundary_after(data, pos + window, stop)
        self._offset += len(self._buffer) - len(data)   # of text that grew in mending: positions stay near
        self._buffer = data
        self._advance(min(pos, len(data)))

    def _cleanse(self, data: bytes, pos: int, error: Exception) -> bytes | None:
        """The rest of the buffer without one kind of damage; None where that changes nothing or was done already."""
        kind = type(error).__name__ + BYTE.sub("", str(error))[:60]
        if kind in self._tried:
            return None
        self._tried.add(kind)
        rest = data[pos:]
        clean = cleanse(rest, error)
        if clean == rest:
            return None
        self.integrity.repair("pieces with text that was not JSON")
        self._offset += pos
        self._buffer = clean
        return clean

    def _keep_outcome(self, outcome: Outcome) -> list[Event]:
        self._text = outcome.text
        if outcome.strangers:
            self._count_unread("not an object", "not an object", outcome.strangers)
        return outcome.events

    def _damaged_record(self, data: bytes, pos: int, stop: int, final: bool) -> tuple[list[Event], int] | None:
        """The record at `pos`, mended, and where to go on; an empty list where it is lost; None to wait for more text."""
        if self._mended_bytes > _PATIENCE_BYTES:
            self._lose("unreadable", pos, 1 + sum(1 for _ in BOUNDARY.finditer(data, pos, stop)))
            return [], stop
        first: int | None = None
        for number, (end, after) in enumerate(ends(data, pos, stop, final)):
            if first is None:
                first = after
            if number == TRIES or end - pos > _TRY_BYTES:
                break
            outcome = attempt(data, pos, end, closed=True)
            if outcome.ok:
                return self._keep_outcome(outcome), skip_separators(data, after)
            record = None
            if number < (_MENDS if self._mended_bytes < _PATIENCE_BYTES // 8 else 1) and end - pos < _MEND_BYTES:
                self._mended_bytes += end - pos
                record = mend(data[pos:end])
            if record is not None:
                self.integrity.repair("text that was not JSON")
                self._text = b""
                return [event_of(record)], skip_separators(data, after)
        else:
            if not final and stop - pos < self.source.limits.record_bytes // 2:
                return None
        if data[pos:pos + 1] == b"]":
            self._ended = True
            return [], pos + 1
        if first is None or (final and first >= stop):
            self._lose("cut off by the end of the file", pos)
            self.integrity.truncated_at = f"byte {self._offset + pos}"
            return [], stop
        self._lose("unreadable", pos)
        return [], inner_record(data, pos, first) or skip_separators(data, first)


def _is_within(text: bytes) -> bool:
    """Tell whether the text is the start of a document up to a key of an inner object: closed a level more it is whole."""
    for _ in range(_INNER_LEVELS):
        text += b"}"
        try:
            msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            continue
        return True
    return False

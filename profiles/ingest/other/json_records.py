"""Objects of a JSON array, or of a file of one object a line, one after the other, without the whole file in memory."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

from profiles.ingest.core.source import Source
from profiles.ingest.trace import Integrity, TraceError

RECORD_CHARS = 1 << 20
_BLOCK_BYTES = 4 << 20
_PATIENCE_CHARS = 64 << 20               # looked at in vain, beyond which the rest is not read: damage must not cost hours
_PROGRESS_RECORDS = 1 << 16
_BETWEEN = re.compile(r"[\s,\[\]]*")
_NEXT = re.compile(r"\}[\s,]*(?=\{)|\n(?=\{)")


def _number(text: str) -> Decimal | None:
    try:
        return Decimal(text)
    except InvalidOperation:             # an exponent of more digits than any number has
        return None


DECODER = json.JSONDecoder(parse_float=_number)      # exact: 1732334400.123456789 s is more than a float64 holds


class JsonRecords:
    """Iterate to get the objects; what is none is counted in `integrity` as read and not kept."""

    def __init__(self, source: Source, integrity: Integrity) -> None:
        self._source, self._integrity = source, integrity
        self._text, self._at, self._more = "", 0, True
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._wasted = self._seen = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self._fill()
        self._text = self._text.removeprefix("\ufeff")
        is_array, closed = self._text.lstrip()[:1] == "[", False
        while True:
            if len(self._text) - self._at < RECORD_CHARS and self._more:
                self._fill()
            start = self._text.find("{", self._at)
            end = start if start >= 0 else len(self._text)
            closed = self._skip(end) or (closed and start < 0)
            if start >= 0:
                record = self._record(start)
                if record is not None:
                    yield record
            elif not self._more:
                break
        self._finish(is_array and not closed)

    def _fill(self) -> None:
        block = self._source.read(_BLOCK_BYTES)
        self._more = len(block) == _BLOCK_BYTES
        self._text, self._at = self._text[self._at:] + self._decode(block, final=not self._more), 0

    def _skip(self, end: int) -> bool:
        """Pass what stands between two objects, and tell whether it closes the array."""
        between = self._text[self._at:end]
        if not _BETWEEN.fullmatch(between):
            self._lose("text that is no object")
        self._at = end
        return "]" in between

    def _record(self, start: int) -> dict[str, Any] | None:
        self._seen += 1
        if self._seen % _PROGRESS_RECORDS == 0:
            self._source.progress("reading", self._seen)
        if self._seen > self._source.limits.records:
            raise TraceError(f"byte {self._source.position}", f"more than {self._source.limits.records:,} records",
                             "Write fewer events, or raise the limit of records.")
        try:
            record, self._at = DECODER.raw_decode(self._text, start)
        except (ValueError, RecursionError) as error:
            self._pass_damage(start, error)
            return None
        return record if isinstance(record, dict) else None

    def _pass_damage(self, start: int, error: Exception) -> None:
        """Go on behind an object that cannot be decoded: where a `}` or a new line is followed by a `{`."""
        known = isinstance(error, json.JSONDecodeError) and not error.msg.startswith("Unterminated")
        failed = error.pos if isinstance(error, json.JSONDecodeError) and known else len(self._text)
        following = _NEXT.search(self._text, start + 1)
        cut = not self._more and following is None and not self._text.rstrip().endswith(("}", "]"))
        self._lose("cut off by the end of the file" if cut else "damaged, nested too deeply or longer than 1 MB")
        if cut:
            self._integrity.truncated_at = f"byte {self._source.position}"
        self._wasted += min(failed - start, RECORD_CHARS) + 64
        self._at = following.end() if following else len(self._text)
        if self._wasted > _PATIENCE_CHARS:
            self._give_up()

    def _give_up(self) -> None:
        self._integrity.notes.append(f"Too much of the file is damaged: what follows byte {self._source.position} or "
                                     "stands a little before it was not read.")
        self._text, self._at, self._more = "", 0, False
        self._integrity.truncated_at = f"byte {self._source.position}"

    def _lose(self, reason: str) -> None:
        self._integrity.records_read += 1
        self._integrity.kinds["damaged text"] = self._integrity.kinds.get("damaged text", 0) + 1
        self._integrity.drop(reason)

    def _finish(self, is_open: bool) -> None:
        damage = self._source.damage
        if damage:
            self._integrity.notes.append(f"The compressed file ends early: {damage}.")
        if is_open and not self._integrity.truncated_at:
            self._integrity.notes.append("The array of records is not closed: the file ends before its end.")
        if (is_open or damage) and not self._integrity.truncated_at:
            self._integrity.truncated_at = f"byte {self._source.position}"

"""Objects of a JSON array, or of a file of one object a line, one after the other, without the whole file in memory."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from decimal import Context, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, NamedTuple

from profiles.ingest.core.source import Source
from profiles.ingest.trace import Integrity, TraceError

# What the keys of hand-written events mean: times, durations, names, lanes and numbers with a unit in their suffix.

CLOCKS = ("timestamp", "ts", "time", "t", "start_time", "start", "begin")      # the first of them that a record has is its clock
_DURATIONS = ("duration", "dur", "elapsed", "elapsed_time", "execution_time", "wall_time", "total_time", "run_time", "runtime",
              "latency")
_LENGTHS = ("length", "took")                    # a duration where a unit of time stands behind it
_ENDS = ("end_time", "end", "stop")
NAMES = ("name", "event", "label", "op", "operation", "layer", "module", "function")
SHAPES = ("shape", "shapes", "dims", "dtype", "dtypes")       # words of a key whose list is shown with the event
LANES = ("rank", "gpu", "device", "thread")
# an index of a lane; thread idents are as large as addresses
_LARGEST = {"rank": 1_000_000, "gpu": 1_023, "device": 1_023, "thread": 2**63 - 1}
LANE_CHARS = 60
KEY_CHARS = 200
_TIMES = {"": 10**9, "s": 10**9, "sec": 10**9, "seconds": 10**9, "ms": 10**6, "us": 1_000, "ns": 1}
# suffix -> factor to the base unit, base unit
_UNITS: dict[str, tuple[float, str]] = {
    "bytes": (1, "bytes"), "kb": (1e3, "bytes"), "mb": (1e6, "bytes"), "gb": (1e9, "bytes"), "kib": (2**10, "bytes"),
    "mib": (2**20, "bytes"), "gib": (2**30, "bytes"), "pct": (1, "%"), "percent": (1, "%"), "ns": (1e-9, "s"), "us": (1e-6, "s"),
    "ms": (1e-3, "s"), "s": (1, "s"), "w": (1, "W"), "mhz": (1e6, "Hz"), "ghz": (1e9, "Hz")}
DECIMAL_BYTES = ("kb", "mb", "gb")               # 10**3, 10**6, 10**9: their writer may have meant 2**10, …
# Unix time, of today and some hundred years around it, by its size
_UNIX = ((10**9, 2 * 10**10, 10**9, "seconds"), (10**12, 2 * 10**13, 10**6, "milliseconds"),
         (10**15, 2 * 10**16, 1_000, "microseconds"), (10**18, 2 * 10**19, 1, "nanoseconds"))
_CONTEXT = Context(prec=40)
_MOST_NS = 2**62


class Key(NamedTuple):
    """`role`: "clock", "duration", "end", "name", "lane" or "number"; `base`: of a time without its unit; `scale`: to ns, or to
    `unit`."""

    role: str
    base: str
    scale: float
    unit: str | None = None
    suffix: str = ""

    @property
    def is_plain_timestamp(self) -> bool:
        return self.base == "timestamp" and not self.suffix


def clean_text(text: str) -> str:
    """Return a text without lone surrogates, which JSON may hold and UTF-8 may not."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def key_of(text: str) -> Key:
    """Return what a key means. Case does not matter."""
    return _short_key(text[:KEY_CHARS])


@lru_cache(4096)
def _short_key(text: str) -> Key:
    low = text.lower()
    if low in NAMES:
        return Key("name", low, 1)
    if low in LANES:
        return Key("lane", low, 1)
    base, _, suffix = low.rpartition("_") if "_" in low else (low, "", "")
    for role, names in (("clock", CLOCKS), ("duration", _DURATIONS), ("end", _ENDS)):
        if low in names:
            return Key(role, low, _TIMES[""])
        if suffix in _TIMES and base in names:
            return Key(role, base, _TIMES[suffix], suffix=suffix)
    if suffix in _TIMES and base in _LENGTHS:
        return Key("duration", base, _TIMES[suffix], suffix=suffix)
    factor, unit = _UNITS.get(suffix, (1.0, None)) if base else (1.0, None)
    return Key("number", clean_text(text), factor, unit, suffix)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def nanoseconds(value: Any, scale: float) -> int | None:
    """Return a time in ns, exactly as its decimal text says; None where it is no number or beyond any clock."""
    if not is_number(value):
        return None
    try:
        exact = Decimal(value)
        if not exact.is_finite() or exact.adjusted() > 20:
            return None
        ns = int(_CONTEXT.multiply(exact, Decimal(scale)).to_integral_value(context=_CONTEXT))
    except (InvalidOperation, ValueError, OverflowError):
        return None
    return ns if abs(ns) < _MOST_NS else None


def unix_unit(value: Any) -> tuple[int, str] | None:
    """Return ns per unit and the unit's name where the size of a number is that of a Unix time."""
    if not is_number(value):
        return None
    return next(((scale, unit) for low, high, scale, unit in _UNIX if low <= value < high), None)


def lane_value(base: str, value: Any) -> int | str | None:
    """Return an index or a short text that keeps lanes apart; None for what is neither."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST[base]:
        return value
    return clean_text(value) if isinstance(value, str) and 0 < len(value) <= LANE_CHARS else None


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
        has_position = isinstance(error, json.JSONDecodeError) and not error.msg.startswith("Unterminated")
        failed = error.pos if isinstance(error, json.JSONDecodeError) and has_position else len(self._text)
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
        self._integrity.count("damaged text")
        self._integrity.drop(reason)

    def _finish(self, is_open: bool) -> None:
        damage = self._source.damage
        if damage:
            self._integrity.notes.append(f"The compressed file ends early: {damage}.")
        if is_open and not self._integrity.truncated_at:
            self._integrity.notes.append("The array of records is not closed: the file ends before its end.")
        if (is_open or damage) and not self._integrity.truncated_at:
            self._integrity.truncated_at = f"byte {self._source.position}"

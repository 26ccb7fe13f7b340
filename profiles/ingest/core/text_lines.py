"""Lines of a text that a tool printed, read in blocks; of a log, those that are complete.

A log that was killed or cut ends within a line, whose last number may have lost digits.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from datetime import date
from functools import lru_cache
from typing import Literal, NamedTuple

from profiles.ingest.core.source import Source
from profiles.ingest.trace import Integrity, TraceError

# Tables that tools print with a line of dashes below (or around) their header: cells by the columns of the dashes.

_RULE = re.compile(r"\s*-{2,}(?:\s+-{2,})+\s*")
MAX_COLUMNS = 100


def spans_of(line: str) -> list[tuple[int, int]]:
    """Return the first and the last column of each group of dashes; nothing where the line is no such rule."""
    if len(line) > 20_000 or not _RULE.fullmatch(line):
        return []
    return [match.span() for match in re.finditer(r"-+", line)][:MAX_COLUMNS]


def cells_of(line: str, spans: list[tuple[int, int]]) -> list[str]:
    """Return the cells of a line below a rule.

    A cell that is wider than its dashes reaches to the next gap; the last one to the end of the line.
    """
    cells, offset = [], 0
    for number, (_, end) in enumerate(spans):
        if number + 1 == len(spans):
            stop = len(line)
        else:
            gap = line.find("  ", end) if line[end:end + 1].strip() else end       # something sticks out to the right
            stop = end if gap < 0 else gap
        cells.append(line[offset:max(stop, offset)].strip())
        offset = max(stop, offset)
    return cells


def csv_cells(line: str, delimiter: str = ",") -> list[str]:
    """Return the cells of a line of CSV; [] where one is beyond the limit of the csv module: 128 kB."""
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []


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


# Times as logs print them, on the clock of the log. Only epoch seconds say which moment of the world they mean.

SECOND_NS, DAY_NS = 10**9, 86_400 * 10**9
Form = Literal["date", "year not stated", "time of day", "epoch", "none"]       # none: rows counted, no time stated
_LEAP_YEAR = 2000                # of dates without a year: it has every day
_YEARS = range(1970, 2200)       # int64 nanoseconds hold no more
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_TIME = r"(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)(?:[.,](?P<part>\d{1,9}))?"
_FORMS: tuple[tuple[Form, re.Pattern[str]], ...] = (
    ("date", re.compile(rf"(?P<year>\d{{4}})([-/]?)(?P<month>\d\d)\2(?P<day>\d\d)[ T]\s*{_TIME}", re.ASCII)),
    ("year not stated", re.compile(rf"(?P<name>[A-Za-z]{{3}})\s+(?P<day>\d\d?)\s+{_TIME}", re.ASCII)),
    ("time of day", re.compile(_TIME, re.ASCII)),
    ("epoch", re.compile(r"(?P<epoch>[1-4]\d{9})(?:\.(?P<part>\d{1,9}))?", re.ASCII)),
)


class Moment(NamedTuple):
    """A time in ns: since 1970 on the log's own clock, of a time of day since midnight."""

    ns: int
    form: Form


@lru_cache(4096)
def parse_moment(text: str) -> Moment | None:
    """Return the moment that a text says; None where it says none."""
    for form, pattern in _FORMS:
        if match := pattern.fullmatch(text):
            return _moment(form, match.groupdict())
    return None


def _moment(form: Form, parts: dict[str, str | None]) -> Moment | None:
    part_ns = int((parts["part"] or "").ljust(9, "0"))
    if form == "epoch":
        return Moment(int(parts["epoch"] or 0) * SECOND_NS + part_ns, form)
    hour, minute, second = (int(parts[name] or 0) for name in "hms")
    if hour > 23 or minute > 59 or second > 60:          # 60: a leap second
        return None
    days = 0 if form == "time of day" else _days(parts)
    if days is None:
        return None
    return Moment(days * DAY_NS + ((hour * 60 + minute) * 60 + second) * SECOND_NS + part_ns, form)


def _days(parts: dict[str, str | None]) -> int | None:
    name = parts.get("name")
    if name is not None and name.lower() not in _MONTHS:
        return None
    month = int(parts["month"] or 0) if name is None else _MONTHS.index(name.lower()) + 1
    year = int(parts["year"] or 0) if name is None else _LEAP_YEAR
    try:
        day = date(year, month, int(parts["day"] or 0))
    except ValueError:
        return None
    return day.toordinal() - date(1970, 1, 1).toordinal() if year in _YEARS else None


MAX_LINE_BYTES = 1 << 16
_READ_BYTES, _HEAD_BYTES = 1 << 20, 1 << 16
_LONG = f"a line of more than {MAX_LINE_BYTES:,} bytes"
_CUT = "the last line, which has no end: its numbers may be cut"


def head_lines(head: bytes, most: int) -> list[str]:
    """Return the first `most` lines with something in them of a file's first bytes."""
    text = head[:_HEAD_BYTES].decode("utf-8", "replace").removeprefix("\ufeff")
    return [line.rstrip("\r") for line in text.split("\n") if line.strip()][:most]


def complete_lines(source: Source, integrity: Integrity) -> Iterator[str]:
    """Yield every line with something in it, undecodable bytes replaced; lines that are too long or cut are counted."""
    rest, skips = b"", False
    while block := source.read(_READ_BYTES):
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            if skips or len(line) > MAX_LINE_BYTES:
                _leave_out(integrity, _LONG)
            elif not line.isspace() and line:
                yield line.decode("utf-8", "replace").removeprefix("\ufeff").rstrip("\r")
            skips = False
        if len(rest) > MAX_LINE_BYTES:
            rest, skips = b"", True
        source.progress("reading", integrity.records_read)
    if skips or rest.strip():
        _leave_out(integrity, _LONG if skips else _CUT)
        integrity.truncated_at = f"byte {source.position}"
    integrity.end_early(source.damage)


def _leave_out(integrity: Integrity, why: str) -> None:
    integrity.records_read += 1
    integrity.drop(why)

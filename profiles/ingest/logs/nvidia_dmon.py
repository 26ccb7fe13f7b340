"""Text of `nvidia-smi dmon -o DT` → `Trace` of counters.

Two header lines (names, units) come again every so many rows. `-o T` prints the time of day alone; without a time the log
does not state its interval either. Its "MB" of memory are MiB: a query of the same second prints the same number.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

from profiles.ingest.core.source import Source
from profiles.ingest.core.text_lines import complete_lines, head_lines, parse_moment
from profiles.ingest.logs.counters import MAX_COLUMNS, Counter, CounterLog, Gpu
from profiles.ingest.trace import Integrity, Trace, TraceError

FORMAT = "nvidia-smi-dmon"
_HINT = "Record it with date and time: nvidia-smi dmon -o DT > gpus.txt"
_NO_UNIT = frozenset({"bool", "errs", "-", "Idx"})
_INDEX = re.compile(r"\d{1,4}", re.ASCII)


class _Header(NamedTuple):
    size: int
    gpu: int
    date: int | None
    time: int | None
    counters: list[Counter]
    places: list[int]


def _words(line: str) -> list[str]:
    return line.replace(",", " ").split()


def _names(line: str) -> list[str] | None:
    """Return the names of the columns; None where the line is no first line of a header. (`pid` is pmon's.)"""
    if not line.startswith("#") or len(line) > 1 << 15:
        return None
    names = _words(line[1:])
    gpu_place = next((place for place, name in enumerate(names[:3]) if name == "gpu"), None)
    return names if gpu_place is not None and set(names[:gpu_place]) <= {"Date", "Time"} and "pid" not in names else None


def _header(names: list[str], line: str) -> _Header | None:
    """Return the header of both lines; None where the second does not fit."""
    units = _words(line[1:]) if line.startswith("#") else []
    gpu = names.index("gpu")
    if len(units) != len(names) or units[gpu] != "Idx":
        return None
    first = {name: place for place, name in reversed(list(enumerate(names)))}
    places = [place for place in sorted(first.values()) if place > gpu][:MAX_COLUMNS]
    counters = [Counter(names[place][:200], _unit(units[place])) for place in places]
    return _Header(len(names), gpu, first.get("Date"), first.get("Time"), counters, places)


def _unit(unit: str) -> str:
    return "MiB" if unit == "MB" else "" if unit in _NO_UNIT else unit


def sniff(head: bytes) -> bool:
    return any((names := _names(first)) is not None and _header(names, second) is not None
               for first, second in pairwise(head_lines(head, 40)))


def read(source: Source) -> Trace:
    """Raises TraceError where the log has no time of its rows, or none can be read."""
    integrity = Integrity()
    log = CounterLog(source, FORMAT, integrity)
    names: list[str] | None = None
    header: _Header | None = None
    start = ""
    for line in complete_lines(source, integrity):
        if line.startswith("#"):
            new = _header(names, line) if names else None
            names = None if new else _names(line)
            header = _timed(new) if new else header
        elif header is None:
            log.lose("a line before the header")
        else:
            when = _take(log, header, _words(line))
            start = start or when
    return log.finish(_HINT, {"clock": f"first row {start}, time zone not stated"})


def _timed(header: _Header) -> _Header:
    if header.time is None:
        what = "only the date of its rows" if header.date is not None else "no time of its rows, nor the interval between them"
        raise TraceError("header", f"the log states {what}", _HINT)
    if not header.counters:
        raise TraceError("header", "none of the columns is a counter", _HINT)
    return header


def _take(log: CounterLog, header: _Header, words: list[str]) -> str:
    """Add a row; return when it was, empty where it was not kept."""
    if len(words) != header.size:
        log.lose("a row with too few or too many values")
    elif not _INDEX.fullmatch(words[header.gpu]):
        log.lose("a row that does not say which GPU it is of")
    else:
        index = int(words[header.gpu])
        when = " ".join(words[place][:20] for place in (header.date, header.time) if place is not None)
        if log.add(Gpu(f"GPU {index}", index), parse_moment(when), header.counters, [words[place] for place in header.places]):
            return when
    return ""

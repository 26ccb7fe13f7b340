"""Text of `dcgmi dmon -e …` with a time in front of every line → `Trace` of counters.

dcgmi prints neither the time of its rows nor the interval between them; people pipe it through `ts` or awk. A second header
line says "ID" and, where it knows them, units below the names.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

from profiles.ingest.core.source import Source
from profiles.ingest.logs.counters import MAX_COLUMNS, Counter, CounterLog, Gpu
from profiles.ingest.logs.lines import complete_lines, head_lines
from profiles.ingest.logs.moments import parse_moment
from profiles.ingest.trace import Integrity, Trace, TraceError

FORMAT = "dcgmi-dmon"
_HINT = ("Put the time in front of each line while recording: "
         "stdbuf -oL dcgmi dmon -e 1002,1004,155 -d 100 | ts '%Y-%m-%d %H:%M:%.S' > gpus.txt")
_HEADER = re.compile(r"(?P<when>[^#]{0,40})#\s*Entity(?P<names>(?:\s+[A-Za-z][\w/%.-]{0,40})+)\s*", re.ASCII)
_IDS = re.compile(r"(?P<when>.{0,40}?)(?<![^\s\]|,:])(?:ID|Id)(?P<units>(?:\s+[A-Za-z%][\w/%]{0,10})*)\s*", re.ASCII)
_ROW = re.compile(r"(?P<when>.{0,40}?)(?<![^\s\]|,:])(?P<kind>GPU(?:-C?I)?|NvSwitch|Switch|CPU|Core)\s+(?P<id>\d{1,4})"
                  r"(?P<cells>\s.*|)", re.ASCII)


class _Header(NamedTuple):
    counters: list[Counter]
    starts: list[int]            # of the names in the line


def _header(line: str) -> _Header | None:
    match = _HEADER.fullmatch(line) if len(line) < 1 << 15 else None
    if match is None:
        return None
    names = {each[0]: each.start() for each in reversed(list(re.finditer(r"\S+", match["names"])))}
    offset = match.start("names")
    places = sorted(names.items(), key=lambda item: item[1])
    if len(places) != len(match["names"].split()):       # a name twice: which value is whose, no row says
        return None
    return _Header([Counter(name) for name, _ in places], [start + offset for _, start in places])


def _with_units(header: _Header, line: str) -> _Header | None:
    """Return the header with the units that stand below its names; None where the line is no second line of a header."""
    match = _IDS.fullmatch(line) if len(line) < 1 << 15 else None
    if match is None:
        return None
    offset = match.start("units")
    units = {each.start() + offset: each[0] for each in re.finditer(r"\S+", match["units"])}
    counters = [counter._replace(unit=units.get(start, "")) for counter, start in zip(header.counters, header.starts, strict=True)]
    return header._replace(counters=counters)


def sniff(head: bytes) -> bool:
    return any((header := _header(first)) is not None and (_with_units(header, second) is not None or _ROW.fullmatch(second))
               for first, second in pairwise(head_lines(head, 40)))


def read(source: Source) -> Trace:
    """Raises TraceError where the rows have no time, or none can be read."""
    integrity = Integrity()
    log = CounterLog(source, FORMAT, integrity)
    header: _Header | None = None
    start = ""
    for line in complete_lines(source, integrity):
        new = _header(line) if "Entity" in line[:64] else None
        header = new or header
        if new:
            continue
        if header is None:
            log.lose("a line before the header")
            continue
        match = _ROW.fullmatch(line)
        with_units = None if match else _with_units(header, line)
        if with_units:
            header = with_units
        elif match is None:
            log.lose("a line that is no row of an entity")
        elif _take(log, header, match):
            start = start or _when(match)
    known = f"first row {start}" + ("" if log.form == "epoch" else ", time zone not stated")
    return log.finish(_HINT, {"clock": known})


def _when(match: re.Match[str]) -> str:
    return match["when"].strip(" \t[](),:|")


def _take(log: CounterLog, header: _Header, match: re.Match[str]) -> bool:
    if not _when(match) and log.form is None:
        raise TraceError("the first row", "dcgmi dmon prints no time of its rows, nor the interval between them", _HINT)
    cells = match["cells"].split()
    if len(cells) != len(header.counters):
        log.lose("a row with too few or too many values")
        return False
    kind, number = match["kind"], int(match["id"])
    gpu = Gpu(f"{kind} {number}", number if kind == "GPU" else None)
    return log.add(gpu, parse_moment(_when(match)), header.counters[:MAX_COLUMNS], cells[:MAX_COLUMNS])

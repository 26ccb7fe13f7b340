"""Lines of a text that a tool printed, read in blocks."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator

from profiles.ingest.core.source import Source
from profiles.ingest.trace import TraceError

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
    cells, at = [], 0
    for number, (_, end) in enumerate(spans):
        if number + 1 == len(spans):
            stop = len(line)
        else:
            gap = line.find("  ", end) if line[end:end + 1].strip() else end       # something sticks out to the right
            stop = end if gap < 0 else gap
        cells.append(line[at:max(stop, at)].strip())
        at = max(stop, at)
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

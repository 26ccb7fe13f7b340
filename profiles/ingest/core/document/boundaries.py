"""Where records of a trace's text begin and end, told from their first keys: places to cut at, none of them certain."""

from __future__ import annotations

import re
from collections.abc import Iterator

from profiles.ingest.core.document.attempts import attempt

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

"""A candidate's text beside the operator's own, line by line, for a page. Texts are looked at as lines, never parsed as code."""

from __future__ import annotations

import difflib
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from keyword import iskeyword

CONTEXT = 3                  # unchanged lines around a change
MOST_LINES, MOST_PAIRS = 6000, 1_000_000        # of a side; of both multiplied: what comparing takes
LEAST_ALIKE = 0.3            # below it the file is no changed one of the operator's: it is compared function by function
_BLOCK = re.compile(r"(?:@|def |class |async def )")
_NAME = re.compile(r"(?:async )?(?:def|class) (\w+)")

Segment = tuple[str, str]    # class of style ("" plain), text


@dataclass(frozen=True)
class Line:
    """`mark`: " ", "+", "-" or "@" (lines are left out here, `old` and `new` say where it goes on)."""

    mark: str
    old: int | None
    new: int | None
    parts: tuple[Segment, ...]


@dataclass(frozen=True)
class View:
    """`how`: "diff" beside the operator's file, "functions" beside functions of the same name, "whole" with nothing to compare."""

    how: str
    lines: tuple[Line, ...]
    added: int
    removed: int


@lru_cache(maxsize=64)
def compare(base: str, text: str) -> View:
    """Return the text beside the operator's own file."""
    before, after = base.splitlines(), text.splitlines()
    if not base or not _is_comparable(before, after):
        return _whole(text, after)
    matcher = difflib.SequenceMatcher(None, before, after)
    if matcher.quick_ratio() >= LEAST_ALIKE and matcher.ratio() >= LEAST_ALIKE:
        return _view("diff", tuple(_changed(matcher, before, after, colour(base), colour(text), 0, 0)))
    return _by_function(base, text)


def _is_comparable(before: Sequence[str], after: Sequence[str]) -> bool:
    return max(len(before), len(after)) <= MOST_LINES and len(before) * len(after) <= MOST_PAIRS


def _whole(text: str, after: Sequence[str]) -> View:
    parts = colour(text)
    return View("whole", tuple(Line(" ", None, row + 1, parts[row]) for row in range(min(len(after), MOST_LINES))), len(after), 0)


def _view(how: str, lines: tuple[Line, ...]) -> View:
    return View(how, lines, sum(line.mark == "+" for line in lines), sum(line.mark == "-" for line in lines))


def _changed(matcher: difflib.SequenceMatcher[str], before: Sequence[str], after: Sequence[str], old: Sequence[tuple[Segment, ...]],
             new: Sequence[tuple[Segment, ...]], old_at: int, new_at: int) -> Iterator[Line]:
    """Yield the changed lines with some around them; `old_at`, `new_at`: lines above these in their files."""
    last = (0, 0)
    for group in matcher.get_grouped_opcodes(CONTEXT):
        if (group[0][1], group[0][3]) != last:
            yield Line("@", old_at + group[0][1] + 1, new_at + group[0][3] + 1, ())
        for what, i, i_end, j, j_end in group:
            if what == "equal":
                for index in range(i_end - i):
                    yield Line(" ", old_at + i + index + 1, new_at + j + index + 1, new[new_at + j + index])
                continue
            for index in range(i, i_end):
                yield Line("-", old_at + index + 1, None, old[old_at + index])
            for index in range(j, j_end):
                yield Line("+", None, new_at + index + 1, new[new_at + index])
        last = (group[-1][2], group[-1][4])
    if last != (len(before), len(after)) and last != (0, 0):
        yield Line("@", None, None, ())


def _by_function(base: str, text: str) -> View:
    """Compare each block of the text with the operator's of the same name; what has none is new."""
    old, new, theirs = colour(base), colour(text), dict(blocks(base.splitlines()))
    before, after = base.splitlines(), text.splitlines()
    lines: list[Line] = []
    position = 0
    is_found = False
    for name, (begin, end) in blocks(after):
        lines += [Line("+", None, index + 1, new[index]) for index in range(position, begin)]
        position = end
        if name not in theirs:
            lines += [Line("+", None, index + 1, new[index]) for index in range(begin, end)]
            continue
        is_found = True
        first, last = theirs[name]
        matcher = difflib.SequenceMatcher(None, before[first:last], after[begin:end])
        lines += _changed(matcher, before[first:last], after[begin:end], old, new, first, begin)
    lines += [Line("+", None, index + 1, new[index]) for index in range(position, len(after))]
    return _view("functions", tuple(lines)) if is_found else _whole(text, after)


def blocks(lines: Sequence[str]) -> list[tuple[str, tuple[int, int]]]:
    """Return (name, (first line, line after the last)) of functions and classes at the left edge, decorators with them."""
    spans: list[tuple[str, tuple[int, int]]] = []
    begin, name = None, ""
    for index, line in enumerate(lines):
        if not line.strip() or line[0] in " \t)]}#":
            continue
        if begin is not None and name:
            spans.append((name, (begin, index)))
            begin, name = None, ""
        if _BLOCK.match(line):
            begin = index if begin is None else begin
            if named := _NAME.match(line):
                name = named[1]
        else:
            begin, name = None, ""
    if begin is not None and name:
        spans.append((name, (begin, len(lines))))
    return spans


@lru_cache(maxsize=64)
def colour(text: str) -> tuple[tuple[Segment, ...], ...]:
    """Return each line of a Python text in parts with their kind: k keyword, s string, c comment, n number, d decorator."""
    lines = text.splitlines()
    marks: list[list[tuple[int, int, str]]] = [[] for _ in lines]
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if kind := _kind(token):
                for row in range(token.start[0], min(token.end[0], len(lines)) + 1):
                    begin = token.start[1] if row == token.start[0] else 0
                    end = token.end[1] if row == token.end[0] else len(lines[row - 1])
                    marks[row - 1].append((begin, end, kind))
    except (tokenize.TokenError, SyntaxError, ValueError, IndexError):
        pass                            # coloured as far as it could be read
    return tuple(_parts(line, spans) for line, spans in zip(lines, marks, strict=True))


def _kind(token: tokenize.TokenInfo) -> str:
    if token.type == tokenize.NAME:
        return "k" if iskeyword(token.string) else ""
    if token.type == tokenize.OP:
        return "d" if token.string == "@" and not token.line[:token.start[1]].strip() else ""
    return {tokenize.STRING: "s", tokenize.COMMENT: "c", tokenize.NUMBER: "n"}.get(token.type, "")


def _parts(line: str, marks: Sequence[tuple[int, int, str]]) -> tuple[Segment, ...]:
    parts: list[Segment] = []
    position = 0
    for begin, end, kind in marks:
        if begin > position:
            parts.append(("", line[position:begin]))
        if end > max(begin, position):
            parts.append((kind, line[max(begin, position):end]))
            position = end
    if position < len(line):
        parts.append(("", line[position:]))
    return tuple(parts)

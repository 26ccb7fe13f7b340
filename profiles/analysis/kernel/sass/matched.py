"""Which instruction and which line of one launch is which of another: only then may their counters stand side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from profiles.ingest.trace import SourceFile

MOST_LINES = 4_000                       # of a changed file: longer ones are compared where they begin and end alike


@dataclass(frozen=True)
class LineMatch:
    """`lines`: (file, line) here -> (file, line) there. `reasons`: file here -> why none of its lines has one there."""

    lines: dict[tuple[int, int], tuple[int, int]]
    reasons: dict[int, str]


def why_other_code(mine: Sequence[str], other: Sequence[str]) -> str:
    """Return why instructions cannot be held against each other one by one, "" where both are the same machine code."""
    if list(mine) == list(other):
        return ""
    if len(mine) != len(other):
        return f"other machine code: {len(mine):,} instructions here, {len(other):,} in the baseline"
    differ = sum(a != b for a, b in zip(mine, other, strict=True))
    return f"other machine code: {differ:,} of {len(mine):,} instructions differ"


def match_lines(mine: Sequence[SourceFile], other: Sequence[SourceFile], used: Sequence[tuple[int, int]]) -> LineMatch:
    """Return the lines of `used`, (file, line from 1) of one launch, that the other's source has too.

    Files go together by their name, else by its last part where one file alone has it. Lines with text are the same where the
    text is, in order; without text on either side the numbers must do.
    """
    matches, reasons = dict[tuple[int, int], tuple[int, int]](), dict[int, str]()
    for number in sorted({file for file, _ in used}):
        to = _same_file(mine[number].name, other) if number < len(mine) else None
        if to is None:
            name = mine[number].name if number < len(mine) else "?"
            reasons[number] = f"the baseline has no file {_last(name)}"
            continue
        pairs = _same_lines(mine[number].text, other[to].text)
        here = {line for file, line in used if file == number}
        matches |= {(number, line): (to, pairs[line] if pairs is not None else line)
                    for line in here if pairs is None or line in pairs}
        if not any((number, line) in matches for line in here):
            reasons[number] = f"no line of {_last(mine[number].name)} is as it was in the baseline"
    return LineMatch(matches, reasons)


def _last(name: str) -> str:
    return name.replace("\\", "/").rsplit("/", 1)[-1]


def _same_file(name: str, others: Sequence[SourceFile]) -> int | None:
    for number, file in enumerate(others):
        if file.name == name:
            return number
    alike = [number for number, file in enumerate(others) if _last(file.name) == _last(name)]
    return alike[0] if len(alike) == 1 else None


def _same_lines(mine: str | None, other: str | None) -> dict[int, int] | None:
    """Line here -> line there, both from 1; None where either has no text."""
    if not mine or not other:
        return None
    a, b = mine.splitlines(), other.splitlines()
    start = next((index for index, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    end = 0
    while end < min(len(a), len(b)) - start and a[-1 - end] == b[-1 - end]:
        end += 1
    pairs = {index + 1: index + 1 for index in range(start)}
    pairs |= {len(a) - index: len(b) - index for index in range(end)}
    inner_a, inner_b = a[start:len(a) - end], b[start:len(b) - end]
    if max(len(inner_a), len(inner_b)) <= MOST_LINES:
        for block in SequenceMatcher(None, inner_a, inner_b, autojunk=True).get_matching_blocks():
            pairs |= {start + block.a + index + 1: start + block.b + index + 1 for index in range(block.size)}
    return pairs

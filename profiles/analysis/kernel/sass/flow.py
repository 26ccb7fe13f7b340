"""Where control goes in a kernel's SASS: targets of jumps, the rows that may follow a row, blocks.

Targets are those that the text names ("BRA +0x2c80", an offset from the first instruction). What it does not name is approximated:
a return goes behind every call of its function; an indirect jump (BRX) goes to every row that nothing else reaches and that stands
behind a jump; BSYNC goes to where the nearest BSSY of its barrier said, which is mostly the next row. What WARPSYNC.COLLECTIVE
names is a place to meet, no jump.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from profiles.analysis.kernel.sass.operands import Instruction

_TARGET = re.compile(r"^\+0x([0-9a-f]+)$")
_JUMPS = frozenset(("BRA", "JMP", "CALL", "BSSY", "WARPSYNC", "BRX"))
_ENDS = frozenset(("EXIT", "RET", "BRX", "JMX", "BRXU", "JMXU", "KILL"))


@dataclass(frozen=True)
class Flow:
    """Of each row: `target` (row that its text names, None without), `follows` (rows that may run next)."""

    target: tuple[int | None, ...]
    follows: tuple[tuple[int, ...], ...]
    blocks: tuple[tuple[int, int], ...]      # (first row, one past the last), in order


def flow(code: Sequence[Instruction], offsets: Sequence[int]) -> Flow:
    """Return where control goes. `offsets`: bytes from the first instruction, rising, one per row."""
    row_of = {offset: row for row, offset in enumerate(offsets)}
    target = tuple(_target(each, row_of) for each in code)
    entries = sorted({to for each, to in zip(code, target, strict=True) if each.base == "CALL" and to is not None})
    behind: dict[int, list[int]] = {entry: [] for entry in entries}
    for row, (each, to) in enumerate(zip(code, target, strict=True)):
        if each.base == "CALL" and to is not None and row + 1 < len(code):
            behind[to].append(row + 1)
    meet = _meeting(code, target)
    follows = [_follows(row, each, target[row], len(code), entries, behind, meet) for row, each in enumerate(code)]
    orphans = _orphans(code, follows)
    for row, each in enumerate(code):
        if each.base in ("BRX", "BRXU", "JMX", "JMXU") and orphans:
            follows[row] = tuple(sorted({*follows[row], *orphans}))
    return Flow(target, tuple(follows), _blocks(code, follows))


def _target(each: Instruction, row_of: dict[int, int]) -> int | None:
    if each.base not in _JUMPS:
        return None
    named = next((match for operand in reversed(each.operands) if (match := _TARGET.match(operand))), None)
    return row_of.get(int(named[1], 16)) if named else None


def _meeting(code: Sequence[Instruction], target: Sequence[int | None]) -> dict[int, int]:
    """BSYNC's row -> where its threads go on: as the nearest BSSY before it says that names the same barrier."""
    latest: dict[str, int] = {}
    found = {}
    for row, (each, to) in enumerate(zip(code, target, strict=True)):
        barrier = each.operands[0] if each.operands else ""
        if each.base == "BSSY" and to is not None:
            latest[barrier] = to
        elif each.base == "BSYNC" and barrier in latest:
            found[row] = latest[barrier]
    return found


def _follows(row: int, each: Instruction, target: int | None, size: int, entries: Sequence[int], behind: dict[int, list[int]],
             meet: dict[int, int]) -> tuple[int, ...]:
    base, following = each.base, (row + 1,) if row + 1 < size else ()
    if each.never:
        return following
    goes: tuple[int, ...] = following
    if base in ("BRA", "JMP"):
        maybe = each.conditional or len(each.operands) > 1
        goes = tuple(dict.fromkeys([*([target] if target is not None else []), *(following if maybe or target is None else ())]))
        return goes
    if base == "CALL":
        goes = (target,) if target is not None else following
    elif base == "BSYNC":
        goes = (meet[row],) if row in meet else following
    elif base == "RET":
        owner = bisect_right(entries, row) - 1
        goes = tuple(behind[entries[owner]]) if owner >= 0 else ()
    elif base in _ENDS:
        goes = ()
    return tuple(dict.fromkeys([*goes, *following])) if each.conditional else goes


def _orphans(code: Sequence[Instruction], follows: Sequence[tuple[int, ...]]) -> list[int]:
    reached = {to for each in follows for to in each}
    return [row for row in range(1, len(code)) if row not in reached and code[row].base not in ("NOP", "BRA")]


def _blocks(code: Sequence[Instruction], follows: Sequence[tuple[int, ...]]) -> tuple[tuple[int, int], ...]:
    size = len(code)
    leaders = {0}
    for row, goes in enumerate(follows):
        if goes != (row + 1,):
            leaders.update(goes)
            if row + 1 < size:
                leaders.add(row + 1)
    if not size:
        return ()
    starts = sorted(leaders)
    return tuple(zip(starts, [*starts[1:], size], strict=True))

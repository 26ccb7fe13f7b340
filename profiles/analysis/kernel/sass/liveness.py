"""Live registers of each SASS instruction, and who wrote what an instruction reads.

A register is live at an instruction where it holds a value that a path on from there reads before writing it, or where the
instruction itself writes it: what `nvdisasm --print-life-ranges` and the source page of Nsight Compute count. Solved backwards
over the control flow (`flow`) until nothing changes; who wrote, forwards.

How things count:
- Predicates: a guarded instruction (`@P0 …`) reads its predicate, and as it may not run, what it writes keeps its earlier value
  alive as well (nvdisasm does the same). Predicates and uniform registers are counted apart: they take no general register.
- 64-bit values take the pair that the opcode says (`.64`, `.WIDE`, doubles, addresses `[R2.64]`), 128-bit ones four, matrix
  operands as many as their shape has.
- Uniform registers belong to the warp; an operand `desc[UR4]` reads a pair of them.
- R1 is the stack's and live from where it is set to the end. A call out of the listing changes the scratch registers; what it
  reads is not known and not counted.

Approximate: calls are not told apart by caller (what any caller needs is live in the function), targets of indirect jumps are
guessed (`flow`), an accumulator that a predicate switches off counts as read, blocks of uniform registers that TMA instructions
read count their first alone, and an opcode that nobody has written down here counts with one register per operand. Registers
that hardware holds for a write under way are not counted.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from profiles.analysis.kernel.sass.operands import (
    GENERAL_BITS,
    PREDICATE_BITS,
    UNIFORM_BITS,
    Instruction,
    parse,
    span,
)

# ---- where control goes in a kernel's SASS ----
# Targets of jumps, the rows that may follow a row, blocks.
# Targets are those that the text names ("BRA +0x2c80", an offset from the first instruction). What it does not name is
# approximated: a return goes behind every call of its function; an indirect jump (BRX) goes to every row that nothing else reaches
# and that stands behind a jump; BSYNC goes to where the nearest BSSY of its barrier said, which is mostly the next row. What
# WARPSYNC.COLLECTIVE names is a place to meet, no jump.

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
    target = tuple(_target(instruction, row_of) for instruction in code)
    entries = sorted({to for instruction, to in zip(code, target, strict=True) if instruction.base == "CALL" and to is not None})
    behind: dict[int, list[int]] = {entry: [] for entry in entries}
    for row, (instruction, to) in enumerate(zip(code, target, strict=True)):
        if instruction.base == "CALL" and to is not None and row + 1 < len(code):
            behind[to].append(row + 1)
    meet = _meeting(code, target)
    follows = [_follows(row, instruction, target[row], len(code), entries, behind, meet) for row, instruction in enumerate(code)]
    orphans = _orphans(code, follows)
    for row, instruction in enumerate(code):
        if instruction.base in ("BRX", "BRXU", "JMX", "JMXU") and orphans:
            follows[row] = tuple(sorted({*follows[row], *orphans}))
    return Flow(target, tuple(follows), _blocks(code, follows))


def _target(instruction: Instruction, row_of: dict[int, int]) -> int | None:
    if instruction.base not in _JUMPS:
        return None
    named = next((match for operand in reversed(instruction.operands) if (match := _TARGET.match(operand))), None)
    return row_of.get(int(named[1], 16)) if named else None


def _meeting(code: Sequence[Instruction], target: Sequence[int | None]) -> dict[int, int]:
    """BSYNC's row -> where its threads go on: as the nearest BSSY before it says that names the same barrier."""
    latest: dict[str, int] = {}
    target_by_row = {}
    for row, (instruction, to) in enumerate(zip(code, target, strict=True)):
        barrier = instruction.operands[0] if instruction.operands else ""
        if instruction.base == "BSSY" and to is not None:
            latest[barrier] = to
        elif instruction.base == "BSYNC" and barrier in latest:
            target_by_row[row] = latest[barrier]
    return target_by_row


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
    reached = {to for rows in follows for to in rows}
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


# ---- live registers of each SASS instruction ----

MOST_ROWS = 40_000                       # a longer program is not analysed
MOST_ROUNDS = 200                        # per block, until nothing changes: compiled code takes a handful
MOST_WRITERS = 64                        # kept of those of one register, the last ones in the listing
STACK = span("R", 1)


@dataclass(frozen=True)
class Registers:
    """Of each row, the registers that are live there, by kind."""

    general: tuple[int, ...]
    uniform: tuple[int, ...]
    predicates: tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """A kernel's SASS, read."""

    code: tuple[Instruction, ...]
    flow: Flow


class Tangled(ValueError):
    """Control flow that does not settle within MOST_ROUNDS: no compiler made it."""


def program(sass: Sequence[str], offsets: Sequence[int]) -> Program | None:
    """Return the program of SASS lines with targets as offsets ("BRA +0x40"), None where it has more than MOST_ROWS."""
    if len(sass) > MOST_ROWS:
        return None
    code = tuple(parse(line) for line in sass)
    return Program(code, flow(code, offsets))


def live_registers(found: Program) -> Registers:
    """Return how many registers are live at each row. Raises Tangled."""
    sets = live_sets(found)
    return Registers(tuple((registers & GENERAL_BITS).bit_count() for registers in sets),
                     tuple((registers & UNIFORM_BITS).bit_count() for registers in sets),
                     tuple((registers & PREDICATE_BITS).bit_count() for registers in sets))


def live_sets(found: Program) -> list[int]:
    """Return the registers that are live at each row, as bits: read later, or written there."""
    code, blocks, follows = found.code, found.flow.blocks, found.flow.follows
    number_by_first = {first: number for number, (first, _) in enumerate(blocks)}
    after = [[number_by_first[row] for row in follows[last - 1]] for _, last in blocks]
    before: list[list[int]] = [[] for _ in blocks]
    for number, goes in enumerate(after):
        for successor in goes:
            before[successor].append(number)
    ends = STACK if any(instruction.writes & STACK for instruction in code) else 0
    use, kill = [0] * len(blocks), [0] * len(blocks)
    for number, (first, last) in enumerate(blocks):
        use[number] = _backwards(code, first, last, 0, None)
        for row in range(first, last):
            kill[number] |= code[row].writes if not code[row].conditional else 0
    live_in, live_out = [0] * len(blocks), [0] * len(blocks)
    waiting = list(range(len(blocks)))
    queued, left = set(waiting), MOST_ROUNDS * len(blocks)
    while waiting:
        number, left = waiting.pop(), _less(left)
        queued.discard(number)
        out = ends
        for successor in after[number]:
            out |= live_in[successor]
        live_out[number] = out
        entering = use[number] | (out & ~kill[number])
        if entering != live_in[number]:
            live_in[number] = entering
            for predecessor in before[number]:
                if predecessor not in queued:
                    queued.add(predecessor)
                    waiting.append(predecessor)
    sets = [0] * len(code)
    for number, (first, last) in enumerate(blocks):
        _backwards(code, first, last, live_out[number], sets)
    return sets


def _backwards(code: Sequence[Instruction], first: int, last: int, live: int, sets: list[int] | None) -> int:
    """Return what is live at a block's beginning, where `live` is at its end; `sets` takes what is at each row."""
    for row in range(last - 1, first - 1, -1):
        instruction = code[row]
        if not instruction.never:
            live = (live if instruction.guard else live & ~instruction.writes) | instruction.reads
        if sets is not None:
            sets[row] = live | (0 if instruction.never else instruction.writes)
    return live


def _bit(literal: str) -> int:
    return span("UP" if "U" in literal else "P", int(literal[-1]))


def writers(found: Program) -> list[list[int]]:
    """Return of each row the rows that may have written what it reads, in order: the last ones on every path there.

    Raises Tangled.

    A guarded write does not hide an earlier one, but from what is read under the same predicate in its block.
    """
    code, blocks, follows = found.code, found.flow.blocks, found.flow.follows
    number_by_first = {first: number for number, (first, _) in enumerate(blocks)}
    block_entries: list[dict[int, frozenset[int]]] = [{} for _ in blocks]      # register -> rows, at a block's beginning
    waiting, queued = list(range(len(blocks) - 1, -1, -1)), set(range(len(blocks)))
    left = MOST_ROUNDS * len(blocks)
    while waiting:
        number, left = waiting.pop(), _less(left)
        queued.discard(number)
        leaving = dict(block_entries[number])
        first, last = blocks[number]
        for row in range(first, last):
            _write(code[row], row, leaving)
        for goes in follows[last - 1]:
            other = number_by_first[goes]
            entering, changed = block_entries[other], False
            for register, rows in leaving.items():
                have = entering.get(register, _NOBODY)
                if rows is not have and (both := _latest(have | rows)) != have:
                    entering[register] = both
                    changed = True
            if changed and other not in queued:
                queued.add(other)
                waiting.append(other)
    found_rows: list[list[int]] = [[] for _ in code]
    for number, (first, last) in enumerate(blocks):
        now, under = dict(block_entries[number]), dict[tuple[str, int], int]()
        for row in range(first, last):
            instruction, sources = code[row], set[int]()
            for register in bits(instruction.reads):
                same = under.get((instruction.literal, register)) if instruction.literal else None
                sources |= {same} if same is not None else now.get(register, _NOBODY)
            found_rows[row] = sorted(sources)
            _write(instruction, row, now)
            _remember(instruction, row, under)
    return found_rows


_NOBODY: frozenset[int] = frozenset()


def _less(left: int) -> int:
    if not left:
        raise Tangled("its jumps do not settle")
    return left - 1


def _latest(rows: frozenset[int]) -> frozenset[int]:
    return rows if len(rows) <= MOST_WRITERS else frozenset(sorted(rows)[-MOST_WRITERS:])


def _write(instruction: Instruction, row: int, known: dict[int, frozenset[int]]) -> None:
    if instruction.never:
        return
    mine = frozenset((row,))
    for register in bits(instruction.writes):
        known[register] = _latest(known.get(register, _NOBODY) | mine) if instruction.guard else mine


def _remember(instruction: Instruction, row: int, under: dict[tuple[str, int], int]) -> None:
    """Keep which row last wrote a register under a predicate, as long as both stay as they are."""
    if instruction.never or not instruction.writes:
        return
    for key in [key for key in under if instruction.writes >> key[1] & 1 or instruction.writes & _bit(key[0])]:
        del under[key]
    if instruction.literal:
        for register in bits(instruction.writes):
            under[instruction.literal, register] = row


def bits(registers: int) -> list[int]:
    """Return the numbers of the bits that are set, rising."""
    numbers = []
    while registers:
        lowest = registers & -registers
        numbers.append(lowest.bit_length() - 1)
        registers ^= lowest
    return numbers

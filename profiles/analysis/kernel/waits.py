"""What an instruction waits for: the load whose register it needs, found by going back through the SASS.

A stall sample stands at the instruction that waits, not at the one that is slow; after a barrier, or an instruction that
waits for asynchronous copies or matrix units (DEPBAR, WARPGROUP), at the one behind it. Long scoreboard waits are for memory
(global, local, texture), short ones for shared memory and special functions (Kernel Profiling Guide, "Warp Stall
Reasons"). The search goes back through the code as it is laid out, then around the innermost loop: it knows no other
control flow, so its answer is the *likely* one. Opcodes: CUDA Binary Utilities, "Instruction Set Reference".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from profiles.analysis.kernel.instructions import SAMPLES, Instructions, reasons_at
from profiles.ingest.arrays import Rows

LONG = ("LDG", "LD", "LDL", "TEX", "TLD", "TLD4", "TXQ", "SULD", "ATOM", "ATOMG", "LDGMC")
SHORT = ("LDS", "LDSM", "ATOMS", "MUFU", "SHFL", "S2R", "S2UR", "POPC", "FLO", "BREV", "I2F", "F2I", "F2F", "I2I", "FRND", "R2UR",
         "DADD", "DMUL", "DFMA", "DSETP", "LDC")
PRODUCERS: dict[str, tuple[str, ...]] = {"long_scoreboard": LONG, "short_scoreboard": SHORT}
BEFORE: dict[str, tuple[str, ...]] = {     # the instruction shortly before, which is the wait itself
    "barrier": ("BAR", "WARPSYNC"), "long_scoreboard": ("DEPBAR", "LDGDEPBAR"), "gmma": ("WARPGROUP", "HGMMA", "IGMMA", "QGMMA"),
    "membar": ("MEMBAR", "ERRBAR", "CCTL"),
}
NEAR = 4                          # rows: the compiler fills what stands between with what may run already
ASYNC = "SYNCS"                   # waits for a barrier in shared memory (TMA): its result is a predicate
MAX_BACK = 2_000                  # loads that are looked at
_REGISTER = re.compile(r"\b(UR|R)(\d{1,3})\b(?!\[)(\.64)?")
_PREDICATE = re.compile(r"\bU?P\d\b")
_TARGET = re.compile(r"\+0x([0-9a-f]+)")
Span = tuple[str, int, int]       # bank ("R" | "UR"), first register, one past the last


def registers(operand: str) -> list[Span]:
    """Registers that an operand names: "[R4.64+0x10]" -> R4, R5."""
    return [(match[1], int(match[2]), int(match[2]) + (2 if match[3] else 1)) for match in _REGISTER.finditer(operand)]


def width(opcode: str) -> int:
    """Registers that a load writes: its bits ÷ 32; matrices of LDSM one each."""
    parts = opcode.split(".")
    if parts[0] == "LDSM":
        return 4 if "4" in parts else 2 if "2" in parts else 1
    return 4 if "128" in parts else 2 if "64" in parts else 1


def split(sass: str) -> tuple[str, list[str]]:
    """"@!P0 LDG.E.128 R4, [R2]" -> ("LDG.E.128", ["R4", "[R2]"])."""
    words = sass.split(None, 1)
    if words and words[0].startswith("@"):
        words = words[1].split(None, 1) if len(words) > 1 else []
    if not words:
        return "", []
    return words[0], [part.strip() for part in words[1].split(",")] if len(words) > 1 else []


class Waits:
    """Finds producers in one kernel; only what may be one is parsed."""

    def __init__(self, instructions: Instructions) -> None:
        self.instructions = instructions
        self.base = instructions.base_opcode
        self.loops = _loops(instructions)
        self.rows = {reason: np.flatnonzero(np.isin(self.base, (*opcodes, ASYNC))) for reason, opcodes in PRODUCERS.items()}
        self.parsed: dict[int, tuple[str, list[str]]] = {}

    def _split(self, row: int) -> tuple[str, list[str]]:
        if row not in self.parsed:
            self.parsed[row] = split(self.instructions.sass[row])
        return self.parsed[row]

    def producer(self, row: int, reason: str) -> int | None:
        """The row of what `row` likely waits for in this state; None where none is found."""
        for other in range(row - 1, max(-1, row - 1 - NEAR), -1):
            if self.base[other] in BEFORE.get(reason, ()):
                return other
        rows = self.rows.get(reason)
        if rows is None:
            return None
        needs = [span for operand in self._split(row)[1] for span in registers(operand)]
        predicates = set(_PREDICATE.findall(self.instructions.sass[row])) if reason == "long_scoreboard" else set()
        end = next((end for start, end in self.loops if start <= row <= end), row)
        here, last = np.searchsorted(rows, row), np.searchsorted(rows, end, side="right")
        for other in [*rows[max(0, here - MAX_BACK):here][::-1].tolist(), *rows[here:last][::-1].tolist()]:
            opcode, operands = self._split(other)
            if not operands or other == row:
                continue
            if self.base[other] == ASYNC:
                if operands[0] in predicates:
                    return int(other)
                continue
            target = next(iter(registers(operands[0])), None)
            if target is not None and any(_overlap((target[0], target[1], target[1] + width(opcode)), span) for span in needs):
                return int(other)
        return None


@dataclass(frozen=True)
class HotInstruction:
    """The instruction with most samples, of a line or of the whole launch: its state and the row of what it likely waits for."""

    row: int
    reason: str                 # most of its own samples; "" where none were counted
    waits_for: int | None


def hottest_instruction(waits: Waits, rows: Rows | None = None) -> HotInstruction | None:
    """Return the hottest of `rows`, of all without them; the first of equal ones, None where nothing was sampled.

    What it waits for follows from its own state: its line's may be another one.
    """
    instructions = waits.instructions
    samples = instructions.values(SAMPLES)
    among = np.arange(len(samples)) if rows is None else np.sort(rows)
    if not among.size or not samples[among].max() > 0:
        return None
    row = int(among[int(np.argmax(samples[among]))])
    reason = next(iter(reasons_at(instructions, row)), "")
    return HotInstruction(row, reason, waits.producer(row, reason))


def _overlap(a: Span, b: Span) -> bool:
    return a[0] == b[0] and a[1] < b[2] and b[1] < a[2]


def _loops(instructions: Instructions) -> list[tuple[int, int]]:
    """Jumps back, as (first row, last row) of the loop, the shortest first."""
    row_of = {int(offset): row for row, offset in enumerate(instructions.offset.tolist())}
    loops = []
    for row in np.flatnonzero(instructions.base_opcode == "BRA").tolist():
        target = _TARGET.search(instructions.readable_sass[row])
        start = row_of.get(int(target[1], 16)) if target else None
        if start is not None and start <= row:
            loops.append((start, row))
    return sorted(loops, key=lambda loop: loop[1] - loop[0])

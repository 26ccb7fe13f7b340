"""What one SASS instruction reads and writes.

Sources: CUDA Binary Utilities, "Instruction Set Reference", and what `nvdisasm --print-life-ranges` says of the same code, which
the tests hold this against. A set of registers is a whole number, one bit each: R0 to R254, then the uniform UR0 to UR254, then
the predicates P0 to P6 and UP0 to UP6. RZ, URZ, PT and UPT hold nothing and are none of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

UNIFORM, PREDICATE, UNIFORM_PREDICATE = 256, 512, 520        # first bit of each kind
GENERAL_BITS = (1 << UNIFORM) - 1
UNIFORM_BITS = ((1 << 255) - 1) << UNIFORM
PREDICATE_BITS = 0x7F << PREDICATE
FIRST = {"R": 0, "UR": UNIFORM, "P": PREDICATE, "UP": UNIFORM_PREDICATE}

# what a function that stands elsewhere may leave changed (CUDA's calling convention, as nvdisasm counts it)
SCRATCH = 1 | ((1 << 14) - 1) << 2                           # R0, R2 to R15

_CODE = re.compile(r"^\+0x[0-9a-f]+$")
_GUARD = re.compile(r"^@(!?)(UP|P)(\d|T)\s+")
_REGISTER = re.compile(r"(?<![\w.])(UR|R)(\d{1,3})(?![\w\[])(\.64)?")
_PREDICATE = re.compile(r"(?<![\w.])(UP|P)(\d)(?!\w)")
_WRITTEN_PREDICATE = re.compile(r"^U?P[\dT]$")
_WRITTEN_REGISTER = re.compile(r"^(UR|R)(\d{1,3}|Z)$")
_SIZE = re.compile(r"^(\d+)x(\d+)x(\d+)$")

# how many predicates such an opcode writes where they come first: the rest of its predicates are read
_ONLY_PREDICATES = {"ISETP": 2, "FSETP": 2, "DSETP": 2, "HSETP2": 2, "PSETP": 2, "PLOP3": 2, "UISETP": 2, "UPLOP3": 2, "UPSETP": 2,
                    "UFSETP": 2, "FCHK": 1, "ISCADD": 0}
_CARRIES = {"IADD3": 2, "UIADD3": 2}                         # predicates written behind the register; 1 elsewhere
_NO_RESULT = frozenset((
    "ST", "STG", "STS", "STL", "STSM", "STAS", "RED", "REDG", "REDS", "REDAS", "SUST", "SURED", "LDGSTS", "UTMALDG", "UTMASTG",
    "UTMAREDG", "UTMAPF", "UBLKCP", "UBLKPF", "UBLKRED", "BRA", "BRX", "BRXU", "JMP", "JMX", "JMXU", "CALL", "RET", "EXIT", "BAR",
    "BSSY", "BSYNC", "BREAK", "WARPSYNC", "DEPBAR", "LDGDEPBAR", "MEMBAR", "FENCE", "CCTL", "CCTLL", "CCTLT", "ERRBAR", "NOP",
    "NANOSLEEP", "YIELD", "BPT", "KILL", "RTT", "WARPGROUP", "ARRIVES", "SETCTAID", "CGAERRBAR", "UCGABAR_ARV", "UCGABAR_WAIT",
    "PREEXIT", "ACQBULK", "ENDCOLLECTIVE", "UTMACMDFLUSH", "UTMACCTL", "SETLMEMBASE", "PIXLD_", "UTCBAR", "UTCHMMA", "UTCQMMA"))
_MEMORY = frozenset((
    "LD", "LDG", "LDS", "LDL", "LDC", "LDCU", "ULDC", "LDGMC", "ATOM", "ATOMG", "ATOMS", "ST", "STG", "STS", "STL", "STAS", "RED",
    "REDG", "REDS", "REDAS", "SYNCS", "LDGSTS"))
_GLOBAL = frozenset(("LD", "LDG", "ST", "STG", "ATOM", "ATOMG", "RED", "REDG"))
_ADDRESSES = frozenset(("BRX", "JMX", "RET", "CALL"))        # of code: 64 bits
_DOUBLE = frozenset(("DADD", "DMUL", "DFMA", "DMNMX", "DSETP"))
_WARPGROUP = frozenset(("HGMMA", "IGMMA", "QGMMA", "BGMMA"))
# matrix shapes of one warp -> registers of the result and the addend, of A, of B (PTX ISA, "Matrix fragments")
_MATRIX = {("HMMA", "1688"): (4, 2, 1), ("HMMA", "16816"): (4, 4, 2), ("HMMA", "1684"): (4, 2, 1), ("HMMA", "884"): (8, 2, 2),
           ("HMMA", "16832"): (4, 4, 2), ("IMMA", "8816"): (2, 1, 1), ("IMMA", "8832"): (2, 1, 1), ("IMMA", "16816"): (4, 2, 1),
           ("IMMA", "16832"): (4, 4, 2), ("IMMA", "16864"): (4, 4, 2), ("BMMA", "88128"): (2, 1, 1), ("BMMA", "168128"): (4, 2, 1),
           ("BMMA", "168256"): (4, 4, 2), ("DMMA", "884"): (4, 2, 2), ("DMMA", "1684"): (8, 4, 2), ("DMMA", "1688"): (8, 8, 4),
           ("DMMA", "16816"): (8, 16, 8), ("QMMA", "16832"): (4, 4, 2), ("OMMA", "16864"): (4, 4, 2)}


@dataclass(frozen=True)
class Instruction:
    """`reads` and `writes`: registers as bits. `guard`: the bit of the predicate before it, 0 without, `literal` as it stands: a
    guarded instruction may not run. `operands`: as they stand, the opcode and the guard left out."""

    opcode: str
    operands: tuple[str, ...]
    guard: int
    literal: str                         # "!P0", "" without
    never: bool                          # "@!PT": it cannot run
    reads: int
    writes: int

    @property
    def base(self) -> str:
        return self.opcode.partition(".")[0]

    @property
    def conditional(self) -> bool:
        return bool(self.guard) or self.never


def span(kind: str, first: int, count: int = 1) -> int:
    """Return the bits of `count` registers of a kind ("R", "UR", "P", "UP") from `first` on; those past the last are left out."""
    last = min(first + count, 255) if kind in ("R", "UR") else min(first + count, 7)
    return ((1 << max(0, last - first)) - 1) << (FIRST[kind] + first) if first < last else 0


def parse(sass: str) -> Instruction:
    """Return what one line of SASS reads and writes; of an unknown opcode by the common form: result first, then what is read."""
    guard, literal, never, text = 0, "", False, sass.strip().rstrip(";").strip()
    if match := _GUARD.match(text):
        text = text[match.end():]
        if match[3] == "T":
            never = match[1] == "!"
        else:
            guard, literal = span(match[2], int(match[3])), f"{match[1]}{match[2]}{match[3]}"
    opcode, _, rest = text.partition(" ")
    operands = tuple(part.strip() for part in rest.split(",")) if rest.strip() else ()
    parts = opcode.split(".")
    results = _results(parts[0], operands)
    writes = reads = 0
    for place, operand in enumerate(operands):
        if place < results:
            writes |= _written(parts, operand)
        else:
            reads |= _read(parts, operand, place - results, len(operands) - results)
    if parts[0] == "CALL" and not any(_CODE.match(argument) for argument in operands):
        writes |= SCRATCH                                    # a function that stands elsewhere
    if parts[0] == "P2R":
        reads |= (span("UP", 0, 7) if "UPR" in operands else span("P", 0, 7)) & _mask(operands)
    if parts[0] == "R2P":
        writes |= span("P", 0, 7) & _mask(operands)
    return Instruction(opcode, operands, guard, literal, never, reads | guard, writes)


def _mask(operands: tuple[str, ...]) -> int:
    """Predicates that P2R and R2P speak of: a bit each in their last operand, all where it is a register."""
    try:
        return (int(operands[-1], 16) & 0x7F) << PREDICATE if operands and "0x" in operands[-1] else PREDICATE_BITS
    except ValueError:
        return PREDICATE_BITS


def _results(base: str, operands: tuple[str, ...]) -> int:
    """How many of the first operands are written."""
    if base in _NO_RESULT or not operands:
        return 0
    count = 0
    if base in _ONLY_PREDICATES:
        while count < min(_ONLY_PREDICATES[base], len(operands)) and _WRITTEN_PREDICATE.match(operands[count]):
            count += 1
        return count
    if _WRITTEN_PREDICATE.match(operands[0]):
        count = 1
        if base in ("VOTE", "VOTEU"):
            return count
    if count < len(operands) and _WRITTEN_REGISTER.match(operands[count].partition(".")[0]) and "[" not in operands[count]:
        count += 1
        more = _CARRIES.get(base, 1) if not operands[0].startswith(("P", "UP")) else 0
        while more and count < len(operands) and _WRITTEN_PREDICATE.match(operands[count]):
            count, more = count + 1, more - 1
    return count


def _written(parts: list[str], operand: str) -> int:
    if match := _PREDICATE.match(operand):
        return span(match[1], int(match[2]))
    register = _REGISTER.match(operand)
    return span(register[1], int(register[2]), _result_width(parts)) if register else 0


def _result_width(parts: list[str]) -> int:
    """Registers of the result."""
    base = parts[0]
    if base in _WARPGROUP:
        return _warpgroup_width(parts)
    if base.endswith("MMA") and (shape := _matrix(parts)):
        return shape[0]
    if base == "LDSM":
        return 4 if "4" in parts else 2 if "2" in parts else 1
    if base in _MEMORY or base in ("SULD", "TEX", "TLD", "TLD4"):
        return _bits(parts)
    if base in ("F2F", "F2I", "I2F", "I2I", "FRND"):
        return _conversion(parts)[0]
    if base in ("CS2R", "S2UR", "CS2UR"):
        return 2 if base != "S2UR" and "32" not in parts else 1
    if base in _DOUBLE - {"DSETP"} or base == "LEPC" or "WIDE" in parts or "64" in parts:
        return 2
    return 1


def _read(parts: list[str], operand: str, place: int, count: int) -> int:
    """Registers that an operand names; `place` among the `count` that are read."""
    mask = 0
    for match in _PREDICATE.finditer(operand):
        mask |= span(match[1], int(match[2]))
    inside = "[" in operand
    for match in _REGISTER.finditer(operand):
        wide = 2 if match[3] else _address_width(parts, operand) if inside else _source_width(parts, place, count)
        if inside and operand.startswith("gdesc["):
            wide = 4 if place == 0 else 2                    # descriptors of A and B, or of B alone
        elif inside and operand.startswith(f"desc[{match[0]}"):
            wide = 2
        mask |= span(match[1], int(match[2]), wide)
    return mask


def _address_width(parts: list[str], operand: str) -> int:
    """"[R2]" of a 64-bit address space is a pair; newer tools write [R2.64] for it, and [R2.U32+UR4] where it is none."""
    plain = not any(mark in operand for mark in (".U32", "UR", "desc"))
    return 2 if plain and parts[0] in _GLOBAL and "E" in parts else 1


def _source_width(parts: list[str], place: int, count: int) -> int:
    base = parts[0]
    if base in _WARPGROUP:
        return 4 if place == 0 else _warpgroup_width(parts)
    if base.endswith("MMA") and (shape := _matrix(parts)):
        return (shape[1], shape[2], shape[0])[place] if place < 3 else 1
    if base == "STSM":
        return 4 if "4" in parts else 2 if "2" in parts else 1
    if base in _MEMORY:
        return _bits(parts)
    if base in _DOUBLE or base in _ADDRESSES:
        return 2
    if base in ("F2F", "F2I", "I2F", "I2I", "FRND"):
        return _conversion(parts)[1]
    if "WIDE" in parts or ("HI" in parts and base in ("IMAD", "UIMAD")):
        return 2 if place == 2 else 1                        # the addend is of 64 bits
    return 2 if "64" in parts and base in ("IADD", "MOV", "SEL", "ISETP", "UIADD", "UMOV", "USEL", "UISETP") else 1


def _bits(parts: list[str]) -> int:
    return 8 if "256" in parts else 4 if "128" in parts else 2 if "64" in parts else 1


def _conversion(parts: list[str]) -> tuple[int, int]:
    """Registers of the result and of the source: of two types the first is the result's; one type alone is the odd one."""
    types = [part for part in parts[1:] if re.fullmatch(r"[FSU](8|16|32|64)", part)]
    wide = [2 if part.endswith("64") else 1 for part in types]
    if len(types) >= 2:
        return wide[0], wide[1]
    if not types or wide[0] == 1:
        return 1, 1
    of_result = (parts[0] == "I2F" and types[0][0] == "F") or (parts[0] == "F2I" and types[0][0] != "F") or parts[0] == "FRND"
    return (2, 2 if parts[0] == "FRND" else 1) if of_result else (1, 2)


def _matrix(parts: list[str]) -> tuple[int, int, int] | None:
    shape = next((size for part in parts[1:] if (size := _MATRIX.get((parts[0], part)))), None)
    if shape is None:
        return None
    half = parts[0] == "HMMA" and "F16" in parts and "F32" not in parts
    wide = parts[0] == "HMMA" and "TF32" in parts and "1688" in parts
    return shape[0] // 2 if half else shape[0], 4 if wide else shape[1], 2 if wide else shape[2]


def _warpgroup_width(parts: list[str]) -> int:
    """Registers of a warpgroup's result: 64 × N values over 128 threads, 16-bit ones two to a register."""
    size = next((match for part in parts[1:] if (match := _SIZE.match(part))), None)
    if size is None:
        return 1
    columns = int(size[2])
    return max(1, columns // 4 if "F16" in parts and "F32" not in parts else columns // 2)

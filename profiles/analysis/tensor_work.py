"""Work of the tensor cores: by the hardware's own paths, or by the instructions that were executed.

Sources: Nsight Compute, "Metrics Reference" (`sm__ops_path_tensor_…`); PTX ISA, "Matrix Shape" for 2·M·N·K.
"""

from __future__ import annotations

import re

from profiles.analysis.metrics import Metrics, number

PATH = re.compile(
    r"^sm__ops_path_tensor_(?:op_([a-z]+)_)?src_([a-z0-9_]+?)(?:_dst_([a-z0-9]+))?(?:_sparsity_(on|off))?\.sum$"
)
# What a src_… part is counted as. One counter for several types is named by the rate they share.
SRC = {"fp16_bf16_tf32": "fp16", "fp4_fp6_fp8": "fp8", "fp4_fp6": "fp6"}
# Operations of one warp instruction: 2·M·N·K of its shape (PTX ISA, "Matrix Shape"; SASS names M16 N8 K16 as 16816).
# A warp-group instruction (…GMMA) is counted once for each of its four warps.
OPCODES = "sass__inst_executed_per_opcode_with_modifier_all"
_OPCODE = re.compile(r"^" + OPCODES + r"\[([A-Z]+MMA)\.(?:SP\.)?([0-9x]+)\.?(.*)\]$")
_SHAPES = {"884": 8 * 8 * 4, "1684": 16 * 8 * 4, "1688": 16 * 8 * 8, "16816": 16 * 8 * 16, "16832": 16 * 8 * 32,
           "16864": 16 * 8 * 64, "8816": 8 * 8 * 16, "8832": 8 * 8 * 32}


def tensor_paths(metrics: Metrics) -> dict[str, tuple[float, str]]:
    """precision -> (operations, metric). Aggregates repeat what the leaves count: one of the two is taken, never both.

    Leaves name the instruction (`op_hgmma_…`) or the sparsity; aggregates neither. The aggregate of a source type over
    all destinations comes first, then per destination its aggregate, then its leaves: by instruction, else by sparsity.
    """
    groups: dict[str, dict[str, dict[str, list[tuple[float, str]]]]] = {}
    for name in metrics:
        match = PATH.match(name)
        value = number(metrics, name) if match else None
        if match is None or value is None:
            continue
        op, src, dst, sparsity = match.groups()
        level = "op" if op else "sparsity" if sparsity else "aggregate"
        groups.setdefault(src, {}).setdefault(dst or "", {}).setdefault(level, []).append((value, name))
    found: dict[str, tuple[float, str]] = {}
    for src, by_dst in groups.items():
        precision = f"{SRC.get(src, src)}_tensor"
        operations, name = _tensor_source(by_dst)
        before = found.get(precision, (0.0, name))
        found[precision] = (before[0] + operations, before[1] if before[0] else name)
    return found


def _tensor_source(by_dst: dict[str, dict[str, list[tuple[float, str]]]]) -> tuple[float, str]:
    whole = by_dst.get("", {}).get("aggregate")
    if whole:
        return whole[0]
    total, names = 0.0, []
    for levels in by_dst.values():
        level = next(levels[kind] for kind in ("aggregate", "op", "sparsity") if kind in levels)
        total += sum(value for value, _ in level)
        names += [name for value, name in level if value] or [level[0][1]]
    return total, " + ".join(dict.fromkeys(names))


def tensor_opcodes(metrics: Metrics) -> dict[str, tuple[float, str]] | None:
    """The same from executed tensor instructions: exact, 2·M·N·K each. None where one of them is not understood."""
    found: dict[str, tuple[float, str]] = {}
    for name, count in metrics.items():
        opcode = name[len(OPCODES) + 1:]
        if not name.startswith(OPCODES + "[") or opcode.startswith(("HFMA", "HADD", "HMUL")):
            continue
        match = _OPCODE.match(name)
        operations = _instruction_operations(match[1], match[2]) if match else None
        if match is None or operations is None or not isinstance(count, (int, float)):
            return None
        precision = _opcode_precision(match[1], match[3])
        before = found.get(precision, (0.0, ""))[0]
        found[precision] = (before + operations * count, OPCODES)
    return found


def tensor_instructions(metrics: Metrics) -> dict[str, float]:
    """Operations by tensor instruction ("hgmma", "hmma", …), where the report tells them apart."""
    found: dict[str, float] = {}
    for name in metrics:
        match = PATH.match(name)
        value = number(metrics, name) if match and match[1] else None
        if match and value:
            found[match[1]] = found.get(match[1], 0.0) + value
    return found


def _instruction_operations(opcode: str, shape: str) -> float | None:
    """Operations that one warp contributes by one tensor instruction of a shape ("16816", "64x128x16")."""
    sides = shape.split("x")
    if opcode.endswith("GMMA") and len(sides) == 3:
        return 2.0 * int(sides[0]) * int(sides[1]) * int(sides[2]) / 4
    return 2.0 * _SHAPES[shape] if shape in _SHAPES else None


def _opcode_precision(opcode: str, modifiers: str) -> str:
    kind = opcode[0]
    if kind == "H":
        return f"{next((k for k in ('BF16', 'TF32') if k in modifiers), 'FP16').lower()}_tensor"
    if kind == "I":
        return "int4_tensor" if "S4" in modifiers or "U4" in modifiers else "int8_tensor"
    return {"D": "fp64_tensor", "B": "int1_tensor"}.get(kind, "fp8_tensor")

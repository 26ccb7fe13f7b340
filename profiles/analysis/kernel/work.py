"""Work of the tensor cores: by the hardware's own paths, or by the instructions that were executed.

Sources: Nsight Compute, "Metrics Reference" (`sm__ops_path_tensor_…`); PTX ISA, "Matrix Shape" for 2·M·N·K.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from profiles.analysis.kernel.metrics import Metrics, elapsed_cycles, number

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
    """Return precision -> (operations, metric) by the hardware's own paths.

    Aggregates repeat what the leaves count: one of the two is taken, never both.

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
    by_precision: dict[str, tuple[float, str]] = {}
    for src, by_dst in groups.items():
        precision = f"{SRC.get(src, src)}_tensor"
        operations, name = _tensor_source(by_dst)
        before = by_precision.get(precision, (0.0, name))
        by_precision[precision] = (before[0] + operations, before[1] if before[0] else name)
    return by_precision


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
    """Return precision -> (operations, metric) from executed tensor instructions.

    Exact, 2·M·N·K each. None where one of them is not understood.
    """
    by_precision: dict[str, tuple[float, str]] = {}
    for name, count in metrics.items():
        opcode = name[len(OPCODES) + 1:]
        if not name.startswith(OPCODES + "[") or opcode.startswith(("HFMA", "HADD", "HMUL")):
            continue
        match = _OPCODE.match(name)
        operations = _instruction_operations(match[1], match[2]) if match else None
        if match is None or operations is None or not isinstance(count, (int, float)):
            return None
        precision = _opcode_precision(match[1], match[3])
        before = by_precision.get(precision, (0.0, ""))[0]
        by_precision[precision] = (before + operations * count, OPCODES)
    return by_precision


def tensor_instructions(metrics: Metrics) -> dict[str, float]:
    """Operations by tensor instruction ("hgmma", "hmma", …), where the report tells them apart."""
    operations: dict[str, float] = {}
    for name in metrics:
        match = PATH.match(name)
        value = number(metrics, name) if match and match[1] else None
        if match and value:
            operations[match[1]] = operations.get(match[1], 0.0) + value
    return operations


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


SASS = "sass_thread_inst_executed_op_"
# precision -> letter of its instructions, operations per fma, per add or mul
SCALAR = {"fp64": ("d", 2, 1), "fp32": ("f", 2, 1), "fp16": ("h", 4, 2)}
TENSOR_PIPE = (
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor.sum",
    "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active",
)
# instructions that only move -> operations that the hardware counts for each
_MOVES = ((re.compile(r"^(?:@!?U?P\d+ )?HFMA2\S* R\d+, -?RZ, -?RZ, "), 4), (re.compile(r"^(?:@!?U?P\d+ )?HADD2\S* R\d+, -RZ, "), 2))
_MOVING_OPCODES = {"HFMA2.MMA", "HADD2.F32"}
_THREADS = "thread_inst_executed_true"        # per instruction, predicated on: what op_hfma_pred_on sums


@dataclass(frozen=True)
class Work:
    """Operations of one launch by precision. `unknown`: why a part of the work is not counted."""

    by_precision: dict[str, float]
    source: dict[str, str]                    # precision -> metric it rests on
    unknown: str | None = None
    note: str | None = None                   # what to know about the counts

    @property
    def total(self) -> float:
        return sum(self.by_precision.values())


def work(metrics: Metrics, instructions: pa.Table | None = None) -> Work:
    """Return the operations of a launch by precision, those without work left out.

    Empty and `unknown` where nothing was counted.

    `instructions`: `CounterLaunch.instructions`, which tell register sets from half-precision work exactly.
    """
    by_precision: dict[str, float] = {}
    source: dict[str, str] = {}
    counted, note = False, None
    for precision in SCALAR:
        flop = _scalar(metrics, precision)
        if flop is not None and precision == "fp16" and flop > 0:
            flop, note = _without_moves(flop, metrics, instructions)
        if flop is not None:
            counted = True
            if flop > 0:
                by_precision[precision] = flop
                source[precision] = f"smsp__{SASS}{SCALAR[precision][0]}{{fma,add,mul}}_pred_on"
    tensor = tensor_paths(metrics) or (tensor_opcodes(metrics) if OPCODES in metrics else None)
    for precision, (operations, name) in (tensor or {}).items():
        if operations > 0:
            by_precision[precision], source[precision] = operations, name
    return Work(by_precision, source, _unknown(metrics, counted, tensor is not None), note)


def _unknown(metrics: Metrics, scalar_counted: bool, tensor_counted: bool) -> str | None:
    if not scalar_counted and not tensor_counted:
        return "no FLOP counters in the report: capture with --set roofline or --set full"
    if not tensor_counted and any((number(metrics, name) or 0) > 0 for name in TENSOR_PIPE):
        return "tensor cores were used, but this report does not count their operations (ncu 2025 or newer does)"
    return None


def _scalar(metrics: Metrics, precision: str) -> float | None:
    """Operations of one scalar pipe: exact `.sum` where collected, else per elapsed cycle × elapsed cycles."""
    letter, per_fma, per_other = SCALAR[precision]
    total, is_counted = 0.0, False
    for operation, weight in (("fma", per_fma), ("add", per_other), ("mul", per_other)):
        base = f"smsp__{SASS}{letter}{operation}_pred_on.sum"
        count = number(metrics, base)
        if count is None:
            rate = number(metrics, f"{base}.per_cycle_elapsed")
            cycles = elapsed_cycles(metrics)
            if rate is None or cycles is None:
                continue
            count = rate * cycles
        is_counted = True
        total += weight * count
    return total if is_counted else None


def _without_moves(flop: float, metrics: Metrics, instructions: pa.Table | None) -> tuple[float, str | None]:
    """Half-precision operations without those that only set registers or convert, and what was done about them.

    Exact from the instructions. Without them from the opcodes: where HFMA2.MMA and HADD2.F32 are the only ones, all of it is
    moves (real packed arithmetic alternates HFMA2 and HFMA2.MMA, or has HADD2 and HMUL2 beside it).
    """
    moves = half_moves(instructions)
    if moves is not None:
        left = flop - moves
        # counted in different passes: what is left of nothing is rounding
        return (0.0 if left < 1e-3 * flop else left), _moves_note(moves) if moves else None
    opcodes = {name[len(OPCODES) + 1:-1] for name in metrics
               if name.startswith((f"{OPCODES}[HFMA", f"{OPCODES}[HADD", f"{OPCODES}[HMUL"))}
    if opcodes and opcodes <= _MOVING_OPCODES:
        return 0.0, _moves_note(flop)
    if opcodes & _MOVING_OPCODES:
        return flop, "some of the FP16 operations counted may be instructions that only set a register or convert"
    return flop, None


def _moves_note(flop: float) -> str:
    return (f"{flop:,.0f} FP16 operations that the hardware counted set a register (HFMA2 of zeros) or convert (HADD2.F32): "
            f"left out")


def half_moves(instructions: pa.Table | None) -> float | None:
    """Return the half-precision operations, as the hardware counts them, that only move.

    None where that cannot be known.
    """
    if instructions is None or _THREADS not in instructions.column_names or not instructions.num_rows:
        return None
    counts = np.nan_to_num(instructions[_THREADS].to_numpy(zero_copy_only=False))
    sass = [text or "" for text in instructions["sass"].to_pylist()]
    return float(sum(weight * counts[[bool(pattern.match(text)) for text in sass]].sum() for pattern, weight in _MOVES))


def tensor_flop(by_precision: Mapping[str, float]) -> float:
    """Return the operations of the tensor cores among those of a launch by precision, NaN where none were counted."""
    return float(sum(amount for name, amount in by_precision.items() if name.endswith("_tensor"))) or float("nan")

"""Work of a launch: operations by precision, from its counters.

Sources: which metrics count what: Nsight Compute, "Roofline Charts", and its SpeedOfLight_…RooflineChart sections.

    scalar   2·fma + add + mul thread instructions (half: packed pairs, so 4·fma + 2·add + 2·mul)
    tensor   sm__ops_path_tensor_….sum (already operations; scalar counters do not see tensor work)

Two instructions count as half-precision work in hardware and are none: HFMA2 with both factors RZ sets a register, HADD2
with -RZ converts to single precision. They are left out, and that is said.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from profiles.analysis.metrics import Metrics, cycles_elapsed, number
from profiles.analysis.tensor_work import OPCODES, tensor_opcodes, tensor_paths

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
    """Operations by precision; precisions without work are left out. Empty and `unknown` where nothing was counted.

    `instructions`: `CounterLaunch.instructions`, which tell register sets from half-precision work exactly.
    """
    found: dict[str, float] = {}
    source: dict[str, str] = {}
    counted, note = False, None
    for precision in SCALAR:
        flop = _scalar(metrics, precision)
        if flop is not None and precision == "fp16" and flop > 0:
            flop, note = _without_moves(flop, metrics, instructions)
        if flop is not None:
            counted = True
            if flop > 0:
                found[precision] = flop
                source[precision] = f"smsp__{SASS}{SCALAR[precision][0]}{{fma,add,mul}}_pred_on"
    tensor = tensor_paths(metrics) or (tensor_opcodes(metrics) if OPCODES in metrics else None)
    for precision, (operations, name) in (tensor or {}).items():
        if operations > 0:
            found[precision], source[precision] = operations, name
    return Work(found, source, _unknown(metrics, counted, tensor is not None), note)


def _unknown(metrics: Metrics, scalar_counted: bool, tensor_counted: bool) -> str | None:
    if not scalar_counted and not tensor_counted:
        return "no FLOP counters in the report: capture with --set roofline or --set full"
    if not tensor_counted and any((number(metrics, name) or 0) > 0 for name in TENSOR_PIPE):
        return "tensor cores were used, but this report does not count their operations (ncu 2025 or newer does)"
    return None


def _scalar(metrics: Metrics, precision: str) -> float | None:
    """Operations of one scalar pipe: exact `.sum` where collected, else per elapsed cycle × elapsed cycles."""
    letter, per_fma, per_other = SCALAR[precision]
    total, known = 0.0, False
    for operation, weight in (("fma", per_fma), ("add", per_other), ("mul", per_other)):
        base = f"smsp__{SASS}{letter}{operation}_pred_on.sum"
        count = number(metrics, base)
        if count is None:
            rate = number(metrics, f"{base}.per_cycle_elapsed")
            cycles = cycles_elapsed(metrics)
            if rate is None or cycles is None:
                continue
            count = rate * cycles
        known = True
        total += weight * count
    return total if known else None


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
    """Half-precision operations as the hardware counts them that only move; None where that cannot be known."""
    if instructions is None or _THREADS not in instructions.column_names or not instructions.num_rows:
        return None
    counts = np.nan_to_num(instructions[_THREADS].to_numpy(zero_copy_only=False))
    sass = [text or "" for text in instructions["sass"].to_pylist()]
    return float(sum(weight * counts[[bool(pattern.match(text)) for text in sass]].sum() for pattern, weight in _MOVES))

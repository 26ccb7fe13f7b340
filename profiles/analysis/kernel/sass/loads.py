"""What the units of an SM were given to do, as signals of a launch: loads and their words, products, barriers, lanes, wavefronts.

Kept with the facts (`kernel.counters`), so that pages, API and commands judge stored launches by them. Sources: Nsight Compute,
Kernel Profiling Guide, "Metrics Reference" (`l1tex__data_pipe_lsu_wavefronts`: passes through the L1 data stage, one a cycle and
SM; `l1tex__lsuin_requests`: instructions that the LSU takes, one a cycle and SM; `derived__memory_l1_wavefronts_shared_excessive`;
`smsp__sass_average_data_bytes_per_sector_mem_global_op_{ld,st}`), and for opcodes CUDA Binary Utilities, "Instruction Set
Reference". Counts are warp instructions of the whole launch; words are of 32 bits and of one thread.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import numpy as np

from profiles.analysis.kernel.instructions import Instructions
from profiles.analysis.kernel.metrics import Metrics, number
from profiles.analysis.kernel.pipes import ACTIVE, ELAPSED, MIX, pipes
from profiles.analysis.kernel.waits import Span, Waits, registers, split, width
from profiles.ingest.trace import CounterLaunch

WARP = 32
MOST_SIDE = 2**31               # of a grid, in blocks
BUSY: dict[str, tuple[str, ...]] = {            # unit -> its use, percent of its peak over the whole launch where that is known
    "issue_pct": (f"sm__issue_active{ELAPSED}", f"smsp__issue_active{ELAPSED}", f"sm__inst_executed{ELAPSED}",
                  f"sm__inst_executed{ACTIVE}", f"smsp__issue_active{ACTIVE}"),
    "lsu_data_pct": (f"l1tex__data_pipe_lsu_wavefronts{ELAPSED}", f"l1tex__data_pipe_lsu_wavefronts{ACTIVE}"),
    "lsu_inst_pct": (f"l1tex__lsuin_requests{ELAPSED}", f"sm__inst_executed_pipe_lsu{ELAPSED}",
                     f"sm__inst_executed_pipe_lsu{ACTIVE}"),
}
PIPE_SIGNALS = {"FMA": "fma_pct", "ALU": "alu_pct", "XU": "xu_pct", "FP64": "fp64_pct", "FP16": "fp16_pct", "Tensor": "tensor_pct"}
FMA = ("FFMA", "FFMA2", "DFMA")                # HFMA2 sets registers as often as it multiplies (`kernel.work`)
GLOBAL_LOADS, GLOBAL_STORES, SHARED_LOADS = ("LDG", "LD"), ("STG", "ST"), ("LDS",)
CHAIN_ROWS, MOST_LOADS = 40, 200        # rows that a chain of loads is followed back; loads that are looked at
LEVEL_ROWS = 12                 # instructions of one level of a tree in shared memory: two loads, an addition, a store, its test
_WIDE = re.compile(r"\.(64|128|256)(?:\.|$)")
_BYTES = re.compile(r"\.[US](8|16)(?:\.|$)")


def words(opcode: str) -> float:
    """Return the 32-bit words that a load or store moves for one thread: "LDG.E.128" -> 4, "LDG.E.U8" -> 0.25."""
    if (wide := _WIDE.search(opcode)) is not None:
        return int(wide[1]) / 32
    narrow = _BYTES.search(opcode)
    return int(narrow[1]) / 32 if narrow else 1.0


def load_signals(launch: CounterLaunch) -> dict[str, float]:
    """Return what the units were given to do; only what the report holds."""
    signals = dict(_busy(launch.metrics))
    signals.update(_mix_of_opcodes(launch.metrics))
    if launch.instructions is not None and launch.instructions.num_rows:
        signals.update(_mix_of_instructions(Instructions(launch.instructions)))
    signals.update(_lanes(launch.metrics))
    signals.update(_sectors(launch.metrics))
    signals.update(_wavefronts(launch.metrics, signals))
    if launch.grid and launch.block and all(0 < side < MOST_SIDE for side in (*launch.grid, *launch.block)):
        signals["warps"] = float(math.prod(launch.grid) * -(-math.prod(launch.block) // WARP))
    return {key: value for key, value in signals.items() if math.isfinite(value)}


def _busy(metrics: Metrics) -> Iterator[tuple[str, float]]:
    for key, names in BUSY.items():
        if (value := number(metrics, *names)) is not None:
            yield key, value
    for pipe in pipes(metrics):
        if pipe.name in PIPE_SIGNALS:
            yield PIPE_SIGNALS[pipe.name], pipe.pct


def _mix_of_opcodes(metrics: Metrics) -> dict[str, float]:
    """From the totals by opcode, which do not say how wide a load is."""
    counts = {name[len(MIX):-1]: float(value) for name, value in metrics.items()
              if name.startswith(MIX) and isinstance(value, int | float)}
    return _sums(counts, counts) if counts else {}


def _mix_of_instructions(instructions: Instructions) -> dict[str, float]:
    if not instructions.has("inst_executed") or not instructions.values("inst_executed").any():
        rows = instructions.base_opcode              # nothing was counted: what the code is made of
        return {"code_fma_share": float(np.isin(rows, FMA).sum() / len(rows)),
                "code_tensor_share": float(sum("MMA" in str(row) for row in rows) / len(rows))}
    executed = instructions.values("inst_executed")
    totals: dict[str, float] = {}
    for opcode, count in zip(instructions.opcode, executed.tolist(), strict=True):
        totals[opcode] = totals.get(opcode, 0.0) + count
    bases: dict[str, float] = {}
    for opcode, count in totals.items():
        base = opcode.split(".", 1)[0].rstrip(";")
        bases[base] = bases.get(base, 0.0) + count
    signals = _sums(bases, totals)
    base_opcode = instructions.base_opcode
    for key, opcodes in (("global_load", GLOBAL_LOADS), ("global_store", GLOBAL_STORES), ("shared_load", SHARED_LOADS)):
        signals[f"{key}_words"] = sum(count * words(opcode) for opcode, count in totals.items()
                                      if opcode.split(".", 1)[0].rstrip(";") in opcodes)
    threads = instructions.values("thread_inst_executed_true")
    if instructions.has("thread_inst_executed_true"):
        wide = np.array([4.0 * words(opcode) for opcode in instructions.opcode])
        for key, opcodes in (("loaded_bytes", GLOBAL_LOADS), ("stored_bytes", GLOBAL_STORES)):
            signals[key] = float((threads * wide)[np.isin(base_opcode, opcodes)].sum())
        signals["lanes"] = float(threads.sum() / executed.sum()) if executed.sum() else float("nan")
    if (base_opcode == "BAR").any():                    # what is executed shortly before a barrier: a level of a tree
        before = [(base_opcode == "BAR")[back:] for back in range(LEVEL_ROWS)]
        near = np.logical_or.reduce([np.concatenate([rows, np.zeros(back, bool)]) for back, rows in enumerate(before)])
        signals["meeting_inst"] = float(executed[near].sum())
    signals["chained_load_inst"] = float(executed[_chained(instructions)].sum())
    if instructions.has("smsp__branch_targets_threads_divergent"):
        signals["divergent_branches"] = float(instructions.values("smsp__branch_targets_threads_divergent").sum())
    excess = instructions.values("derived__memory_l1_wavefronts_shared_excessive")
    if instructions.has("derived__memory_l1_wavefronts_shared_excessive"):
        wide_load = np.array([words(opcode) > 1 for opcode in instructions.opcode]) & (base_opcode == "LDS")
        signals["shared_excess"] = float(excess.sum())
        signals["shared_excess_wide_loads"] = float(excess[wide_load].sum())
        signals["shared_excess_word_loads"] = float(excess[(base_opcode == "LDS") & ~wide_load].sum())
    sectors, beyond = (instructions.values(f"{prefix}memory_l2_theoretical_sectors_global{suffix}")
                       for prefix, suffix in (("", ""), ("derived__", "_excessive")))
    if instructions.has("memory_l2_theoretical_sectors_global") and sectors.sum():
        signals["sector_excess_pct"] = 100.0 * float(beyond.sum() / sectors.sum())
    return signals


def _chained(instructions: Instructions) -> list[int]:
    """Return the global loads whose address another global load brings, at most two instructions away: a chain."""
    base, loads = instructions.base_opcode, []
    loops = Waits(instructions).loops
    rows = np.flatnonzero(np.isin(base, GLOBAL_LOADS))[:MOST_LOADS].tolist()
    for row in rows:
        start, end = next(((start, end) for start, end in loops if start <= row <= end), (max(0, row - CHAIN_ROWS), row))
        back = [*range(row - 1, max(start, row - CHAIN_ROWS) - 1, -1), *range(end, max(row, end - CHAIN_ROWS), -1)]
        needs = [span for operand in split(instructions.sass[row])[1][1:] for span in registers(operand) if span[0] == "R"]
        for _ in range(3):
            writer = next((row_before for row_before in back if _writes(instructions.sass[row_before], needs)), None)
            if writer is None:
                break
            if base[writer] in GLOBAL_LOADS:
                loads.append(row)
                break
            needs = [span for operand in split(instructions.sass[writer])[1][1:] for span in registers(operand) if span[0] == "R"]
            back = back[back.index(writer) + 1:]
    return loads


def _writes(sass: str, needs: list[Span]) -> bool:
    opcode, operands = split(sass)
    target = next((span for span in registers(operands[0])), None) if operands and not operands[0].startswith("[") else None
    if target is None or not needs:
        return False
    last = target[1] + (width(opcode) if opcode.startswith("LD") else 2 if "WIDE" in opcode else 1)
    return any(target[0] == bank and target[1] < end and first < last for bank, first, end in needs)


def _sums(bases: dict[str, float], opcodes: dict[str, float]) -> dict[str, float]:
    """Return the sums by what an instruction does; `bases`: by opcode without its modifiers."""
    def total(*names: str) -> float:
        return sum(bases.get(name, 0.0) for name in names)

    return {
        "inst": sum(bases.values()), "fma_inst": total(*FMA), "add_inst": total("FADD"), "mul_inst": total("FMUL"),
        "global_load_inst": total(*GLOBAL_LOADS), "global_store_inst": total(*GLOBAL_STORES),
        "shared_load_inst": total(*SHARED_LOADS), "shared_store_inst": total("STS"), "barrier_inst": total("BAR"),
        "shuffle_inst": total("SHFL"), "double_inst": total("DFMA", "DADD", "DMUL"),
        "local_inst": total("LDL", "STL"), "async_inst": total("LDGSTS", "UBLKCP", "UTMALDG"),
        "tensor_inst": sum(count for name, count in bases.items() if "MMA" in name and "HFMA2" not in name),
    } if opcodes else {}


def _lanes(metrics: Metrics) -> dict[str, float]:
    """Threads per warp instruction that are switched on, of 32."""
    value = number(metrics, "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
                   "smsp__thread_inst_executed_per_inst_executed.ratio")
    return {} if value is None else {"lanes": value}


def _sectors(metrics: Metrics) -> dict[str, float]:
    """Global sectors of loads and stores that went through the L1, and which of them only filled a sector up."""
    signals, excess, is_counted = {}, 0.0, False
    for kind in ("ld", "st"):
        sectors = number(metrics, f"l1tex__t_sectors_pipe_lsu_mem_global_op_{kind}.sum")
        used = number(metrics, f"smsp__sass_average_data_bytes_per_sector_mem_global_op_{kind}.ratio")
        if sectors is not None:
            signals[f"{kind}_sectors"] = sectors
            if used is not None and sectors > 0:
                excess, is_counted = excess + sectors * max(0.0, 1.0 - used / 32.0), True
    total = sum(signals.values())
    if is_counted and total:
        signals["sector_unused_pct"] = 100.0 * excess / total
    return signals


def _wavefronts(metrics: Metrics, found: dict[str, float]) -> dict[str, float]:
    """Passes through the L1 data stage: all of them, those of shared memory, and what bank conflicts and scattered global
    accesses add to them, percent of all."""
    cycles, busy = number(metrics, "l1tex__cycles_elapsed.sum"), found.get("lsu_data_pct")
    total = number(metrics, "l1tex__data_pipe_lsu_wavefronts.sum")
    if total is None and cycles is not None and busy is not None:
        total = cycles * busy / 100.0                                  # its peak is one a cycle
    shared = number(metrics, "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")
    out: dict[str, float] = {}
    conflicts = number(metrics, "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum")
    if conflicts is None:
        parts = [number(metrics, f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{kind}.sum") for kind in ("ld", "st")]
        conflicts = sum(part for part in parts if part is not None) if any(part is not None for part in parts) else None
    if conflicts is not None:
        out["bank_conflicts"] = conflicts
    if shared is not None:
        out["shared_wavefronts"] = shared
    if not total:
        return out
    out["wavefronts"] = total
    excess = found.get("shared_excess", conflicts)      # by the addresses; else as counted, with what waits for the same bank
    if excess is not None:
        out["conflict_pct"] = 100.0 * min(1.0, excess / total)
    if shared is not None:
        out["shared_pct"] = 100.0 * min(1.0, shared / total)
        ideal = found.get("global_load_words", 0.0) + found.get("global_store_words", 0.0)
        if ideal and total > shared:
            out["scattered_pct"] = 100.0 * max(0.0, total - shared - ideal) / total
    return out

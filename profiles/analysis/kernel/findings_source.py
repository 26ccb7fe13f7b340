"""Advice that names a line: where in a kernel the waits, the wasted traffic and the lost threads are.

LIMITS holds the thresholds. Formulas: excessive sectors and wavefronts as the report counts them per instruction (Nsight
Compute, Kernel Profiling Guide, "Metrics Reference": derived__memory_…_excessive) ÷ all of the kernel; threads per warp
instruction = thread_inst_executed_true ÷ inst_executed; shares of opcodes by executed instructions (CUDA Binary Utilities,
"Instruction Set Reference"). Worth: of the tail, the SM time that periodic samples show idle in it; of the others NVIDIA's own
estimate for the same fault (`source_kernel.NVIDIA`), named as theirs, or unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from profiles.analysis.core.result import SEVERITIES, Finding
from profiles.analysis.core.sentences import pct_of, pct_text, time_text
from profiles.analysis.kernel import sampling, stalls
from profiles.analysis.kernel.instructions import SAMPLES, hottest, reasons_at
from profiles.analysis.kernel.source_kernel import Kernel, kernels_of
from profiles.analysis.kernel.waits import Waits, hottest_instruction
from profiles.ingest.trace import Report

LIMITS: dict[str, float] = {
    "excess_sectors_pct": 25.0,  # of the global sectors
    "excess_wavefronts_pct": 20.0,   # of the shared wavefronts
    "threads_per_warp": 22.0,    # active threads of 32 per warp instruction, where branches diverge
    "local_pct": 2.0,            # loads and stores of local memory, of the warp instructions
    "atomic_pct": 2.0,           # atomics, of the thread instructions
    "atomic_wait_pct": 20.0,     # or of the stall samples, waiting for atomics
    "double_pct": 10.0,          # fp64 arithmetic on converted values, of the warp instructions
    "hot_line_pct": 20.0,        # of the stall samples, at one line
    "hot_instruction_pct": 10.0,     # of them, at one instruction, where no lines are known
    "reason_pct": 40.0,          # of a hot place's samples that one warp state must hold
    "tail_lost_pct": 5.0,        # of the SM time, idle in the tail
    "epilogue_pct": 25.0,        # of the stall samples behind the loop of the tensor-core products: a rule of thumb
}
TENSOR = ("HMMA", "HGMMA", "IMMA", "IGMMA", "QGMMA", "QMMA", "BMMA", "DMMA", "UTCHMMA", "UTCQMMA", "UTCIMMA", "OMMA")
LOCAL, ATOMIC, DOUBLE = ("LDL", "STL"), ("ATOM", "ATOMG", "ATOMS", "RED", "REDG", "REDUX"), ("DFMA", "DADD", "DMUL")
WARP = 32
HOT_ROWS, FENCE_ROWS = 32, 8     # instructions that are looked at; a fence this near belongs to the atomic
NO_WAIT = stalls.NO_ACTION
TAIL_STEPS = 3                   # samples that a tail must last
# Of the kernel's time at most, where the unit that the fault loads is what bounds it: its share of that unit's work.
MOST: dict[str, Callable[[Mapping[str, Any]], float]] = {
    "source.uncoalesced": lambda numbers: float(numbers["excess_pct"]),
    "source.bank_conflicts": lambda numbers: float(numbers["excess_pct"]),
    "source.divergence": lambda numbers: 100.0 * (1.0 - float(numbers["threads_per_warp_instruction"]) / WARP),
    "source.spills": lambda numbers: float(numbers["local_pct"]),
    "source.atomics": lambda numbers: float(numbers["atomic_wait_pct"]),
    "source.double": lambda numbers: float(numbers["double_pct"]),
}


def most_pct(rule: str, numbers: Mapping[str, Any]) -> float | None:
    """Return what a finding's fault costs at most, 0-100 of the kernel's time; None where its numbers do not say."""
    try:
        return max(0.0, min(100.0, MOST[rule](numbers) * float(numbers.get("launch_part", 1.0)))) if rule in MOST else None
    except (KeyError, TypeError, ValueError):                  # a finding of an older version
        return None


def find(report: Report) -> list[Finding]:
    """Findings of every kernel whose launches hold instructions, by severity.

    Of a kernel's launches, the `source_kernel.LAUNCHES` longest of different grids are looked at, and for each rule the one that
    loses most to it speaks: not the mean of good and bad ones.
    """
    findings = []
    for launches in kernels_of(report):
        for rule in RULES.values():
            losses = [(_lost_ns(finding, kernel), finding, kernel) for kernel in launches for finding in rule(kernel)]
            if losses:
                _, worst, kernel = max(losses, key=lambda which: which[0])
                findings.append(_of_launch(worst, kernel) if len(launches) > 1 else worst)
    return sorted(findings, key=lambda each: (SEVERITIES.index(each.severity), -(each.worth_ns or 0.0)))


def _lost_ns(finding: Finding, kernel: Kernel) -> float:
    share = most_pct(finding.rule, finding.numbers)
    return (kernel.launch_ns or 0.0) * (share if share is not None else 1.0)


def _of_launch(finding: Finding, kernel: Kernel) -> Finding:
    """Name the launch; what it is worth, and costs at most, is of its own time."""
    part = kernel.launch_ns / kernel.total_ns if kernel.total_ns else 1.0
    grid = f", grid {' × '.join(str(side) for side in kernel.launch.grid)}" if kernel.launch.grid else ""
    return replace(finding, title=f"{finding.title} (its launch {kernel.launch.index}{grid}, {time_text(kernel.launch_ns)})",
                   numbers={**finding.numbers, "launch": float(kernel.launch.index), "launch_part": part},
                   worth_ns=None if finding.worth_ns is None else finding.worth_ns * part)


def _find_uncoalesced(kernel: Kernel) -> Iterator[Finding]:
    yield from _find_excess(kernel, "uncoalesced", "memory_l2_theoretical_sectors_global", "global-memory sectors are excessive",
                       LIMITS["excess_sectors_pct"])


def _find_bank_conflicts(kernel: Kernel) -> Iterator[Finding]:
    yield from _find_excess(kernel, "bank_conflicts", "memory_l1_wavefronts_shared", "shared-memory passes are bank conflicts",
                       LIMITS["excess_wavefronts_pct"])


def _find_excess(kernel: Kernel, rule: str, metric: str, words: str, limit_pct: float) -> Iterator[Finding]:
    """What the report counts as excessive of a metric, of all of it."""
    excess = kernel.instructions.values(f"derived__{metric}_excessive")
    total = kernel.sum(metric)
    pct = pct_of(float(excess.sum()), total)
    if pct >= limit_pct:
        place, share = kernel.at(excess)
        yield kernel.say(rule, f"{pct_text(pct)} of its {words}, {pct_text(share)} of them from {place}",
                         {"excess_pct": pct, "excess": float(excess.sum()), "all": total, "place": place, "place_share_pct": share})


def _find_divergence(kernel: Kernel) -> Iterator[Finding]:
    executed, threads = kernel.instructions.values("inst_executed"), kernel.instructions.values("thread_inst_executed_true")
    divergent = kernel.sum("smsp__branch_targets_threads_divergent")
    if not divergent or not executed.sum() or not kernel.instructions.has("thread_inst_executed_true"):
        return
    mean = float(threads.sum() / executed.sum())
    if mean <= LIMITS["threads_per_warp"]:
        place, share = kernel.at(np.maximum(0.0, WARP * executed - threads))
        yield kernel.say("divergence", f"{mean:.1f} of {WARP} threads are active per warp instruction, {pct_text(share)} of the "
                         f"lost ones at {place}", {"threads_per_warp_instruction": mean, "divergent_branches": divergent,
                                                   "place": place, "place_share_pct": share})


def _find_local_memory(kernel: Kernel) -> Iterator[Finding]:
    values, pct = kernel.share(LOCAL, "inst_executed")
    if pct >= LIMITS["local_pct"]:
        place, share = kernel.at(values)
        yield kernel.say("spills", f"{pct_text(pct)} of its warp instructions go to local memory (register spills, or arrays "
                         f"indexed at run time), {pct_text(share)} of them at {place}",
                         {"local_pct": pct, "place": place, "place_share_pct": share})


def _find_atomics(kernel: Kernel) -> Iterator[Finding]:
    """Many atomics, or few that the warps wait for: a Triton program does one atomic for all its threads, and a fence with it."""
    values, pct = kernel.share(ATOMIC, "thread_inst_executed_true")
    waited_pct = _waited_for_atomics(kernel) if values.any() else 0.0
    if pct < LIMITS["atomic_pct"] and waited_pct < LIMITS["atomic_wait_pct"]:
        return
    place, share = kernel.at(values)
    waits = f", and {pct_text(waited_pct)} of its stall samples wait for them" if waited_pct >= 1.0 else ""
    yield kernel.say("atomics", f"{pct_text(pct)} of its thread instructions are atomics, {pct_text(share)} of them at {place}"
                     f"{waits}", {"atomic_pct": pct, "atomic_wait_pct": waited_pct, "place": place, "place_share_pct": share})


def _waited_for_atomics(kernel: Kernel) -> float:
    """Return the share of the stall samples that wait for atomics: at one, for its result, at the fence beside it, or at the end
    (drain) where atomics are most of what the kernel writes. Of the hottest instructions; in percent, a lower bound."""
    instructions, total = kernel.instructions, kernel.sum(SAMPLES)
    if not total:
        return 0.0
    waits, opcode = Waits(instructions), instructions.base_opcode
    atomic = np.flatnonzero(np.isin(opcode, ATOMIC))
    executed = instructions.values("inst_executed")
    drains = executed[atomic].sum() >= executed[np.isin(opcode, ("STG", "ST"))].sum()
    waited = 0.0
    for row in hottest(instructions, SAMPLES, HOT_ROWS):
        for reason, count in reasons_at(instructions, row).items():
            other = waits.producer(row, reason) if reason == "long_scoreboard" else None
            near = reason == "membar" and bool((np.abs(atomic - row) <= FENCE_ROWS).any())
            if reason not in NO_WAIT and (opcode[row] in ATOMIC or (other is not None and opcode[other] in ATOMIC) or near
                                          or (reason == "drain" and drains)):
                waited += count
    return 100.0 * waited / total


def _find_double_precision(kernel: Kernel) -> Iterator[Finding]:
    values, pct = kernel.share(DOUBLE, "inst_executed")
    executed = kernel.instructions.values("inst_executed")
    converted = sum(float(executed[row]) for row,
                    opcode in enumerate(kernel.instructions.opcode) if opcode.startswith("F2F.F64.F32"))
    if pct >= LIMITS["double_pct"] and converted:
        place, share = kernel.at(values)
        yield kernel.say("double", f"{pct_text(pct)} of its warp instructions are fp64 arithmetic on values converted from fp32, "
                         f"{pct_text(share)} of them at {place}",
                         {"double_pct": pct, "converted_instructions": converted, "place": place, "place_share_pct": share})


def _find_wait(kernel: Kernel) -> Iterator[Finding]:
    """The hottest line, or instruction where no lines are known, if one state explains it."""
    instructions, total = kernel.instructions, kernel.sum(SAMPLES)
    if not total:
        return
    line = next((line for line in kernel.lines if line.line is not None), None)
    hot = hottest_instruction(Waits(instructions), None if line is None else line.rows)
    if hot is None:
        return
    if line is not None:
        samples, reasons, place, limit = line.values[SAMPLES], line.reasons, kernel.words(line), LIMITS["hot_line_pct"]
    else:
        samples, reasons = float(instructions.values(SAMPLES)[hot.row]), reasons_at(instructions, hot.row)
        place, limit = kernel.instruction(hot.row), LIMITS["hot_instruction_pct"]
    reason, count = next(iter(reasons.items()), ("selected", 0.0))
    if not samples or 100.0 * samples / total < limit or 100.0 * count / samples < LIMITS["reason_pct"] or reason in NO_WAIT:
        return
    cause, other = stalls.explain(reason), hot.waits_for
    who = "it" if line is None else "its hottest instruction"
    behind = f"; {who} likely waits for {kernel.instruction(other)}" if other is not None else ""
    yield kernel.say("wait", f"{place} holds {pct_text(100.0 * samples / total)} of {total:,.0f} stall samples, "
                     f"{pct_text(100.0 * count / samples)} of them “{cause.title}”{behind}",
                     {"share_pct": 100.0 * samples / total, "samples": samples, "reason": reason,
                      "reason_pct": 100.0 * count / samples, "place": place},
                     advice=f"{cause.meaning} {cause.fix}", severity="info")


def _find_epilogue(kernel: Kernel) -> Iterator[Finding]:
    """What the samples say behind the loop of the tensor-core products: scaling, converting, storing the tile.

    The loop is the innermost one around the last product; without one the products' end cannot be told from what follows.
    """
    tensor = np.flatnonzero(np.isin(kernel.instructions.base_opcode, TENSOR))
    samples, total = kernel.instructions.values(SAMPLES), kernel.sum(SAMPLES)
    ends = [end for start, end in Waits(kernel.instructions).loops if tensor.size and start <= tensor[-1] <= end]
    if not ends or not total:
        return
    behind = np.where(np.arange(samples.size) > ends[0], samples, 0.0)
    pct = 100.0 * float(behind.sum()) / total
    if pct >= LIMITS["epilogue_pct"]:
        place, share = kernel.at(behind)
        yield kernel.say("epilogue", f"{pct_text(pct)} of its stall samples lie behind the loop of its tensor-core products (the "
                         f"epilogue), {pct_text(share)} of them at {place}",
                         {"epilogue_pct": pct, "place": place, "place_share_pct": share}, severity="info")


def _find_tail(kernel: Kernel) -> Iterator[Finding]:
    window = sampling.window(sampling.series_of(kernel.launch.periodic)) if kernel.launch.periodic is not None else None
    if window is None or window.tail_lost_pct is None or window.tail_ns < TAIL_STEPS * window.step_ns:
        return
    if window.tail_lost_pct >= LIMITS["tail_lost_pct"]:
        worth = kernel.total_ns * window.tail_lost_pct / 100.0
        yield kernel.say("tail", f"for the last {time_text(window.tail_ns)} of {time_text(window.length_ns)} less than half of the "
                         f"SM cycles are active: {pct_text(window.tail_lost_pct)} of its SM time is idle in the tail",
                         {"tail_ns": window.tail_ns, "window_ns": window.length_ns, "tail_lost_pct": window.tail_lost_pct,
                          "worth_ns_estimate": worth}, worth_ns=worth)


RULES: dict[str, Callable[[Kernel], Iterator[Finding]]] = {
    "uncoalesced": _find_uncoalesced, "bank_conflicts": _find_bank_conflicts, "divergence": _find_divergence,
    "spills": _find_local_memory,
    "atomics": _find_atomics, "double": _find_double_precision, "wait": _find_wait, "tail": _find_tail,
    "epilogue": _find_epilogue,
}

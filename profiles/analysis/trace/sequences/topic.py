"""The topic "sequences": which kernels come again and again one after the other, and could be one?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from profiles.analysis.core.frame import Frame
from profiles.analysis.core.result import Finding, Result, cut_to_fit
from profiles.analysis.core.sentences import pct_text, plural, si_text, time_text, times_text
from profiles.analysis.trace.launching.order import order_of
from profiles.analysis.trace.sequences.runs import Candidate, candidates
from profiles.ingest.arrays import Ints, stable_order
from profiles.ingest.naming.names import short_name
from profiles.ingest.trace import Category, SummaryTable, summary_columns

# ---- frequent kernel sequences of operators ----
# Which kernels an outermost operator (or range) launches, in order, and how often.
# As Holistic Trace Analysis does it (`get_frequent_cuda_kernel_sequences`): the kernels of the shallowest operators of a name,
# but for all operators at once.

MOST, SHOWN = 200, 40               # patterns; kernels of one


@dataclass(frozen=True)
class Pattern:
    operator: int                   # code of its name
    names: tuple[int, ...]          # of its first SHOWN kernels
    kernels: int
    count: int
    gpu_ns: int                     # summed durations
    span_ns: int                    # first start to last end, summed
    host_ns: int                    # the operator's own duration, summed
    example: int                    # row of the first operator


def patterns(frame: Frame, least: int = 2) -> list[Pattern]:
    """Sequences of at least two kernels that occur at least `least` times, most GPU time first."""
    order = order_of(frame)
    rows = np.flatnonzero(order.is_kernel & order.has_call)
    owner = outermost(frame, order.call[rows])
    rows, owner = rows[owner >= 0], owner[owner >= 0]
    if not rows.size:
        return []
    by_owner = stable_order(owner)                           # within an operator by start
    rows, owner = rows[by_owner], owner[by_owner]
    owners, first, count = np.unique(owner, return_index=True, return_counts=True)
    with np.errstate(over="ignore"):
        place = (np.arange(rows.size) - np.repeat(first, count)).astype(np.uint64)
        mixed = (order.name[rows].astype(np.uint64) + np.uint64(1)) * (place * np.uint64(2) + np.uint64(0x9E3779B97F4A7C15))
        mixed ^= mixed >> np.uint64(31)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        signature = np.add.reduceat(mixed, first).view(np.int64)
    groups = np.unique(np.stack((signature, frame["name"][owners].astype(np.int64), count)), axis=1,
                       return_inverse=True)[1].reshape(-1)
    times = np.bincount(groups)
    gpu = np.bincount(groups, weights=np.add.reduceat(order.dur_ns[rows], first))
    span = np.bincount(groups, weights=np.maximum.reduceat(order.end_ns[rows], first) - order.start_ns[rows][first])
    host = np.bincount(groups, weights=frame["dur_ns"][owners])
    some = np.unique(groups, return_index=True)[1]
    good = np.flatnonzero((times >= least) & (count[some] > 1))
    good = good[stable_order(-gpu[good])][:MOST]
    return [Pattern(int(frame["name"][owners[at]]), tuple(order.name[rows[first[at]:first[at] + min(count[at], SHOWN)]].tolist()),
                    int(count[at]), int(times[group]), int(gpu[group]), int(span[group]), int(host[group]), int(owners[at]))
            for group, at in zip(good.tolist(), some[good].tolist(), strict=True)]


def outermost(frame: Frame, rows: Ints) -> Ints:
    """Return the outermost framework operator around each row.

    Where there is none, the innermost range; -1 without either.
    """
    operators = frame.enclosing(rows, Category.CPU_OP)
    above = operators.copy()
    while (above >= 0).any():
        above = frame.enclosing(np.where(above >= 0, frame.parent[np.maximum(above, 0)], -1), Category.CPU_OP)
        operators = np.where(above >= 0, above, operators)
    missing = np.flatnonzero(operators < 0)
    operators[missing] = frame.enclosing(rows[missing], Category.ANNOTATION)
    return operators


# ---- the topic "sequences" ----

FOUND_PCT = 3.0                     # of the time of all GPUs, for a finding
DRAWN = 12
_NAME_CHARS = 48


def sequences_result(frame: Frame) -> Result:
    kernels = frame.kernels
    if not kernels.size:
        return Result("The trace holds no GPU kernels, so there are no sequences of them. Record with GPU activities on.",
                      applies=False)
    fusable, repeated = candidates(frame), patterns(frame)
    kernel_ns = int(frame["dur_ns"][kernels].sum())
    saved, gaps = sum(candidate.saved_ns for candidate in fusable), sum(candidate.gaps_ns for candidate in fusable)
    start, end = frame.wall
    launches = sum(candidate.launches_saved for candidate in fusable)
    sizes = [candidate.saved_bytes for candidate in fusable if candidate.saved_bytes is not None]
    numbers: dict[str, Any] = {
        "kernels": int(kernels.size), "kernel_ns": kernel_ns, "candidates": len(fusable),
        "runs": sum(candidate.runs for candidate in fusable),
        "launches_saved": launches, "saved_ns": saved, "gaps_ns": gaps, "wall_ns": max(1, end - start),
        "gpus": max(1, int(np.unique(frame["device"][kernels]).size)), "saved_bytes": sum(sizes) if sizes else None,
        "without_shapes": sum(candidate.saved_bytes is None for candidate in fusable), "patterns": len(repeated),
        "drawn": [{"label": _text(frame, each.names), "runs": each.runs, "saved_ns": each.saved_ns, "gaps_ns": each.gaps_ns,
                   "total_ns": each.total_ns,
                   "launches_saved": each.launches_saved, "saved_bytes": each.saved_bytes, "bound": each.bound,
                   "slice": int(frame["id"][each.example]),
                   "window": _window(frame, each)} for each in fusable[:DRAWN]],
    }
    tables = [_fusion_table(frame, fusable), _pattern_table(frame, repeated)]
    return Result(_answer(numbers, frame, fusable), numbers, [cut_to_fit(table) for table in tables if table.rows],
                  _findings(numbers, frame, fusable))


def _text(frame: Frame, names: tuple[int, ...], most: int = 6) -> str:
    """"gemm → bias → gelu", repeats counted: "add ×3"."""
    parts: list[tuple[str, int]] = []
    for code in names:
        name = short_name(frame.names[code])
        name = name if len(name) <= _NAME_CHARS else name[:_NAME_CHARS - 12] + "…" + name[-11:]
        if parts and parts[-1][0] == name:
            parts[-1] = name, parts[-1][1] + 1
        else:
            parts.append((name, 1))
    shown = [name if times == 1 else f"{name} ×{times}" for name, times in parts[:most]]
    return " → ".join(shown) + (f" → … ({len(names)} kernels)" if len(parts) > most else "")


def _window(frame: Frame, candidate: Candidate) -> str:
    start, end = int(frame["start_ns"][candidate.example]), int(frame.end_ns[candidate.example_end])
    margin = max(1, (end - start) // 5)
    return f"{max(0, start - margin)}-{end + margin}"


def _fusion_table(frame: Frame, runs: list[Candidate]) -> SummaryTable:
    return SummaryTable("Fusion candidates",
        summary_columns("kernels in order: text | kernels: count | times: count | GPU time: ns | gaps between them: ns | "
                        "launches saved: count | bytes saved: bytes | GPU time saved, at most: ns | estimated from: text | "
                        "in graphs: count | where: window"),
        [[_text(frame, run.names), len(run.names), run.runs, run.total_ns, run.gaps_ns, run.launches_saved, run.saved_bytes,
          run.saved_ns, "bytes" if run.bound == "bytes" else "durations: no shapes", run.in_graphs, _window(frame, run)]
         for run in runs],
        "Runs of pointwise kernels and reductions on one stream, with a product in front where there is one. Bytes: twice the "
        "size of "
        "every intermediate, by the operators' largest inputs. GPU time: those bytes at the GPU's DRAM bandwidth, at most all but "
        "the "
        "longest part. Gaps go, too, where the host is what makes them.")


def _pattern_table(frame: Frame, patterns: list[Pattern]) -> SummaryTable:
    return SummaryTable("Frequent sequences of operators",
        summary_columns("operator: text | its kernels in order: text | kernels each time: count | times: count | "
                        "GPU time: ns | from first to last kernel: ns | time of the operator: ns | where: slice"),
        [[frame.names[each.operator], _text(frame, each.names), each.kernels, each.count, each.gpu_ns, each.span_ns, each.host_ns,
          int(frame["id"][each.example])] for each in patterns],
        f"Outermost operators that launched the same kernels in the same order at least twice; of long ones the first {SHOWN} "
        f"kernels.")


def _answer(numbers: dict[str, Any], frame: Frame, runs: list[Candidate]) -> str:
    if not runs:
        return (f"No run of kernels that could be one: the {numbers['kernels']:,} kernels are products, collectives or kernels "
                f"that stand alone.")
    share = 100 * numbers["saved_ns"] / max(1, numbers["kernel_ns"])
    moved = f", {si_text(numbers['saved_bytes'], 'B')} of DRAM traffic" if numbers["saved_bytes"] else ""
    gaps = f" and {time_text(numbers['gaps_ns'])} of gaps between them" if numbers["gaps_ns"] else ""
    return (f"{plural(numbers['runs'], 'run')} of kernels could each be one kernel: that saves {numbers['launches_saved']:,} of "
            f"{numbers['kernels']:,} "
            f"launches{moved}, at most {time_text(numbers['saved_ns'])} of GPU time ({pct_text(share)} of all kernels'){gaps}; "
            f"most in "
            f"`{_text(frame, runs[0].names, 3)}`, {times_text(runs[0].runs)}.")


def _findings(numbers: dict[str, Any], frame: Frame, runs: list[Candidate]) -> list[Finding]:
    worth = (numbers["saved_ns"] + numbers["gaps_ns"]) / numbers["gpus"]
    share = 100 * worth / numbers["wall_ns"]
    if share < FOUND_PCT or not runs:
        return []
    first = runs[0]
    return [Finding(
        "fusion", "medium" if share >= 10 else "info",
        f"Fusing {plural(numbers['runs'], 'run')} of small kernels would save {numbers['launches_saved']:,} launches, at most "
        f"{time_text(numbers['saved_ns'])} of GPU time and {time_text(numbers['gaps_ns'])} of gaps, most in "
        f"`{_text(frame, first.names, 3)}`",
        "Let a compiler fuse them (torch.compile), use a fused operator (fused optimizer, fused norm, "
        "scaled_dot_product_attention), or "
        "write one Triton kernel for the first row of the table.",
        {name: numbers[name] for name in ("runs", "launches_saved", "saved_bytes", "saved_ns", "gaps_ns")} | {"share_pct": share},
        worth_ns=worth, kernel=frame.names[first.names[-1]])]

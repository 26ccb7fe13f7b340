"""Self and total CPU time of every operator, its calls, and the GPU time that it launched: one table.

Total is the time between begin and end of an operator's calls, those of one name inside each other (recursion) counted once.
Self is total less the operators directly within it; runtime calls (cudaLaunchKernel) within it are its own work and stay in, as
in `torch.profiler`'s "Self CPU" without runtime events. Sums over threads are time of threads, not of the wall clock.
"""

from __future__ import annotations

import numpy as np

from profiles.analysis.core.frame import Frame, Ints
from profiles.analysis.trace.operators.grouping import ROWS, TEXT_CHARS, share
from profiles.analysis.trace.operators.owned import OwnedWork
from profiles.analysis.trace.operators.tree import canonical, readable
from profiles.ingest.trace import Category, Cell, SummaryColumn, SummaryTable


def self_times(frame: Frame) -> tuple[Ints, Ints, Ints]:
    """Return (rows of the operators, self time of each in ns, whether a call of its own name is around it: 0 or 1)."""
    rows = frame.of(Category.CPU_OP)
    around = frame.enclosing(frame.parent[rows], Category.CPU_OP)
    own = frame["dur_ns"][rows].astype(np.int64)
    place = np.full(frame.rows, -1, np.int64)
    place[rows] = np.arange(rows.size)
    inner = around >= 0
    np.subtract.at(own, place[around[inner]], frame["dur_ns"][rows[inner]])
    name = frame["name"]
    nested = np.zeros(rows.size, np.int64)
    left, above = np.flatnonzero(inner), around[inner]
    for _ in range(64):                                        # recursion deeper than that is counted again
        same = name[rows[left]] == name[above]
        nested[left[same]] = 1
        left, above = left[~same], above[~same]
        above = frame.enclosing(frame.parent[above], Category.CPU_OP)
        left, above = left[above >= 0], above[above >= 0]
        if not left.size:
            break
    return rows, np.maximum(own, 0), nested


def self_time_table(owned: OwnedWork) -> SummaryTable | None:
    """Return one row per operator's name, most self time first; None where the trace has no operators."""
    frame = owned.frame
    rows, own, nested = self_times(frame)
    if not rows.size:
        return None
    codes, index = np.unique(canonical(frame, frame["name"][rows].astype(np.int64)), return_inverse=True)
    duration = frame["dur_ns"][rows].astype(np.int64)
    calls = np.bincount(index, minlength=codes.size)
    self_ns, total_ns, gpu_ns = (np.zeros(codes.size, np.int64) for _ in range(3))
    np.add.at(self_ns, index, own)
    np.add.at(total_ns, index, np.where(nested == 1, 0, duration))
    place = {int(code): at for at, code in enumerate(codes.tolist())}
    at = np.array([place.get(int(code), -1) for code in owned.owner_name.tolist()], np.int64)
    np.add.at(gpu_ns, at[at >= 0], owned.ns[at >= 0])
    whole = int(self_ns.sum())
    order = np.argsort(-self_ns, kind="stable")
    cells: list[list[Cell]] = [
        [readable(frame.names[int(codes[i])])[:TEXT_CHARS], int(calls[i]), int(self_ns[i]), share(int(self_ns[i]), whole),
         float(self_ns[i] / calls[i]), int(total_ns[i]), int(gpu_ns[i])] for i in order[:ROWS].tolist()]
    columns = [SummaryColumn("Operator", text=True), SummaryColumn("Calls", "count"), SummaryColumn("Self CPU", "ns"),
               SummaryColumn("Share", "pct"), SummaryColumn("Self per call", "ns"), SummaryColumn("Total CPU", "ns"),
               SummaryColumn("GPU time launched", "ns")]
    more = f" The {ROWS} with most self time of {codes.size:,}." if codes.size > ROWS else ""
    return SummaryTable("CPU time of operators", columns, cells,
                        "Self: without the operators within it, runtime calls included. Total counts recursion once. GPU "
                        "time: of the "
                        f"kernels, copies and sets that the operator itself launched.{more}")

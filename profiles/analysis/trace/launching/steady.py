"""Kernels that end before they reach a steady state: what of their time is start, ramp and tail.

A launch costs the GPU time whatever it computes: blocks are handed out, the first loads of every block find cold caches and an
empty pipeline (ramp), and the last blocks end one by one (tail). Below STEADY_NS (20 µs, a rule of thumb) these parts are most
of the kernel, so rates and occupancy of such a kernel say little of its code, and tuning it wins little: fewer and longer
launches do.

`floor_ns` is what a launch takes at least in this trace: the 5th percentile of its kernels' durations, where there are FEW or more,
and FLOOR_NS at most (a kernel that does nothing takes some 1 to 1.5 µs of a GPU's time: a rule of thumb).
Estimate of what fusing wins at most: the floor for every launch under STEADY_NS but one of each kernel. Not counted: the gaps
before them (`launching.short`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profiles.analysis.core.result import Finding
from profiles.analysis.core.sentences import pct_text, time_text
from profiles.analysis.trace.launching.order import Order, group_values
from profiles.ingest.naming.names import short_name
from profiles.ingest.trace import Cell, SummaryColumn, SummaryTable

STEADY_NS = 20_000
FLOOR_NS = 1_500
FEW = 20
FOUND = {"time_pct": 20.0, "wall_pct": 2.0}      # of the kernels' time in such launches; of the wall time, to be more than a remark
MOST = 200


@dataclass(frozen=True)
class Brief:
    """Launches under STEADY_NS: a mask over the GPU work, and what they take together."""

    is_brief: npt.NDArray[np.bool_]
    launches: int
    total_ns: int
    kernel_ns: int
    floor_ns: float | None
    most_ns: float | None                # that fusing them wins at most: an estimate

    @property
    def share_pct(self) -> float:
        return 100.0 * self.total_ns / self.kernel_ns if self.kernel_ns else 0.0


def brief_kernels(order: Order) -> Brief:
    brief = order.is_kernel & (order.dur_ns < STEADY_NS)
    count, names = int(np.count_nonzero(brief)), int(np.unique(order.name[brief]).size)
    durations = order.dur_ns[order.is_kernel]
    floor = min(float(np.percentile(durations, 5)), float(FLOOR_NS)) if durations.size >= FEW else None
    total = int(order.dur_ns[brief].sum())
    most = None if floor is None else min(float(total), floor * max(0, count - names))
    return Brief(brief, count, total, int(durations.sum()), floor, most)


def brief_table(order: Order, brief: Brief) -> SummaryTable:
    """Return one row per kernel with launches under STEADY_NS, most time first."""
    rows = np.flatnonzero(brief.is_brief)
    groups = group_values(order.name[rows], order.dur_ns[rows])
    everywhere = {int(code): int(number) for code, number in zip(*np.unique(order.name[order.is_kernel], return_counts=True),
                                                                 strict=True)}
    cells: list[list[Cell]] = [
        [order.frame.names[groups.code[at]], int(groups.count[at]), everywhere.get(int(groups.code[at]), 0), int(groups.total[at]),
         float(groups.p50[at]), float(100.0 * min(1.0, brief.floor_ns / groups.p50[at])) if brief.floor_ns and groups.p50[at]
         else None]
        for at in np.argsort(-groups.total, kind="stable")[:MOST].tolist()]
    columns = [SummaryColumn("kernel", "kernel", text=True), SummaryColumn("launches under 20 µs", "count"),
               SummaryColumn("launches", "count"), SummaryColumn("time in them", "ns"), SummaryColumn("median", "ns"),
               SummaryColumn("floor of its median", "pct")]
    floor = (f"The floor, {time_text(brief.floor_ns)}, is the 5th percentile of all kernels here, {time_text(FLOOR_NS)} at "
             "most: about "
             "what a launch takes that does next to nothing.") if brief.floor_ns else f"Under {FEW} kernels: no floor is told."
    return SummaryTable("Kernels too short for a steady state", columns, cells,
                        f"Under 20 µs (a rule of thumb) start, ramp and tail are most of a kernel. {floor}")


def brief_finding(order: Order, brief: Brief, wall_ns: int, gpus: int) -> Finding | None:
    if brief.share_pct < FOUND["time_pct"] or brief.launches < FEW:
        return None
    groups = group_values(order.name[brief.is_brief], order.dur_ns[brief.is_brief])
    top = order.frame.names[groups.code[int(np.argmax(groups.total))]]
    won = f": fusing them wins at most {time_text(brief.most_ns)} (estimate)" if brief.most_ns else ""
    weighs = brief.most_ns is not None and 100.0 * brief.most_ns / max(1, wall_ns * gpus) >= FOUND["wall_pct"]
    return Finding(
        "unsteady_kernels", "medium" if weighs else "info",
        f"{pct_text(brief.share_pct)} of the kernels' time ({time_text(brief.total_ns)}) is in {brief.launches:,} launches "
        "under 20 µs, "
        f"which end before they reach a steady state, most in `{short_name(top)}`{won}",
        "Make fewer and longer launches: fuse neighbours (torch.compile, a fused optimizer), batch the work of several, or "
        "give each "
        "launch more of it. Tuning such a kernel by itself wins little.",
        {"launches": brief.launches, "brief_ns": brief.total_ns, "share_pct": brief.share_pct, "floor_ns": brief.floor_ns,
         "limit_ns": STEADY_NS}, worth_ns=None if brief.most_ns is None else brief.most_ns / gpus, kernel=top)

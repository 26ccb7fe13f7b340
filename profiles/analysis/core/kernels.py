"""The kernel table of a trace: every kernel with its launches, times and resources."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from profiles.analysis.core.columns import dictionary, numbers
from profiles.analysis.core.digest import digest_of
from profiles.analysis.core.names import short_name
from profiles.trace import KERNELS, Category, Trace

__all__ = ["KERNEL_COLUMNS", "KernelRow", "dictionary", "kernel_table", "numbers"]


@dataclass(frozen=True)
class KernelRow:
    """One kernel (code), summed over its launches. Unknown is None; `bound` "" is unknown."""

    name: str
    short_name: str
    category: str                       # "compute" | "communication"
    launches: int
    total_ns: int
    mean_ns: float
    p50_ns: float | None                # exact quantiles of all launches, linear between neighbours; None: a tool's sums
    p95_ns: float | None
    min_ns: int | None
    max_ns: int | None
    share_pct: float                    # of the profile's summed kernel time, 0-100
    bound: str = ""
    bound_reason: str = ""
    registers_per_thread: int | None = None
    smem_bytes: int | None = None       # the largest of its launches
    occupancy_pct: float | None = None  # as the file states it, weighted by time


KERNEL_COLUMNS = tuple(column.name for column in fields(KernelRow))     # also of the rows and of the exported file


def kernel_table(trace: Trace) -> list[KernelRow]:
    """Return the kernels of a trace, most time first, those of one name as one row.

    Instants, copies, sets and annotations are not launches.
    """
    gpu_rows, names = digest_of(trace).work, trace.parts.names
    rows = np.flatnonzero(np.isin(gpu_rows["category"], [int(kind) for kind in KERNELS]) & ~gpu_rows["instant"])
    if not rows.size:
        return []
    columns = ("dur_ns", "name", "category", "registers_per_thread", "smem_bytes", "occupancy_pct")
    work = {name: gpu_rows[name][rows] for name in columns}
    dur, code, kind = work["dur_ns"], work["name"], work["category"]
    order = np.lexsort((dur, code))
    code, dur, kind = code[order], dur[order], kind[order]
    starts = np.flatnonzero(np.concatenate(([True], code[1:] != code[:-1])))
    counts = np.diff(np.concatenate((starts, [code.size])))
    totals = np.add.reduceat(dur, starts)
    everything = int(totals.sum())
    p50, p95 = _quantile(dur, starts, counts, 0.5), _quantile(dur, starts, counts, 0.95)
    registers = np.maximum.reduceat(work["registers_per_thread"][order], starts)
    smem = np.maximum.reduceat(work["smem_bytes"][order], starts)
    occupancy = _weighted_mean(work["occupancy_pct"][order].astype(np.float64), dur, starts)
    made = [KernelRow(
        name=names[code[at]], short_name=short_name(names[code[at]]),
        category="communication" if kind[at] == Category.COMMUNICATION else "compute",
        launches=int(counts[i]), total_ns=int(totals[i]), mean_ns=float(totals[i] / counts[i]),
        p50_ns=float(p50[i]), p95_ns=float(p95[i]), min_ns=int(dur[at]), max_ns=int(dur[at + counts[i] - 1]),
        share_pct=100.0 * int(totals[i]) / everything if everything else 0.0,
        registers_per_thread=int(registers[i]) if registers[i] >= 0 else None,
        smem_bytes=int(smem[i]) if smem[i] >= 0 else None,
        occupancy_pct=float(occupancy[i]) if np.isfinite(occupancy[i]) else None,
    ) for i, at in enumerate(starts.tolist())]
    return sorted(made, key=lambda row: -row.total_ns)      # ties stay in the order of the file


def fold(rows: list[KernelRow], most: int, name: str) -> list[KernelRow]:
    """Return the first `most` of `rows`, and one row called `name` of all others.

    Most time first; the sums are those of `rows`.

    A row of `rows` that is called so already is one of the others. What sums do not tell (quantiles) is None.
    """
    if len(rows) <= most:
        return rows
    kept = [row for row in rows[:most] if row.name != name]
    others = [*(row for row in rows[:most] if row.name == name), *rows[most:]]
    launches, total_ns = sum(row.launches for row in others), sum(row.total_ns for row in others)
    one = KernelRow(
        name=name, short_name=short_name(name),
        category="communication" if all(row.category == "communication" for row in others) else "compute",
        launches=launches, total_ns=total_ns, mean_ns=total_ns / launches if launches else 0.0, p50_ns=None, p95_ns=None,
        min_ns=min((row.min_ns for row in others if row.min_ns is not None), default=None),
        max_ns=max((row.max_ns for row in others if row.max_ns is not None), default=None),
        share_pct=sum(row.share_pct for row in others))
    return sorted([*kept, one], key=lambda row: -row.total_ns)


def _quantile(ordered: npt.NDArray[np.int64], starts: npt.NDArray[np.intp], counts: npt.NDArray[np.intp],
              q: float) -> npt.NDArray[np.float64]:
    """Quantile of every group of `ordered` (ascending within groups)."""
    place = (counts - 1) * q
    low = np.floor(place).astype(np.intp)
    high = np.minimum(low + 1, counts - 1)
    below, above = ordered[starts + low].astype(np.float64), ordered[starts + high].astype(np.float64)
    quantile: npt.NDArray[np.float64] = below + (above - below) * (place - low)
    return quantile


def _weighted_mean(values: npt.NDArray[Any], weights: npt.NDArray[np.int64],
                   starts: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
    """Mean of the known values of every group, weighted by time (1 ns at least)."""
    known = np.isfinite(values)
    weight = np.where(known, np.maximum(weights, 1), 0).astype(np.float64)
    total = np.add.reduceat(weight, starts)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.add.reduceat(np.where(known, values, 0.0) * weight, starts) / total

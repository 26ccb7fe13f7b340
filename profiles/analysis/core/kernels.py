"""The kernel table of a trace and of a tool's sums: every kernel with its launches, times and resources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from profiles.analysis.core.columns import dictionary, numbers
from profiles.analysis.core.digest import digest_of
from profiles.analysis.core.frame import Frame
from profiles.analysis.core.sentences import pct_of
from profiles.ingest.arrays import Array, Floats, Ints, Rows, stable_order
from profiles.ingest.naming.names import cut_name, short_name, short_names
from profiles.ingest.trace import KERNELS, Category, KernelSum, Summary, Trace, TraceError

# One launch that stands for all of a kernel: which of them to capture counters of, and which problem to tune.

COLD = 1            # launches left aside where there are more: the first one loads code and warms caches


@dataclass(frozen=True)
class Launch:
    """`skip` launches whose name `matches` came before it on its process, as ncu counts them (`--launch-skip`)."""

    row: int                        # of the frame
    skip: int
    matching: int                   # launches that match, on that process
    launches: int                   # of the kernel itself, in the whole trace


def launch_rows(frame: Frame, kernel: str) -> Ints:
    """Return the rows of the launches of a kernel by its full name, in order of start."""
    codes = [code for code, name in enumerate(frame.names) if name == kernel]
    return frame.kernels[np.isin(frame["name"][frame.kernels], codes)]


def representative_launch(frame: Frame, kernel: str, matches: set[int]) -> Launch | None:
    """Return the launch of the median duration, the first one aside.

    `matches`: names (numbers) that ncu's expression finds.

    Launches count in the order in which the host made them where the trace says so, else in the order in which they began.
    """
    rows = launch_rows(frame, kernel)
    if not rows.size:
        return None
    warm = rows[COLD:] if rows.size > COLD else rows
    order = stable_order(frame["dur_ns"][warm])
    chosen = int(warm[order[(warm.size - 1) // 2]])
    where = np.array([track.device if track.device is not None else -1 for track in frame.tracks], np.int64)
    same_process = where[frame["track"][frame.kernels]] == where[frame["track"][chosen]]
    others = frame.kernels[same_process & np.isin(frame["name"][frame.kernels], list(matches))]
    times_ns = _launch_times_ns(frame, others)
    index = int(np.flatnonzero(others == chosen)[0])
    earlier = (times_ns < times_ns[index]) | ((times_ns == times_ns[index]) & (others < chosen))
    return Launch(chosen, int(np.count_nonzero(earlier)), int(others.size), int(rows.size))


def _launch_times_ns(frame: Frame, rows: Ints) -> Ints:
    """When the host launched each, or when it began."""
    call = frame.call[rows]
    if (call < 0).any():
        return frame["start_ns"][rows]
    return frame["start_ns"][call]


def operators_around(frame: Frame, kernel: str) -> tuple[list[tuple[str, dict[str, Any]]], int, int]:
    """Return the operators around the launches that own most of the kernel's time.

    (operators innermost first: name and arguments; their launches; their time in ns).
    """
    rows = launch_rows(frame, kernel)
    owner = frame.operator[rows] if rows.size else np.empty(0, np.int64)
    has_owner = owner >= 0
    if not has_owner.any():
        return [], 0, 0
    rows, owner = rows[has_owner], owner[has_owner]
    keys = np.stack([frame["name"][owner], frame["detail"][owner]], 1)
    groups, index = np.unique(keys, axis=0, return_inverse=True)
    index = index.reshape(-1)
    total = np.zeros(len(groups), np.int64)
    np.add.at(total, index, frame["dur_ns"][rows])
    best = int(np.argmax(total))
    first = int(owner[np.flatnonzero(index == best)[0]])
    around = [row for row in frame.path(first) if frame["category"][row] == Category.CPU_OP]
    return ([(frame.text(row), frame.arguments(row)) for row in around], int(np.count_nonzero(index == best)), int(total[best]))


_LABELLED = 5_000               # kernels of most time that are told apart by their labels; honest traces hold hundreds
_LARGEST = 2**62                # what a bigint column and int64 sums hold
__all__ = ["KERNEL_COLUMNS", "KernelRow", "dictionary", "kernel_table", "labelled", "numbers"]


def _column(type: str, about: str, **default: Any) -> Any:
    """Return a field with its column of the console's table `kernel_stats`: type in SQL, and what it holds."""
    return field(metadata={"type": type, "about": about}, **default)


@dataclass(frozen=True)
class KernelRow:
    """One kernel (code), summed over its launches. Unknown is None; `bound` "" is unknown."""

    name: str = _column("VARCHAR", "full name")
    short_name: str = _column("VARCHAR", "at most 80 characters, distinct in a profile: the function and what tells it from others")
    category: str = _column("VARCHAR", "compute or communication")
    launches: int = _column("BIGINT", "count")
    total_ns: int | None = _column("BIGINT", "ns; NULL: counters without a duration")
    mean_ns: float | None = _column("DOUBLE", "ns; NULL as total_ns")
    p50_ns: float | None = _column("DOUBLE", "ns")      # exact quantiles of all launches, linear between neighbours;
    p95_ns: float | None = _column("DOUBLE", "ns")      # None: a tool's sums
    min_ns: int | None = _column("BIGINT", "ns")
    max_ns: int | None = _column("BIGINT", "ns")
    share_pct: float | None = _column("DOUBLE", "0-100, of the profile's summed kernel time; NULL as total_ns")
    bound: str = _column("VARCHAR", "memory, compute, latency, launch; empty is unknown", default="")
    bound_reason: str = ""
    registers_per_thread: int | None = _column("INTEGER", "registers", default=None)
    smem_bytes: int | None = _column("BIGINT", "bytes per block", default=None)         # the largest of its launches
    occupancy_pct: float | None = _column("DOUBLE", "0-100", default=None)              # as the file states it, weighted by time

    @property
    def time_ns(self) -> int:
        """Return what the row adds to sums and orders: its time, nothing where that is unknown."""
        return self.total_ns or 0


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
    kernel_rows = [KernelRow(
        name=names[code[start]], short_name="",
        category="communication" if kind[start] == Category.COMMUNICATION else "compute",
        launches=int(counts[i]), total_ns=int(totals[i]), mean_ns=float(totals[i] / counts[i]),
        p50_ns=float(p50[i]), p95_ns=float(p95[i]), min_ns=int(dur[start]), max_ns=int(dur[start + counts[i] - 1]),
        share_pct=pct_of(int(totals[i]), everything),
        registers_per_thread=int(registers[i]) if registers[i] >= 0 else None,
        smem_bytes=int(smem[i]) if smem[i] >= 0 else None,
        occupancy_pct=float(occupancy[i]) if np.isfinite(occupancy[i]) else None,
    ) for i, start in enumerate(starts.tolist())]
    return labelled(sorted(kernel_rows, key=lambda row: -row.time_ns))        # ties stay in the order of the file


def labelled(rows: Sequence[KernelRow]) -> list[KernelRow]:
    """Return the rows with the labels that tell a profile's kernels apart (`names.short_names`).

    Those after the first 5,000, whose names nobody reads one by one, get their name cut short.
    """
    labels = short_names(row.name for row in rows[:_LABELLED])
    return [replace(row, short_name=labels.get(row.name) or cut_name(row.name)) for row in rows]


def summary_table(summary: Summary) -> list[KernelRow]:
    """Return the kernels of a summary, most time first: sums that a tool made, never re-estimated.

    Sums of one name (per grid, per scope) are one row, whose quantiles are then unknown.

    Raises TraceError where the sums are beyond any clock.
    """
    groups: dict[str, list[KernelSum]] = {}
    for kernel in summary.kernels:
        groups.setdefault(kernel.name, []).append(kernel)
    everything = sum(kernel.total_ns for kernel in summary.kernels)
    if everything > _LARGEST or sum(kernel.launches for kernel in summary.kernels) > _LARGEST:
        raise TraceError("the kernels' sums", f"they add up to {everything} ns, which no clock counts",
                         "The file is damaged or was edited: export it again.")
    rows = [_row_of_sums(name, parts, everything) for name, parts in groups.items()]
    return labelled(sorted(rows, key=lambda row: -row.time_ns))


def _row_of_sums(name: str, parts: Sequence[KernelSum], everything: int) -> KernelRow:
    total, launches = sum(part.total_ns for part in parts), sum(part.launches for part in parts)
    only = parts[0] if len(parts) == 1 else None
    mean = only.mean_ns if only and only.mean_ns is not None else total / launches if launches else 0.0
    least, most = _all(parts, lambda each: each.min_ns), _all(parts, lambda each: each.max_ns)
    return KernelRow(
        name=name, short_name="", category=parts[0].category, launches=launches, total_ns=total, mean_ns=mean,
        p50_ns=only.p50_ns if only else None, p95_ns=only.p95_ns if only else None,
        min_ns=round(min(least)) if least else None, max_ns=round(max(most)) if most else None,
        share_pct=pct_of(total, everything),
        registers_per_thread=max((part.registers_per_thread for part in parts if part.registers_per_thread is not None),
                                 default=None),
        smem_bytes=max((part.smem_bytes for part in parts if part.smem_bytes is not None), default=None),
        occupancy_pct=_weighted_occupancy(parts))


def _all(parts: Sequence[KernelSum], value: Callable[[KernelSum], float | None]) -> list[float]:
    """The values of all parts; none where one part does not state it: the extreme could be that part's."""
    figures = [number for part in parts if (number := value(part)) is not None]
    return figures if len(figures) == len(parts) else []


def _weighted_occupancy(parts: Sequence[KernelSum]) -> float | None:
    """Occupancy weighted by time (1 ns at least), of the parts that state it."""
    weight_pairs = [(part.occupancy_pct, max(part.total_ns, 1)) for part in parts if part.occupancy_pct is not None]
    return sum(pct * weight for pct, weight in weight_pairs) / sum(weight for _, weight in weight_pairs) if weight_pairs else None


def fold(rows: list[KernelRow], most: int, name: str) -> list[KernelRow]:
    """Return the first `most` of `rows`, and one row called `name` of all others.

    Most time first; the sums are those of `rows`.

    A row of `rows` that is called so already is one of the others. What sums do not tell (quantiles) is None.
    """
    if len(rows) <= most:
        return rows
    top_rows = [row for row in rows[:most] if row.name != name]
    others = [*(row for row in rows[:most] if row.name == name), *rows[most:]]
    launches, total_ns = sum(row.launches for row in others), sum(row.time_ns for row in others)
    rest_row = KernelRow(
        name=name, short_name=short_name(name),
        category="communication" if all(row.category == "communication" for row in others) else "compute",
        launches=launches, total_ns=total_ns, mean_ns=total_ns / launches if launches else 0.0, p50_ns=None, p95_ns=None,
        min_ns=min((row.min_ns for row in others if row.min_ns is not None), default=None),
        max_ns=max((row.max_ns for row in others if row.max_ns is not None), default=None),
        share_pct=sum(row.share_pct or 0.0 for row in others))
    return sorted([*top_rows, rest_row], key=lambda row: -row.time_ns)


def _quantile(ordered: Ints, starts: Rows, counts: Rows,
              q: float) -> Floats:
    """Quantile of every group of `ordered` (ascending within groups)."""
    place = (counts - 1) * q
    low = np.floor(place).astype(np.intp)
    high = np.minimum(low + 1, counts - 1)
    below, above = ordered[starts + low].astype(np.float64), ordered[starts + high].astype(np.float64)
    quantile: Floats = below + (above - below) * (place - low)
    return quantile


def _weighted_mean(values: Array, weights: Ints,
                   starts: Rows) -> Floats:
    """Mean of the known values of every group, weighted by time (1 ns at least)."""
    is_finite = np.isfinite(values)
    weight = np.where(is_finite, np.maximum(weights, 1), 0).astype(np.float64)
    total = np.add.reduceat(weight, starts)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.add.reduceat(np.where(is_finite, values, 0.0) * weight, starts) / total

"""The kernel table and the tables of a `Summary`: sums that a tool made, merged by name and bounded, never re-estimated."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from profiles.analysis.core.kernels import KernelRow
from profiles.analysis.core.names import short_name
from profiles.trace import KernelSum, Summary, TraceError

MAX_TABLES = 64
MAX_ROWS = 100_000              # of all tables of one profile
_LARGEST = 2**62                # what a bigint column and int64 sums hold


def kernel_rows(summary: Summary) -> list[KernelRow]:
    """Return the kernels of a summary, most time first.

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
    rows = [_row(name, parts, everything) for name, parts in groups.items()]
    return sorted(rows, key=lambda row: -row.total_ns)


def _row(name: str, parts: Sequence[KernelSum], everything: int) -> KernelRow:
    total, launches = sum(each.total_ns for each in parts), sum(each.launches for each in parts)
    only = parts[0] if len(parts) == 1 else None
    mean = only.mean_ns if only and only.mean_ns is not None else total / launches if launches else 0.0
    least, most = _all(parts, lambda each: each.min_ns), _all(parts, lambda each: each.max_ns)
    return KernelRow(
        name=name, short_name=short_name(name), category=parts[0].category, launches=launches, total_ns=total, mean_ns=mean,
        p50_ns=only.p50_ns if only else None, p95_ns=only.p95_ns if only else None,
        min_ns=round(min(least)) if least else None, max_ns=round(max(most)) if most else None,
        share_pct=100.0 * total / everything if everything else 0.0,
        registers_per_thread=max((each.registers_per_thread for each in parts if each.registers_per_thread is not None),
                                 default=None),
        smem_bytes=max((each.smem_bytes for each in parts if each.smem_bytes is not None), default=None),
        occupancy_pct=_weighted_occupancy(parts))


def _all(parts: Sequence[KernelSum], value: Callable[[KernelSum], float | None]) -> list[float]:
    """The values of all parts; none where one part does not state it: the extreme could be that part's."""
    known = [number for each in parts if (number := value(each)) is not None]
    return known if len(known) == len(parts) else []


def _weighted_occupancy(parts: Sequence[KernelSum]) -> float | None:
    """Occupancy weighted by time (1 ns at least), of the parts that state it."""
    known = [(each.occupancy_pct, max(each.total_ns, 1)) for each in parts if each.occupancy_pct is not None]
    return sum(pct * weight for pct, weight in known) / sum(weight for _, weight in known) if known else None


def cut_tables(summary: Summary) -> None:
    """Cut tables to what one page and one object should hold; what goes is counted."""
    left, cut = MAX_ROWS, 0
    for number, table in enumerate(summary.tables):
        room = left if number < MAX_TABLES else 0
        cut += max(0, len(table.rows) - room)
        table.rows = table.rows[:room]
        left -= len(table.rows)
    del summary.tables[MAX_TABLES:]
    if cut:
        summary.integrity.remark(f"table rows beyond the first {MAX_ROWS:,} (or the first {MAX_TABLES} tables): "
                                 "in the kernels' sums, in no table", cut)

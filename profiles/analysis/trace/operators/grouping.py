"""GPU work by any keys, with what tables say of each group, and the cells that they share."""

from __future__ import annotations

import numpy as np

from profiles.analysis.core.frame import Ints
from profiles.analysis.trace.operators.owned import OwnedWork
from profiles.analysis.trace.operators.tree import readable
from profiles.ingest.naming.clipping import clip_name
from profiles.ingest.trace import Cell, SummaryColumn

ROWS = 300                              # of each table; the rest is one row
TEXT_CHARS, KERNEL_CHARS = 300, 1_500     # of a name in a cell: documents stay small whatever a file calls its kernels


def text_column(name: str) -> SummaryColumn:
    return SummaryColumn(name, text=True)


def ns_column(name: str = "GPU time") -> SummaryColumn:
    return SummaryColumn(name, "ns")


class Groups:
    """GPU work by any keys, most time first."""

    def __init__(self, owned: OwnedWork, rows: Ints, *keys: Ints) -> None:
        self.owned, self.rows = owned, rows
        self.index, first = number_rows(*(key[rows] for key in keys))
        self.keys = np.stack([key[rows[first]] for key in keys], 1)
        self.ns = sum_by(self.index, owned.ns[rows], len(self.keys))
        self.launches = np.bincount(self.index, minlength=len(self.keys))
        self.order = np.argsort(-self.ns, kind="stable")

    def of(self, use: int) -> Ints:
        """Return the time of each group's rows of one use."""
        return sum_by(self.index, np.where(self.owned.use[self.rows] == use, self.owned.ns[self.rows], 0), len(self.keys))

    def calls(self) -> Ints:
        """Distinct operators that launched each group."""
        known = self.owned.owner[self.rows] >= 0
        _, first = number_rows(self.owned.owner[self.rows][known])
        return np.bincount(self.index[known][first], minlength=len(self.keys))

    def longest(self) -> Ints:
        """Return, for each group, the position (in frame.work) of its longest work."""
        return self.rows[_last(self.index, self.owned.ns[self.rows], len(self.keys))]

    def main_kernel(self) -> Ints:
        """Return, for each group, the name of its GPU work with most time."""
        kernel = self.owned.kernel[self.rows]
        pair, first = number_rows(self.index, kernel)
        total = sum_by(pair, self.owned.ns[self.rows], first.size)
        names: Ints = kernel[first[_last(self.index[first], total, len(self.keys))]]
        return names


def _last(index: Ints, value: Ints, size: int) -> Ints:
    """Of each group the position of its greatest value."""
    order = np.argsort(value, kind="stable")
    out = np.zeros(size, np.int64)
    out[index[order]] = order               # the last of equal positions is written last
    return out


def number_rows(*keys: Ints) -> tuple[Ints, Ints]:
    """Number each row's combination of keys from 0; also return a row of each combination.

    Without sorting where keys are dense.
    """
    index, first = _number_values(np.asarray(keys[0], np.int64))
    for key in keys[1:]:
        other, seen = _number_values(np.asarray(key, np.int64))
        index, first = _number_values(index * max(seen.size, 1) + other)
    return index, first


def _number_values(values: Ints) -> tuple[Ints, Ints]:
    if not values.size:
        return values, values
    low, high = int(values.min()), int(values.max())
    if high - low > 4 * values.size + (1 << 20):
        _, first, index = np.unique(values, return_index=True, return_inverse=True)
        return index.astype(np.int64), first.astype(np.int64)
    places = np.full(high - low + 1, -1, np.int64)
    places[values[::-1] - low] = np.arange(values.size)[::-1]           # the first row of each value
    present = np.flatnonzero(places >= 0)
    numbers = np.empty(high - low + 1, np.int64)
    numbers[present] = np.arange(present.size)
    return numbers[values - low], places[present]


def sum_by(index: Ints, values: Ints, size: int) -> Ints:
    out = np.zeros(size, np.int64)
    np.add.at(out, index, values)
    return out


def share(value: int | float, of: int | float) -> float | None:
    return 100 * float(value) / float(of) if of else None


def name_of(owned: OwnedWork, code: int) -> str:
    return clip_name(readable(owned.frame.names[code]), TEXT_CHARS) if code >= 0 else f"(launched outside any {owned.kind})"


def kernel_of(owned: OwnedWork, code: int) -> str:
    """Return a kernel's full name."""
    return clip_name(owned.frame.names[code], KERNEL_CHARS)


def slice_of(owned: OwnedWork, at: int) -> int:
    return int(owned.frame["id"][owned.rows[at]])


def rest_rows(groups: Groups, columns: list[SummaryColumn], launches_at: int, ns_at: int, total_ns: int) -> list[list[Cell]]:
    """Return one row for everything below the listed ones."""
    left = groups.order[ROWS:]
    if not left.size:
        return []
    row: list[Cell] = [None] * len(columns)
    row[0] = f"(the other {left.size:,})"
    row[launches_at], row[ns_at] = int(groups.launches[left].sum()), int(groups.ns[left].sum())
    row[ns_at + 1] = share(int(groups.ns[left].sum()), total_ns)
    return [row]

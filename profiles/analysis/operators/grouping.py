"""GPU work by any keys, with what tables say of each group, and the cells that they share."""

from __future__ import annotations

import numpy as np

from profiles.analysis.frame import Ints
from profiles.analysis.operators.owned import Owned
from profiles.analysis.operators.tree import readable
from profiles.trace import Cell, SummaryColumn

ROWS = 300                              # of each table; the rest is one row
TEXT_CHARS = 300


def text(name: str) -> SummaryColumn:
    return SummaryColumn(name, text=True)


def ns(name: str = "GPU time") -> SummaryColumn:
    return SummaryColumn(name, "ns")


class Groups:
    """GPU work by any keys, most time first."""

    def __init__(self, owned: Owned, rows: Ints, *keys: Ints) -> None:
        self.owned, self.rows = owned, rows
        stacked = np.stack([key[rows] for key in keys], 1) if rows.size else np.empty((0, len(keys)), np.int64)
        self.keys, index = np.unique(stacked, axis=0, return_inverse=True) if len(keys) > 1 else _unique(stacked)
        self.index = index.reshape(-1)
        self.ns = summed(self.index, owned.ns[rows], len(self.keys))
        self.launches = np.bincount(self.index, minlength=len(self.keys))
        self.order = np.argsort(-self.ns, kind="stable")

    def of(self, use: int) -> Ints:
        """Time of each group's rows of one use."""
        return summed(self.index, np.where(self.owned.use[self.rows] == use, self.owned.ns[self.rows], 0), len(self.keys))

    def calls(self) -> Ints:
        """Distinct operators that launched each group."""
        owners, first = np.unique(self.owned.owner[self.rows], return_index=True)
        known = owners >= 0
        return np.bincount(self.index[first[known]], minlength=len(self.keys))

    def longest(self) -> Ints:
        """Of each group the position (in frame.work) of its longest work."""
        order = np.lexsort((self.owned.ns[self.rows], self.index))
        last = np.searchsorted(self.index[order], np.arange(len(self.keys)), side="right") - 1
        return self.rows[order[last]]

    def main_kernel(self) -> Ints:
        """Of each group the name of the GPU work with most time, and the position of one of it."""
        kernel = self.owned.kernel[self.rows]
        pairs, inverse = np.unique(np.stack([self.index, kernel], 1), axis=0, return_inverse=True)
        total = summed(inverse.reshape(-1), self.owned.ns[self.rows], len(pairs))
        order = np.lexsort((total, pairs[:, 0]))
        last = np.searchsorted(pairs[order, 0], np.arange(len(self.keys)), side="right") - 1
        found: Ints = pairs[order[last], 1]
        return found


def _unique(stacked: Ints) -> tuple[Ints, Ints]:
    keys, index = np.unique(stacked[:, 0], return_inverse=True)
    return keys[:, None], index


def summed(index: Ints, values: Ints, size: int) -> Ints:
    out = np.zeros(size, np.int64)
    np.add.at(out, index, values)
    return out


def share(value: int | float, of: int | float) -> float | None:
    return 100 * float(value) / float(of) if of else None


def name_of(owned: Owned, code: int) -> str:
    return readable(owned.frame.names[code])[:TEXT_CHARS] if code >= 0 else f"(launched outside any {owned.kind})"


def slice_of(owned: Owned, at: int) -> int:
    return int(owned.frame["id"][owned.rows[at]])


def rest(groups: Groups, columns: list[SummaryColumn], launches_at: int, ns_at: int, total_ns: int) -> list[list[Cell]]:
    """One row for everything below the listed ones."""
    left = groups.order[ROWS:]
    if not left.size:
        return []
    row: list[Cell] = [None] * len(columns)
    row[0] = f"(the other {left.size:,})"
    row[launches_at], row[ns_at] = int(groups.launches[left].sum()), int(groups.ns[left].sum())
    row[ns_at + 1] = share(int(groups.ns[left].sum()), total_ns)
    return [row]

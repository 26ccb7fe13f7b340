"""GPU work by any keys, with what tables say of each group, and the cells that they share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profiles.analysis.core import gpus
from profiles.analysis.core.frame import Frame
from profiles.analysis.core.sentences import share_pct
from profiles.analysis.trace.operators.matmuls import Problem, kind_of, problem_of
from profiles.analysis.trace.operators.tensor_cores import alignment_of, on_tensor_cores
from profiles.analysis.trace.operators.tree import canonical, readable
from profiles.ingest.arrays import Bools, Ints, stable_order
from profiles.ingest.naming.names import clip_name
from profiles.ingest.trace import Category, Cell, CellRows, SummaryColumn

# GPU work and whose it is: the operator or range that launched each kernel, and what it is to the tensor cores.

USES = ("", "yes", "no", "beside", "unknown")       # is a kernel of a product on tensor cores; "": it multiplies no matrices


@dataclass(frozen=True)
class OwnedWork:
    """GPU work and whose it is. All columns are per row of `frame.work`."""

    frame: Frame
    kind: str                       # "operator", or "range" where the trace has no operators but annotations
    rows: Ints                      # of frame.work
    ns: Ints
    owner: Ints                     # row of the operator (or range) that launched it, -1: not known

    @cached_property
    def total_ns(self) -> int:
        return int(self.ns.sum())

    @cached_property
    def owner_name(self) -> Ints:
        return canonical(self.frame, np.where(self.owner >= 0, self.frame["name"][self.owner], -1).astype(np.int64))

    @cached_property
    def owner_detail(self) -> Ints:
        return np.where(self.owner >= 0, self.frame["detail"][self.owner], -1).astype(np.int64)

    @cached_property
    def kernel(self) -> Ints:
        """Return the name of the GPU work, a number into the frame's names."""
        return self.frame["name"][self.rows].astype(np.int64)

    @cached_property
    def use(self) -> Ints:
        """Return what each row is to tensor cores, a number of USES.

        0 for operators that multiply no matrices.
        """
        uses = np.zeros(self.rows.size, np.int64)
        used = np.unique(self.owner_name[self.owner_name >= 0])
        products = [code for code in used.tolist() if kind_of(readable(self.frame.names[code]))]
        rows = np.flatnonzero(np.isin(self.owner_name, products)
                              & (self.frame["category"][self.rows] == Category.COMPUTE))
        codes, index = np.unique(self.kernel[rows], return_inverse=True)
        by_name = np.array([USES.index(on_tensor_cores(self.frame.names[code])) for code in codes.tolist()], np.int64)
        uses[rows] = by_name[index] if codes.size else 0
        return uses

    @cached_property
    def unaligned(self) -> Bools:
        """Return whether the kernel's name says that it loads fewer than 16 bytes at once."""
        codes, index = np.unique(self.kernel, return_inverse=True)
        by_code = np.array([alignment_of(self.frame.names[code]) is not None for code in codes.tolist()], np.bool_)
        return by_code[index] if codes.size else np.zeros(0, np.bool_)

    def problem(self, index: int) -> Problem | None:
        """Return what the operator of one row multiplies."""
        row = int(self.owner[index])
        return problem_of(readable(self.frame.text(row)), self.frame.arguments(row)) if row >= 0 else None

    def device(self, at: int) -> tuple[str | None, gpus.Gpu | None]:
        """Compute capability and datasheet of the GPU that one row ran on; None where not known."""
        index = int(self.frame["device"][self.rows[at]])
        described = next((device for device in self.frame.devices if device.index == index), None)
        if described is None and len({device.name for device in self.frame.devices}) == 1:
            described = self.frame.devices[0]
        gpu = gpus.lookup(described.name) if described else None
        return (described.compute_capability if described else None) or (gpu.compute_capability if gpu else None), gpu


def owned_work(frame: Frame) -> OwnedWork | None:
    """Return the GPU work with its owners, None where nothing ran on a GPU."""
    rows = frame.work
    if not rows.size:
        return None
    if frame.of(Category.CPU_OP).size:
        return OwnedWork(frame, "operator", rows, frame["dur_ns"][rows], frame.operator[rows])
    return OwnedWork(frame, "range", rows, frame["dur_ns"][rows], frame.enclosing(frame.call[rows], Category.ANNOTATION))


ROWS = 300                              # of each table; the rest is one row
TEXT_CHARS, KERNEL_CHARS = 300, 1_500     # of a name in a cell: documents stay small whatever a file calls its kernels


class Groups:
    """GPU work by any keys, most time first."""

    def __init__(self, owned: OwnedWork, rows: Ints, *keys: Ints) -> None:
        self.owned, self.rows = owned, rows
        self.index, first = number_rows(*(key[rows] for key in keys))
        self.keys = np.stack([key[rows[first]] for key in keys], 1)
        self.ns = sum_by(self.index, owned.ns[rows], len(self.keys))
        self.launches = np.bincount(self.index, minlength=len(self.keys))
        self.order = stable_order(-self.ns)

    def of(self, use: int) -> Ints:
        """Return the time of each group's rows of one use."""
        return sum_by(self.index, np.where(self.owned.use[self.rows] == use, self.owned.ns[self.rows], 0), len(self.keys))

    def calls(self) -> Ints:
        """Distinct operators that launched each group."""
        has_owner = self.owned.owner[self.rows] >= 0
        _, first = number_rows(self.owned.owner[self.rows][has_owner])
        return np.bincount(self.index[has_owner][first], minlength=len(self.keys))

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
    order = stable_order(value)
    out = np.zeros(size, np.int64)
    out[index[order]] = order               # the last of equal positions is written last
    return out


def number_rows(*keys: Ints) -> tuple[Ints, Ints]:
    """Number each row's combination of keys from 0; also return a row of each combination.

    Without sorting where keys are dense.
    """
    index, first = _number_values(np.asarray(keys[0], np.int64))
    for key in keys[1:]:
        other, firsts = _number_values(np.asarray(key, np.int64))
        index, first = _number_values(index * max(firsts.size, 1) + other)
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


def name_of(owned: OwnedWork, code: int) -> str:
    return clip_name(readable(owned.frame.names[code]), TEXT_CHARS) if code >= 0 else f"(launched outside any {owned.kind})"


def kernel_of(owned: OwnedWork, code: int) -> str:
    """Return a kernel's full name."""
    return clip_name(owned.frame.names[code], KERNEL_CHARS)


def slice_of(owned: OwnedWork, index: int) -> int:
    return int(owned.frame["id"][owned.rows[index]])


def rest_rows(groups: Groups, columns: list[SummaryColumn], launches_at: int, ns_at: int, total_ns: int) -> CellRows:
    """Return one row for everything below the listed ones."""
    left = groups.order[ROWS:]
    if not left.size:
        return []
    row: list[Cell] = [None] * len(columns)
    row[0] = f"(the other {left.size:,})"
    row[launches_at], row[ns_at] = int(groups.launches[left].sum()), int(groups.ns[left].sum())
    row[ns_at + 1] = share_pct(int(groups.ns[left].sum()), total_ns)
    return [row]

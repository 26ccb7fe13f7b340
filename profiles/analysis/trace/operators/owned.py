"""GPU work and whose it is: the operator or range that launched each kernel, and what it is to the tensor cores."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from profiles.analysis.core import gpus
from profiles.analysis.core.frame import Frame, Ints
from profiles.analysis.trace.operators.matmuls import Problem, kind_of, problem_of
from profiles.analysis.trace.operators.tensor_cores import alignment_of, on_tensor_cores
from profiles.analysis.trace.operators.tree import canonical, readable
from profiles.ingest.trace import Category

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
    def unaligned(self) -> npt.NDArray[np.bool_]:
        """Return whether the kernel's name says that it loads fewer than 16 bytes at once."""
        codes, index = np.unique(self.kernel, return_inverse=True)
        by_code = np.array([alignment_of(self.frame.names[code]) is not None for code in codes.tolist()], np.bool_)
        return by_code[index] if codes.size else np.zeros(0, np.bool_)

    def problem(self, at: int) -> Problem | None:
        """Return what the operator of one row multiplies."""
        row = int(self.owner[at])
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

"""Products that are not on tensor cores, or not well: which, why, what would help, and what it is worth at most."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from profiles.analysis.trace.operators.grouping import (
    ROWS,
    Groups,
    kernel_of,
    name_of,
    ns_column,
    rest_rows,
    share,
    slice_of,
    text_column,
)
from profiles.analysis.trace.operators.owned import USES, OwnedWork
from profiles.analysis.trace.operators.tensor_cores import alignment_of, least_ns, type_of, unaligned_dimensions, why_not
from profiles.ingest.trace import Cell, SummaryColumn, SummaryTable

YES, NO = USES.index("yes"), USES.index("no")


def missed_kernels(owned: OwnedWork) -> Groups | None:
    """The kernels of such products by operator, shapes and name; None where there are none."""
    rows = np.flatnonzero((owned.use == NO) | ((owned.use == YES) & owned.unaligned))
    return Groups(owned, rows, owned.owner_name, owned.owner_detail, owned.kernel) if rows.size else None


def tensor_table(owned: OwnedWork, groups: Groups | None) -> SummaryTable | None:
    """Return one row per kernel, operator and shapes not (well) on tensor cores.

    `groups` are `missed_kernels`'. None where every product is on tensor cores.
    """
    if groups is None:
        return None
    longest = groups.longest()
    columns = [SummaryColumn("Kernel", "kernel", text=True), text_column("Operator"), text_column("Product"), text_column("Type"),
               SummaryColumn("Launches", "count"), ns_column(), SummaryColumn("Share", "pct"), text_column("Why"),
               text_column("What would help"),
               ns_column("To win, at most"), SummaryColumn("Longest", "slice")]
    rows: list[list[Cell]] = []
    for at in groups.order[:ROWS].tolist():
        total, launches, (name, _, kernel) = int(groups.ns[at]), int(groups.launches[at]), groups.keys[at].tolist()
        case = missed_product(owned, int(longest[at]), total, launches)
        rows.append([kernel_of(owned, kernel), name_of(owned, name), case["product"], case["dtype"], launches, total,
                     share(total, owned.total_ns), case["why"], case["fix"], case["worth_ns"], slice_of(owned, int(longest[at]))])
    rows += rest_rows(groups, columns, 4, 5, owned.total_ns)
    return SummaryTable("Could tensor cores do it?", columns, rows, _NOTE)


_NOTE = ("Kernels of matrix products that run on CUDA cores, or on tensor cores with operands that are not aligned to 16 bytes. "
         "To win, at most: the time less what the product takes at the dense peak or the DRAM's bandwidth, whichever is longer; "
         "unknown where sizes or GPU are, and where tensor cores would not help.")


def missed_product(owned: OwnedWork, at: int, total_ns: int, launches: int) -> dict[str, Any]:
    """Return why the product of one row is not (well) on tensor cores.

    Keys: code, why, fix, product, dtype, worth_ns.
    """
    problem = owned.problem(at)
    if problem is None:
        return {"code": "shapes", "why": None, "fix": None, "product": None, "dtype": None, "worth_ns": None}
    kernel = owned.frame.names[int(owned.kernel[at])]
    if not problem.dtype:
        problem = replace(problem, dtype=type_of(kernel))
    capability, gpu = owned.device(at)
    loads = alignment_of(kernel) if int(owned.use[at]) == YES else None
    if loads is not None:
        odd = unaligned_dimensions(problem)
        if not odd and problem.text:
            return {"code": "layout", "product": problem.text, "dtype": problem.dtype or None, "worth_ns": None,
                    "why": f"on tensor cores, but loads {plural_elements(loads)} at once although the sizes allow 16 bytes",
                    "fix": "try another layout (contiguous operands), a newer library, or torch.compile with max-autotune"}
        return {"code": "alignment", "product": problem.text or None, "dtype": problem.dtype or None, "worth_ns": None,
                "why": f"on tensor cores, but loads {plural_elements(loads)} at once (its name says align{loads})"
                       + (f": {odd}" if odd else ""),
                "fix": f"pad {odd or 'the inner dimensions'} so that rows begin at multiples of 16 bytes"}
    reason = why_not(problem, capability)
    best_ns = least_ns(problem, gpu) if reason.helps else None
    return {"code": reason.code, "why": reason.text, "fix": reason.fix, "product": problem.text or None,
            "dtype": problem.dtype or None,
            "worth_ns": max(0.0, total_ns - launches * best_ns) if best_ns is not None else None}


def plural_elements(count: int) -> str:
    return "1 element" if count == 1 else f"{count} elements"

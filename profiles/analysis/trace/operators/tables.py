"""The tables of operators, shapes, modules and stacks: the rows with most GPU time, and the rest as one row.

The GPU time of each of them sums to that of all GPU work of the trace.
"""

from __future__ import annotations

import numpy as np

from profiles.analysis.core.sentences import plural, share_pct
from profiles.analysis.trace.operators.grouping import (
    ROWS,
    TEXT_CHARS,
    USES,
    Groups,
    OwnedWork,
    kernel_of,
    name_of,
    rest_rows,
    slice_of,
    sum_by,
)
from profiles.analysis.trace.operators.tensor_cores import peak_of
from profiles.analysis.trace.operators.tree import Tree, readable
from profiles.base.words import dims_text
from profiles.ingest.arrays import Bools, Ints, stable_order
from profiles.ingest.naming.names import clip_name
from profiles.ingest.trace import Category, CellRows, SummaryTable, summary_columns

YES, NO, UNKNOWN = USES.index("yes"), USES.index("no"), USES.index("unknown")


def operator_table(owned: OwnedWork) -> SummaryTable:
    """Return one row per operator's name."""
    groups = Groups(owned, np.arange(owned.rows.size), owned.owner_name)
    yes, no, unknown = (groups.of(use) for use in (YES, NO, UNKNOWN))
    calls, main, longest = groups.calls(), groups.main_kernel(), groups.longest()
    columns = summary_columns(f"{owned.kind.capitalize()}: text | Calls: count | Launches: count | GPU time: ns | Share: pct | "
                              "Per call: ns | On tensor cores: pct | Largest kernel: kernel | Longest: slice")
    rows: CellRows = []
    for group in groups.order[:ROWS].tolist():
        total, many, multiply = int(groups.ns[group]), int(calls[group]), int(yes[group] + no[group] + unknown[group])
        per_call = total / many if many else None
        rows.append([name_of(owned, int(groups.keys[group][0])), many or None, int(groups.launches[group]), total,
                     share_pct(total, owned.total_ns), per_call,
                     share_pct(int(yes[group]), multiply) if multiply > int(unknown[group]) else None,
                     kernel_of(owned, int(main[group])), slice_of(owned, int(longest[group]))])
    rows += rest_rows(groups, columns, 2, 3, owned.total_ns)
    return SummaryTable(f"{owned.kind.capitalize()}s", columns, rows, _NOTE)


_NOTE = ("GPU time is that of the kernels, copies and sets that the operator itself launched (not those of operators within it); "
         "the rows add up to all GPU work. “On tensor cores” is of the time of its matrix products, by their kernels' names.")


def shape_table(owned: OwnedWork) -> SummaryTable | None:
    """Return one row per operator, shapes and types of its inputs.

    None where the trace has no arguments of operators.
    """
    if owned.kind != "operator":
        return None
    groups = Groups(owned, np.arange(owned.rows.size), owned.owner_name, owned.owner_detail)
    calls, main, longest = groups.calls(), groups.main_kernel(), groups.longest()
    columns = summary_columns("Operator: text | Shapes: text | Types: text | Calls: count | Launches: count | GPU time: ns | "
                              "Share: pct | Per call: ns | Product: text | Rate: FLOP/s | Of the peak: pct | "
                              "Largest kernel: kernel | Longest: slice")
    rows: CellRows = []
    for group in groups.order[:ROWS].tolist():
        total, many, first = int(groups.ns[group]), int(calls[group]), int(longest[group])
        per_call = total / many if many else None
        shapes, types = _inputs(owned, first)
        product, rate, of_peak = _rate(owned, first, per_call)
        rows.append([name_of(owned, int(groups.keys[group][0])), shapes, types, many or None, int(groups.launches[group]), total,
                     share_pct(total, owned.total_ns), per_call, product, rate, of_peak, kernel_of(owned, int(main[group])),
                     slice_of(owned, first)])
    rows += rest_rows(groups, columns, 4, 5, owned.total_ns)
    if not any(row[1] for row in rows):
        return None
    return SummaryTable("Operators by shape", columns, rows, _SHAPE_NOTE)


_SHAPE_NOTE = ("Shapes and types of the inputs that are tensors. Rate is 2·M·N·K per call over the GPU time of a call, copies "
               "and reductions around the product included; the peak is the datasheet's dense rate of tensor cores for such "
               "operands.")


def _inputs(owned: OwnedWork, index: int) -> tuple[str | None, str | None]:
    """Shapes and types of the operator's tensors: "2048×4096, 4096×12288", "fp16"."""
    row = int(owned.owner[index])
    if row < 0:
        return None, None
    arguments = owned.frame.arguments(row)
    dims, types = arguments.get("Input Dims"), arguments.get("Input type")
    if not isinstance(dims, list) or not isinstance(types, list):
        return None, None
    shown = [_dims(shape) for shape in dims if isinstance(shape, list) and shape]
    kinds = dict.fromkeys(kind.removeprefix("c10::") for kind in types
                          if isinstance(kind, str) and kind not in ("", "Scalar", "ScalarList", "GenericList"))
    return ", ".join(shown)[:TEXT_CHARS] or None, ", ".join(kinds)[:TEXT_CHARS] or None


def _dims(shape: list[int] | list[list[int]]) -> str:
    """"2048×4096"; of a list of tensors how many."""
    return plural(len(shape), "tensor") if isinstance(shape[0], list) else dims_text(shape)


def _rate(owned: OwnedWork, index: int, per_call_ns: float | None) -> tuple[str | None, float | None, float | None]:
    problem = owned.problem(index)
    if problem is None:
        return None, None, None
    flop_s = 1e9 * problem.flop / per_call_ns if problem.flop and per_call_ns else None
    _, gpu = owned.device(index)
    peak = peak_of(problem, gpu) if gpu else None
    return problem.text or None, flop_s, share_pct(flop_s, peak) if flop_s and peak else None


def module_table(owned: OwnedWork, tree: Tree, what: str, backward: Bools) -> SummaryTable:
    """Return one row per module (or range) with the GPU time below it.

    Forward and backward.
    """
    split = {name: sum_below(tree, np.where(mask, owned.ns, 0)) for name, mask in (("f", ~backward), ("b", backward))}
    order = stable_order(-tree.total_ns)[:ROWS]
    columns = summary_columns(f"{'Module' if what == 'module' else 'Range'}: text | Within: text | GPU time: ns | Share: pct | "
                              "Forward and rest: ns | Backward: ns | Its own: ns | Launches: count")
    rows: CellRows = []
    for node in order.tolist():
        names = [readable(owned.frame.names[int(tree.name[ancestor])]).removeprefix("nn.Module: ") for ancestor in tree.path(node)]
        total = int(tree.total_ns[node])
        around = " / ".join(names[:-1])[-TEXT_CHARS:] or None
        rows.append([clip_name(names[-1], TEXT_CHARS), around, total, share_pct(total, owned.total_ns), int(split["f"][node]),
                     int(split["b"][node]), int(tree.own_ns[node]), int(tree.count[node])])
    outside = int(owned.ns[tree.leaf < 0].sum())
    if outside:
        free = tree.leaf < 0
        rows.append([f"(outside any {what})", None, outside, share_pct(outside, owned.total_ns),
                     int(owned.ns[free & ~backward].sum()),
                     int(owned.ns[free & backward].sum()), outside, int(free.sum())])
    if what == "module":
        note = ("Time of the GPU work launched within each module, those inside it included. Backward work counts where "
                "torch.profiler drew an arrow from the forward operator to its gradient; “its own” is outside inner modules.")
    else:
        note = ("No nn.Module is recorded (with_stack=True or with_modules=True records them): ranges of record_function or NVTX "
                "stand in, each with the GPU work launched within.")
    return SummaryTable("Modules" if what == "module" else "Ranges, with those inside them", columns, rows, note)


def sum_below(tree: Tree, values: Ints) -> Ints:
    """Return the sum of `values` (per row of the tree's leaves) at and below each node."""
    is_inside = tree.leaf >= 0
    total = sum_by(tree.leaf[is_inside], values[is_inside], tree.name.size)
    for level in range(int(tree.depth.max(initial=0)), 0, -1):
        here = np.flatnonzero(tree.depth == level)
        np.add.at(total, tree.parent[here], total[here])
    return total


def stack_table(owned: OwnedWork, tree: Tree) -> SummaryTable:
    """Return one row per kernel and place that it is launched from.

    A place is the stack from the outermost call to the operator.
    """
    groups = Groups(owned, np.arange(owned.rows.size), owned.kernel, tree.leaf)
    longest = groups.longest()
    columns = summary_columns("Kernel: kernel | Launched from: text | Launches: count | GPU time: ns | Share: pct | "
                              "Longest: slice")
    rows: CellRows = []
    for group in groups.order[:ROWS].tolist():
        node, total = int(groups.keys[group][1]), int(groups.ns[group])
        names = [readable(owned.frame.names[int(tree.name[ancestor])]) for ancestor in tree.path(node)] if node >= 0 else []
        rows.append([kernel_of(owned, int(groups.keys[group][0])), stack_text(names) or None, int(groups.launches[group]), total,
                     share_pct(total, owned.total_ns), slice_of(owned, int(longest[group]))])
    rows += rest_rows(groups, columns, 2, 3, owned.total_ns)
    has_python = bool((owned.frame["category"] == Category.PYTHON).any())
    return SummaryTable("Call stack to kernel", columns, rows, "Innermost first." + (
        "" if has_python else " Without Python's frames: record with with_stack=True to see them."))


def stack_text(names: list[str]) -> str:
    """Innermost first: "aten::mm ← aten::linear ← nn.Module: Linear_0 ← train.py(12): step"."""
    inner = [name[:120] for name in names[::-1]]
    cut = [*inner[:10], "…", inner[-1]] if len(inner) > 12 else inner
    return " ← ".join(cut)

"""Which operators and modules own the GPU's time, with which shapes, and which of their kernels could run on tensor cores
but do not.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np

from profiles.analysis.core.frame import Frame
from profiles.analysis.core.intervals import gpus_of, mean_covered_ns
from profiles.analysis.core.result import Finding, Result
from profiles.analysis.core.sentences import capital, pct_text, plural, share_pct, time_text
from profiles.analysis.trace.launching.calls import why_no_calls
from profiles.analysis.trace.operators.convolutions import convolution_findings, convolution_groups, convolution_table
from profiles.analysis.trace.operators.grouping import (
    ROWS,
    TEXT_CHARS,
    USES,
    Groups,
    OwnedWork,
    kernel_of,
    name_of,
    owned_work,
    rest_rows,
    slice_of,
)
from profiles.analysis.trace.operators.tables import module_table, operator_table, shape_table, stack_table
from profiles.analysis.trace.operators.tensor_cores import REASONS, alignment_of, least_ns, type_of, unaligned_dimensions, why_not
from profiles.analysis.trace.operators.tree import STEP, Tree, ancestors, canonical, forward_of, nearest, readable, tree_of
from profiles.ingest.arrays import Bools, Ints, stable_order
from profiles.ingest.naming.names import clip_name
from profiles.ingest.trace import Category, CellRows, SummaryTable, summary_columns

# Products that are not on tensor cores, or not well: which, why, what would help, and what it is worth at most.

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
    columns = summary_columns("Kernel: kernel | Operator: text | Product: text | Type: text | Launches: count | GPU time: ns | "
                              "Share: pct | Why: text | What would help: text | To win, at most: ns | Longest: slice")
    rows: CellRows = []
    for group in groups.order[:ROWS].tolist():
        total, launches, (name, _, kernel) = int(groups.ns[group]), int(groups.launches[group]), groups.keys[group].tolist()
        case = missed_product(owned, int(longest[group]), total, launches)
        rows.append([kernel_of(owned, kernel), name_of(owned, name), case["product"], case["dtype"], launches, total,
                     share_pct(total, owned.total_ns), case["why"], case["fix"], case["worth_ns"],
                     slice_of(owned, int(longest[group]))])
    rows += rest_rows(groups, columns, 4, 5, owned.total_ns)
    return SummaryTable("Could tensor cores do it?", columns, rows, _NOTE)


_NOTE = ("Kernels of matrix products that run on CUDA cores, or on tensor cores with operands that are not aligned to 16 bytes. "
         "To win, at most: the time less what the product takes at the dense peak or the DRAM's bandwidth, whichever is longer; "
         "unknown where sizes or GPU are, and where tensor cores would not help.")


def missed_product(owned: OwnedWork, index: int, total_ns: int, launches: int) -> dict[str, Any]:
    """Return why the product of one row is not (well) on tensor cores.

    Keys: code, why, fix, product, dtype, worth_ns.
    """
    problem = owned.problem(index)
    if problem is None:
        return {"code": "shapes", "why": None, "fix": None, "product": None, "dtype": None, "worth_ns": None}
    kernel = owned.frame.names[int(owned.kernel[index])]
    if not problem.dtype:
        problem = replace(problem, dtype=type_of(kernel))
    capability, gpu = owned.device(index)
    loads = alignment_of(kernel) if int(owned.use[index]) == YES else None
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


# ---- findings about tensor cores ----
# Time of products that could use them and do not, one finding per reason.

LEAST_PCT, HIGH_PCT = 1.0, 10.0         # of all GPU time: below nothing is said, from here on it is high
COPY_PCT = 5.0                          # of all GPU time, spent in casts and layout copies
_COPIES = ("aten::copy_", "aten::contiguous", "aten::clone", "aten::to", "aten::_to_copy")


def advice(owned: OwnedWork, groups: Groups | None) -> list[Finding]:
    """Return the findings about tensor cores.

    `groups` are `missed.missed_kernels`'.
    """
    return [*_tensor_cores(owned, groups), *_copies(owned)]


def _tensor_cores(owned: OwnedWork, groups: Groups | None) -> list[Finding]:
    if groups is None:
        return []
    longest = groups.longest()
    cases: dict[str, list[tuple[int, int, dict[str, Any]]]] = defaultdict(list)
    for group in groups.order[:ROWS].tolist():
        total = int(groups.ns[group])
        case = missed_product(owned, int(longest[group]), total, int(groups.launches[group]))
        cases[case["code"]].append((total, int(longest[group]), case))
    findings = [_reason_finding(owned, code, entries) for code, entries in cases.items()]
    return sorted((finding for finding in findings if finding), key=lambda each: -each.numbers["gpu_ns"])


def _reason_finding(owned: OwnedWork, code: str, cases: list[tuple[int, int, dict[str, Any]]]) -> Finding | None:
    total_ns = sum(total for total, _, _ in cases)
    share = 100 * total_ns / max(owned.total_ns, 1)
    words, helps = REASONS[code]
    if share < LEAST_PCT or not helps:
        return None
    worth = [case["worth_ns"] for _, _, case in cases if case["worth_ns"] is not None]
    _, position, first = cases[0]
    kernel = owned.frame.names[int(owned.kernel[position])]
    operator = readable(owned.frame.text(int(owned.owner[position])))
    on = "are not aligned on tensor cores" if code == "alignment" else "do not run on tensor cores"
    size = f" ({first['product']})" if first["product"] else ""
    return Finding(
        f"tensor_cores_{code}", "high" if share >= HIGH_PCT else "medium",
        f"Matrix products of {time_text(total_ns)} ({pct_text(share)} of the GPU time) {on}: {words}",
        f"Most of it is `{operator}`{size}: {first['why']}. {capital(first['fix'])}.",
        {"gpu_ns": total_ns, "share_pct": share, "operators": len(cases)}, sum(worth) / gpus_of(owned.frame) if worth else None,
        kernel)


def _copies(owned: OwnedWork) -> list[Finding]:
    """Casts and layout changes: GPU time that computes nothing."""
    names = owned.frame.names
    codes = [code for code in np.unique(owned.owner_name[owned.owner_name >= 0]).tolist() if readable(names[code]) in _COPIES]
    rows = np.isin(owned.owner_name, codes) & (owned.frame["category"][owned.rows] == Category.COMPUTE)     # no transfers
    total_ns = int(owned.ns[rows].sum())
    share = 100 * total_ns / max(owned.total_ns, 1)
    if share < COPY_PCT:
        return []
    at = owned.rows[rows]
    won_ns = mean_covered_ns(owned.frame["start_ns"][at], owned.frame.end_ns[at], owned.frame["device"][at], gpus_of(owned.frame))
    calls = int(np.unique(owned.owner[rows]).size)
    return [Finding("casts_and_copies", "medium" if share < 2 * HIGH_PCT else "high",
                  f"{time_text(total_ns)} ({pct_text(share)} of the GPU time) is `aten::copy_` and its like: casts between types "
                  f"and changes of layout, {plural(calls, 'call')}",
                  "Keep tensors in one type and layout from step to step (weights in BF16, channels_last throughout), or let "
                  "torch.compile fuse the cast into the kernel before it.",
                  {"gpu_ns": total_ns, "share_pct": share, "calls": calls}, won_ns)]


# ---- self and total CPU time of every operator ----
# Its calls, and the GPU time that it launched: one table.
# Total is the time between begin and end of an operator's calls, those of one name inside each other (recursion) counted once.
# Self is total less the operators directly within it; runtime calls (cudaLaunchKernel) within it are its own work and stay in, as
# in `torch.profiler`'s "Self CPU" without runtime events. Sums over threads are time of threads, not of the wall clock.


def self_times(frame: Frame) -> tuple[Ints, Ints, Ints]:
    """Return (rows of the operators, self time of each in ns, whether a call of its own name is around it: 0 or 1)."""
    rows = frame.of(Category.CPU_OP)
    around = frame.enclosing(frame.parent[rows], Category.CPU_OP)
    own = frame["dur_ns"][rows].astype(np.int64)
    place = np.full(frame.rows, -1, np.int64)
    place[rows] = np.arange(rows.size)
    inner = around >= 0
    np.subtract.at(own, place[around[inner]], frame["dur_ns"][rows[inner]])
    name = frame["name"]
    nested = np.zeros(rows.size, np.int64)
    left, above = np.flatnonzero(inner), around[inner]
    for _ in range(64):                                        # recursion deeper than that is counted again
        same = name[rows[left]] == name[above]
        nested[left[same]] = 1
        left, above = left[~same], above[~same]
        above = frame.enclosing(frame.parent[above], Category.CPU_OP)
        left, above = left[above >= 0], above[above >= 0]
        if not left.size:
            break
    return rows, np.maximum(own, 0), nested


def self_time_table(owned: OwnedWork) -> SummaryTable | None:
    """Return one row per operator's name, most self time first; None where the trace has no operators."""
    frame = owned.frame
    rows, own, nested = self_times(frame)
    if not rows.size:
        return None
    codes, index = np.unique(canonical(frame, frame["name"][rows].astype(np.int64)), return_inverse=True)
    duration = frame["dur_ns"][rows].astype(np.int64)
    calls = np.bincount(index, minlength=codes.size)
    self_ns, total_ns, gpu_ns = (np.zeros(codes.size, np.int64) for _ in range(3))
    np.add.at(self_ns, index, own)
    np.add.at(total_ns, index, np.where(nested == 1, 0, duration))
    place = {int(code): position for position, code in enumerate(codes.tolist())}
    positions = np.array([place.get(int(code), -1) for code in owned.owner_name.tolist()], np.int64)
    np.add.at(gpu_ns, positions[positions >= 0], owned.ns[positions >= 0])
    whole = int(self_ns.sum())
    order = stable_order(-self_ns)
    cells: CellRows = [
        [clip_name(readable(frame.names[int(codes[i])]), TEXT_CHARS), int(calls[i]), int(self_ns[i]),
         share_pct(int(self_ns[i]), whole),
         float(self_ns[i] / calls[i]), int(total_ns[i]), int(gpu_ns[i])] for i in order[:ROWS].tolist()]
    columns = summary_columns("Operator: text | Calls: count | Self CPU: ns | Share: pct | Self per call: ns | Total CPU: ns | "
                              "GPU time launched: ns")
    more = f" The {ROWS} with most self time of {codes.size:,}." if codes.size > ROWS else ""
    return SummaryTable("CPU time of operators", columns, cells,
                        "Self: without the operators within it, runtime calls included. Total counts recursion once. GPU "
                        "time: of the "
                        f"kernels, copies and sets that the operator itself launched.{more}")


# ---- the topic "operators" ----

MODULE = "nn.Module: "              # how torch.profiler names modules' calls (with_stack or with_modules)
DRAWN_SHARE, DRAWN_NODES = 0.002, 400


def operators_result(frame: Frame) -> Result:
    """Return which operators and modules own the GPU's time, and what could use tensor cores.

    `numbers`: gpu_ns, known_pct, products {"yes_ns", …}, operators (bars), modules and stacks (trees for the pictures).
    """
    owned = owned_work(frame)
    if owned is None:
        return Result("No GPU work in this trace: nothing to share out between operators.", applies=False)
    if not (owned.owner >= 0).any() and frame.of(Category.CPU_OP).size and (frame.call[frame.work] < 0).all():
        return Result(f"{time_text(owned.total_ns)} of GPU work, and the trace does not say which operator launched it: "
                      f"{why_no_calls(frame)}", applies=False)
    if not (owned.owner >= 0).any():
        return Result(f"{time_text(owned.total_ns)} of GPU work, and no operator or range around the calls that launched it: "
                      "record with torch.profiler (CPU and CUDA activities, record_shapes=True), or mark ranges with NVTX.",
                      applies=False)
    modules, what, backward = module_tree(owned)
    launched = np.where(owned.owner >= 0, owned.owner, frame.call[owned.rows])
    stacks = tree_of(frame, launched, owned.ns, np.ones(frame.rows, np.bool_))
    missed = missed_kernels(owned)
    tables = [operator_table(owned), shape_table(owned), tensor_table(owned, missed)]
    if modules is not None:
        tables.append(module_table(owned, modules, what, backward))
    convolutions = convolution_groups(owned)
    tables += [convolution_table(owned, convolutions), self_time_table(owned), stack_table(owned, stacks)]
    products = {f"{name}_ns": int(owned.ns[owned.use == use].sum()) for use, name in enumerate(USES) if name}
    known_ns = int(owned.ns[owned.owner >= 0].sum())
    numbers: dict[str, Any] = {
        "gpu_ns": owned.total_ns, "known_pct": 100 * known_ns / max(owned.total_ns, 1), "kind": owned.kind, "products": products,
        "bars": bars(owned), "stacks": tree_boxes(frame, stacks, owned.total_ns), "module_kind": what,
        "modules": tree_boxes(frame, modules, owned.total_ns) if modules is not None else []}
    return Result(sentence(owned, products), numbers, [table for table in tables if table is not None],
                  [*advice(owned, missed), *convolution_findings(owned, convolutions)])


def module_tree(owned: OwnedWork) -> tuple[Tree | None, str, Bools]:
    """Return (tree, what its nodes are, which rows are backward work).

    A gradient belongs to the module whose forward operator it is of. Where no module is recorded, ranges (record_function, NVTX)
    stand in; None where there are none either.
    """
    frame = owned.frame
    launched = np.where(owned.owner >= 0, owned.owner, frame.call[owned.rows])
    forward = forward_of(frame)
    of_gradient = nearest(frame, launched, forward >= 0)
    backward = of_gradient >= 0
    leaves = np.where(backward, forward[of_gradient], launched)
    codes = np.array([code for code, name in enumerate(frame.names) if name.startswith(MODULE)], np.int64)
    if codes.size:
        is_node = (frame["category"] == Category.PYTHON) & np.isin(frame["name"], codes)
        return tree_of(frame, leaves, owned.ns, is_node), "module", backward
    is_node = (frame["category"] == Category.ANNOTATION) & ~frame["instant"]
    around = ancestors(frame, leaves)
    if not any(not frame.text(row).startswith(STEP + "#") for row in around[is_node[around]][:10_000].tolist()):
        return None, "", backward
    return tree_of(frame, leaves, owned.ns, is_node), "range", backward


def bars(owned: OwnedWork, most: int = 12) -> list[dict[str, Any]]:
    """The operators with most GPU time, split by what their kernels are to tensor cores."""
    codes, index = np.unique(owned.owner_name, return_inverse=True)
    split = np.zeros((codes.size, len(USES)), np.int64)
    np.add.at(split, (index, owned.use), owned.ns)
    order = stable_order(-split.sum(1))[:most]
    names = [clip_name(readable(owned.frame.names[code]), 200) if code >= 0 else "" for code in codes.tolist()]
    return [{"name": names[owner], "total_ns": int(split[owner].sum()),
             **{f"{name or 'other'}_ns": int(split[owner, use]) for use, name in enumerate(USES)}} for owner in order.tolist()]


def tree_boxes(frame: Frame, tree: Tree, total_ns: int) -> list[dict[str, Any]]:
    """Return the nodes worth a box, parents before children.

    A chain of nodes without time of their own is one box.
    """
    least = max(1, int(DRAWN_SHARE * total_ns))
    nodes = np.flatnonzero(tree.total_ns >= least)
    if nodes.size > DRAWN_NODES:
        nodes = np.sort(nodes[stable_order(-tree.total_ns[nodes])[:DRAWN_NODES]])
    place = {int(node): position for position, node in enumerate(nodes.tolist())}
    return [{"name": clip_name(readable(frame.names[int(tree.name[node])]), 200) if tree.name[node] >= 0 else "",
             "parent": place.get(int(tree.parent[node]), -1), "total_ns": int(tree.total_ns[node]),
             "own_ns": int(tree.own_ns[node]), "count": int(tree.count[node])}
            for node in nodes.tolist()]


def sentence(owned: OwnedWork, products: dict[str, int]) -> str:
    first = bars(owned, 2)
    top = next((bar for bar in first if bar["name"]), first[0])
    codes = np.unique(owned.owner_name)
    share = pct_text(100 * top["total_ns"] / max(owned.total_ns, 1))
    text = (f"`{top['name']}` takes {share} of {time_text(owned.total_ns)} of GPU time, the most "
            f"of {plural(int((codes >= 0).sum()), owned.kind)}")
    multiply_ns = products["yes_ns"] + products["no_ns"] + products["unknown_ns"]
    if owned.kind != "operator" or not multiply_ns:
        return f"{text}."
    share = pct_text(100 * products["yes_ns"] / multiply_ns) if products["yes_ns"] else "none"
    many = f"{share} of {time_text(multiply_ns)} of matrix products ran on tensor cores"
    rest = []
    if unaligned_ns := int(owned.ns[(owned.use == USES.index("yes")) & owned.unaligned].sum()):
        rest.append(f"{time_text(unaligned_ns)} of it unaligned")
    if products["no_ns"]:
        rest.append(f"{time_text(products['no_ns'])} did not")
    if products["unknown_ns"]:
        rest.append(f"of {time_text(products['unknown_ns'])} the names do not say")
    return f"{text}; {many}{''.join(f', {remark}' for remark in rest)}."

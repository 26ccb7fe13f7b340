"""Which operators and modules own the GPU's time, with which shapes, and which of their kernels could run on tensor cores
but do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from profiles.analysis.core.frame import Frame
from profiles.analysis.core.result import Result
from profiles.analysis.core.sentences import pct_text, plural, time_text
from profiles.analysis.trace.operators.convolutions import convolution_findings, convolution_groups, convolution_table
from profiles.analysis.trace.operators.missed import missed_kernels, tensor_table
from profiles.analysis.trace.operators.owned import USES, OwnedWork, owned_work
from profiles.analysis.trace.operators.self_time import self_time_table
from profiles.analysis.trace.operators.tables import module_table, operator_table, shape_table, stack_table
from profiles.analysis.trace.operators.tensor_advice import advice
from profiles.analysis.trace.operators.tree import STEP, Tree, ancestors, forward_of, nearest, readable, tree_of
from profiles.ingest.trace import Category

MODULE = "nn.Module: "              # how torch.profiler names modules' calls (with_stack or with_modules)
DRAWN_SHARE, DRAWN_NODES = 0.002, 400


def operators_result(frame: Frame) -> Result:
    """Return which operators and modules own the GPU's time, and what could use tensor cores.

    `numbers`: gpu_ns, known_pct, products {"yes_ns", …}, operators (bars), modules and stacks (trees for the pictures).
    """
    owned = owned_work(frame)
    if owned is None:
        return Result("No GPU work in this trace: nothing to share out between operators.", applies=False)
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
    products = {f"{name}_ns": int(owned.ns[owned.use == at].sum()) for at, name in enumerate(USES) if name}
    known_ns = int(owned.ns[owned.owner >= 0].sum())
    numbers: dict[str, Any] = {
        "gpu_ns": owned.total_ns, "known_pct": 100 * known_ns / max(owned.total_ns, 1), "kind": owned.kind, "products": products,
        "bars": bars(owned), "stacks": tree_boxes(frame, stacks, owned.total_ns), "module_kind": what,
        "modules": tree_boxes(frame, modules, owned.total_ns) if modules is not None else []}
    return Result(sentence(owned, products), numbers, [table for table in tables if table is not None],
                  [*advice(owned, missed), *convolution_findings(owned, convolutions)])


def module_tree(owned: OwnedWork) -> tuple[Tree | None, str, npt.NDArray[np.bool_]]:
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
        wanted = (frame["category"] == Category.PYTHON) & np.isin(frame["name"], codes)
        return tree_of(frame, leaves, owned.ns, wanted), "module", backward
    wanted = (frame["category"] == Category.ANNOTATION) & ~frame["instant"]
    around = ancestors(frame, leaves)
    if not any(not frame.text(row).startswith(STEP + "#") for row in around[wanted[around]][:10_000].tolist()):
        return None, "", backward
    return tree_of(frame, leaves, owned.ns, wanted), "range", backward


def bars(owned: OwnedWork, most: int = 12) -> list[dict[str, Any]]:
    """The operators with most GPU time, split by what their kernels are to tensor cores."""
    codes, index = np.unique(owned.owner_name, return_inverse=True)
    split = np.zeros((codes.size, len(USES)), np.int64)
    np.add.at(split, (index, owned.use), owned.ns)
    order = np.argsort(-split.sum(1), kind="stable")[:most]
    return [{"name": readable(owned.frame.names[codes[at]])[:200] if codes[at] >= 0 else "", "total_ns": int(split[at].sum()),
             **{f"{name or 'other'}_ns": int(split[at, use]) for use, name in enumerate(USES)}} for at in order.tolist()]


def tree_boxes(frame: Frame, tree: Tree, total_ns: int) -> list[dict[str, Any]]:
    """Return the nodes worth a box, parents before children.

    A chain of nodes without time of their own is one box.
    """
    least = max(1, int(DRAWN_SHARE * total_ns))
    kept = np.flatnonzero(tree.total_ns >= least)
    if kept.size > DRAWN_NODES:
        kept = np.sort(kept[np.argsort(-tree.total_ns[kept], kind="stable")[:DRAWN_NODES]])
    place = {int(node): at for at, node in enumerate(kept.tolist())}
    return [{"name": readable(frame.names[int(tree.name[node])])[:200] if tree.name[node] >= 0 else "",
             "parent": place.get(int(tree.parent[node]), -1), "total_ns": int(tree.total_ns[node]),
             "own_ns": int(tree.own_ns[node]), "count": int(tree.count[node])}
            for node in kept.tolist()]


def sentence(owned: OwnedWork, products: dict[str, int]) -> str:
    first = bars(owned, 2)
    top = next((bar for bar in first if bar["name"]), first[0])
    codes = np.unique(owned.owner_name)
    share = pct_text(100 * top["total_ns"] / max(owned.total_ns, 1))
    said = (f"`{top['name']}` takes {share} of {time_text(owned.total_ns)} of GPU time, the most "
            f"of {plural(int((codes >= 0).sum()), owned.kind)}")
    multiply_ns = products["yes_ns"] + products["no_ns"] + products["unknown_ns"]
    if owned.kind != "operator" or not multiply_ns:
        return f"{said}."
    share = pct_text(100 * products["yes_ns"] / multiply_ns) if products["yes_ns"] else "none"
    many = f"{share} of {time_text(multiply_ns)} of matrix products ran on tensor cores"
    rest = []
    if unaligned_ns := int(owned.ns[(owned.use == USES.index("yes")) & owned.unaligned].sum()):
        rest.append(f"{time_text(unaligned_ns)} of it unaligned")
    if products["no_ns"]:
        rest.append(f"{time_text(products['no_ns'])} did not")
    if products["unknown_ns"]:
        rest.append(f"of {time_text(products['unknown_ns'])} the names do not say")
    return f"{said}; {many}{''.join(f', {each}' for each in rest)}."



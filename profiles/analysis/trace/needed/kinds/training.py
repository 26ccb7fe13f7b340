"""Work of training: parameters tensor by tensor, gradients filled with zeros, dropout where nothing is trained."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod

import numpy as np

from profiles.analysis.trace.needed.facts import Avoidable, Facts, Item

# Parameters updated, clipped or zeroed tensor by tensor, in several passes over memory each.

FEWEST = 24                         # launches: fewer are the update of some scalars
# Passes of memory for each element in one fused pass: Adam reads parameter, gradient and both moments, and writes three of them.
PASSES = {"adam": 7, "momentum": 5, "plain": 3}
# Share of DRAM's ceiling that a fused update reaches: bf16 AdamW on an H200 46 % (`docs/needed.md`), fp32 more.
REACHED = (0.85, 0.4)
_LISTS = ("_foreach_", "_fused_")
# Kernels by which an update is told where no operator is known. `torch.lerp` and `addcdiv` on single tensors are optimizers'.
_NAMES = re.compile(r"(lerp|addcmul|addcdiv|sqrt)(?:_scalar|_cuda)*_kernel")
_POINTWISE = ("elementwise", "fill", "copy")
FEWEST_QUOTIENTS = 4
FEWEST_CHANGED = 64
_CHANGES = ("mul_", "add_", "sub_", "div_", "lerp_", "addcmul_", "addcdiv_")


def find_updates(facts: Facts) -> Iterator[Avoidable]:
    mine = np.flatnonzero(facts.is_update & ~facts.taken & ~facts.fits(_is_listed)).tolist() or list(_by_name(facts))
    if len(mine) >= FEWEST:
        yield _updates(facts, mine)
    for run in _in_place(facts):
        total = float(facts.total_ns(run))
        yield Avoidable(run, (0.4 * total, 0.85 * total), f"tensors are changed in place one by one in {len(run):,} launches",
                        host_shares=(0.4, 1.0), numbers={"launches": len(run)})
    clipped = [norm for norm in facts.which(lambda item: item.path[:1] in (("linalg_vector_norm",), ("norm",)))
               if not facts.is_update[norm]]
    if len(clipped) >= FEWEST:
        clipped += _scaled(facts, clipped)
        yield Avoidable(clipped, (0.15 * facts.total_ns(clipped), 0.5 * facts.total_ns(clipped)),
                        f"norms of {len(clipped):,} gradients are computed one by one", host_shares=(0.4, 1.0),
                        numbers={"launches": len(clipped)})


def _in_place(facts: Facts) -> Iterator[list[int]]:
    """Yield runs of in-place pointwise launches on many tensors outside of an optimizer: averages of weights, as a rule.

    One operator on one shape again and again is a benchmark of it, or one tensor.
    """
    changes = facts.fits(lambda item: item.path[:1] and item.path[0] in _CHANGES and item.role == "elementwise")
    for run in facts.runs(changes & ~(facts.taken | facts.is_update | facts.is_backward)):
        if len(run) >= FEWEST_CHANGED and len({(facts.at(each).path[0], *facts.at(each).shapes[:1]) for each in run}) > 1:
            yield run


def _by_name(facts: Facts) -> Iterator[int]:
    """Yield the launches of Adam's updates in a replayed graph: of a run of pointwise ones those from first moment to quotient."""
    pointwise = facts.fits(lambda item: not item.path and item.role in _POINTWISE and not _is_listed(item))
    for run in facts.runs(pointwise & ~facts.taken):
        named = [_NAMES.search(facts.at(position).kernel[:300]) for position in run]
        words = [match[1] if match else "" for match in named]
        if words.count("addcdiv") >= FEWEST_QUOTIENTS and "lerp" in words:
            last = len(words) - 1 - words[::-1].index("addcdiv")
            yield from run[max(0, words.index("lerp") - 1):last + 1]        # the weights' decay before it


def _scaled(facts: Facts, norms: list[int]) -> list[int]:
    """Return the launches behind a step's norms that scale the gradients in place, one tensor each: until the update begins."""
    members, out = set(norms), list[int]()
    for sequence in facts.sequences:
        behind = False
        for position in sequence:
            behind = (behind or position in members) and not facts.is_update[position] and not facts.is_backward[position]
            if behind and facts.at(position).path[:1] == ("mul_",) and not facts.taken[position]:
                out.append(position)
    return out


def _is_listed(item: Item) -> bool:
    return any(name.startswith(_LISTS) for name in item.path[:3]) or "multi_tensor_apply" in item.kernel[:300]


def _name(item: Item) -> str:
    """Return the operator that launched, by the kernel where none is known: "addcdiv", "" unknown."""
    match = _NAMES.search(item.kernel[:300])
    return item.path[0].rstrip("_") if item.path else match[1] if match else ""


def _updates(facts: Facts, mine: list[int]) -> Avoidable:
    names = {name for position in mine if (name := _name(facts.at(position)))}
    rule = "adam" if names & {"addcdiv", "addcmul", "sqrt"} else "momentum" if len(names - {"zero", "fill"}) > 1 else "plain"
    last = "addcdiv" if "addcdiv" in names else "add" if "add" in names else ""
    elements = sum(prod(facts.at(position).shapes[0]) for position in mine
                   if last and facts.at(position).path[:1] in ((last,), (last + "_",)) and facts.at(position).shapes)
    total = float(facts.total_ns(mine))
    size = next((tensor.size for position in mine for tensor in facts.at(position).tensors if tensor.size and tensor.shape), 0)
    dram = float(facts.dram_bytes_s[mine[0]])
    stays = (total * PASSES[rule] / 21 if rule == "adam" else 0.4 * total, 0.85 * total)      # Adam's eight operators: 21 passes
    if elements and size and dram == dram:
        least = 1e9 * PASSES[rule] * size * elements / dram
        stays = (min(total, least / REACHED[0]), min(total, least / REACHED[1]))
    return Avoidable(mine, stays, f"parameters are updated tensor by tensor in {len(mine):,} launches", host_shares=(0.4, 1.0),
                     numbers={"launches": len(mine), "elements": elements, "rule": rule})


# Gradients set to zero, in place of being dropped.

FEWEST_ZEROED = 4


def find_zeroed(facts: Facts) -> Iterator[Avoidable]:
    mine = list(facts.which(lambda item: any("zero_grad" in name for name in item.path)))
    if len(mine) >= FEWEST_ZEROED:          # a gradient that is dropped is taken, not added to
        added = list(facts.which(lambda item: item.path[:2] == ("add_", "torch::autograd::AccumulateGrad")))
        yield Avoidable([*mine, *added], (0.0, 0.0), f"gradients are filled with zeros ({len(mine):,} launches) and added to",
                        host_shares=(0.4, 1.0), numbers={"launches": len(mine), "additions": len(added)})


# Work of training in a run that only infers: dropout, and statistics of batches.

FEWEST_IDLE = 2


def find_training_mode(facts: Facts) -> Iterator[Avoidable]:
    if facts.has_backward:
        return
    dropped = list(facts.which(lambda item: (
        item.is_within("native_dropout", "dropout", "dropout_") or "dropout" in item.kernel[:300].lower())
        and item.role not in ("attention", "product")))
    if len(dropped) >= FEWEST_IDLE:
        yield Avoidable(dropped, (0.0, 0.0), f"dropout runs {len(dropped):,} times, and nothing is trained",
                        "the model is not trained here", numbers={"launches": len(dropped)})
    counted = list(facts.which(lambda item: "batch_norm_collect_statistics" in item.kernel[:300]))
    if len(counted) >= FEWEST_IDLE:
        yield Avoidable(counted, (0.0, 0.0),
                        f"batch norm computes the statistics of {len(counted):,} batches, and nothing is trained",
                        "the model is not trained here", numbers={"launches": len(counted)})

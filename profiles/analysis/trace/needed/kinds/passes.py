"""Passes over memory that could live in a product or in one kernel: pointwise operators, casts and norms one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from profiles.analysis.trace.needed.facts import Avoidable, Facts, Item
from profiles.ingest.arrays import Floats, Ints

PASS_ROLES = ("elementwise", "copy", "reduction", "cat", "norm", "fill")
FEWEST = 2                          # launches of a chain
LIVE_IN = ("product", "attention", "convolution")       # what pointwise work could be a part of
LEAST_SHARE = 0.03                  # of the kernels' time
REACHED = 0.75                      # of DRAM's ceiling that one fused pass reaches


def find(facts: Facts) -> Iterator[Avoidable]:
    """Find chains of launches between products that no compiler fused: at most one pass for each chain stays, at best none;
    before each norm over batches or groups its input is read once more.

    One launch again and again (a benchmark of an operator, a buffer after the other) is no chain. Without any product a pass stays.
    """
    runs = facts.runs(facts.fits(_is_pass) & ~facts.taken & ~facts.is_update)
    chains = [run for run in runs if len(run) >= FEWEST and len({facts.item[position] for position in run}) > 1]
    if not chains:
        return
    in_product = any(item.role in LIVE_IN for item in facts.items)
    claimed, total_ns, one_ns, statistics = _measure(facts, chains)
    total = facts.total_ns(claimed)
    if total and total >= LEAST_SHARE * int(facts.ns.sum()):
        least = sum(np.minimum(total_ns, 0.5 * statistics * one_ns).tolist())            # each reads all of it first
        most = min(sum(np.minimum(total_ns, (1.0 + 0.5 * statistics) * one_ns).tolist()), float(total))
        yield Avoidable(claimed, (min(least, most) if in_product else most, most),
                        f"{len(claimed):,} passes over memory lie in {len(chains):,} chain{'s' if len(chains) > 1 else ''}"
                        f"{' between products' if in_product else ''}",
                        numbers={"launches": len(claimed), "chains": len(chains)})


def _measure(facts: Facts, chains: list[list[int]]) -> tuple[list[int], Floats, Floats, Ints]:
    """Return the launches of all chains, and of each chain: its time, that of one pass, ns, and how many norms over batches or
    groups are computed in it, none of which can begin before all of its input was read.

    One pass reads the chain's largest tensor and writes it once; half of the chain where shapes are not known.
    """
    claimed = np.concatenate(chains)
    begin = np.cumsum([0, *map(len, chains[:-1])])
    chain = np.repeat(np.arange(len(chains)), [len(run) for run in chains])
    total_ns = np.add.reduceat(facts.ns[claimed], begin).astype(np.float64)
    of_norm = facts.fits(_is_statistic)[claimed]
    goes_on = np.concatenate([[False], of_norm[:-1]])
    goes_on[begin] = False
    elements = np.array([min(item.elements, 1 << 62) for item in facts.items], np.int64)[facts.number[claimed]]
    is_largest = np.flatnonzero(elements == np.maximum.reduceat(elements, begin)[chain])
    largest = claimed[is_largest[np.unique(chain[is_largest], return_index=True)[1]]]
    moved = np.array([_largest_bytes(item) for item in facts.items], np.float64)[facts.number[largest]]
    one_ns = np.fmin(total_ns, 1e9 * 2 * moved / facts.dram_bytes_s[largest] / REACHED)
    unknown = np.isnan(moved / facts.dram_bytes_s[largest])
    norms = np.add.reduceat((of_norm & ~goes_on).astype(np.int64), begin)
    return claimed.tolist(), total_ns, np.where(unknown, 0.5 * total_ns, one_ns), norms


def _is_pass(item: Item) -> bool:
    return item.role in PASS_ROLES and not item.is_fused and "multi_tensor_apply" not in item.kernel[:300] and not any(
        name.startswith("_foreach_") for name in item.path[:2])


def _is_statistic(item: Item) -> bool:
    return item.role == "norm" and any("batch_norm" in name or "group_norm" in name for name in item.path)


def _largest_bytes(item: Item) -> float:
    """Return the bytes of its largest tensor, of one up to twice as large the smaller; NaN unknown."""
    sizes = [prod(tensor.shape) * (tensor.size or 0) for tensor in item.tensors if tensor.shape]
    most = max(sizes, default=0)
    return float(min(size for size in sizes if size >= most // 2)) if most else np.nan

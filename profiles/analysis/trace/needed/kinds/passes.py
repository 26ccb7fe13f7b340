"""Passes over memory that could live in a product or in one kernel: pointwise operators, casts and norms one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from profiles.analysis.trace.needed.facts import Avoidable, Facts

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
    claimed, least, stays, chains = list[int](), 0.0, 0.0, 0
    in_product = any(item.role in LIVE_IN for item in facts.items)
    for sequence in facts.sequences:
        chain: list[int] = []
        for position in [*sequence, -1]:
            if position >= 0 and not facts.taken[position] and not facts.is_update[position] and _is_pass(facts, position):
                chain.append(position)
                continue
            if len(chain) >= FEWEST and len({facts.item[each] for each in chain}) > 1:
                one, statistics = _one_pass_ns(facts, chain), _count_statistics(facts, chain)
                claimed += chain
                least += min(float(facts.total_ns(chain)), 0.5 * statistics * one)       # each reads all of it first
                stays += min(float(facts.total_ns(chain)), (1.0 + 0.5 * statistics) * one)
                chains += 1
            chain = []
    total = facts.total_ns(claimed) if claimed else 0
    if total and total >= LEAST_SHARE * int(facts.ns.sum()):
        most = min(stays, float(total))
        yield Avoidable(claimed, (min(least, most) if in_product else most, most),
                        f"{len(claimed):,} passes over memory lie in {chains:,} chain{'s' if chains > 1 else ''}"
                        f"{' between products' if in_product else ''}",
                        numbers={"launches": len(claimed), "chains": chains})


def _is_pass(facts: Facts, position: int) -> bool:
    item = facts.at(position)
    return item.role in PASS_ROLES and not item.is_fused and "multi_tensor_apply" not in item.kernel[:300] and not any(
        name.startswith("_foreach_") for name in item.path[:2])


def _count_statistics(facts: Facts, chain: list[int]) -> int:
    """Return how many norms over batches or groups are computed in a chain: none can begin before all of its input was read."""
    norms = 0
    inside = False
    for position in chain:
        item = facts.at(position)
        of_norm = item.role == "norm" and any("batch_norm" in name or "group_norm" in name for name in item.path)
        norms += of_norm and not inside
        inside = of_norm
    return norms


def _one_pass_ns(facts: Facts, chain: list[int]) -> float:
    """Return what reads the chain's largest tensor and writes it once takes; half of the chain where shapes are not known."""
    total = float(facts.total_ns(chain))
    largest = max(chain, key=lambda each: facts.at(each).elements)
    item, dram = facts.at(largest), float(facts.dram_bytes_s[largest])
    sizes = [prod(tensor.shape) * (tensor.size or 0) for tensor in item.tensors if tensor.shape]
    if not sizes or not max(sizes) or np.isnan(dram):
        return 0.5 * total
    return min(total, 1e9 * 2 * min(size for size in sizes if size >= max(sizes) // 2) / dram / REACHED)

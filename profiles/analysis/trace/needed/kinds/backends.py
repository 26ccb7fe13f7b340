"""Attention by a slower kernel than the GPU has, and what of the call keeps it from the fast one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from profiles.analysis.trace.layer.arguments import Call
from profiles.analysis.trace.needed.avoidable import Avoidable, sizes_of
from profiles.analysis.trace.needed.facts import Facts
from profiles.ingest.trace import Category

_SDPA = "aten::scaled_dot_product_attention"
_EFFICIENT = ("_scaled_dot_product_efficient_attention", "_efficient_attention_forward")
REACHED = (0.7, 0.4)                # of its ceiling that a FlashAttention kernel reaches, at best, at worst (arXiv 2407.08608, 4.1)
MOST_HEAD = 256                     # that FlashAttention takes, in steps of 8 (PyTorch, sdp_utils.cpp)
LEAST_QUERIES = 64


def find(facts: Facts) -> Iterator[Avoidable]:
    """Find memory-efficient attention whose call says why it is not FlashAttention: a mask, float32, a head size."""
    mine, best, worst, why = list[int](), 0.0, 0.0, Counter[str]()
    for position in facts.where("attention"):
        item, sizes = facts.at(position), sizes_of(facts.at(position))
        floor, ns = float(facts.floor_ns[position]), float(facts.ns[position])
        if facts.is_backward[position] or not item.is_within(*_EFFICIENT) or len(sizes) != 6 or sizes[3] < LEAST_QUERIES:
            continue
        reason = fallback_reason(facts, position)
        if not reason or np.isnan(floor) or floor >= REACHED[1] * ns:
            continue
        mine.append(position)
        best, worst = best + min(ns, floor / REACHED[0]), worst + min(ns, floor / REACHED[1])
        why[reason] += 1
    if mine:
        yield Avoidable(mine, (best, worst),
                        f"attention runs in the memory-efficient kernel {len(mine):,} times, not in FlashAttention: "
                        f"{why.most_common(1)[0][0]}", numbers={"launches": len(mine), "why": dict(why)})


def fallback_reason(facts: Facts, position: int) -> str:
    """Return what of the `scaled_dot_product_attention` around a launch keeps it from FlashAttention, "" where nothing shows."""
    row = int(facts.frame.operator[int(facts.every.rows[position])])
    while row >= 0 and facts.frame.text(row) != _SDPA:
        row = int(facts.frame.enclosing(facts.frame.parent[[row]], Category.CPU_OP)[0])
    if row < 0:
        return ""
    call = Call(_SDPA, facts.frame.arguments(row))
    query, mask = call.tensor(0), call.tensor(3)
    if query is None or not query.shape:
        return ""
    if query.dtype in ("fp32", "fp64"):
        return f"{query.dtype} in place of 16 bits"
    if mask is not None and mask.shape:
        return f"a mask of {'×'.join(map(str, mask.shape))}"
    size = query.shape[-1]
    return f"heads of {size}" if size > MOST_HEAD or size % 8 else ""

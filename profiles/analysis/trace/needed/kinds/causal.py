"""Causal attention with its mask as a tensor: all pairs of queries and keys are computed, and the mask is read."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profiles.analysis.trace.needed.avoidable import Avoidable, sizes_of
from profiles.analysis.trace.needed.facts import Facts

_TRIANGLES = ("tril", "triu", "tril_", "triu_", "le", "ge", "lt", "gt")    # what makes a causal mask, with its queries × keys
REACHED = (0.9, 0.35)               # of the causal half's ceiling that a kernel without a mask reaches, at best, at worst
LEAST_TOKENS = 64
QKV = 3                             # an attention's first tensors, which are no mask whatever their shape


def find(facts: Facts) -> Iterator[Avoidable]:
    """Find attention of as many queries as keys that reads a mask of that square, where the trace makes a triangle of it."""
    triangles = {shape[-1] for item in facts.items if item.path[:1] and item.path[0] in _TRIANGLES
                 for shape in item.shapes if len(shape) >= 2 and max(shape[-2:]) == shape[-1] and shape[-1] >= LEAST_TOKENS}
    mine, best, worst = list[int](), 0.0, 0.0
    for position in facts.where("attention"):
        item, sizes = facts.at(position), sizes_of(facts.at(position))
        square = len(sizes) == 6 and sizes[3] == sizes[4] and sizes[3] in triangles
        if not square or facts.is_backward[position] or item.work is None:
            continue
        masked = any(shape[-2:] == (sizes[3], sizes[4]) for shape in item.shapes[QKV:])
        floor, ns = float(facts.floor_ns[position]), float(facts.ns[position])
        if masked and "causal" not in item.work.text and not np.isnan(floor):
            mine.append(position)
            best, worst = best + min(ns, floor / 2 / REACHED[0]), worst + min(ns, floor / 2 / REACHED[1])
    if mine:
        tokens = sizes_of(facts.at(mine[0]))[3]
        yield Avoidable(mine, (best, worst), f"attention over {tokens:,} tokens reads a mask of {tokens} × {tokens}",
                        "the mask is causal, as the triangle that the trace makes",
                        numbers={"launches": len(mine), "tokens": tokens})

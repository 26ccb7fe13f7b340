"""Caches that grow by concatenation: what they hold is copied for each token that is added."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from profiles.analysis.trace.layer.work import Shape
from profiles.analysis.trace.needed.facts import Avoidable, Facts, Item, times

LEAST_RATIO = 8                     # of what is there to what is added
FEWEST = 4


def find(facts: Facts) -> Iterator[Avoidable]:
    """Find concatenations of a large tensor with a small one along one dimension, whose large one grows from call to call."""
    grown: dict[tuple[object, ...], list[tuple[int, int]]] = {}
    for position in facts.which(is_concatenation):
        if facts.is_backward[position]:
            continue
        entry = growth(facts.at(position))
        if entry is not None:
            key, length = entry
            grown.setdefault(key, []).append((position, length))
    for key, mine in grown.items():
        lengths = {length for _, length in mine}
        if len(mine) < FEWEST or (len(lengths) == 1 and not _is_cache(facts, mine)):
            continue
        positions = [position for position, _ in mine]
        total = float(facts.total_ns(positions))
        longest = max(lengths)
        yield Avoidable(positions, (total / longest, min(total, 3 * total / longest + 2_000.0 * len(positions))),
                        f"a cache of up to {longest:,} entries is copied to add to it ({len(positions):,} concatenations)",
                        numbers={"concatenations": len(positions), "entries": longest, "shape": str(key[0])[:80]})


def growth(item: Item) -> tuple[tuple[object, ...], int] | None:
    """Return what tells one cache from another, and the length that it holds; None where the call appends to none."""
    shapes = [shape for shape in item.shapes if shape]
    if item.is_fused:
        shapes = _concatenated(shapes)
    if len(shapes) != 2 or len(shapes[0]) != len(shapes[1]) or len(shapes[0]) < 3:
        return None
    apart = [axis for axis, (a, b) in enumerate(zip(*shapes, strict=True)) if a != b]
    if len(apart) != 1:
        return None
    length, added = shapes[0][apart[0]], shapes[1][apart[0]]
    if not added or length < LEAST_RATIO * added or prod(shapes[0]) < 1 << 14:
        return None
    rest = tuple(size for axis, size in enumerate(shapes[0]) if axis != apart[0])
    return (times(rest), apart[0], added), length


def is_concatenation(item: Item) -> bool:
    """Return whether a launch concatenates; also in a kernel that a compiler made of one ("triton_poi_fused_cat_3")."""
    return item.role == "cat" or (item.is_fused and "_cat" in item.kernel[:200])


def _concatenated(shapes: list[Shape]) -> list[Shape]:
    """Return the two operands of a fused concatenation: those whose sizes make that of the largest tensor along one dimension."""
    whole = max(shapes, key=prod, default=())
    for cache in shapes:
        for added in shapes:
            apart = [axis for axis, (a, b, c) in enumerate(zip(cache, added, whole, strict=False)) if not a == b == c]
            if len(cache) == len(added) == len(whole) and len(apart) == 1 and cache[apart[0]] >= added[apart[0]] \
                    and cache[apart[0]] + added[apart[0]] == whole[apart[0]]:
                return [cache, added]
    return []


def _is_cache(facts: Facts, mine: list[tuple[int, int]]) -> bool:
    """Return whether what one length's concatenations make is read by attention: one token of a trace was recorded."""
    held = mine[0][1]
    return any(item.role == "attention" and any(held < max(shape) <= held + held // LEAST_RATIO for shape in item.shapes if shape)
               for item in facts.items)

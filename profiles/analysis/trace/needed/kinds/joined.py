"""Products one after the other that read the same tensor: query, key and value, gate and up projections of one layer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profiles.analysis.trace.layer.launches import precision_of
from profiles.analysis.trace.needed.avoidable import ROOF_SHARES, Avoidable, element_bytes, floor_ns, sizes_of
from profiles.analysis.trace.needed.facts import Facts

SLOW = 0.5                          # of its ceiling: what reaches more has little to win from being wider
FEWEST = 4                          # such groups
MOST = 6                            # in one layer; more of one shape in a row are a benchmark
LOOKED_AHEAD = 24                   # launches to the attention that reads three of square weights
BETWEEN = ("product_helper",)


def find(facts: Facts) -> Iterator[Avoidable]:
    """Find runs of products m×n×k of one m and k with nothing between them, that reach less than half of their ceiling together.

    A product of square weights may read the result of the one before: a group of such alone is three before an attention. One wide
    product reaches at worst the share of its ceiling that the best of the group reaches.
    """
    claimed, best, worst, groups, widths = list[int](), 0.0, 0.0, 0, set[tuple[int, ...]]()
    for sequence in facts.sequences:
        at = 0
        while at < len(sequence):
            group, at = _group(facts, sequence, at)
            if len(group) < 2:
                continue
            products = [each for each in group if facts.at(each).role == "product"]
            stays = _stays(facts, products)
            if stays is not None:
                claimed += group
                best, worst, groups = best + stays[0], worst + stays[1], groups + 1
                widths.add(tuple(sizes_of(facts.at(each))[2] for each in products))
    if groups >= FEWEST:
        launches = sum(1 for each in claimed if facts.at(each).role == "product")
        widest: tuple[int, ...] = max(widths, key=len)
        shown = " + ".join(map(str, widest))
        yield Avoidable(claimed, (best, worst),
                        f"products of {shown} columns read the same tensor one after the other, {groups:,} times",
                        "their weights are kept as one", certain=False, host_shares=(0.0, 1.0 - groups / launches),
                        numbers={"launches": len(claimed), "groups": groups})


def _group(facts: Facts, sequence: list[int], at: int) -> tuple[list[int], int]:
    """Return the launches of a run of products of one m and k that begins at a place, and the place behind it; [] where none does.

    What another kind claims between them goes.
    """
    first = sizes_of(facts.at(sequence[at]))
    if facts.at(sequence[at]).is_within("_grouped_mm", "_scaled_grouped_mm"):       # each group of rows has weights of its own
        return [], at + 1
    if facts.at(sequence[at]).role != "product" or len(first) != 4 or first[0] != 1 or first[1] < 1 or facts.taken[sequence[at]]:
        return [], at + 1
    out, squares, products, last, end = list[int](), 0, 0, 0, at + 1
    for place in range(at, min(len(sequence), at + LOOKED_AHEAD)):
        position = sequence[place]
        item, sizes = facts.at(position), sizes_of(facts.at(position))
        if facts.taken[position] and item.role != "product":
            continue
        if facts.taken[position] or facts.is_backward[position] or facts.is_update[position]:
            break
        if item.role == "product" and len(sizes) == 4 and (sizes[0], sizes[1], sizes[3]) == (1, first[1], first[3]):
            squares += sizes[2] == sizes[3]
            products += 1
        elif item.role not in BETWEEN:
            break
        out.append(position)
        last, end = len(out), place + 1
    if not 2 <= products <= MOST:
        return [], end
    behind = {facts.at(each).role for each in sequence[end:end + LOOKED_AHEAD]}
    is_group = squares < products or (products == 3 and bool({"attention", "softmax"} & behind))
    return out[:last] if is_group else [], end


def _stays(facts: Facts, products: list[int]) -> tuple[float, float] | None:
    """Return what one wide product takes at best and at worst; None where the group is fast already."""
    _, rows, _, inner = sizes_of(facts.at(products[0]))
    columns = sum(sizes_of(facts.at(each))[2] for each in products)
    item, floors = facts.at(products[0]), facts.floor_ns[products]
    if item.work is None or np.isnan(floors).any():
        return None
    size = element_bytes(item)
    moved = size * (rows * inner + inner * columns + rows * columns)
    floor = floor_ns(facts, products[0], 2.0 * rows * columns * inner, float(moved), precision_of(item.work, item.kernel))
    total = float(facts.total_ns(products))
    if floor is None or floor >= SLOW * total:
        return None
    reached = float((floors / np.maximum(1, facts.ns[products])).max())
    return min(total, floor / ROOF_SHARES[0]), min(total, floor / max(reached, 1e-6))

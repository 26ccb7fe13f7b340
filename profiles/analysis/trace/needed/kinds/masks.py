"""Masks of queries × keys built again in each layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import prod

from profiles.analysis.trace.needed.avoidable import Avoidable, times
from profiles.analysis.trace.needed.facts import Facts, steps_of_names

_MAKERS = ("where", "masked_fill", "le", "lt", "ge", "gt", "eq", "ne", "tril", "triu", "logical_and", "logical_not", "bitwise_and",
           "bitwise_not", "full", "fill", "sub", "rsub")
FEWEST = 3                          # times that one mask is built
LEAST_ELEMENTS = 1 << 18


def find(facts: Facts) -> Iterator[Avoidable]:
    squares = _attended(facts)
    made: dict[tuple[int, int], list[int]] = {}
    for position in facts.where("index", "elementwise", "fill", "copy"):
        item = facts.at(position)
        shape = max(item.shapes, key=prod, default=())
        is_mask = item.path and item.path[0].rstrip("_") in _MAKERS and len(shape) >= 2 and shape[-2:] in squares \
            and prod(shape[:-2]) <= 64 and prod(shape) >= LEAST_ELEMENTS and not facts.is_backward[position]
        if is_mask:
            made.setdefault((shape[-2], shape[-1]), []).append(position)
    steps = steps_of_names(facts.frame.names)
    for square, mine in made.items():
        often = Counter(facts.item[position] for position in mine)
        again = [position for position in mine if often[facts.item[position]] >= FEWEST * steps]
        if again:
            total = float(facts.total_ns(again))
            yield Avoidable(again, (total / max(often.values()), 2 * total / FEWEST),
                            f"a mask of {times(square)} is built again and again", numbers={"launches": len(again)})


def _attended(facts: Facts) -> set[tuple[int, int]]:
    """Return the queries and keys of every attention and softmax."""
    out = set[tuple[int, int]]()
    for item in facts.items:
        sizes = item.work.sizes if item.work else ()
        if item.role == "attention" and len(sizes) == 6 and sizes[3] > 1:
            out.add((sizes[3], sizes[4]))
        if item.role == "softmax":
            out |= {(shape[-2], shape[-1]) for shape in item.shapes if len(shape) >= 3 and shape[-2] > 1}
    return out

"""Weights made anew in each step: cast to another type, or dequantised, right before their product."""

from __future__ import annotations

from collections.abc import Iterator

from profiles.analysis.trace.needed.facts import Avoidable, Facts, Item, sizes_of

LOOKED_AHEAD = 6                    # launches between the weight and its product
FEWEST = 2
MOST_UNPACKING = 6
_WHOLE = ("int8", "uint8", "int16", "int32", "uint32")
LEAST_ELEMENTS = 1 << 18
_GENERATORS = ("normal_", "uniform_", "random_", "bernoulli_", "exponential_")     # what they wrote was no weight before


def find(facts: Facts) -> Iterator[Avoidable]:
    """Find launches that write a tensor of the shape of the next product's weight from one of another type."""
    copies = list[int]()
    changed = facts.fits(_changes_type) & ~(facts.taken | facts.is_backward | facts.is_update)
    for sequence, places in facts.places(changed):
        for place in places:
            position, item = sequence[place], facts.at(sequence[place])
            if place and _is_generated(facts.at(sequence[place - 1]), item):
                continue
            shape, scaled = item.shapes[0], list[int]()
            for after in sequence[place + 1:place + 1 + LOOKED_AHEAD]:
                sizes = sizes_of(facts.at(after))
                if facts.at(after).role == "product" and len(sizes) == 4:
                    if sorted(shape) == sorted(sizes[2:]) and _is_weight(facts.at(after), sizes, shape):
                        copies += [*_unpacking(facts, sequence[:place], item), position, *scaled]
                    break
                if facts.at(after).role == "elementwise" and facts.at(after).shapes[:1] == [shape] and not facts.taken[after] \
                        and facts.at(after).path[:1] and facts.at(after).path[0] not in _GENERATORS:
                    scaled.append(after)
    if len(copies) >= FEWEST and facts.total_ns(copies) > 0:
        names = {_from(facts.at(copy)) for copy in copies if _changes_type(facts.at(copy))}       # not what is scaled
        training = facts.has_backward
        yield Avoidable(copies, (0.0, 0.1 * facts.total_ns(copies)) if not training else (0.0, 0.5 * facts.total_ns(copies)),
                        f"weights are made anew {len(copies):,} times ({', '.join(sorted(names)[:3])})",
                        "they stay the same between the steps" if not training else
                        "the optimizer can write the narrow copy, or the model is kept in it",
                        numbers={"launches": len(copies)})


def _unpacking(facts: Facts, before: list[int], item: Item) -> list[int]:
    """Return the launches right before that took whole numbers out of smaller ones: shifts, masks, what puts them together."""
    mine = list[int]()
    for position in reversed(before[-MOST_UNPACKING:]):
        source = facts.at(position)
        whole = any(tensor.shape and 8 * tensor.elements >= item.elements
                    and (tensor.dtype in _WHOLE or (source.role == "cat" and not tensor.dtype)) for tensor in source.tensors)
        if source.role not in ("elementwise", "cat", "copy") or not whole or facts.taken[position]:
            break
        mine.append(position)
    return mine


def _is_generated(before: Item, item: Item) -> bool:
    """Return whether the launch before wrote random numbers of that shape: a tensor is made, not a weight made anew."""
    return before.path[:1] != () and before.path[0] in _GENERATORS and item.shapes[1] in before.shapes


def _changes_type(item: Item) -> bool:
    if len(item.shapes) < 2 or len(item.shapes[0]) != 2 or item.elements < LEAST_ELEMENTS:
        return False
    a, b = item.tensors[0], item.tensors[1]
    return item.role in ("copy", "elementwise") and a.shape == b.shape and bool(a.dtype and b.dtype) and a.dtype != b.dtype


def _is_weight(product: Item, sizes: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Return whether the shape is the second operand's and not the first's."""
    rows, columns, inner = sizes[1:]
    return (rows, inner) != tuple(shape) or rows == columns


def _from(item: Item) -> str:
    return f"{item.tensors[1].dtype} to {item.tensors[0].dtype}"

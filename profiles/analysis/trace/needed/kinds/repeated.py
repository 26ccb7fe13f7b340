"""Keys and values copied to all query heads before attention, which could read those of the KV heads."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod

from profiles.analysis.trace.needed.facts import Avoidable, Facts, Item, sizes_of, times

LOOKED_AHEAD = 14                   # launches between the copy and its attention
LEAST_SHARE = 0.1                   # of the attention's time, of copies without shapes
ALIKE = 0.25                        # by which the copies of keys and of values differ in time at most
MOST_REPEATS = 128


def find(facts: Facts) -> Iterator[Avoidable]:
    is_candidate = facts.fits(lambda item: repetition(item)[0] or item.role == "attention" or _is_loose(item))
    for sequence, places in facts.places(is_candidate & ~facts.taken):
        pending: list[tuple[int, int, tuple[int, ...]]] = []        # place in the sequence, repeats, shape that attention reads
        loose: list[tuple[int, int]] = []                           # place, position of copies without shapes
        for index in places:
            position, item = sequence[index], facts.at(sequence[index])
            repeats, shape = repetition(item)
            if repeats:
                pending.append((index, repeats, shape))
            elif _is_loose(item):
                loose.append((index, position))
            elif item.role == "attention" and not facts.is_backward[position]:
                mine = [entry for entry in pending if index - entry[0] <= LOOKED_AHEAD and _reads(item, entry[2])]
                if mine:
                    yield _repeated(facts, [sequence[entry[0]] for entry in mine], position, mine[0][1])
                elif not item.shapes:
                    yield from _loose(facts, [other for place, other in loose if index - place <= LOOKED_AHEAD], position)
                pending, loose = [], []


def repetition(item: Item) -> tuple[int, tuple[int, ...]]:
    """Return how often a copy repeats its input along a dimension, and the result's shape as attention reads it; (0, ()) else.

    Eager: a copy of [batch, KV heads, repeats, tokens, size] whose third dimension is expanded (`expand` then `reshape`).
    Compiled: a kernel from [batch, KV heads, tokens, size] to the same with a multiple of the heads.
    """
    shapes = item.shapes
    if item.role == "copy" and shapes and len(shapes[0]) == 5 and len(shapes) > 1:
        batch, heads, repeats, tokens, size = shapes[0]
        source = item.tensors[1]
        expanded = source.numel * repeats == source.elements or not item.call.strides
        if 1 < repeats <= MOST_REPEATS and expanded:
            return repeats, (batch, heads * repeats, tokens, size)
    if item.is_fused and len(shapes) >= 2:
        result = shapes[-1]
        for shape in shapes[:-1]:
            grown = [(a, b) for a, b in zip(shape, result, strict=False) if a != b]
            if len(shape) == len(result) == 4 and len(grown) == 1 and shape[2:] == result[2:] and prod(shape) > 1:
                times_more, rest = divmod(grown[0][1], grown[0][0])
                if not rest and 1 < times_more <= MOST_REPEATS:
                    return times_more, result
    return 0, ()


def _expands(item: Item) -> bool:
    """Return whether a compiler's kernel writes an expanded tensor out, by its name: in a replayed graph it has no shapes."""
    return item.is_fused and not item.path and all(word in item.kernel[:300] for word in ("_expand_", "_clone_"))


def _is_loose(item: Item) -> bool:
    return not item.shapes and (item.role == "copy" or _expands(item))


def _reads(item: Item, shape: tuple[int, ...]) -> bool:
    """Return whether an attention reads keys or values of that shape, heads and tokens in either order."""
    swapped = (shape[0], shape[2], shape[1], shape[3])
    return any(dims in (shape, swapped) for dims in item.shapes)


def _repeated(facts: Facts, copies: list[int], attention: int, repeats: int) -> Avoidable:
    item = facts.at(attention)
    ns, floor = float(facts.ns[attention]), float(facts.floor_ns[attention])
    sizes = sizes_of(item)
    positions, stays = copies, (0.0, 0.0)
    if len(sizes) == 6 and floor == floor:
        batch, heads, _, queries, keys, size = sizes
        bytes_each = next((tensor.size for tensor in item.tensors if tensor.size), 2)
        moved = bytes_each * size * batch * (2 * heads * queries + 2 * heads // repeats * keys)
        dram = float(facts.dram_bytes_s[attention])
        now = bytes_each * size * batch * 2 * heads * (queries + keys)
        if dram == dram and 1e9 * now / dram >= 0.9 * floor:                # bound by the keys and values it reads
            shrunk = ns * max(moved / now, 1e9 * (item.work.flop or 0) / (facts.rate(attention, "bf16_tensor") or 1e30) / ns
                              if item.work else 0.0)
            positions, stays = [*copies, attention], (min(ns, shrunk), ns)
    shape = next((dims for dims in facts.at(copies[0]).shapes if dims), ())
    return Avoidable(positions, stays,
                     f"keys and values are copied to {repeats} times as many heads before attention ({times(shape)})",
                     numbers={"repeats": repeats, "copies": len(copies)})


def _loose(facts: Facts, copies: list[int], attention: int) -> Iterator[Avoidable]:
    """Two copies of one length before an attention without shapes: the last two, or two of one kernel with a smaller one behind."""
    attends = int(facts.ns[attention])
    for first, second in reversed(list(pairwise(copies))):
        a, b = int(facts.ns[first]), int(facts.ns[second])
        is_last = second == copies[-1]
        if (is_last or facts.at(first).kernel == facts.at(second).kernel) and abs(a - b) <= ALIKE * max(a, b) \
                and a + b >= LEAST_SHARE * attends and min(a, b) > 5_000:
            yield Avoidable([first, second, attention], (0.0, float(attends)), "keys and values are copied before attention",
                            "they are repeated for grouped heads, or attention can read them as they lie (the trace has no shapes)",
                            certain=False, numbers={"copies": 2})
            return

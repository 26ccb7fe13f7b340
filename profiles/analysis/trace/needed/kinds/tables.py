"""Tables of positions computed again in each layer, and tables whose rows are looked up by a product."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from profiles.analysis.trace.needed.avoidable import Avoidable, element_bytes, sizes_of
from profiles.analysis.trace.needed.facts import Facts, steps_of_names

_TABLES = ("cos", "sin", "polar", "arange")
FEWEST = 3                          # times a step
LEAST_ELEMENTS = 1 << 14
LOOKED_BACK = 6                     # launches from one-hot vectors to their product


def find(facts: Facts) -> Iterator[Avoidable]:
    """Find sines and cosines of one size that are computed FEWEST times a step and more; of arguments without gradients."""
    steps = steps_of_names(facts.frame.names)
    mine = [position for position, number in enumerate(facts.item) if not facts.taken[position]
            and facts.items[number].path[:1] and facts.items[number].path[0].rstrip("_") in _TABLES
            and facts.items[number].elements >= LEAST_ELEMENTS and not facts.is_backward[position]]
    often = Counter(facts.item[position] for position in mine)
    again = [position for position in mine if often[facts.item[position]] >= FEWEST * steps]
    if again:
        computed = len(again)
        again = sorted({*again, *_casts(facts, set(again))})
        total = float(facts.total_ns(again))
        yield Avoidable(again, (total * steps / max(often.values()), total / FEWEST),
                        f"sines and cosines of one size are computed {computed:,} times",
                        "the positions are the same in each layer",
                        certain=False, numbers={"launches": len(again)})


def _casts(facts: Facts, tables: set[int]) -> Iterator[int]:
    """Yield copies to another type that follow a table at once and are as large."""
    for sequence in facts.sequences:
        for position, after in pairwise(sequence):
            item = facts.at(after)
            if position in tables and not facts.taken[after] and item.role == "copy" and item.is_within("_to_copy", "to") \
                    and item.elements == facts.at(position).elements:
                yield after


def find_lookups(facts: Facts) -> Iterator[Avoidable]:
    """Find products of one-hot vectors and a table: `aten::one_hot`, a cast, and a product that contracts it."""
    mine, stays, rows = list[int](), 0.0, 0
    for sequence in facts.sequences:
        for at, position in enumerate(sequence):
            sizes = sizes_of(facts.at(position))
            if facts.at(position).role != "product" or len(sizes) != 4 or facts.taken[position]:
                continue
            before = [each for each in sequence[max(0, at - LOOKED_BACK):at]
                      if facts.at(each).elements == sizes[0] * sizes[1] * sizes[3] and not facts.taken[each]]
            if any(facts.at(each).is_within("one_hot") for each in before):
                size = element_bytes(facts.at(position))
                dram = facts.dram_bytes_s[position]
                mine += [*before, position]
                stays += 1e9 * 2 * size * sizes[1] * sizes[2] / float(dram) if dram > 0 else 0.0
                rows += sizes[1]
    if mine:
        total = float(facts.total_ns(mine))
        yield Avoidable(sorted(set(mine)), (min(total, stays), min(total, 3 * stays)),
                        f"{rows:,} rows of a table are looked up by products of one-hot vectors", numbers={"rows": rows})

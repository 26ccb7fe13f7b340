"""Tables of positions computed again in each layer: sines and cosines that do not change between layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from profiles.analysis.trace.needed.avoidable import Avoidable
from profiles.analysis.trace.needed.facts import Facts, steps_of_names

_TABLES = ("cos", "sin", "polar", "arange")
FEWEST = 3                          # times a step
LEAST_ELEMENTS = 1 << 14


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

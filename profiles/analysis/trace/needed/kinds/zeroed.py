"""Gradients set to zero, in place of being dropped."""

from __future__ import annotations

from collections.abc import Iterator

from profiles.analysis.trace.needed.avoidable import Avoidable
from profiles.analysis.trace.needed.facts import Facts

FEWEST = 4


def find(facts: Facts) -> Iterator[Avoidable]:
    mine = [position for position, number in enumerate(facts.item)
            if not facts.taken[position] and any("zero_grad" in name for name in facts.items[number].path)]
    if len(mine) >= FEWEST:
        added = [position for position, number in enumerate(facts.item)          # a gradient that is dropped is taken, not added to
                 if not facts.taken[position] and facts.items[number].path[:2] == ("add_", "torch::autograd::AccumulateGrad")]
        yield Avoidable([*mine, *added], (0.0, 0.0), f"gradients are filled with zeros ({len(mine):,} launches) and added to",
                        host_shares=(0.4, 1.0), numbers={"launches": len(mine), "additions": len(added)})

"""Work of training in a run that only infers: dropout, and statistics of batches."""

from __future__ import annotations

from collections.abc import Iterator

from profiles.analysis.trace.needed.avoidable import Avoidable
from profiles.analysis.trace.needed.facts import Facts

FEWEST = 2


def find(facts: Facts) -> Iterator[Avoidable]:
    if facts.has_backward:
        return
    dropped = [position for position, number in enumerate(facts.item) if not facts.taken[position]
               and (facts.items[number].is_within("native_dropout", "dropout", "dropout_")
                    or "dropout" in facts.items[number].kernel[:300].lower())
               and facts.items[number].role not in ("attention", "product")]
    if len(dropped) >= FEWEST:
        yield Avoidable(dropped, (0.0, 0.0), f"dropout runs {len(dropped):,} times, and nothing is trained",
                        "the model is not trained here", numbers={"launches": len(dropped)})
    counted = [position for position, number in enumerate(facts.item) if not facts.taken[position]
               and "batch_norm_collect_statistics" in facts.items[number].kernel[:300]]
    if len(counted) >= FEWEST:
        yield Avoidable(counted, (0.0, 0.0),
                        f"batch norm computes the statistics of {len(counted):,} batches, and nothing is trained",
                        "the model is not trained here", numbers={"launches": len(counted)})

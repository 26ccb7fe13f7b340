"""Samples computed one by one, each with launches of its own, in place of one batch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from profiles.analysis.trace.needed.avoidable import Avoidable
from profiles.analysis.trace.needed.facts import Facts

FEWEST = 8                          # samples in a row
LEAST_TOKENS = 8                    # of a sample: single tokens follow from one another
MOST_ROWS = 2                       # of the indices that one sample's embedding takes
HOST_SHARES = (0.4, 1.0)


def find(facts: Facts) -> Iterator[Avoidable]:
    """Find embeddings of one sample again and again, with as many launches between them each time."""
    for sequence in facts.sequences:
        begins = [at for at, position in enumerate(sequence) if _begins(facts, position)]
        run: list[int] = []
        for at, after in pairwise([*begins, len(sequence) + len(sequence)]):
            run.append(at)
            if len(run) > 1 and after - at != run[1] - run[0]:
                if len(run) >= FEWEST:
                    yield _loop(facts, sequence[run[0]:min(len(sequence), run[-1] + run[1] - run[0])], len(run))
                run = []


def _begins(facts: Facts, position: int) -> bool:
    item = facts.at(position)
    if "embedding" not in item.path or facts.is_backward[position] or facts.taken[position]:
        return False
    rows = [shape[0] for shape in item.shapes[1:2] if len(shape) == 2]
    return item.role == "index" and bool(rows) and rows[0] >= LEAST_TOKENS


def _loop(facts: Facts, positions: list[int], samples: int) -> Avoidable:
    """What stays: the products of all samples at the GPU's peak with the weights read once, and of the rest half at most."""
    products = [each for each in positions if facts.at(each).role in ("product", "attention", "convolution")]
    least = float(np.nansum(facts.floor_ns[products])) / samples
    total = float(facts.total_ns(positions))
    return Avoidable(positions, (min(total, least), 0.7 * total), f"{samples:,} samples are computed one after the other",
                     "they do not follow from one another", host_shares=HOST_SHARES, is_region=True,
                     numbers={"samples": samples, "launches": len(positions)})

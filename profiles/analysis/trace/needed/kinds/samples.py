"""Samples computed one by one, each with launches of its own, in place of one batch; a text computed again for each next token."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod

import numpy as np

from profiles.analysis.trace.needed.avoidable import Avoidable, element_bytes, sizes_of
from profiles.analysis.trace.needed.facts import Facts

FEWEST = 8                          # samples in a row
FEWEST_TOKENS = 3
LEAST_TOKENS = 8                    # of a sample: single tokens follow from one another
HOST_SHARES = (0.4, 1.0)


def find(facts: Facts) -> Iterator[Avoidable]:
    """Find embeddings of one sample again and again, with as many launches between them each time."""
    for sequence in facts.sequences:
        for run in _runs(facts, sequence):
            if not _grows(facts, sequence, run) and len(run) >= FEWEST:
                yield _loop(facts, sequence[run[0]:min(len(sequence), run[-1] + run[1] - run[0])], len(run))


def find_texts(facts: Facts) -> Iterator[Avoidable]:
    """Find embeddings of a text that grows by one token each time: without a cache all of it is computed again for the next."""
    for sequence in facts.sequences:
        for run in _runs(facts, sequence):
            if len(run) >= FEWEST_TOKENS and _grows(facts, sequence, run):
                again = sequence[run[1]:min(len(sequence), run[-1] + run[1] - run[0])]
                texts = _rows(facts, sequence[run[1]]) - _rows(facts, sequence[run[0]])
                tokens = _rows(facts, sequence[run[0]]) // texts
                weights = sum(_weight_ns(facts, each) for each in again)
                total = float(facts.total_ns(again))
                yield Avoidable(again, (min(total, weights), min(total, 2 * weights)),
                                f"a text of {tokens:,} tokens is computed again for each of {len(run) - 1:,} next ones",
                                host_shares=(0.0, 0.0), numbers={"tokens": len(run) - 1, "before": tokens, "texts": texts})


def _runs(facts: Facts, sequence: list[int]) -> Iterator[list[int]]:
    """Yield places of embeddings with as many launches between them each time."""
    begins = [at for at, position in enumerate(sequence) if _begins(facts, position)]
    run: list[int] = []
    for at, after in pairwise([*begins, len(sequence) + len(sequence)]):
        run.append(at)
        if len(run) > 1 and after - at != run[1] - run[0]:
            yield run
            run = []


def _grows(facts: Facts, sequence: list[int], run: list[int]) -> bool:
    """Return whether each embedding reads as many rows more than the one before: a token more of each text."""
    rows = [_rows(facts, sequence[at]) for at in run]
    return len(run) > 1 and rows[0] < rows[1] and rows[0] % (rows[1] - rows[0]) == 0 and all(
        after - before == rows[1] - rows[0] for before, after in pairwise(rows))


def _rows(facts: Facts, position: int) -> int:
    """Return how many rows of its table an embedding reads, 0 unknown: from its indices, or from what it wrote."""
    table, other = (*facts.at(position).shapes[:2], (), ())[:2]
    if not table or not other:
        return 0
    return prod(other[:-1]) if len(other) > 1 and other[-1] == table[-1] else prod(other)


def _weight_ns(facts: Facts, position: int) -> float:
    """Return what a product's weights take to be read, ns: one token more needs that."""
    item, sizes, dram = facts.at(position), sizes_of(facts.at(position)), float(facts.dram_bytes_s[position])
    size = element_bytes(item)
    is_weighted = item.role == "product" and len(sizes) == 4 and sizes[0] == 1
    return 1e9 * size * sizes[2] * sizes[3] / dram if is_weighted and dram > 0 else 0.0


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

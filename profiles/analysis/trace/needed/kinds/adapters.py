"""Low-rank adapters beside their products: two thin products, a scaling and a sum for each weight."""

from __future__ import annotations

from collections.abc import Iterator

from profiles.analysis.trace.needed.avoidable import Avoidable, sizes_of
from profiles.analysis.trace.needed.facts import Facts

MOST_RANK = 256
LEAST_TIMES = 8                     # that a weight is wider than the adapter's rank
LOOKED = 8                          # launches between the two thin products, and to the sum
FEWEST = 4


def find(facts: Facts) -> Iterator[Avoidable]:
    """Find pairs m×r×k, m×n×r of a small r beside a product m×n×k, with what scales and adds their result."""
    claimed, pairs, ranks = list[int](), 0, set[int]()
    for sequence in facts.sequences:
        at = 0
        while at < len(sequence):
            made = _pair(facts, sequence, at)
            if made is None:
                at += 1
                continue
            positions, rank, at = made
            claimed += positions
            pairs += 1
            ranks.add(rank)
    if pairs >= FEWEST:
        training = facts.has_backward
        condition = "they are trained: only fusing helps" if training else "one adapter serves all, and is merged into the weights"
        yield Avoidable(claimed, (0.0, (0.6 if training else 0.4) * facts.total_ns(claimed)),
                        f"{pairs:,} adapters of rank {', '.join(map(str, sorted(ranks)[:3]))} run beside their weights", condition,
                        numbers={"adapters": pairs, "launches": len(claimed)})


def _pair(facts: Facts, sequence: list[int], at: int) -> tuple[list[int], int, int] | None:
    item = facts.at(sequence[at])
    down = sizes_of(item)
    if item.role != "product" or len(down) != 4 or facts.taken[sequence[at]] or facts.is_backward[sequence[at]]:
        return None
    _, rows, rank, inner = down
    if not 1 < rank <= MOST_RANK or inner < LEAST_TIMES * rank:
        return None
    for place in range(at + 1, min(len(sequence), at + LOOKED)):
        up = sizes_of(facts.at(sequence[place]))
        if facts.at(sequence[place]).role != "product" or len(up) != 4:
            continue
        if up[1] != rows or up[3] != rank or up[2] < LEAST_TIMES * rank or not _has_base(facts, sequence, at, rows, up[2], inner):
            return None
        end = place
        for behind in range(place + 1, min(len(sequence), place + 4)):      # scaled and added
            other = facts.at(sequence[behind])
            if other.role != "elementwise" or other.elements != rows * up[2]:
                break
            end = behind
        return [each for each in sequence[at:end + 1] if facts.at(each).role != "attention"], rank, end + 1
    return None


def _has_base(facts: Facts, sequence: list[int], at: int, rows: int, columns: int, inner: int) -> bool:
    near = range(max(0, at - LOOKED), min(len(sequence), at + LOOKED))
    return any(sizes_of(facts.at(sequence[place]))[1:] == (rows, columns, inner) for place in near)

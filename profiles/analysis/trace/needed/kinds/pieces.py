"""One piece after the other: experts, samples or steps in a Python loop, each with products of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from profiles.analysis.trace.needed.facts import Avoidable, Facts, Item, between, sizes_of
from profiles.ingest.arrays import Bools

FEWEST = 8                          # pieces that make a loop
MOST_APART = 40                     # launches between the products of a piece and of the next
_WHOLE_LAYER = ("attention", "norm", "softmax", "convolution")     # between two pieces: they are layers, not pieces
_PICKS = ("index", "gather", "index_select", "nonzero", "index_add", "index_copy", "index_put", "_index_put_impl", "where",
          "masked_select", "scatter", "scatter_add")
HOST_SHARES = (0.4, 1.0)            # the profiler slows the host: of its time between all and less than half is the program's


def find(facts: Facts) -> Iterator[Avoidable]:
    """Find runs of FEWEST products and more with the same weights' shape, each with rows picked by an index before or after it."""
    is_pick, breaks = facts.fits(_is_pick), facts.fits(lambda item: item.role in _WHOLE_LAYER)
    products = facts.fits(lambda item: item.role == "product") & ~facts.taken
    for lane, sequence in zip(facts.lanes, facts.sequences, strict=True):
        picks = is_pick[lane]
        picked, broken = ([0, *np.cumsum(mask).tolist()] for mask in (picks, breaks[lane]))
        places: dict[tuple[object, ...], list[int]] = {}
        for place in np.flatnonzero(products[lane]).tolist():
            item = facts.at(sequence[place])
            sizes = sizes_of(item)
            key = (facts.is_backward[sequence[place]], *(sizes[2:] if len(sizes) == 4 else (item.path[:1],)))
            places.setdefault(key, []).append(place)
        is_taken = np.zeros(len(sequence), np.bool_)
        for _, mine in sorted(places.items(), key=lambda pair: -len(pair[1])):
            for run in _runs(mine, picked, broken):
                first, last = _edges(facts, sequence, run, picks)
                if is_taken[first:last + 1].any():
                    continue
                is_taken[first:last + 1] = True
                yield _loop(facts, sequence[first:last + 1], len(run))


def _is_pick(item: Item) -> bool:
    return any(name.rstrip("_") in _PICKS or name in _PICKS for name in item.path[:4])


def _runs(places: list[int], picked: list[int], broken: list[int]) -> Iterator[list[int]]:
    run = places[:1]
    for before, after in pairwise(places):
        if after - before <= MOST_APART and picked[after] - picked[before] and not broken[after] - broken[before]:
            run.append(after)
            continue
        if len(run) >= FEWEST:
            yield run
        run = [after]
    if len(run) >= FEWEST:
        yield run


def _edges(facts: Facts, sequence: list[int], run: list[int], picks: Bools) -> tuple[int, int]:
    """Return the run with the launches of its first and last piece: as far as a piece reaches, to the last index of them."""
    reach = max(after - before for before, after in pairwise(run))
    first, last = run[0], run[-1]
    before = [place for place in range(max(0, first - reach), first) if picks[place]]
    behind = [place for place in range(last + 1, min(len(sequence), last + reach)) if picks[place]]
    return (before[0] if before else first), (behind[-1] if behind else last)


def _loop(facts: Facts, positions: list[int], pieces: int) -> Avoidable:
    """What stays: the products at their roof in one grouped launch, and one pass for what is picked and put back."""
    products = [position for position in positions if facts.at(position).role == "product"]
    floors = facts.floor_ns[products]
    known_ns = floors[~np.isnan(floors)]
    total = float(facts.total_ns(positions))
    best, worst = between(float(known_ns.sum()) if known_ns.size == floors.size else None, total)
    experts = "experts" if any(name.rstrip("_") in ("index_add", "nonzero", "index_put", "_index_put_impl")
                               for position in positions[:200] for name in facts.at(position).path[:3]) else "pieces"
    return Avoidable(positions, (best, max(worst, 0.5 * total)), f"{pieces:,} {experts} are computed one after the other",
                     host_shares=HOST_SHARES, is_region=True,
                     numbers={"pieces": pieces, "launches": len(positions), "products": len(products)})

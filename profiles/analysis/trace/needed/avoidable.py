"""Work that need not be, as kinds find it, and the table's row of a kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from profiles.analysis.trace.needed.facts import Facts, Item
from profiles.base.words import dims_text

ROOF_SHARES = (0.9, 0.5)            # of its ceiling that a kernel in place of others reaches at best, at worst


@dataclass(frozen=True)
class Avoidable:
    """Launches that would go, or be others. Times are of the whole trace, ns."""

    positions: Sequence[int]
    stays_ns: tuple[float, float] = (0.0, 0.0)      # what takes their place, least and most
    what: str = ""                      # "keys and values of 8 heads are copied to 32 before attention"
    condition: str = ""                 # what the trace cannot say, "only the last token of each sequence is read"
    certain: bool = True                # shapes or names prove it; else it looks so
    host_shares: tuple[float, float] = (0.0, 1.0)   # of the host time of these launches that goes with them, least and most
    is_region: bool = False             # everything launched from the first to the last of them goes, waits for the GPU too
    rows: Sequence[int] = ()            # of the frame: copies that go with them, or alone
    numbers: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Kind:
    """One way to do more than is needed."""

    name: str
    title: str                          # a label: "logits that nobody reads"
    change: str                         # one line of code
    not_worth: str                      # when it is not
    source: str
    find: Callable[[Facts], Iterable[Avoidable]]


def floor_ns(facts: Facts, position: int, flop: float, moved: float, precision: str) -> float | None:
    """Return the least time of other work on the same GPU, ns; None where a ceiling is not known."""
    peak, dram = facts.rate(position, precision), facts.dram_bytes_s[position]
    if np.isnan(dram) or (flop and peak is None):
        return None
    return 1e9 * max(flop / peak if peak else 0.0, moved / float(dram))


def between(floor: float | None, total: float) -> tuple[float, float]:
    """Return what work of a least time takes, at best and at worst (ROOF_SHARES), `total` at most; unknown: from nothing to all."""
    if floor is None:
        return 0.0, total
    best, worst = ROOF_SHARES
    return min(total, floor / best), min(total, floor / worst)


def sizes_of(item: Item) -> tuple[int, ...]:
    """Return a product's batch, m, n, k, an attention's batch, heads, KV heads, queries, keys, head size; () unknown."""
    return item.work.sizes if item.work is not None else ()


def element_bytes(item: Item) -> int:
    """Return the bytes of an element of its first tensor whose type is known; 2 where none is."""
    return next((tensor.size for tensor in item.tensors if tensor.size), 2) or 2


def times(shape: Sequence[int]) -> str:
    return dims_text(shape)

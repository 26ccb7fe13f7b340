"""What is allocated at the peak: by category, by who asked for it, and the largest allocations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiles.analysis.core.frame import Array, Ints
from profiles.analysis.trace.memory.categories import KEYS, Allocations
from profiles.analysis.trace.memory.events import DeviceMemory
from profiles.analysis.trace.memory.phases import NAMES


@dataclass(frozen=True)
class Group:
    """Allocations of one category, phase and site that are alive at the peak."""

    category: str
    phase: str
    site: str
    bytes: int
    count: int
    largest: int                 # allocation


def alive_at(held: DeviceMemory, event: int) -> Array:
    """Return which allocations are there after an event."""
    return (held.began <= event) & ((held.ended < 0) | (held.ended > event))


def groups(held: DeviceMemory, made: Allocations) -> list[Group]:
    """Largest first. What was there before the recording is not among them."""
    alive = np.flatnonzero(alive_at(held, held.peak))
    if not alive.size:
        return []
    keys, at = np.unique(np.stack([made.category[alive], made.phase[alive], made.site[alive]]), axis=1, return_inverse=True)
    at = at.reshape(-1)
    size = np.bincount(at, weights=held.bytes[alive]).round().astype(np.int64)
    count = np.bincount(at)
    by_size = np.lexsort((-held.bytes[alive], at))
    first = np.searchsorted(at[by_size], np.arange(keys.shape[1]))
    groups = [Group(KEYS[category], NAMES[phase], made.sites[site], int(size[number]), int(count[number]),
                   int(alive[by_size[first[number]]]))
             for number, (category, phase, site) in enumerate(keys.T.tolist())]
    return sorted(groups, key=lambda group: -group.bytes)


def before_bytes(held: DeviceMemory) -> int:
    """At the peak, of what was allocated before the recording."""
    return int(held.level[held.peak]) - int(held.bytes[alive_at(held, held.peak)].sum())


def largest(held: DeviceMemory, most: int) -> Ints:
    """Allocations alive at the peak, the largest first."""
    alive = np.flatnonzero(alive_at(held, held.peak))
    return alive[np.argsort(-held.bytes[alive], kind="stable")[:most]]

"""What is allocated at the peak: by category, by who asked for it, and the largest allocations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.frame import Frame
from profiles.analysis.trace.memory.categories import KEYS, Allocations
from profiles.analysis.trace.memory.events import DeviceMemory
from profiles.analysis.trace.memory.phases import NAMES
from profiles.ingest.arrays import Array, Ints, Rows, stable_order
from profiles.ingest.trace import Category
from profiles.ingest.windows import MISSING

# Copies and sets by kind: bytes, time, rate. Names as CUPTI and rocprof write them ("Memcpy HtoD (Pageable -> Device)").

MOST = 50


@dataclass(frozen=True)
class Copies:
    """All copies or sets of one name. `bytes` and rate are of those whose size is known."""

    name: str
    count: int
    total_ns: int
    bytes: int | None
    bytes_s: float | None
    covered_ns: int              # wall time in which at least one runs on some GPU
    longest: int                 # row


def copies_of(frame: Frame) -> list[Copies]:
    """Return copies and sets by name, most time first, the rest together."""
    rows = frame.of(Category.MEMCPY, Category.MEMSET)
    if not rows.size:
        return []
    codes, kind = np.unique(frame["name"][rows], return_inverse=True)
    order = stable_order(kind)
    parts = np.split(order, np.flatnonzero(np.diff(kind[order])) + 1)
    by_time = stable_order(-np.bincount(kind, weights=frame["dur_ns"][rows]))
    out = [_copies(frame, frame.names[codes[each]], rows[parts[each]]) for each in by_time[:MOST].tolist()]
    if by_time.size > MOST:
        rest = np.concatenate([rows[parts[each]] for each in by_time[MOST:].tolist()])
        out.append(_copies(frame, f"{by_time.size - MOST:,} further kinds", rest))
    return out


def _copies(frame: Frame, name: str, mine: Rows) -> Copies:
    size, dur = frame["bytes"][mine], frame["dur_ns"][mine]
    known = (size != MISSING) & (size >= 0)
    moved, spent = int(size[known].sum()), int(dur[known].sum())
    rate = moved / spent * 1e9 if moved and spent else None
    return Copies(name, int(mine.size), int(dur.sum()), moved if known.any() else None, rate,
                  intervals.union(frame["start_ns"][mine], frame.end_ns[mine]).length_ns, int(mine[np.argmax(dur)]))


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
    return alive[stable_order(-held.bytes[alive])[:most]]

"""Tiles of the timeline, computed once: every slice has a home level, shorter ones are merged per bin.

Level k has bins of 4**k ns; a tile is 1024 bins. A slice's home level is the greatest k with 4**k <= dur_ns (level 0 for
less than 1 ns). A view at level k draws every slice whose home level is k or more exactly, and the others as merged
entries: per track, depth and bin (by their start) one entry from the first start to the last end, with the identity of
the longest and the number merged. So a tile holds at most one entry per bin and depth besides slices as wide as a bin,
however large the trace is. (XProf assigns slices to their coarsest visible level in the same way.)

Both tables are ordered by (level, tile, track, …): whatever a tile needs of a level lies together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

BINS = 1024
BIN_BITS = 10
Int64 = npt.NDArray[np.int64]
Table = dict[str, npt.NDArray[Any]]
BIN_COLUMNS = ("track", "depth", "start_ns", "dur_ns", "slice", "count")


def home_levels(dur_ns: Int64) -> npt.NDArray[np.int8]:
    """Greatest k with 4**k <= dur_ns, 0 for less than 1 ns."""
    # frexp is exact for the exponent of integers below 2**53; longer ones are cut to the level all of them share
    _, exponent = np.frexp(np.clip(dur_ns, 1, 2**52).astype(np.float64))
    return ((exponent - 1) // 2).astype(np.int8)


def top_level(end_ns: int) -> int:
    """The level at which one tile covers the whole trace."""
    level = 0
    while BINS << (2 * level) <= end_ns:
        level += 1
    return level


@dataclass(frozen=True)
class Order:
    """Stored sequence of the slices. `rows[i]` is the row of the trace that is stored as slice i."""

    rows: npt.NDArray[np.intp]
    level: npt.NDArray[np.int8]          # of each stored slice
    tile: Int64                          # at that level


def order(track: npt.NDArray[np.int32], start_ns: Int64, dur_ns: Int64, top: int) -> Order:
    """Slices by (home level, tile of their start at that level, track, start)."""
    level = np.minimum(home_levels(dur_ns), top).astype(np.int8)
    tile = start_ns >> (2 * level.astype(np.int64) + BIN_BITS)
    rows = np.lexsort((start_ns, track, tile, level))
    return Order(rows, level[rows], tile[rows])


def runs(level: npt.NDArray[np.int8], tile: Int64) -> Table:
    """Where each (level, tile) begins in a table ordered by both: one row per pair that occurs."""
    if not level.size:
        return {"level": np.empty(0, np.int8), "tile": np.empty(0, np.int64), "row": np.empty(0, np.int64)}
    first = np.flatnonzero(np.concatenate(([True], (level[1:] != level[:-1]) | (tile[1:] != tile[:-1]))))
    return {"level": level[first], "tile": tile[first], "row": first.astype(np.int64)}


def merge(track: npt.NDArray[np.int32], depth: npt.NDArray[np.int16], start_ns: Int64, dur_ns: Int64,
          level: npt.NDArray[np.int8], top: int) -> tuple[Table, Table]:
    """Merged entries of all levels 1..top, and their `runs`. Slices are given in stored order.

    Level k merges the entries of level k-1 and the slices whose home is k-1: every slice is sorted once per level only
    as long as it stays alone in its bin. `dur_ns` of an entry runs to its last end; `slice` is the longest of them.
    """
    key = track.astype(np.int64) << 16 | depth.astype(np.int64)
    present = np.bincount(key, minlength=1) > 0 if key.max(initial=0) < 1 << 26 else None
    lane_key = np.unique(key) if present is None else np.flatnonzero(present)
    lane = np.searchsorted(lane_key, key) if present is None else (np.cumsum(present) - 1)[key]
    entries = {name: np.empty(0, np.int64) for name in ("lane", "start_ns", "end_ns", "dur_ns", "slice", "count")}
    levels: list[Table] = []
    numbers: list[npt.NDArray[np.int8]] = []
    by_level = np.searchsorted(level, np.arange(top + 2))
    for k in range(1, top + 1):
        new = slice(int(by_level[k - 1]), int(by_level[k]))
        entries = _coarser(entries, {
            "lane": lane[new], "start_ns": start_ns[new], "end_ns": start_ns[new] + dur_ns[new], "dur_ns": dur_ns[new],
            "slice": np.arange(new.start, new.stop), "count": np.ones(new.stop - new.start, np.int64)}, k)
        tile = entries["start_ns"] >> (2 * k + BIN_BITS)
        sequence = np.lexsort((entries["start_ns"], entries["lane"], tile))
        levels.append({name: values[sequence] for name, values in entries.items()} | {"tile": tile[sequence]})
        numbers.append(np.full(sequence.size, k, np.int8))
    if not levels:
        return {name: np.empty(0, np.int64) for name in BIN_COLUMNS}, runs(np.empty(0, np.int8), np.empty(0, np.int64))
    table = {name: np.concatenate([part[name] for part in levels]) for name in levels[0]}
    lanes = lane_key[table.pop("lane")] if lane_key.size else np.empty(0, np.int64)
    index = runs(np.concatenate(numbers), table.pop("tile"))
    table["dur_ns"] = table.pop("end_ns") - table["start_ns"]
    return {"track": (lanes >> 16).astype(np.int32), "depth": (lanes & 0xFFFF).astype(np.int16), **table}, index


def _coarser(entries: Table, slices: Table, k: int) -> Table:
    """Entries of level k-1 and slices at home there -> entries of level k."""
    both = {name: np.concatenate((entries[name], slices[name])) for name in entries}
    if not both["lane"].size:
        return both
    sequence = np.lexsort((both["start_ns"], both["lane"]))
    both = {name: values[sequence] for name, values in both.items()}
    bins = both["start_ns"] >> (2 * k)
    first = np.concatenate(([True], (bins[1:] != bins[:-1]) | (both["lane"][1:] != both["lane"][:-1])))
    starts = np.flatnonzero(first)
    longest = np.maximum.reduceat(both["dur_ns"], starts)
    group = np.cumsum(first) - 1
    candidates = np.flatnonzero(both["dur_ns"] == longest[group])
    winner = candidates[np.concatenate(([True], group[candidates][1:] != group[candidates][:-1]))]
    return {
        "lane": both["lane"][starts], "start_ns": both["start_ns"][starts],
        "end_ns": np.maximum.reduceat(both["end_ns"], starts), "dur_ns": longest, "slice": both["slice"][winner],
        "count": np.add.reduceat(both["count"], starts),
    }

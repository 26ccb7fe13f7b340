"""Where rows of a stored table lie: a sample of its sort key (level, tile, track, depth), small enough to be held whole.

Between two sampled rows nothing is known, so an answer is a range of rows among which are all that were asked for; who
reads them looks at each. Tables written before depth was part of the order have a sample per tile: the same rule holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from profiles.ingest.arrays import Array, stable_order

Rows = tuple[int, int]              # [first, last)


@dataclass(frozen=True)
class _Level:
    tile: Array
    key: Array                      # tile and lane in one number, ascending
    row: Array
    last: int                       # row behind the level's last


class Places:
    def __init__(self, index: pa.Table, rows: dict[int, int], depths: int, tracks: int) -> None:
        """`index` holds table, level, tile, row and, of newer tables, track and depth; `rows` how many a table has."""
        columns = {name: index[name].to_numpy().astype(np.int64) for name in index.column_names}
        most = int(columns["tile"].max(initial=0)) + 2
        self._depths, self._tracks = max(depths, 1), max(tracks, 1)
        if "depth" not in columns or most * self._depths * self._tracks >= 2**63:
            self._depths = 1
        if "track" not in columns or most * self._tracks >= 2**63:
            self._tracks = 1
        self._levels: dict[tuple[int, int], _Level] = {}
        for table in np.unique(columns["table"]).tolist():
            mine = {name: values[columns["table"] == table] for name, values in columns.items()}
            order = stable_order(mine["row"])
            mine = {name: values[order] for name, values in mine.items()}
            first = np.flatnonzero(np.concatenate(([True], mine["level"][1:] != mine["level"][:-1])))
            ends = [*mine["row"][first[1:]].tolist(), rows[table]]
            for lo, hi, end in zip(first.tolist(), [*first[1:].tolist(), mine["row"].size], ends, strict=True):
                here = {name: values[lo:hi] for name, values in mine.items()}
                self._levels[table, int(here["level"][0])] = _Level(here["tile"], self._key(
                    here["tile"], here.get("track", here["tile"] * 0), here.get("depth", here["tile"] * 0)), here["row"], end)

    def _key(self, tile: Any, track: Any, depth: Any) -> Any:
        return (tile * self._tracks + (track if self._tracks > 1 else 0)) * self._depths + (depth if self._depths > 1 else 0)

    def rows(self, table: int, level: int, tiles: tuple[int, int], first: tuple[int, int] = (0, 0),
             last: tuple[int, int] | None = None) -> Rows:
        """Return ranges of rows that hold all of some tiles.

        The tiles [tiles[0], tiles[1]] and, where it is one tile, of the lanes (track, depth) from `first` to `last`.
        """
        level_rows = self._levels.get((table, level))
        if level_rows is None:
            return 0, 0
        last = last or (self._tracks - 1, self._depths - 1)
        lo = int(np.searchsorted(level_rows.key, self._key(tiles[0], *first))) - 1
        hi = int(np.searchsorted(level_rows.key,
                                 self._key(tiles[1], min(last[0], self._tracks - 1), min(last[1], self._depths - 1)),
                                 side="right"))
        return (int(level_rows.row[max(lo, 0)]),
                int(level_rows.row[hi]) if hi < level_rows.row.size else level_rows.last) if hi else (0, 0)

    def rows_per_tile(self, table: int) -> Iterable[tuple[int, Array, Array]]:
        """Yield, per level, the tiles at the sampled rows and the rows from each to the next."""
        for (number, level), sampled in self._levels.items():
            if number == table:
                yield level, sampled.tile, np.diff(np.append(sampled.row, sampled.last))


def join_ranges(ranges: Iterable[Rows]) -> list[Rows]:
    """Return the same rows, none twice."""
    out: list[Rows] = []
    for lo, hi in sorted(span for span in ranges if span[1] > span[0]):
        if out and lo <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], hi))
        else:
            out.append((lo, hi))
    return out

"""Statistics of slices by any keys: counts, sums, extremes and exact quantiles in memory that does not grow with their number.

What is held is one row per distinct (keys, duration) with its count: durations repeat (GPU timers tick in steps of 32 ns,
a kernel does the same work again), so there are far fewer of them than slices, and every quantile of them is exact. Where
there are more than PAIRS of them all the same, durations fall into classes 1.1 % wide and quantiles are said to be so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profiles.ingest.arrays import Floats, Ints, stable_order

PAIRS = 8_000_000                   # about 300 MB with one key
GROUPS = 1_000_000
_FINE, _COARSE = 64, 4              # classes per octave: of quantiles past PAIRS, of histograms
WIDTH_PCT = 100 * (2 ** (1 / _FINE) - 1)


class TooManyGroups(ValueError):
    """The keys tell more slices apart than can be listed."""


def edges(per_octave: int) -> Ints:
    """Return the lower ends of duration classes in ns, ascending from 0.

    Those of 4 per octave are among those of 64.
    """
    lower = np.ceil(2.0 ** (np.arange(62 * per_octave + 1) / per_octave) - 1e-9)
    return np.unique(np.concatenate(([0], lower.astype(np.int64))))


FINE_EDGES, HISTOGRAM_EDGES = edges(_FINE), edges(_COARSE)


@dataclass
class Groups:
    """One entry per group, most clipped time first. Times in ns."""

    keys: list[Ints]
    count: Ints
    clipped_ns: Ints
    whole_ns: Ints
    min_ns: Ints
    max_ns: Ints
    p50_ns: Floats
    p95_ns: Floats
    exact: bool                     # quantiles: of the durations themselves, else of classes WIDTH_PCT wide

    @property
    def mean_ns(self) -> Floats:
        return self.whole_ns / np.maximum(self.count, 1)


class Sums:
    """Takes slices in pieces, gives `Groups` and histogram at the end."""

    def __init__(self, keys: int) -> None:
        self._keys = [f"k{i}" for i in range(keys)]
        self._parts: list[pa.Table] = []
        self._held = 0
        self.exact = True

    def add(self, keys: list[Ints], dur_ns: Ints, clipped_ns: Ints) -> None:
        """Columns of one length. Raises TooManyGroups."""
        if not dur_ns.size:
            return
        table = pa.table({**dict(zip(self._keys, keys, strict=True)), "dur": dur_ns,
                          "n": np.ones(dur_ns.size, np.int64), "clipped": clipped_ns})
        folded = _fold_rows(table, [*self._keys, "dur"])
        self._parts.append(folded if self.exact else self._round_down(folded))
        self._held += folded.num_rows
        if self._held > PAIRS:
            self._compact()

    def _round_down(self, table: pa.Table) -> pa.Table:
        """Durations replaced by the lower end of their class; what cannot be had from that any more becomes columns."""
        if "whole" not in table.column_names:
            dur = table["dur"]
            whole = pc.multiply(dur, table["n"])
            table = table.append_column("whole", whole).append_column("least", dur).append_column("most", dur)
        dur = table["dur"].combine_chunks().to_numpy(zero_copy_only=False)
        lower = FINE_EDGES[np.searchsorted(FINE_EDGES, dur, side="right") - 1]
        return _fold_rows(table.set_column(table.schema.get_field_index("dur"), "dur", pa.array(lower)), [*self._keys, "dur"])

    def _join_parts(self) -> pa.Table:
        if not self._parts:
            return pa.table({name: np.empty(0, np.int64) for name in (*self._keys, "dur", "n", "clipped")})
        return _fold_rows(pa.concat_tables(self._parts), [*self._keys, "dur"])

    def _compact(self) -> None:
        table = self._join_parts()
        if self.exact and table.num_rows > PAIRS // 2:
            self.exact = False
            table = self._round_down(table)
        if table.num_rows > PAIRS // 2:
            raise TooManyGroups(f"more than {GROUPS:,} groups")
        self._parts, self._held = [table], table.num_rows

    def _sort_columns(self) -> dict[str, Ints]:
        table = self._join_parts()
        columns: dict[str, Ints] = {name: table[name].combine_chunks().to_numpy(zero_copy_only=False)
                                     for name in table.column_names}
        if self.exact:
            columns |= {"whole": columns["dur"] * columns["n"], "least": columns["dur"], "most": columns["dur"]}
        order = np.lexsort((columns["dur"], *(columns[key] for key in reversed(self._keys))))
        return {name: values[order] for name, values in columns.items()}

    def groups(self) -> Groups:
        """Raises TooManyGroups."""
        rows = self._sort_columns()
        size = rows["dur"].size
        change = np.zeros(max(size - 1, 0), np.bool_)
        for key in self._keys:
            change |= rows[key][1:] != rows[key][:-1]
        starts = np.flatnonzero(np.concatenate(([True] if size else [], change)))
        if starts.size > GROUPS:
            raise TooManyGroups(f"{starts.size:,} groups")
        last = np.append(starts[1:], size) - 1 if size else starts
        groups = Groups(
            keys=[rows[key][starts] for key in self._keys], exact=self.exact,
            **{name: _reduce(np.add, rows[column], starts)
               for name, column in (("count", "n"), ("clipped_ns", "clipped"), ("whole_ns", "whole"))},
            min_ns=_reduce(np.minimum, rows["least"], starts), max_ns=_reduce(np.maximum, rows["most"], starts),
            p50_ns=self._quantile(rows, starts, last, 0.5), p95_ns=self._quantile(rows, starts, last, 0.95))
        order = stable_order(-groups.clipped_ns)
        for name, values in list(vars(groups).items()):
            if isinstance(values, np.ndarray):
                setattr(groups, name, values[order])
        groups.keys = [key[order] for key in groups.keys]
        return groups

    def _quantile(self, rows: dict[str, Ints], starts: Ints, last: Ints, q: float) -> Floats:
        """Linear between the two neighbours, as numpy's default; every row counts `n` times."""
        if not starts.size:
            return np.empty(0)
        filled = np.cumsum(rows["n"])
        before = filled[starts] - rows["n"][starts]
        place = (filled[last] - before - 1) * q
        value = rows["dur"].astype(np.float64)
        if not self.exact:      # the middle of the class, no farther than the durations in it
            value = np.clip(value * 2 ** (0.5 / _FINE), rows["least"], rows["most"])
        low, high = (value[np.searchsorted(filled, before + side(place).astype(np.int64), side="right")]
                     for side in (np.floor, np.ceil))
        quantile: Floats = low + (high - low) * (place - np.floor(place))
        return quantile

    def histogram(self) -> list[dict[str, int]]:
        """Return the classes of duration from the shortest to the longest that occur.

        The empty ones between them are included.
        """
        rows = self._sort_columns()
        if not rows["dur"].size:
            return []
        edge = np.searchsorted(HISTOGRAM_EDGES, rows["dur"], side="right") - 1
        first, width = int(edge.min()), int(edge.max() - edge.min()) + 1
        count, time = np.zeros(width, np.int64), np.zeros(width, np.int64)
        np.add.at(count, edge - first, rows["n"])
        np.add.at(time, edge - first, rows["whole"])
        return [{"from_ns": int(HISTOGRAM_EDGES[first + i]), "to_ns": int(HISTOGRAM_EDGES[first + i + 1]),
                 "count": int(count[i]), "total_ns": int(time[i])} for i in range(width)]


def _fold_rows(table: pa.Table, keys: list[str]) -> pa.Table:
    """Rows of equal keys as one."""
    how = {"n": "sum", "clipped": "sum", "whole": "sum", "least": "min", "most": "max"}
    sums = [name for name in table.column_names if name not in keys]
    folded = table.group_by(keys).aggregate([(name, how[name]) for name in sums])
    return folded.rename_columns([name if name in keys else name.rsplit("_", 1)[0] for name in folded.column_names])


def _reduce(how: Any, values: Ints, starts: Ints) -> Ints:
    reduced: Ints = how.reduceat(values, starts) if starts.size else values[:0]
    return reduced

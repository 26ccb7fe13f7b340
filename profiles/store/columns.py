"""One stored parquet file in pieces: row ranges of columns, decoded row groups in a bounded cache that all requests of a
process share."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from profiles.ingest.arrays import Array, Bools, Rows

CACHE_BYTES = 192 << 20
MOST_KEPT = 64                      # row groups of one scattered read that the cache takes in


def read_whole(source: Path | IO[bytes], columns: list[str] | None = None) -> pa.Table:
    """Read a stored file whole. `pyarrow.parquet.read_table` makes a dataset of it first, which takes longer than a small file."""
    with pq.ParquetFile(source) as file:
        return file.read(columns=columns)


class Cache:
    """Least recently used arrays, bounded by bytes. Thread safe."""

    def __init__(self, limit: int) -> None:
        self._limit, self._used = limit, 0
        self._held: OrderedDict[Any, Array] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Any) -> Array | None:
        with self._lock:
            array = self._held.get(key)
            if array is not None:
                self._held.move_to_end(key)
            return array

    def put(self, key: Any, value: Array) -> None:
        with self._lock:
            if key in self._held:
                return
            self._held[key] = value
            self._used += value.nbytes
            while self._used > self._limit and len(self._held) > 1:
                self._used -= self._held.popitem(last=False)[1].nbytes

    def clear(self) -> None:
        with self._lock:
            self._held.clear()
            self._used = 0


cache = Cache(CACHE_BYTES)


class Columns:
    """One parquet file by row ranges."""

    def __init__(self, path: Path, version: int) -> None:
        self._identity = (str(path), version)
        self._file = pq.ParquetFile(path, memory_map=True)
        self._lock = threading.Lock()
        self._least: dict[str, Array] = {}
        counts = [self._file.metadata.row_group(i).num_rows for i in range(self._file.num_row_groups)]
        self.bounds = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        self.rows = int(self.bounds[-1])
        self.names = frozenset(self._file.schema_arrow.names)

    def read(self, first: int, last: int, names: tuple[str, ...]) -> dict[str, Array]:
        """Return the rows [first, last) of some columns.

        Nulls are the least number of their type, NaN in float columns.
        """
        groups = range(int(np.searchsorted(self.bounds, first, side="right")) - 1, int(np.searchsorted(self.bounds, last)))
        if last <= first or not len(groups):
            return {name: self._group(0, (name,))[0][:0] if self.rows else np.empty(0, np.int64) for name in names}
        parts = [[column[max(first - int(self.bounds[g]), 0):last - int(self.bounds[g])] for column in self._group(g, names)]
                 for g in groups]
        return {name: parts[0][i] if len(parts) == 1 else np.concatenate([part[i] for part in parts])
                for i, name in enumerate(names)}

    def select(self, ranges: list[tuple[int, int]], tested: tuple[str, ...], names: tuple[str, ...],
               test: Callable[[dict[str, Array]], Bools]) -> dict[str, Array]:
        """Return the rows of `ranges` that pass `test`, with their numbers as "row".

        `test` sees the columns `tested`. Columns that no chosen row needs are not decoded.
        """
        parts = []
        for lo, hi in ranges:
            for group in range(int(np.searchsorted(self.bounds, lo, side="right")) - 1, int(np.searchsorted(self.bounds, hi))):
                begin = int(self.bounds[group])
                a, b = max(lo - begin, 0), hi - begin
                columns = {name: column[a:b] for name, column in zip(tested, self._group(group, tested), strict=True)}
                rows = np.flatnonzero(test(columns))
                if rows.size:
                    others = self._group(group, names)
                    parts.append({name: values[rows] for name, values in columns.items()}
                                 | {name: column[a:b][rows] for name, column in zip(names, others, strict=True)}
                                 | {"row": rows + (begin + a)})
        if not parts:
            return {**self.read(0, 0, (*tested, *names)), "row": np.empty(0, np.int64)}
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def least(self, name: str) -> Array:
        """Return the least value of each row group, by the file's statistics."""
        if name not in self._least:
            column = self._file.schema_arrow.get_field_index(name)
            self._least[name] = np.array([self._file.metadata.row_group(i).column(column).statistics.min
                                          for i in range(self._file.num_row_groups)])
        return self._least[name]

    def read_uncached(self, first: int, last: int, names: tuple[str, ...]) -> dict[str, Array]:
        """Return what `read` does, past the cache.

        Who sums up millions of rows must not push out the tiles of everybody else.
        """
        groups = list(range(int(np.searchsorted(self.bounds, first, side="right")) - 1, int(np.searchsorted(self.bounds, last))))
        if last <= first or not groups:
            return self.read(0, 0, names)
        file = pq.ParquetFile(self._identity[0], memory_map=True, metadata=self._file.metadata)     # tiles do not wait for it
        table = file.read_row_groups(groups, columns=list(names))
        begin = int(self.bounds[groups[0]])
        return {name: _plain(table[name])[first - begin:last - begin] for name in names}

    def take(self, rows: Rows, names: tuple[str, ...]) -> dict[str, Array]:
        """Return scattered rows of some columns, in the given order."""
        out = {name: values.repeat(0) for name, values in self.read(0, 0, names).items()}
        if not rows.size:
            return out
        group = np.searchsorted(self.bounds, rows, side="right") - 1
        touched = np.unique(group).tolist()
        for number in touched:
            mine = np.flatnonzero(group == number)
            columns = self._group(number, names) if len(touched) <= MOST_KEPT else list(self.read_uncached(
                int(self.bounds[number]), int(self.bounds[number + 1]), names).values())
            for name, values in zip(names, columns, strict=True):
                if out[name].size != rows.size:
                    out[name] = np.zeros(rows.size, values.dtype)
                out[name][mine] = values[rows[mine] - self.bounds[number]]
        return out

    def _group(self, number: int, names: tuple[str, ...]) -> list[Array]:
        arrays = {name: cache.get((*self._identity, number, name)) for name in names}
        absent = [name for name, values in arrays.items() if values is None]
        if absent:
            with self._lock:
                table = self._file.read_row_group(number, columns=absent, use_threads=False)
            for name in absent:
                arrays[name] = plain = _plain(table[name])
                cache.put((*self._identity, number, name), plain)
        return [values for name in names if (values := arrays[name]) is not None]

    def groups_between(self, name: str, least: int, most: int) -> list[int]:
        """Return the row groups in which a value of [least, most] may occur, by the file's statistics."""
        column = self._file.schema_arrow.get_field_index(name)
        out = []
        for number in range(self._file.num_row_groups):
            statistics = self._file.metadata.row_group(number).column(column).statistics
            if statistics is None or not statistics.has_min_max:
                if statistics is None or statistics.null_count != self._file.metadata.row_group(number).num_rows:
                    out.append(number)
            elif statistics.min <= most and statistics.max >= least:
                out.append(number)
        return out


def _plain(column: Any) -> Array:
    array = column.combine_chunks()
    if array.null_count:
        kind = array.type.to_pandas_dtype()
        array = array.fill_null(float("nan") if np.issubdtype(kind, np.floating) else np.iinfo(kind).min)
    values: Array = array.to_numpy(zero_copy_only=False)
    return values

"""Reading a stored timeline in pieces: decoded row groups in a bounded cache, shared by all requests of a process."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from profiles import store
from profiles.analysis import tiles
from profiles.analysis.tile_bytes import INSTANT, MERGED, TileRows, downsample

CACHE_BYTES = 192 << 20
OPEN_TIMELINES = 64
Array = npt.NDArray[Any]
DRAWN = ("track", "depth", "start_ns", "dur_ns", "name_id", "category", "instant")


class Cache:
    """Least recently used arrays, bounded by bytes. Thread safe."""

    def __init__(self, limit: int) -> None:
        self._limit, self._used = limit, 0
        self._held: OrderedDict[Any, Array] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Any) -> Array | None:
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

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
        counts = [self._file.metadata.row_group(i).num_rows for i in range(self._file.num_row_groups)]
        self.bounds = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        self.rows = int(self.bounds[-1])
        self.names = frozenset(self._file.schema_arrow.names)

    def read(self, first: int, last: int, names: tuple[str, ...]) -> dict[str, Array]:
        """Rows [first, last) of some columns. Nulls are the least number of their type, NaN in float columns."""
        groups = range(int(np.searchsorted(self.bounds, first, side="right")) - 1, int(np.searchsorted(self.bounds, last)))
        if last <= first or not len(groups):
            return {name: self._group(0, (name,))[0][:0] if self.rows else np.empty(0, np.int64) for name in names}
        parts = [[column[max(first - int(self.bounds[g]), 0):last - int(self.bounds[g])] for column in self._group(g, names)]
                 for g in groups]
        return {name: parts[0][i] if len(parts) == 1 else np.concatenate([part[i] for part in parts])
                for i, name in enumerate(names)}

    def uncached(self, first: int, last: int, names: tuple[str, ...]) -> dict[str, Array]:
        """As `read`, past the cache: who sums up millions of rows must not push out the tiles of everybody else."""
        groups = list(range(int(np.searchsorted(self.bounds, first, side="right")) - 1, int(np.searchsorted(self.bounds, last))))
        if last <= first or not groups:
            return self.read(0, 0, names)
        file = pq.ParquetFile(self._identity[0], memory_map=True, metadata=self._file.metadata)     # tiles do not wait for it
        table = file.read_row_groups(groups, columns=list(names))
        begin = int(self.bounds[groups[0]])
        return {name: _plain(table[name])[first - begin:last - begin] for name in names}

    def take(self, rows: npt.NDArray[np.intp], names: tuple[str, ...]) -> dict[str, Array]:
        """Scattered rows of some columns, in the given order."""
        out = {name: values.repeat(0) for name, values in self.read(0, 0, names).items()}
        if not rows.size:
            return out
        group = np.searchsorted(self.bounds, rows, side="right") - 1
        for number in np.unique(group).tolist():
            mine = np.flatnonzero(group == number)
            for name, values in zip(names, self._group(number, names), strict=True):
                if out[name].size != rows.size:
                    out[name] = np.zeros(rows.size, values.dtype)
                out[name][mine] = values[rows[mine] - self.bounds[number]]
        return out

    def _group(self, number: int, names: tuple[str, ...]) -> list[Array]:
        found = {name: cache.get((*self._identity, number, name)) for name in names}
        absent = [name for name, values in found.items() if values is None]
        if absent:
            with self._lock:
                table = self._file.read_row_group(number, columns=absent, use_threads=False)
            for name in absent:
                found[name] = _plain(table[name])
                cache.put((*self._identity, number, name), found[name])
        return [values for name in names if (values := found[name]) is not None]

    def groups_with(self, name: str, value: int) -> list[int]:
        """Row groups in which `value` may occur, by the file's statistics."""
        column = self._file.schema_arrow.get_field_index(name)
        out = []
        for number in range(self._file.num_row_groups):
            statistics = self._file.metadata.row_group(number).column(column).statistics
            if statistics is None or not statistics.has_min_max:
                if statistics is None or statistics.null_count != self._file.metadata.row_group(number).num_rows:
                    out.append(number)
            elif statistics.min <= value <= statistics.max:
                out.append(number)
        return out

    def rows_where(self, name: str, value: int) -> npt.NDArray[np.int64]:
        """Row numbers with `value`, ascending."""
        hits = [np.flatnonzero(self._group(group, (name,))[0] == value) + self.bounds[group]
                for group in self.groups_with(name, value)]
        return np.concatenate(hits) if hits else np.empty(0, np.int64)


def _plain(column: Any) -> Array:
    array = column.combine_chunks()
    if array.null_count:
        kind = array.type.to_pandas_dtype()
        array = array.fill_null(float("nan") if np.issubdtype(kind, np.floating) else np.iinfo(kind).min)
    values: Array = array.to_numpy(zero_copy_only=False)
    return values


class Timeline:
    """One stored trace."""

    def __init__(self, profile_id: int, document: dict[str, Any]) -> None:
        self.profile_id, self.document = profile_id, document
        self.top = int(document["levels"]) - 1
        self.tracks: list[dict[str, Any]] = document["tracks"]
        index = pq.read_table(store.local_path(store.key(profile_id, "index.parquet")))
        kind = index["table"].to_numpy()
        level, tile, row = (index[name].to_numpy() for name in ("level", "tile", "row"))
        self._runs = {(table, k): (tile[mask], row[mask]) for table in (0, 1) for k in range(self.top + 1)
                      if (mask := (kind == table) & (level == k)).any()}
        starts = {table: np.append(np.sort(row[kind == table]), columns.rows)
                  for table, columns in ((0, self.slices), (1, self.bins))}
        self._ends = {place: starts[place[0]][np.searchsorted(starts[place[0]], rows, side="right")]
                      for place, (_, rows) in self._runs.items()}

    def _columns(self, name: str) -> Columns:
        return Columns(store.local_path(store.key(self.profile_id, name)), self.document["written"])

    @cached_property
    def slices(self) -> Columns:
        return self._columns("slices.parquet")

    @cached_property
    def arguments(self) -> Columns:
        return self._columns("arguments.parquet")

    @cached_property
    def bins(self) -> Columns:
        return self._columns("bins.parquet")

    @cached_property
    def samples(self) -> Columns | None:
        return self._columns("samples.parquet") if any(track["samples"] for track in self.tracks) else None

    @cached_property
    def names(self) -> list[str]:
        table = pq.read_table(store.local_path(store.key(self.profile_id, "names.parquet")))
        return list(table["name"].to_pylist())

    @property
    def etag(self) -> str:
        return f"{self.profile_id}-{self.document['version']}-{self.document['written']:x}"

    def _range(self, table: int, level: int, first_tile: int, last_tile: int) -> tuple[int, int]:
        """Rows of the tiles [first_tile, last_tile] of one level: they lie together."""
        place = (table, level)
        if place not in self._runs:
            return 0, 0
        tile, row = self._runs[place]
        lo, hi = int(np.searchsorted(tile, first_tile)), int(np.searchsorted(tile, last_tile, side="right"))
        return (int(row[lo]), int(self._ends[place][hi - 1])) if hi > lo else (0, 0)

    def ranges(self, start_ns: int, end_ns: int, least_level: int = 0) -> list[tuple[int, int]]:
        """Rows [first, last) of slices.parquet, per home level, among which are all that overlap [start_ns, end_ns)."""
        out = []
        for level in range(least_level, self.top + 1):
            bits = 2 * level + tiles.BIN_BITS
            # a slice of this home level is shorter than four of its bins, so it began in this tile or the one before
            first = max(start_ns - (4 << (2 * level)), 0) >> bits
            lo, hi = self._range(0, level, first, max(end_ns - 1, 0) >> bits)
            if hi > lo:
                out.append((lo, hi))
        return out

    def cuts(self, start_ns: int, end_ns: int, rows: int) -> list[tuple[int, int]]:
        """[start_ns, end_ns) cut into windows in which about `rows` slices begin each, by the index alone."""
        begins, counts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for (table, level), (tile, row) in self._runs.items():
            if table == 0:
                begins.append(tile << (2 * level + tiles.BIN_BITS))
                counts.append(self._ends[(table, level)] - row)
        begin, count = np.concatenate(begins), np.concatenate(counts)
        inside = (begin >= start_ns) & (begin < end_ns)
        order = np.argsort(begin[inside], kind="stable")
        begin, filled = begin[inside][order], np.cumsum(count[inside][order])
        step = np.searchsorted(filled, np.arange(rows, int(filled[-1]) if filled.size else 0, rows))
        edges = [start_ns, *(int(each) for each in np.unique(begin[step]) if each > start_ns), end_ns]
        return list(pairwise(edges))

    def window(self, start_ns: int, end_ns: int, least_level: int, tracks: npt.NDArray[np.bool_],
               names: tuple[str, ...] = DRAWN) -> dict[str, Array]:
        """Slices of home level `least_level` or more that overlap [start_ns, end_ns), with their ids as "slice"."""
        parts = []
        for lo, hi in self.ranges(start_ns, end_ns, least_level):
            part = self.slices.read(lo, hi, names)
            part["slice"] = np.arange(lo, hi)
            keep = ((part["start_ns"] < end_ns) & tracks[part["track"]]
                    & (part["start_ns"] + np.maximum(part["dur_ns"], 1) > start_ns))
            parts.append({name: values[keep] for name, values in part.items()})
        if not parts:
            return {**self.slices.read(0, 0, names), "slice": np.empty(0, np.int64)}
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def merged(self, level: int, index: int, tracks: npt.NDArray[np.bool_]) -> dict[str, Array]:
        """Merged entries of one tile, with those of the tile before that reach into it."""
        lo, hi = self._range(1, level, max(index - 1, 0), index)
        part = self.bins.read(lo, hi, (*DRAWN, "slice", "count"))
        begin = index << (2 * level + tiles.BIN_BITS)
        keep = tracks[part["track"]] & (part["start_ns"] + np.maximum(part["dur_ns"], 1) > begin)
        return {name: values[keep] for name, values in part.items()}

    def tile(self, level: int, index: int, tracks: list[int]) -> TileRows:
        """Everything the tile shows of the given tracks (ascending)."""
        begin = index << (2 * level + tiles.BIN_BITS)
        end = (index + 1) << (2 * level + tiles.BIN_BITS)
        wanted = np.zeros(len(self.tracks), np.bool_)
        wanted[tracks] = True
        exact, merged = self.window(begin, end, level, wanted), self.merged(level, index, wanted)
        exact["count"] = np.ones(exact["slice"].size, np.uint32)
        rows = {name: np.concatenate((exact[name], merged[name])) for name in (*DRAWN, "slice", "count")}
        order = np.lexsort((rows["start_ns"], rows["depth"], rows["track"]))
        rows = {name: values[order] for name, values in rows.items()}
        flags = rows["instant"].astype(np.uint8) * INSTANT | (rows["count"] > 1).astype(np.uint8) * MERGED
        time_ns, value, sample_track = self._sampled(begin, end, level, tracks)
        return TileRows(
            track=rows["track"], sample_track=sample_track, time_ns=time_ns, value=value,
            columns={"start_ns": rows["start_ns"], "dur_ns": rows["dur_ns"], "name_id": rows["name_id"],
                     "count": rows["count"], "slice_id": rows["slice"], "depth": rows["depth"],
                     "category": rows["category"], "flags": flags})

    @cached_property
    def _sample_rows(self) -> npt.NDArray[np.int64]:
        """First row of every track's samples (and the end)."""
        return np.concatenate(([0], np.cumsum([track["samples"] for track in self.tracks]))).astype(np.int64)

    def _sampled(self, begin: int, end: int, level: int, tracks: list[int]) -> tuple[Array, Array, Array]:
        """Samples of the tile, at most two per bin, and the one before it (a counter holds its value until the next)."""
        times, values, owners = [np.empty(0, np.int64)], [np.empty(0)], [np.empty(0, np.int32)]
        for track in tracks:
            lo, hi = int(self._sample_rows[track]), int(self._sample_rows[track + 1])
            if hi > lo and self.samples is not None:
                part = self.samples.read(lo, hi, ("time_ns", "value"))
                first = max(int(np.searchsorted(part["time_ns"], begin)) - 1, 0)
                last = int(np.searchsorted(part["time_ns"], end))
                time_ns, value = part["time_ns"][first:last], part["value"][first:last]
                keep = downsample(time_ns, value, level)
                times.append(time_ns[keep])
                values.append(value[keep])
                owners.append(np.full(keep.size, track, np.int32))
        return np.concatenate(times), np.concatenate(values), np.concatenate(owners)


_open: OrderedDict[tuple[str, int], Timeline] = OrderedDict()
_open_lock = threading.Lock()


def timeline(profile_id: int) -> Timeline:
    """The stored timeline, opened once per version and process. Raises FileNotFoundError."""
    path = store.local_path(store.key(profile_id, "timeline.json"))
    identity = (str(path), path.stat().st_mtime_ns)
    with _open_lock:
        found = _open.get(identity)
        if found is not None:
            _open.move_to_end(identity)
            return found
    made = Timeline(profile_id, json.loads(path.read_text()))
    with _open_lock:
        _open[identity] = made
        while len(_open) > OPEN_TIMELINES:
            _open.popitem(last=False)
    return made


def forget() -> None:
    """Close everything and drop what is decoded (benches measure from here)."""
    with _open_lock:
        _open.clear()
    cache.clear()

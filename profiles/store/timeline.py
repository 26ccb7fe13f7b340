"""Reading a stored timeline in pieces: what a window or a tile shows, from the row groups that hold it."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from profiles.analysis.core import tiles
from profiles.analysis.core.tiles import INSTANT, MERGED, OVERFLOW, TileRows, downsample, overflowing
from profiles.ingest.arrays import Array, Bools, Floats, Ints, stable_order
from profiles.store import trace as store
from profiles.store.columns import Columns, cache, read_whole
from profiles.store.places import Places, join_ranges

# ---- reading counters of a stored trace ----
# The trace's own samples, derived ones, and the coarse forms of both.

Samples = tuple[Array, Array, Array]        # time_ns, value, track


class Counters:
    """Samples by track and level of a trace with the given tracks (`document` of timeline.json)."""

    def __init__(self, profile_id: int, document: dict[str, Any]) -> None:
        self.derived: list[dict[str, Any]] = []
        self._places: dict[int, list[tuple[int, Columns, int, int]]] = {}       # track -> (level, table, first row, end)
        self._own(profile_id, document)
        try:
            path = store.local_path(store.key(profile_id, "derived.json"))
        except FileNotFoundError:
            return
        derived = json.loads(path.read_text())
        if derived["of"] == document["written"]:
            self.derived = derived["tracks"]
            table = Columns(store.local_path(store.key(profile_id, "derived.parquet")), document["written"])
            for place in derived["places"]:
                self._places.setdefault(place["track"], []).append(
                    (place["level"], table, place["row"], place["row"] + place["rows"]))

    def _own(self, profile_id: int, document: dict[str, Any]) -> None:
        if not any(track["samples"] for track in document["tracks"]):
            return
        table = Columns(store.local_path(store.key(profile_id, "samples.parquet")), document["written"])
        row = 0
        for track in document["tracks"]:
            if track["samples"]:
                self._places[track["id"]] = [(0, table, row, row + track["samples"])]
            row += track["samples"]

    def tile(self, begin: int, end: int, level: int, tracks: list[int]) -> Samples:
        """Return the samples of a tile, at most three per bin, and the one before it.

        A counter holds its value until the next.
        """
        times, values, owners = [np.empty(0, np.int64)], [np.empty(0)], [np.empty(0, np.int32)]
        for track in tracks:
            forms = self._places.get(track, [])
            fit = max((form for form in forms if form[0] <= level), key=lambda form: form[0], default=None)
            if fit is not None:
                time_ns, value = _between(fit[1], fit[2], fit[3], begin, end)
                keep = downsample(time_ns, value, level)
                times.append(time_ns[keep])
                values.append(value[keep])
                owners.append(np.full(keep.size, track, np.int32))
        return np.concatenate(times), np.concatenate(values), np.concatenate(owners)


def _between(table: Columns, lo: int, hi: int, begin: int, end: int) -> tuple[Ints, Floats]:
    part = table.read(*_around(table, lo, hi, begin, end), ("time_ns", "value"))
    first = max(int(np.searchsorted(part["time_ns"], begin)) - 1, 0)
    last = int(np.searchsorted(part["time_ns"], end))
    return part["time_ns"][first:last], part["value"][first:last]


def _around(table: Columns, lo: int, hi: int, begin: int, end: int) -> tuple[int, int]:
    """Of one counter's rows [lo, hi) those whose row groups matter between two times.

    Only groups that hold this counter alone are told apart by their least time: that of a group shared with the next counter may be
    the other's.
    """
    bounds, least = table.bounds, table.least("time_ns")
    first, last = int(np.searchsorted(bounds, lo, side="right")), int(np.searchsorted(bounds, hi, side="right")) - 1
    inside = least[first:max(first, last)]
    a, b = int(np.searchsorted(inside, begin, side="left")) - 1, int(np.searchsorted(inside, end))
    return max(lo, int(bounds[first + a])) if a >= 0 else lo, min(hi, int(bounds[first + b])) if b < inside.size else hi


# ---- reading a stored timeline in pieces ----

OPEN_TIMELINES = 64
LEVEL_WIDTHS = 4                    # of its bins that a slice is shorter than: it began in its tile or the one before
DRAWN = ("track", "depth", "start_ns", "dur_ns", "name_id", "category", "instant")
_PLACE, _LOOK = DRAWN[:4], DRAWN[4:]
ALL_DEPTHS = (0, 0xFFFF)
Unit = tuple[int, int, int]         # track, first and last depth


class Timeline:
    """One stored trace."""

    def __init__(self, profile_id: int, document: dict[str, Any]) -> None:
        self.profile_id, self.document = profile_id, document
        self.top = int(document["levels"]) - 1
        self.counters = Counters(profile_id, document)
        self.tracks: list[dict[str, Any]] = [*document["tracks"], *self.counters.derived]
        index = read_whole(store.local_path(store.key(profile_id, "index.parquet")))
        self.places = Places(index, {0: self.slices.rows, 1: self.bins.rows}, len(self.tracks) and max(
            track["depths"] for track in self.tracks), len(self.tracks))

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
    def names(self) -> list[str]:
        table = read_whole(store.local_path(store.key(self.profile_id, "names.parquet")))
        return list(table["name"].to_pylist())

    @property
    def etag(self) -> str:
        return f"{self.profile_id}-{self.document['version']}-{self.document['written']:x}"

    def _tiles(self, level: int, start_ns: int, end_ns: int) -> tuple[int, int]:
        """First and last tile of a level in which a slice of that home level that overlaps the window may begin."""
        bits = 2 * level + tiles.BIN_BITS
        return max(start_ns - (LEVEL_WIDTHS << (2 * level)), 0) >> bits, max(end_ns - 1, 0) >> bits

    def ranges(self, start_ns: int, end_ns: int, least_level: int = 0) -> list[tuple[int, int]]:
        """Return rows [first, last) per home level that hold all that overlap [start_ns, end_ns).

        Of slices.parquet.
        """
        ranges = [self.places.rows(0, level, self._tiles(level, start_ns, end_ns)) for level in range(least_level, self.top + 1)]
        return [span for span in ranges if span[1] > span[0]]

    def cuts(self, start_ns: int, end_ns: int, rows: int) -> list[tuple[int, int]]:
        """Cut [start_ns, end_ns) into windows in which about `rows` slices begin each.

        By the index alone.
        """
        begins, counts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for level, tile, count in self.places.rows_per_tile(0):
            begins.append(tile << (2 * level + tiles.BIN_BITS))
            counts.append(count)
        begin, count = np.concatenate(begins), np.concatenate(counts)
        inside = (begin >= start_ns) & (begin < end_ns)
        order = stable_order(begin[inside])
        begin, filled = begin[inside][order], np.cumsum(count[inside][order])
        step = np.searchsorted(filled, np.arange(rows, int(filled[-1]) if filled.size else 0, rows))
        edges = [start_ns, *(int(edge) for edge in np.unique(begin[step]) if edge > start_ns), end_ns]
        return list(pairwise(edges))

    def window(self, start_ns: int, end_ns: int, least_level: int, tracks: Bools,
               names: tuple[str, ...] = DRAWN) -> dict[str, Array]:
        """Return the slices that overlap [start_ns, end_ns), with their ids as "slice".

        Of home level `least_level` or more.
        """
        tested = ("start_ns", "dur_ns", "track")
        rows = self.slices.select(
            self.ranges(start_ns, end_ns, least_level), tested, tuple(name for name in names if name not in tested),
            lambda part: (part["start_ns"] < end_ns) & (part["start_ns"] + np.maximum(part["dur_ns"], 1) > start_ns)
            & tracks[part["track"]])
        return {**{name: rows[name] for name in names}, "slice": rows["row"]}

    def tile(self, level: int, index: int, units: Sequence[Unit]) -> TileRows:
        """Return everything the tile shows of the given lanes.

        Units ascend, none overlaps another.
        """
        begin, end = index << (2 * level + tiles.BIN_BITS), (index + 1) << (2 * level + tiles.BIN_BITS)
        exact, merged = self._exact(level, begin, end, units), self._merged_entries(level, index, Lanes(units))
        rows = {name: np.concatenate((exact[name], merged[name])) for name in (*DRAWN, "slice", "count", "fill", "over")}
        order = np.lexsort((rows["start_ns"], rows["depth"], rows["track"]))
        rows = {name: values[order] for name, values in rows.items()}
        flags = (rows["instant"].astype(np.uint8) * INSTANT | (rows["count"] > 1).astype(np.uint8) * MERGED
                 | rows["over"].astype(np.uint8) * OVERFLOW)
        time_ns, value, sample_track = self.counters.tile(begin, end, level, [track for track, first, _ in units if not first])
        return TileRows(
            track=rows["track"], sample_track=sample_track, time_ns=time_ns, value=value,
            columns={"start_ns": rows["start_ns"], "dur_ns": rows["dur_ns"], "name_id": rows["name_id"],
                     "count": rows["count"], "slice_id": rows["slice"], "depth": rows["depth"],
                     "category": rows["category"], "flags": flags, "fill": rows["fill"]})

    def _exact(self, level: int, begin: int, end: int, units: Sequence[Unit]) -> dict[str, Array]:
        """Slices that are drawn as they are. Whoever contains one is longer, so the lane above says what overflows."""
        ranges, lanes, exact = [], Lanes(_with_above(units)), Lanes(units)
        for home in range(level, self.top + 1):
            first, last = self._tiles(home, begin, end)
            ranges += join_ranges(self.places.rows(0, home, (tile, tile), *lanes.ends) for tile in range(first, last + 1))
        rows = self.slices.select(ranges, _PLACE, _LOOK, lambda part: (
            part["start_ns"] < end) & (part["start_ns"] + np.maximum(part["dur_ns"], 1) > begin) & lanes.hold(part))
        order = np.lexsort((rows["start_ns"], rows["depth"], rows["track"]))
        rows = {name: values[order] for name, values in rows.items()}
        over = overflowing(rows["track"].astype(np.int64) << 16 | rows["depth"], rows["start_ns"],
                           rows["start_ns"] + rows["dur_ns"]) & ~rows["instant"]
        keep = exact.hold(rows)
        rows = {name: values[keep] for name, values in (rows | {"over": over}).items()}
        number = rows.pop("row")
        return {**rows, "slice": number, "count": np.ones(number.size, np.uint32), "fill": np.full(number.size, 255, np.uint8)}

    def _merged_entries(self, level: int, index: int, lanes: Lanes) -> dict[str, Array]:
        """Merged entries of one tile, with those of the tile before that reach into it."""
        begin, end = index << (2 * level + tiles.BIN_BITS), (index + 1) << (2 * level + tiles.BIN_BITS)
        ranges = join_ranges(self.places.rows(1, level, (tile, tile), *lanes.ends) for tile in range(max(index - 1, 0), index + 1))
        busy = ("busy_ns",) if "busy_ns" in self.bins.names else ()
        rows = self.bins.select(ranges, _PLACE, (*_LOOK, "slice", "count", *busy), lambda part: (
            part["start_ns"] < end) & (part["start_ns"] + np.maximum(part["dur_ns"], 1) > begin) & lanes.hold(part))
        share = rows.pop("busy_ns") / np.maximum(rows["dur_ns"], 1) if busy else np.ones(rows["row"].size)
        return {**rows, "fill": np.clip(np.rint(share * 255), 1, 255).astype(np.uint8), "over": np.zeros(share.size, np.bool_)}


def _with_above(units: Sequence[Unit]) -> list[Unit]:
    """Units with the depth above each, where that is not another unit's."""
    out: list[Unit] = []
    for track, first, last in units:
        follows = out and out[-1][0] == track and out[-1][2] >= first - 1
        out.append((track, first if follows else max(first - 1, 0), last))
    return out


class Lanes:
    """The lanes (track, depth) that a tile is asked for."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self.ends = (units[0][:2], (units[-1][0], max(unit[2] for unit in units))) if units else ((0, 0), (0, 0))
        self._first = np.array([track << 16 | first for track, first, _ in units], np.int64)
        self._last = np.array([track << 16 | last for track, _, last in units], np.int64)

    def hold(self, rows: dict[str, Array]) -> Bools:
        lane = rows["track"].astype(np.int64) << 16 | rows["depth"]
        unit = np.searchsorted(self._first, lane, side="right") - 1
        return (unit >= 0) & (lane <= self._last[unit]) if self._first.size else np.zeros(lane.size, np.bool_)


_open: OrderedDict[tuple[str, int], Timeline] = OrderedDict()
_open_lock = threading.Lock()


def timeline(profile_id: int) -> Timeline:
    """Return the stored timeline, opened once per version and process.

    Raises FileNotFoundError.
    """
    path = store.local_path(store.key(profile_id, "timeline.json"))
    identity = (str(path), path.stat().st_mtime_ns)
    with _open_lock:
        opened = _open.get(identity)
        if opened is not None:
            _open.move_to_end(identity)
            return opened
    result = Timeline(profile_id, json.loads(path.read_text()))
    with _open_lock:
        _open[identity] = result
        while len(_open) > OPEN_TIMELINES:
            _open.popitem(last=False)
    return result


def forget() -> None:
    """Close everything and drop what is decoded (benches measure from here)."""
    with _open_lock:
        _open.clear()
    cache.clear()

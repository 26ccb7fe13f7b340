"""Rows of a query as tracks of a timeline: slices where it gives start_ns and dur_ns, a counter where time_ns and value; and
what a tile shows of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profiles.analysis.core.tiles import BIN_BITS, INSTANT, MERGED, TileRows, downsample
from profiles.exports import files
from profiles.ingest.arrays import Array, Floats, Ints, stable_order
from profiles.ingest.trace import Category
from profiles.sql.tables import CATEGORIES

MAX_TRACKS, MAX_LANES = 32, 64
FIRST_SLICE = 2**31


@dataclass
class QueryTracks:
    """One query's rows, ordered by (track, depth, start). Empty where it failed: `error` says why."""

    title: str
    key: str
    error: str = ""
    tracks: list[str] = field(default_factory=list)         # of slices, by name
    counter: bool = False
    names: list[str] = field(default_factory=list)
    columns: dict[str, Array] = field(default_factory=dict)  # track, depth, start_ns, dur_ns, name, category; or time_ns, value
    rows: Array = field(default_factory=lambda: np.empty(0, np.int64))     # of the result, for each slice
    table: pa.Table | None = None
    identity: str = ""


def make_tracks(out: QueryTracks, table: pa.Table, end_ns: int) -> QueryTracks:
    out.table = table
    names = table.column_names
    if {"start_ns", "dur_ns"} <= set(names):
        return _slices(out, table, end_ns)
    if {"time_ns", "value"} <= set(names):
        return _counter(out, table)
    out.error = "a track needs the columns start_ns and dur_ns, or time_ns and value"
    return out


def _floats(table: pa.Table, name: str) -> Floats:
    values = files.numbers(table, name)
    return np.full(table.num_rows, np.nan) if values is None else values.fill_null(float("nan")).to_numpy(zero_copy_only=False)


def _counter(out: QueryTracks, table: pa.Table) -> QueryTracks:
    time_ns, value = _floats(table, "time_ns"), _floats(table, "value")
    keep = np.flatnonzero(np.isfinite(time_ns) & np.isfinite(value) & (time_ns >= 0))
    keep = keep[stable_order(time_ns[keep])]
    out.counter, out.columns = True, {"time_ns": time_ns[keep].astype(np.int64), "value": value[keep]}
    if not keep.size:
        out.error = "the query gave no rows with a time and a value"
    return out


def _slices(out: QueryTracks, table: pa.Table, end_ns: int) -> QueryTracks:
    start, dur = _floats(table, "start_ns"), _floats(table, "dur_ns")
    keep = np.flatnonzero(np.isfinite(start) & np.isfinite(dur) & (dur >= 0) & (start <= end_ns) & (start + dur >= 0))
    if not keep.size:
        out.error = "the query gave no rows with times within the trace"
        return out
    start_ns = np.maximum(start[keep], 0).astype(np.int64)
    dur_ns = np.minimum(start[keep] + dur[keep], float(end_ns)).astype(np.int64) - start_ns
    track, out.tracks = _lanes_of(table, keep, out.title)
    depth = _depths(track, start_ns, dur_ns)
    order = np.lexsort((start_ns, depth, track))
    names = _texts(table, "name", keep)
    listed, name = np.unique(names, return_inverse=True)
    out.names = listed.tolist()
    words = {word: number for number, word in enumerate(CATEGORIES)}
    category = np.array([words.get(word, int(Category.OTHER)) for word in _texts(table, "category", keep)], np.uint8)
    out.columns = {column: values[order] for column, values in (
        ("track", track), ("depth", depth), ("start_ns", start_ns), ("dur_ns", dur_ns), ("name", name), ("category", category))}
    out.rows = keep[order]
    return out


def _texts(table: pa.Table, name: str, keep: Array) -> list[str]:
    position = table.schema.get_field_index(name)
    if position < 0:
        return [""] * keep.size
    return [str(files.cell(value)) if value is not None else ""
            for value in files.list_values(pc.take(table.column(position), keep))]


def _lanes_of(table: pa.Table, keep: Array, title: str) -> tuple[Ints, list[str]]:
    """A column `lane` splits the rows into tracks of their own; the most frequent ones where there are many."""
    if table.schema.get_field_index("lane") < 0:
        return np.zeros(keep.size, np.int64), [title]
    listed, lane_of_row, counts = np.unique(_texts(table, "lane", keep), return_inverse=True, return_counts=True)
    if listed.size <= MAX_TRACKS:
        return lane_of_row, [f"{title}: {text[:80]}" for text in listed.tolist()]
    most = np.sort(stable_order(-counts)[:MAX_TRACKS - 1])
    number = np.full(listed.size, most.size)
    number[most] = np.arange(most.size)
    return number[lane_of_row], [*(f"{title}: {text[:80]}" for text in listed[most].tolist()), f"{title}: others"]


def _depths(track: Array, start_ns: Array, dur_ns: Array) -> Ints:
    """The first free lane of the track for each slice; what would need more lanes than MAX_LANES shares the last one."""
    order = np.lexsort((-dur_ns, start_ns, track))
    depth = np.zeros(start_ns.size, np.int64)
    ends: list[int] = []
    before = -1
    ordered = (values.tolist() for values in (order, track[order], start_ns[order], dur_ns[order]))
    for row, of, begin, length in zip(*ordered, strict=True):
        if of != before:
            ends, before = [], of
        lane = next((lane for lane, end in enumerate(ends) if end <= begin), len(ends))
        if lane == len(ends) and lane < MAX_LANES:
            ends.append(0)
        lane = min(lane, MAX_LANES - 1)
        ends[lane] = begin + max(length, 1)
        depth[row] = lane
    return depth


def rows_of(drawn: list[QueryTracks], level: int, index: int, units: Sequence[tuple[int, int, int]], first_id: int,
            first_name: int) -> TileRows:
    """Return what a tile shows of the queries' tracks.

    `units` (track, first and last depth) ascending.
    """
    begin, end = index << (2 * level + BIN_BITS), (index + 1) << (2 * level + BIN_BITS)
    parts: list[tuple[int, dict[str, Array]]] = []
    samples: list[tuple[int, Array, Array]] = []
    at_track, at_name, at_slice = first_id, first_name, FIRST_SLICE
    for group in drawn:
        for number in range(max(len(group.tracks), 1)):
            for track, first, last in units:
                if track != at_track + number:
                    continue
                if group.tracks:
                    parts.append((track, _tile(group, number, first, last, begin, end, level, at_name, at_slice)))
                elif group.counter and first == 0:
                    samples.append((track, *_tile_samples(group, begin, end, level)))
        at_track, at_name, at_slice = at_track + max(len(group.tracks), 1), at_name + len(group.names), at_slice + group.rows.size
    columns = {name: np.concatenate([np.empty(0, kind), *(part[name] for _, part in parts)]) for name, kind in _KINDS.items()}
    return TileRows(
        track=np.concatenate([np.empty(0, np.int32), *(np.full(part["depth"].size, track, np.int32) for track, part in parts)]),
        columns=columns,
        sample_track=np.concatenate([np.empty(0, np.int32),
                                     *(np.full(times.size, track, np.int32) for track, times, _ in samples)]),
        time_ns=np.concatenate([np.empty(0, np.int64), *(times for _, times, _ in samples)]),
        value=np.concatenate([np.empty(0), *(values for _, _, values in samples)]))


_KINDS = {"start_ns": np.int64, "dur_ns": np.int64, "name_id": np.int64, "count": np.int64, "slice_id": np.int64, "depth": np.int64,
          "category": np.uint8, "flags": np.uint8, "fill": np.uint8}


def _tile(each: QueryTracks, number: int, first: int, last: int, begin: int, end: int, level: int, name: int,
          slice_: int) -> dict[str, Array]:
    """Long slices as they are, those shorter than a bin together by lane and bin, with the longest one's name."""
    start, dur = each.columns["start_ns"], each.columns["dur_ns"]
    inside = np.flatnonzero((each.columns["track"] == number) & (each.columns["depth"] >= first) & (each.columns["depth"] <= last)
                            & (start < end) & (start + np.maximum(dur, 1) > begin))
    depth = each.columns["depth"][inside]
    short = dur[inside] < 1 << (2 * level)
    # a long slice is its own bin: its row number keeps it apart from every other
    bins = np.where(short, start[inside] >> (2 * level), -1 - inside)
    _, entry = np.unique(np.stack((depth, bins)), axis=1, return_inverse=True)
    entry = entry.reshape(-1)
    by = np.lexsort((-dur[inside], entry))
    heads = np.flatnonzero(np.diff(entry[by], prepend=-1))
    longest = inside[by][heads]
    least = np.minimum.reduceat(start[inside][by], heads) if heads.size else start[:0]
    most = np.maximum.reduceat((start + dur)[inside][by], heads) if heads.size else start[:0]
    covered = np.add.reduceat(dur[inside][by], heads) if heads.size else start[:0]
    count = np.diff(np.append(heads, inside.size))
    order = np.lexsort((least, each.columns["depth"][longest]))
    length = most - least
    flags = np.where(length == 0, INSTANT, 0) * (count == 1) | np.where(count > 1, MERGED, 0)
    fill = np.where(length > 0, np.minimum(covered / np.maximum(length, 1), 1.0) * 255, 255)
    columns = {"start_ns": least, "dur_ns": length, "name_id": each.columns["name"][longest] + name, "count": count,
               "slice_id": longest + slice_, "depth": each.columns["depth"][longest], "category": each.columns["category"][longest],
               "flags": flags.astype(np.uint8), "fill": fill.astype(np.uint8)}
    return {column: values[order] for column, values in columns.items()}


def _tile_samples(tracks: QueryTracks, begin: int, end: int, level: int) -> tuple[Array, Array]:
    times, values = tracks.columns["time_ns"], tracks.columns["value"]
    first, last = max(int(np.searchsorted(times, begin)) - 1, 0), int(np.searchsorted(times, end))
    keep = downsample(times[first:last], values[first:last], level)
    return times[first:last][keep], values[first:last][keep]

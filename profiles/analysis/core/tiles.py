"""Tiles of the timeline, computed once: every slice has a home level, shorter ones are merged per bin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profiles.ingest.arrays import Array, Bools, Bytes, Floats, Int32, Ints, Rows, stable_order
from profiles.ingest.trace import Category, TraceError


def overflowing(lane: Array, start_ns: Array, end_ns: Array) -> Bools:
    """Return which rows at a depth > 0 are not contained in a slice of the depth above.

    Rows are ordered by (lane, start), `lane` being track16 | depth. Slices of one lane do not overlap, so the last that began up
    there decides.
    """
    out = np.zeros(lane.size, np.bool_)
    if not lane.size:
        return out
    lanes, first = np.unique(lane, return_index=True)
    last = np.append(first[1:], lane.size)
    place = {int(number): (int(lo), int(hi)) for number, lo, hi in zip(lanes, first, last, strict=True)}
    for number, (lo, hi) in place.items():
        if not number & 0xFFFF:
            continue
        a, b = place.get(number - 1, (0, 0))
        if a == b:
            out[lo:hi] = True
            continue
        above = np.searchsorted(start_ns[a:b], start_ns[lo:hi], side="right") - 1
        out[lo:hi] = (above < 0) | (end_ns[a + np.maximum(above, 0)] < end_ns[lo:hi])
    return out


BINS = 1024
BIN_BITS = 10
LEVEL_BITS = 40                     # of a slice's place: home level above, row within the level below
Table = dict[str, Array]
_END = 2**62
MAX_WAITING = 2_000_000             # slices of one home level that begin within one tile: all are held until it is sorted


def home_levels(dur_ns: Ints) -> npt.NDArray[np.int8]:
    """Return the greatest k with 4**k <= dur_ns, 0 for less than 1 ns."""
    # frexp is exact for the exponent of integers below 2**53; longer ones are cut to the level all of them share
    _, exponent = np.frexp(np.clip(dur_ns, 1, 2**52).astype(np.float64))
    return ((exponent - 1) // 2).astype(np.int8)


def top_level(end_ns: int) -> int:
    """The level at which one tile covers the whole trace."""
    level = 0
    while BINS << (2 * level) <= end_ns:
        level += 1
    return level


class Levels:
    """Takes slices in order of time; gives them and their merged entries to `write(kind, level, table)` in stored order.

    kind 0: slices, with all columns they came with. kind 1: merged entries of levels 1 … top, columns track, depth,
    start_ns, dur_ns, name, category, instant (of the longest), count, busy_ns (sum of durations) and place (home level of
    the longest << LEVEL_BITS | its row within that level).
    """

    def __init__(self, top: int, write: Callable[[int, int, Table], None]) -> None:
        self.top, self._write = top, write
        self._slices = [_Waiting() for _ in range(top + 1)]
        self._inputs = [_Waiting() for _ in range(top + 2)]      # of the bins of each level: finer bins, slices at home there
        self._bins = [_Waiting() for _ in range(top + 1)]
        self._slices_done = [0] * (top + 1)
        self._bins_done = [_END] + [0] * top
        self.rows = [0] * (top + 1)                              # slices handed on, per level

    def add(self, columns: Table, next_ns: int) -> None:
        """Slices; those of later calls do not begin before `next_ns`."""
        level = np.minimum(home_levels(columns["dur_ns"]), self.top)
        order = stable_order(level)
        ends = np.cumsum(np.bincount(level, minlength=self.top + 1)).tolist()
        for k, (first, last) in enumerate(zip([0, *ends], ends, strict=False)):
            if last > first:
                self._slices[k].add({name: values[order[first:last]] for name, values in columns.items()})
        self._advance(next_ns)
        for k, waiting in enumerate(self._slices):
            if waiting.rows > MAX_WAITING:
                raise TraceError(
                    f"time {next_ns:,} ns",
                    f"more than {MAX_WAITING:,} slices of like duration begin within {BINS << 2 * k:,} ns",
                    "No machine does so much at once: check the clock of the program that wrote the file.")

    def finish(self) -> None:
        self._advance(_END)

    def _advance(self, time_ns: int) -> None:
        for k in range(self.top + 1):
            bits = 2 * k + BIN_BITS
            done = time_ns if time_ns == _END else time_ns >> bits << bits
            if done > self._slices_done[k]:
                self._slices_done[k] = done
                self._hand_on_slices(k, self._slices[k].take(done), bits)
            if k:
                self._merge(k, bits)

    def _hand_on_slices(self, k: int, slices: Table | None, bits: int) -> None:
        if slices is None:
            return
        order = _stored_order(slices, bits)
        slices = {name: values[order] for name, values in slices.items()}
        first, count = self.rows[k], order.size
        self.rows[k] += count
        self._write(0, k, slices)
        if k < self.top:
            self._inputs[k + 1].add({
                "lane": slices["track"].astype(np.int64) << 16 | slices["depth"].astype(np.int64),
                "start_ns": slices["start_ns"], "end_ns": slices["start_ns"] + slices["dur_ns"], "dur_ns": slices["dur_ns"],
                "busy_ns": slices["dur_ns"], "count": np.ones(count, np.int64),
                "place": (k << LEVEL_BITS) + np.arange(first, first + count),
                **{name: slices[name] for name in ("name", "category", "instant")}})

    def _merge(self, k: int, bits: int) -> None:
        """Bins of level k that nothing can join any more, and tiles of them."""
        least = min(self._bins_done[k - 1], self._slices_done[k - 1])
        done = least if least == _END else least >> (2 * k) << (2 * k)
        if done <= self._bins_done[k]:
            return
        tiles_before = self._bins_done[k] >> bits
        self._bins_done[k] = done
        inputs = self._inputs[k].take(done)
        if inputs is not None:
            merged = coarser(inputs, k)
            self._bins[k].add(merged)
            if k < self.top:
                self._inputs[k + 1].add(merged)
        if done == _END or done >> bits > tiles_before:
            bins = self._bins[k].take(done if done == _END else done >> bits << bits)
            if bins is not None:
                table: Table = {"track": (bins["lane"] >> 16).astype(np.int32), "depth": (bins["lane"] & 0xFFFF).astype(np.int16),
                                **bins}
                order = _stored_order(table, bits)
                table["dur_ns"] = table.pop("end_ns") - table["start_ns"]
                del table["lane"]
                table["instant"] = table["instant"] & (table["count"] == 1)
                self._write(1, k, {name: values[order] for name, values in table.items()})


class _Waiting:
    """Rows that wait until no more can come before some time."""

    def __init__(self) -> None:
        self._parts: list[Table] = []

    @property
    def rows(self) -> int:
        return sum(part["start_ns"].size for part in self._parts)

    def add(self, part: Table) -> None:
        self._parts.append(part)

    def take(self, before_ns: int) -> Table | None:
        """Return the rows that begin before a time, and keep the others; None where there are none."""
        if not self._parts:
            return None
        parts, self._parts = self._parts, []
        table = parts[0] if len(parts) == 1 else {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        if before_ns == _END:
            return table
        begins = table["start_ns"] < before_ns
        count = int(np.count_nonzero(begins))
        if count == begins.size:
            return table
        if not count:
            self._parts = [table]
            return None
        self._parts = [{name: values[~begins] for name, values in table.items()}]
        return {name: values[begins] for name, values in table.items()}


def _stored_order(table: Table, bits: int) -> Rows:
    """By (tile, track, depth, start)."""
    lane = table["track"].astype(np.int64) << 16 | table["depth"].astype(np.int64)
    return np.lexsort((table["start_ns"], lane, table["start_ns"] >> bits))


def coarser(entries: Table, k: int) -> Table:
    """Merge entries and slices shorter than a bin of level k to one per lane and bin.

    Ordered by lane and start.
    """
    order = np.lexsort((entries["start_ns"], entries["lane"]))
    entries = {name: values[order] for name, values in entries.items()}
    bins, lane = entries["start_ns"] >> (2 * k), entries["lane"]
    first = np.concatenate(([True], (bins[1:] != bins[:-1]) | (lane[1:] != lane[:-1])))
    starts = np.flatnonzero(first)
    longest = np.maximum.reduceat(entries["dur_ns"], starts)
    group = np.cumsum(first) - 1
    candidates = np.flatnonzero(entries["dur_ns"] == longest[group])
    winner = candidates[np.concatenate(([True], group[candidates][1:] != group[candidates][:-1]))]
    return {
        "lane": lane[starts], "start_ns": entries["start_ns"][starts], "end_ns": np.maximum.reduceat(entries["end_ns"], starts),
        "dur_ns": longest, "busy_ns": np.add.reduceat(entries["busy_ns"], starts),
        "count": np.add.reduceat(entries["count"], starts),
        **{name: entries[name][winner] for name in ("place", "name", "category", "instant")}}


# How busy each GPU is along a trace, in as many columns as a picture has.

COLOURS = {Category.COMPUTE: "compute", Category.COMMUNICATION: "communication", Category.MEMCPY: "memory",
           Category.MEMSET: "memory"}


@dataclass(frozen=True)
class BusyLane:
    """One GPU; a column is the same length of time in every lane."""

    label: str
    shares: list[int]           # 0-255 of the column's time in which it worked
    categories: list[str]       # what it mostly did: "compute", "communication", "memory", "other"


def busy_lane(label: str, share: Bytes, category: Bytes, columns: int) -> BusyLane:
    """Return the lane of a GPU's streams, at most `columns` wide.

    `share` and `category` are streams × bins. Streams that overlap count at most as a whole column; a column takes the mean of its
    bins and the category of the busiest of them.
    """
    bins = share.shape[1]
    width = max(1, min(columns, bins))
    edges = np.linspace(0, bins, width + 1).astype(np.int64)[:-1]
    busiest = share.argmax(axis=0)
    summed = np.minimum(share.sum(axis=0, dtype=np.int64), 255)
    counts = np.diff(np.append(edges, bins))
    means = -(-np.add.reduceat(summed, edges) // counts)
    top = category[busiest, np.arange(bins)]
    firsts = [int(begin + summed[begin:begin + count].argmax()) for begin, count in zip(edges, counts, strict=True)]
    return BusyLane(label, [int(mean) for mean in means], [COLOURS.get(Category(int(top[first])), "other") for first in firsts])


# The bytes of one tile, as static/js/timeline reads them: little endian, column after column, 8-byte aligned.

MAGIC = 0x32545052                # "RPT2"
INSTANT, MERGED, OVERFLOW = 1, 2, 4      # bits of `flags`
COLUMNS: tuple[tuple[str, str], ...] = (
    ("start_ns", "<f8"), ("dur_ns", "<f8"), ("name_id", "<u4"), ("count", "<u4"), ("slice_id", "<u4"), ("depth", "<u2"),
    ("category", "u1"), ("flags", "u1"), ("fill", "u1"))


@dataclass(frozen=True)
class TileRows:
    """Rows of a tile ordered by (track, depth, start), and samples ordered by (track, time)."""

    track: Int32
    columns: dict[str, Array]          # COLUMNS
    sample_track: Int32
    time_ns: Ints
    value: Floats


def pack(units: Sequence[tuple[int, int, int]], rows: TileRows) -> bytes:
    """Return the bytes of a tile.

    u32 magic, u32 units, units × (u32 track, u32 rows, u32 samples, u16 first depth, u16 last depth), padding, the columns,
    padding, the samples. `fill` is the share of an entry's length that its slices cover, 255 being all of it.

    `rows` hold nothing but the given units (track, first and last depth; ascending), in that order; the samples of a
    track go to its unit of depth 0.
    """
    track, first, last = (np.array([unit[i] for unit in units], np.int64) for i in range(3))
    lane = rows.track.astype(np.int64) << 16 | rows.columns["depth"]
    head = np.zeros((len(units), 4), "<u4")
    head[:, 0], head[:, 3] = track, first | last << 16
    head[:, 1] = np.searchsorted(lane, track << 16 | last, side="right") - np.searchsorted(lane, track << 16 | first)
    samples = np.bincount(rows.sample_track, minlength=int(track.max(initial=0)) + 1)
    head[:, 2] = np.where(first == 0, samples[track], 0)
    out = bytearray(np.array([MAGIC, len(units)], "<u4").tobytes() + head.tobytes())
    _pad(out)
    for name, kind in COLUMNS:
        out += np.ascontiguousarray(rows.columns[name], dtype=kind).tobytes()
    _pad(out)
    out += rows.time_ns.astype("<f8").tobytes() + rows.value.astype("<f8").tobytes()
    return bytes(out)


def _pad(out: bytearray) -> None:
    out += bytes(-len(out) % 8)


def downsample(time_ns: Ints, value: Floats, level: int) -> Rows:
    """Return which samples to keep so that each bin of 4**level ns has at most three.

    Samples are ordered by time. Of each bin: its least, its greatest, and its last, which holds until the next bin that has any.
    NaN ("not known from here on") is always kept.
    """
    unknown = np.isnan(value)
    if unknown.any():
        known = np.flatnonzero(~unknown)
        return np.sort(np.concatenate((known[downsample(time_ns[known], value[known], level)], np.flatnonzero(unknown))))
    if time_ns.size < 4:
        return np.arange(time_ns.size)
    bins = time_ns >> (2 * level)
    starts = np.flatnonzero(np.concatenate(([True], bins[1:] != bins[:-1])))
    if starts.size * 3 > time_ns.size and np.diff(np.append(starts, time_ns.size)).max() <= 3:
        return np.arange(time_ns.size)
    group = np.cumsum(np.concatenate(([0], (bins[1:] != bins[:-1]).astype(np.intp))))
    sequence = np.lexsort((value, group))
    ends = np.append(starts[1:], time_ns.size) - 1
    return np.unique(np.concatenate((sequence[starts], sequence[ends], ends)))

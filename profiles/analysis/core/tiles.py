"""Tiles of the timeline, computed once: every slice has a home level, shorter ones are merged per bin."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from profiles.ingest.arrays import Array, Bools, Ints, Rows, stable_order
from profiles.ingest.trace import TraceError


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
        known = min(self._bins_done[k - 1], self._slices_done[k - 1])
        done = known if known == _END else known >> (2 * k) << (2 * k)
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

"""The bytes of one tile, as static/js/timeline reads them: little endian, column after column, 8-byte aligned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profiles.ingest.arrays import Array, Floats, Int32, Ints, Rows

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

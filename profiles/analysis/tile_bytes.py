"""The bytes of one tile, as static/js/timeline reads them: little endian, column after column, 8-byte aligned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

MAGIC = 0x31545052                # "RPT1"
INSTANT, MERGED = 1, 2            # bits of `flags`
COLUMNS: tuple[tuple[str, str], ...] = (
    ("start_ns", "<f8"), ("dur_ns", "<f8"), ("name_id", "<u4"), ("count", "<u4"), ("slice_id", "<u4"), ("depth", "<u2"),
    ("category", "u1"), ("flags", "u1"))


@dataclass(frozen=True)
class TileRows:
    """Rows of a tile ordered by (track, depth, start), and samples ordered by (track, time)."""

    track: npt.NDArray[np.int32]
    columns: dict[str, npt.NDArray[Any]]          # COLUMNS
    sample_track: npt.NDArray[np.int32]
    time_ns: npt.NDArray[np.int64]
    value: npt.NDArray[np.float64]


def pack(tracks: list[int], rows: TileRows) -> bytes:
    """u32 magic, u32 tracks T, T × (u32 track, u32 rows, u32 samples, u32 0), padding, the columns, padding, the samples.

    `rows` hold nothing but the given tracks, in that order.
    """
    width = max(tracks, default=0) + 1
    counts = np.bincount(rows.track, minlength=width)
    samples = np.bincount(rows.sample_track, minlength=width)
    head = np.zeros((len(tracks), 4), "<u4")
    head[:, 0], head[:, 1], head[:, 2] = tracks, counts[tracks], samples[tracks]
    out = bytearray(np.array([MAGIC, len(tracks)], "<u4").tobytes() + head.tobytes())
    _pad(out)
    for name, kind in COLUMNS:
        out += np.ascontiguousarray(rows.columns[name], dtype=kind).tobytes()
    _pad(out)
    out += rows.time_ns.astype("<f8").tobytes() + rows.value.astype("<f8").tobytes()
    return bytes(out)


def _pad(out: bytearray) -> None:
    out += bytes(-len(out) % 8)


def downsample(time_ns: npt.NDArray[np.int64], value: npt.NDArray[np.float64], level: int) -> npt.NDArray[np.intp]:
    """Which samples (ordered by time) to keep so that each bin of 4**level ns has at most two: its least and its
    greatest, in the order of their times."""
    if time_ns.size < 3:
        return np.arange(time_ns.size)
    bins = time_ns >> (2 * level)
    starts = np.flatnonzero(np.concatenate(([True], bins[1:] != bins[:-1])))
    if starts.size * 2 > time_ns.size and np.diff(np.append(starts, time_ns.size)).max() <= 2:
        return np.arange(time_ns.size)
    group = np.cumsum(np.concatenate(([0], (bins[1:] != bins[:-1]).astype(np.intp))))
    sequence = np.lexsort((value, group))
    ends = np.append(starts[1:], time_ns.size) - 1
    return np.unique(np.concatenate((sequence[starts], sequence[ends])))

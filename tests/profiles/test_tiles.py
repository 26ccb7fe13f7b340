"""Tiles against a plain walk over all slices: nothing is missing, nothing twice, and a tile is bounded."""

import numpy as np
import pytest

from profiles.analysis import tiles
from profiles.analysis.tile_bytes import COLUMNS, MAGIC, TileRows, downsample, pack


def test_home_levels():
    dur = np.array([0, 1, 3, 4, 15, 16, 4**10 - 1, 4**10, 2**62], np.int64)
    assert tiles.home_levels(dur).tolist() == [0, 0, 0, 1, 1, 2, 9, 10, 26]


@pytest.mark.parametrize("end_ns", [0, 1, 1023, 1024, 4095, 4096, 10**9, 10**15])
def test_one_tile_at_the_top_covers_the_trace(end_ns):
    top = tiles.top_level(end_ns)
    assert end_ns >> (2 * top + tiles.BIN_BITS) == 0
    assert top == 0 or end_ns >> (2 * (top - 1) + tiles.BIN_BITS) > 0


def many(n: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    dur = np.floor(4.0 ** rng.uniform(0, 9, n)).astype(np.int64) - 1
    return (rng.integers(0, 4, n).astype(np.int32), rng.integers(0, 3, n).astype(np.int16),
            rng.integers(0, 3_000_000, n).astype(np.int64), dur)


def test_merged_entries_hold_every_shorter_slice_once():
    track, depth, start, dur = many(5000)
    top = tiles.top_level(int((start + dur).max()))
    order = tiles.order(track, start, dur, top)
    track, depth, start, dur = (values[order.rows] for values in (track, depth, start, dur))
    bins, runs = tiles.merge(track, depth, start, dur, order.level, top)
    ends = np.append(runs["row"][1:], bins["track"].size)
    for level in range(1, top + 1):
        short = order.level < level
        place = np.flatnonzero(runs["level"] == level)
        rows = np.concatenate([np.arange(runs["row"][i], ends[i]) for i in place])
        assert bins["count"][rows].sum() == np.count_nonzero(short)
        keys = list(zip(bins["track"][rows].tolist(), bins["depth"][rows].tolist(),
                        (bins["start_ns"][rows] >> (2 * level)).tolist(), strict=True))
        assert len(keys) == len(set(keys))                              # one entry per track, depth and bin
        for row, key in zip(rows.tolist(), keys, strict=True):
            inside = np.flatnonzero(short & (track == key[0]) & (depth == key[1]) & (start >> (2 * level) == key[2]))
            assert bins["start_ns"][row] == start[inside].min()
            assert bins["start_ns"][row] + bins["dur_ns"][row] == (start + dur)[inside].max()
            assert bins["count"][row] == inside.size
            assert dur[bins["slice"][row]] == dur[inside].max() and bins["slice"][row] in inside


def test_runs_are_tiles():
    track, _, start, dur = many(2000, seed=1)
    top = tiles.top_level(int((start + dur).max()))
    order = tiles.order(track, start, dur, top)
    runs = tiles.runs(order.level, order.tile)
    ends = np.append(runs["row"][1:], order.rows.size)
    for level, tile, lo, hi in zip(*(runs[name].tolist() for name in ("level", "tile", "row")), ends.tolist(), strict=True):
        rows = order.rows[lo:hi]
        assert (start[rows] >> (2 * level + tiles.BIN_BITS) == tile).all()
        assert (np.diff(track[rows]) >= 0).all()


def test_packed_bytes_read_back():
    rows = {"start_ns": [1, 5, 2**50 + 1], "dur_ns": [4, 1, 0], "name_id": [7, 8, 9], "count": [1, 3, 1],
            "slice_id": [0, 2, 4], "depth": [0, 1, 0], "category": [0, 2, 5], "flags": [0, 2, 1], "fill": [255, 90, 255]}
    units = [(1, 0, 0), (1, 1, 7), (4, 0, 0xFFFF), (6, 0, 0)]
    data = pack(units, TileRows(np.array([1, 1, 6], np.int32), {k: np.array(v) for k, v in rows.items()},
                                np.array([4], np.int32), np.array([9]), np.array([0.5])))
    magic, count = np.frombuffer(data, "<u4", 2)
    assert (magic, count) == (MAGIC, 4)
    assert np.frombuffer(data, "<u4", 16, 8).reshape(4, 4).tolist() == [
        [1, 1, 0, 0], [1, 1, 0, 7 << 16 | 1], [4, 0, 1, 0xFFFF << 16], [6, 1, 0, 0]]
    at = 72
    for name, kind in COLUMNS:
        assert np.frombuffer(data, kind, 3, at).tolist() == rows[name], name
        at += 3 * np.dtype(kind).itemsize
    at += -at % 8
    assert np.frombuffer(data, "<f8", 2, at).tolist() == [9, 0.5]
    assert at + 16 == len(data)


def test_downsampling_keeps_the_extremes():
    rng = np.random.default_rng(3)
    time_ns, value = np.sort(rng.integers(0, 4**8, 5000)), rng.normal(size=5000)
    keep = downsample(time_ns, value, 5)
    bins = time_ns >> 10
    assert np.bincount(bins[keep]).max() <= 2
    for each in np.unique(bins):
        assert value[bins == each].min() == value[keep][bins[keep] == each].min()
        assert value[bins == each].max() == value[keep][bins[keep] == each].max()

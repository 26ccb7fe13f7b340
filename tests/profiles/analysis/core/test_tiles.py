"""Tiles against a plain walk over all slices: nothing is missing, nothing twice, and a tile is bounded."""

import numpy as np
import pytest

from profiles.analysis.core import tiles
from profiles.analysis.core.tiles import COLUMNS, MAGIC, TileRows, downsample, pack
from profiles.ingest.trace import TraceError


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


def stored(track, depth, start, dur, edges=()):
    """Slices and merged entries per level, as `Levels` hands them on; the slices pass in windows that end at `edges`."""
    tables = {}
    top = tiles.top_level(int((start + dur).max()))
    levels = tiles.Levels(top, lambda kind, level, table: tables.setdefault((kind, level), []).append(table))
    order = np.argsort(start, kind="stable")
    columns = {"track": track, "depth": depth, "start_ns": start, "dur_ns": dur, "name": np.arange(start.size, dtype=np.int32),
               "category": np.zeros(start.size, np.uint8), "instant": np.zeros(start.size, bool)}
    columns = {name: values[order] for name, values in columns.items()}
    first = 0
    for edge in [*sorted(edges), int(start.max()) + 1]:
        last = int(np.searchsorted(columns["start_ns"], edge))
        levels.add({name: values[first:last] for name, values in columns.items()}, edge)
        first = last
    levels.finish()
    return top, {place: {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
                 for place, parts in tables.items()}


@pytest.mark.slow
@pytest.mark.parametrize("edges", [(), (700_000, 700_001, 1_500_000, 2_000_000), tuple(range(1000, 3_000_000, 9_973))])
def test_merged_entries_hold_every_shorter_slice_once(edges):
    track, depth, start, dur = many(2000)
    top, tables = stored(track, depth, start, dur, edges)
    home = np.minimum(tiles.home_levels(dur), top)
    for level in range(1, top + 1):
        short, found = home < level, tables[1, level]
        assert found["count"].sum() == np.count_nonzero(short)
        keys = list(zip(found["track"].tolist(), found["depth"].tolist(), (found["start_ns"] >> (2 * level)).tolist(), strict=True))
        assert len(keys) == len(set(keys))                              # one entry per track, depth and bin
        for row, key in enumerate(keys):
            inside = np.flatnonzero(short & (track == key[0]) & (depth == key[1]) & (start >> (2 * level) == key[2]))
            assert found["start_ns"][row] == start[inside].min()
            assert found["start_ns"][row] + found["dur_ns"][row] == (start + dur)[inside].max()
            assert (found["count"][row], found["busy_ns"][row]) == (inside.size, dur[inside].sum())
            place = int(found["place"][row])
            longest = tables[0, place >> tiles.LEVEL_BITS]["name"][place & ((1 << tiles.LEVEL_BITS) - 1)]
            assert longest == found["name"][row] and longest in inside and dur[longest] == dur[inside].max()


@pytest.mark.parametrize("edges", [(), tuple(range(1000, 3_000_000, 50_000))])
def test_stored_order_is_tile_track_depth_start(edges):
    track, depth, start, dur = many(2000, seed=1)
    top, tables = stored(track, depth, start, dur, edges)
    assert sorted(np.concatenate([table["name"] for (kind, _), table in tables.items() if kind == 0]).tolist()) == list(range(2000))
    for (kind, level), table in tables.items():
        keys = np.stack([table["start_ns"], table["depth"], table["track"], table["start_ns"] >> (2 * level + tiles.BIN_BITS)])
        assert (np.lexsort(keys) == np.arange(table["start_ns"].size)).all()
        assert kind == 1 or (np.minimum(tiles.home_levels(table["dur_ns"]), top) == level).all()


def test_more_than_can_wait_at_one_moment_is_an_error(monkeypatch):
    """A hostile file of 10 M records at one time took 5 GB."""
    monkeypatch.setattr(tiles, "MAX_WAITING", 1000)
    columns = {"start_ns": np.zeros(600, np.int64), "dur_ns": np.full(600, 2), "track": np.zeros(600, np.int32),
               "depth": np.arange(600, dtype=np.int16)}
    levels = tiles.Levels(3, lambda kind, level, table: None)
    levels.add(columns, 0)
    with pytest.raises(TraceError, match="more than 1,000 slices of like duration begin within 1,024 ns"):
        levels.add(columns, 0)


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
    assert np.bincount(bins[keep]).max() <= 3
    for each in np.unique(bins):
        assert value[bins == each].min() == value[keep][bins[keep] == each].min()
        assert value[bins == each].max() == value[keep][bins[keep] == each].max()
        assert value[bins == each][-1] == value[keep][bins[keep] == each][-1]


def test_downsampled_pulses_end_at_zero_and_the_unknown_stays():
    """A counter holds its last value: of pulses within one bin what holds on is the 0 after the last of them."""
    time_ns = np.arange(12, dtype=np.int64) * 10
    value = np.array([0, 9, 0, 9, 0, 9, 0, 9, 0, 9, 0, np.nan])
    keep = downsample(time_ns, value, 6)
    assert value[keep][-2] == 0 and np.isnan(value[keep][-1]) and len(keep) == 4

"""What is stored reads back: tiles against a plain walk over the trace, on real and on drawn traces."""

import threading

import numpy as np
import pyarrow as pa
import pytest
from django.core.files.storage import default_storage

from profiles import ingest
from profiles.analysis.core import tiles
from profiles.analysis.core.kernels import numbers
from profiles.analysis.core.tiles import OVERFLOW
from profiles.store import timeline as timeline_store
from profiles.store import trace as store
from profiles.store.places import Places, join_ranges
from profiles.timeline.selectors import whole
from tests.builders import trace as drawn
from tests.profiles.ingest.corpus import CORPUS, H200


def stored(trace, profile_id: int):
    written = store.prepare(trace).write(profile_id)
    return timeline_store.timeline(profile_id), written


@pytest.fixture(scope="module")
def real():
    return ingest.read(H200 / "kineto_train.json.gz")


def columns(trace):
    names = ("track", "depth", "start_ns", "dur_ns", "category")
    return {name: numbers(trace.slices, name) for name in names} | {
        "name": trace.slices["name"].to_pylist(), "instant": numbers(trace.slices, "instant")}


def test_stored_slices_are_the_trace(real):
    found, written = stored(real, 101)
    rows = found.slices.read(0, found.slices.rows, timeline_store.DRAWN)
    got = sorted(zip(*(rows[name].tolist() for name in ("track", "depth", "start_ns", "dur_ns")),
                     [found.names[i] for i in rows["name_id"]], strict=True))
    want = columns(real)
    assert got == sorted(zip(*(want[name].tolist() for name in ("track", "depth", "start_ns", "dur_ns")), want["name"],
                             strict=True))
    sizes = [default_storage.size(store.key(101, name)) for name in default_storage.listdir("profiles/101")[1]]
    assert written == sum(sizes)


@pytest.mark.parametrize("level", [2, 5, 7, 8])
def test_tiles_show_every_slice_exactly_or_merged(real, level):
    found, _ = stored(real, 102)
    want = columns(real)
    start, end = want["start_ns"], want["start_ns"] + np.maximum(want["dur_ns"], 1)
    long_enough = want["dur_ns"] >= 4**level
    tracks = list(range(len(found.tracks)))
    last = found.document["end_ns"] >> (2 * level + 10)
    for index in np.unique(np.linspace(0, last, 6).astype(int)).tolist():
        lo, hi = index << (2 * level + 10), (index + 1) << (2 * level + 10)
        rows = found.tile(level, index, whole(tracks))
        exact = rows.columns["count"] == 1
        shown = set(zip(rows.track[exact].tolist(), rows.columns["start_ns"][exact].tolist(),
                        rows.columns["dur_ns"][exact].tolist(), strict=True))
        here = (start < hi) & (end > lo) & long_enough
        assert set(zip(want["track"][here].tolist(), start[here].tolist(), want["dur_ns"][here].tolist(), strict=True)) <= shown
        short = ~long_enough & (start >= lo) & (start < hi)
        began = (rows.columns["start_ns"] >= lo) & (rows.columns["dur_ns"] < 4**(level + 1)) & ~(
            exact & (rows.columns["dur_ns"] >= 4**level))
        assert rows.columns["count"][began].sum() == np.count_nonzero(short)
        keys = np.stack([rows.track, rows.columns["depth"], rows.columns["start_ns"]])
        assert (np.lexsort(keys[::-1]) == np.arange(rows.track.size)).all()


def test_slices_that_cross_tiles_are_in_each():
    found, _ = stored(drawn("p / t: long 0-900 | short 1-1.5 | late 800-801"), 103)
    level = 4                                            # a tile is 262.144 µs
    for index in range(4):
        rows = found.tile(level, index, whole([0]))
        assert "long" in [found.names[i] for i in rows.columns["name_id"]]
    assert len({int(found.tile(level, i, whole([0])).columns["slice_id"][0]) for i in range(4)}) == 1


def test_the_top_level_is_one_bounded_tile(real):
    found, _ = stored(real, 104)
    rows = found.tile(found.top, 0, whole(list(range(len(found.tracks)))))
    depths = sum(track["depths"] for track in found.tracks)
    assert rows.track.size <= 1024 * depths
    assert rows.columns["count"].sum() == real.slices.num_rows


def test_counters_are_downsampled_and_hold_their_value():
    found, _ = stored(drawn("""
        GPU 0 / stream 7: k 0-1000
        GPU 0 / memory: counter """ + " ".join(f"{i}={i % 7}" for i in range(1000))), 105)
    rows = found.tile(found.top, 0, whole([0, 1]))
    assert rows.sample_track.tolist() == [1] * rows.time_ns.size
    assert (rows.value.min(), rows.value.max()) == (0, 6)
    bins = rows.time_ns >> (2 * found.top)
    assert np.bincount(bins).max() <= 3
    late = found.tile(3, 4, whole([1]))                       # 262.144 to 327.68 µs: and the sample before
    assert late.time_ns[0] == 262_000 and late.time_ns[-1] == 327_000


def test_writing_again_replaces_what_readers_see():
    first, _ = stored(drawn("p / t: one 0-10"), 106)
    second, _ = stored(drawn("p / t: one 0-10 | two 20-30"), 106)
    assert (first.slices.rows, second.slices.rows) == (1, 2)
    assert first.etag != second.etag
    assert second.names == ["one", "two"]


def test_traces_without_slices_and_with_many_tracks():
    empty, _ = stored(drawn("p / t: a@other 5"), 107)
    assert empty.tile(empty.top, 0, whole([0])).columns["flags"].tolist() == [1]
    many, _ = stored(drawn("\n".join(f"p / t{i}: a {i}-{i + 1}" for i in range(500))), 108)
    assert many.tile(many.top, 0, whole(list(range(500)))).track.tolist() == list(range(500))


def test_many_threads_read_at_once(real):
    found, _ = stored(real, 109)
    expected = {i: found.tile(4, i, whole([1, 2, 3])).track.size for i in range(20)}
    wrong = []

    def read() -> None:
        for i in range(20):
            if timeline_store.timeline(109).tile(4, i, whole([1, 2, 3])).track.size != expected[i]:
                wrong.append(i)

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_stored_size_stays_small():
    path = CORPUS / "kineto/hta_nccl_data_a100_rank0of2.json.gz"
    _, written = stored(ingest.read(path), 110)
    assert written < 0.10 * 9_778_890


def test_a_tile_of_some_depths_holds_just_those(real):
    found, _ = stored(real, 111)
    every = found.tile(6, 3, whole([0, 1, 2]))
    units = [(0, 0, 1), (0, 3, 3), (2, 0, 7)]
    some = found.tile(6, 3, units)
    lanes = set(zip(some.track.tolist(), some.columns["depth"].tolist(), strict=True))
    assert lanes and all(any(track == t and a <= depth <= b for t, a, b in units) for track, depth in lanes)
    wanted = np.array([(t, d) in {(0, 0), (0, 1), (0, 3)} or t == 2
                       for t, d in zip(every.track.tolist(), every.columns["depth"].tolist(), strict=True)])
    for name, values in some.columns.items():
        assert values.tolist() == every.columns[name][wanted].tolist(), name


def test_a_sampled_index_finds_every_row(real):
    """The sample of the sort key that large tables have in place of one row per tile."""
    found, _ = stored(real, 112)
    rows = found.slices.read(0, found.slices.rows, timeline_store.DRAWN)
    level = np.minimum(tiles.home_levels(rows["dur_ns"]), found.top).astype(np.int64)
    tile = rows["start_ns"] >> (2 * level + tiles.BIN_BITS)
    order = np.lexsort((rows["start_ns"], rows["depth"], rows["track"], tile, level))
    key = {"level": level[order], "tile": tile[order], "track": rows["track"][order], "depth": rows["depth"][order]}
    begins = np.flatnonzero(np.concatenate(([True], np.diff(key["level"]) > 0)))
    sampled = np.unique(np.concatenate((begins, np.arange(0, order.size, 64))))
    index = pa.table({"table": np.zeros(sampled.size, np.int8), "row": sampled, **{k: v[sampled] for k, v in key.items()}})
    places = Places(index, {0: order.size}, 99, len(found.tracks))
    for at in range(0, order.size, 97):
        lane = (int(key["track"][at]), int(key["depth"][at]))
        lo, hi = places.rows(0, int(key["level"][at]), (int(key["tile"][at]),) * 2, lane, lane)
        same = np.flatnonzero(np.logical_and.reduce([key[name] == key[name][at] for name in key]))
        assert lo <= same[0] and same[-1] < hi and hi - lo <= same.size + 3 * 64
        assert (key["level"][lo:hi] == key["level"][at]).all()
    assert places.rows(0, 99, (0, 0)) == (0, 0)
    assert join_ranges([(5, 9), (0, 3), (8, 12), (3, 3)]) == [(0, 3), (5, 12)]


def test_overflow_lanes_are_told_from_nesting():
    found, _ = stored(drawn("GPU 0 / stream 7: a 0-100 | inside 20-40 | crossing 50-140 | after 200-300"), 113)
    rows = found.tile(2, 0, whole([0])) if found.top < 2 else found.tile(found.top, 0, whole([0]))
    flags = {found.names[i]: bool(f & OVERFLOW) for i, f in zip(rows.columns["name_id"], rows.columns["flags"], strict=True)}
    assert flags == {"a": False, "inside": False, "crossing": True, "after": False}
    depth = int(rows.columns["depth"][rows.columns["flags"] & OVERFLOW > 0][0])
    some = found.tile(found.top, 0, [(0, depth, depth + 3)])
    assert (some.columns["depth"] >= depth).all() and (some.columns["flags"] & OVERFLOW).any()

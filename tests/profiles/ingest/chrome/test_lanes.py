"""Depths: nested where slices contain each other, overflow lanes where they overlap, never two at one place."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles.ingest.core.lanes import Depths, depths
from profiles.ingest.windows import Window


def laid_out(rows):
    """rows: (track, start, dur[, instant]) -> depths, overflowed."""
    track, start, dur = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    instant = np.array([len(row) > 3 for row in rows], bool)
    depth, overflowed = depths(track.astype(np.int32), start, dur, instant)
    return depth.tolist(), overflowed


@pytest.mark.parametrize(("rows", "expected", "overflowed"), [
    ([(0, 0, 100), (0, 10, 20), (0, 12, 5), (0, 40, 60)], [0, 1, 2, 1], 0),
    ([(0, 0, 10), (0, 10, 10), (1, 5, 10)], [0, 0, 0], 0),                         # touching is not overlapping
    ([(0, 0, 10), (0, 5, 10)], [0, 1], 1),                                         # partly overlapping: a lane below
    ([(0, 0, 10), (0, 5, 10), (0, 12, 8)], [0, 1, 0], 1),
    ([(0, 0, 50), (0, 0, 50), (0, 0, 50)], [0, 1, 2], 0),                          # equal slices nest
    ([(0, 5, 0), (0, 5, 0), (0, 0, 10)], [1, 2, 0], 0),                            # no duration: still a place of its own
    ([(0, 0, 100), (0, 10, 50), (0, 20, 0, True), (0, 70, 0, True), (0, 200, 0, True)], [0, 1, 1, 0, 0], 0),
])
def test_examples(rows, expected, overflowed):
    assert laid_out(rows) == (expected, overflowed)


def test_tracks_far_apart_in_time():
    depth, _ = laid_out([(0, -2**61, 10), (1, 2**61, 10), (2, 0, 5), (2, 1, 2)])
    assert depth == [0, 0, 0, 1]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(0, 30)), max_size=60))
def test_no_two_slices_share_a_place(rows):
    depth, _ = laid_out(rows)
    places = sorted((track, d, start, start + max(dur, 1)) for (track, start, dur), d in zip(rows, depth, strict=True))
    for one, other in pairwise(places):
        if one[:2] == other[:2]:
            assert other[2] >= one[3]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_nested_slices_have_their_parents_depth_and_one(data):
    """Trees of calls: depth is the number of ancestors, and nothing overflows."""
    rows, expected = [], []

    def grow(start, end, level):
        rows.append((0, start, end - start))
        expected.append(level)
        cursor = start + 1
        while cursor + 2 < end and data.draw(st.booleans()):
            stop = data.draw(st.integers(cursor + 1, end - 1))
            grow(cursor, stop, level + 1)
            cursor = stop

    grow(0, data.draw(st.integers(3, 120)), 0)
    assert laid_out(rows) == (expected, 0)


def in_windows(rows, edges):
    """Depths laid out window by window; `edges`: times at which one ends and the next begins."""
    track, start, dur = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    instant = np.array([len(row) > 3 for row in rows], bool)
    out, laid, last = np.full(len(rows), -1), Depths(), None
    for edge in [*sorted(edges), 10_000]:
        mine = np.flatnonzero((start < edge) & (True if last is None else start >= last))
        mine = mine[np.argsort(start[mine], kind="stable")]
        out[mine] = laid.add(Window({"track": track[mine].astype(np.int32), "start_ns": start[mine], "dur_ns": dur[mine],
                                     "instant": instant[mine]}, edge))
        last = edge
    return out.tolist(), laid.overflowed


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.lists(st.one_of(st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(0, 30)),
                          st.tuples(st.integers(0, 2), st.integers(0, 60), st.just(0), st.just(True))), max_size=50),
       st.sets(st.integers(1, 70), max_size=6))
def test_windows_lay_out_as_the_whole_trace(rows, edges):
    assert in_windows(rows, edges) == laid_out(rows)


def test_a_slice_that_overflows_costs_only_its_own_place():
    """What follows it nests as if nothing had been; what begins while it lasts keeps clear of it."""
    rows = [(0, 0, 100), (0, 10, 10), (0, 15, 20), (0, 16, 2), (0, 40, 20), (0, 45, 5)]
    assert laid_out(rows) == ([0, 1, 2, 3, 1, 2], 1)


def test_many_overlaps_cost_linear_time():
    n = 60_000
    start = np.arange(n, dtype=np.int64) * 2
    depth, overflowed = depths(np.zeros(n, np.int32), start, np.full(n, 10 * n, np.int64) + start, np.zeros(n, bool))
    assert depth[:100].tolist() == list(range(100)) and overflowed > n // 2

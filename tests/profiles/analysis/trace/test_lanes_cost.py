"""What is asked lane by lane costs as many records as there are, not lanes times records."""

from __future__ import annotations

import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profiles.analysis.core.columns import rows_by_value
from profiles.analysis.core.digest import HOST_ROW, NO_KIND, Nesting
from profiles.analysis.core.frame import Frame
from profiles.analysis.trace.breakdown import _Rows, _Sums
from profiles.analysis.trace.critical.links import most_votes
from profiles.analysis.trace.critical.walk import CPU, Path, _by_thread
from profiles.analysis.trace.host import Gaps, _Starved, _Sum
from profiles.analysis.trace.time.ranges import ORDER, Phases
from profiles.ingest.trace import Track
from tests.builders import trace

LANES = 60_000


@given(st.lists(st.integers(-2, 9), max_size=60))
def test_rows_of_each_value_are_those_of_a_mask(values: list[int]) -> None:
    column = np.array(values, np.int32)
    found = rows_by_value(column)
    assert sorted(found) == sorted(set(values))
    assert all(np.array_equal(rows, np.flatnonzero(column == value)) for value, rows in found.items())


def test_busy_time_of_many_threads_is_summed_in_time() -> None:
    """With a mask of all records for each thread it took 23 s; the bound is of this process's own time."""
    sums = _Sums(trace("app (1) / main: a 0-10"))
    sums._busy, sums._until = np.zeros(LANES), np.full(LANES, np.iinfo(np.int64).min)
    start = np.arange(LANES) * 10
    began_s = time.process_time()
    sums._union(_Rows(np.arange(LANES)[::-1].copy(), start, start + 4, np.zeros(LANES, np.int64), np.zeros(LANES, np.int64),
                      np.ones(LANES, np.bool_)))
    assert time.process_time() - began_s < 8
    assert sums._busy.tolist() == [4.0] * LANES


_intervals = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(1, 4)), max_size=12)


@given(_intervals, st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 60)), max_size=20))
def test_starved_time_of_all_threads_at_once_is_that_of_each(lengths: list[tuple[int, int, int]],
                                                             questions: list[tuple[int, int]]) -> None:
    covered: dict[int, list[int]] = {}
    columns: list[tuple[int, int, int]] = []
    for thread, pause, length in lengths:
        begin = covered.setdefault(thread, [0])[-1] + pause + 1
        covered[thread] += range(begin, begin + length)
        columns.append((thread, begin, length))
    starved = _Starved(*(np.array(column, np.int64) for column in (zip(*columns, strict=True) if columns else ((), (), ()))))
    questions = [question for question in questions if question[0] in covered]
    thread_of, time_ns = (np.array([question[side] for question in questions], np.int64) for side in (0, 1))
    assert starved.before(thread_of, time_ns).tolist() == [sum(moment < at for moment in covered[thread][1:])
                                                           for thread, at in questions]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=40))
def test_whom_most_name_is_that_of_a_table_of_votes(pairs: list[tuple[int, int]]) -> None:
    of, who = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
    otherwise, votes = np.array([4, 3, 2, 1, 0]), np.zeros((5, 5), np.int64)
    np.add.at(votes, (of, who), 1)
    assert most_votes(of, who, otherwise).tolist() == np.where(votes.any(1), votes.argmax(1), otherwise).tolist()


def test_votes_of_many_processes_take_no_table() -> None:
    """A table of 60,000 streams and as many processes has 29 GB."""
    numbers = np.arange(LANES)
    assert most_votes(numbers, numbers[::-1], numbers).tolist() == numbers[::-1].tolist()


def test_what_many_launching_threads_did_is_summed_in_time() -> None:
    """With a mask of all slices for each thread that starves a GPU it took 40 s; the bound is of this process's own time."""
    start = np.arange(LANES) * 10
    rows = np.zeros(LANES, HOST_ROW)
    rows["start_ns"], rows["end_ns"], rows["track"] = start, start + 8, np.arange(LANES)
    rows["kind"], rows["within"] = Nesting.OPERATOR, NO_KIND
    began_s = time.process_time()
    sums = _Sum(Gaps(start, start + 9, np.full(LANES, 4), np.arange(LANES)))
    sums.add(rows)
    assert time.process_time() - began_s < 8
    assert sums.result(["op"]).operator_ns == sums.total == 4 * LANES


def test_a_path_over_many_threads_is_cut_in_time() -> None:
    zeros = np.zeros(LANES, np.int64)
    path = Path(0, LANES, np.full(LANES, CPU), zeros, np.arange(LANES)[::-1].copy(), zeros, zeros, 0)
    began_s = time.process_time()
    of_thread = _by_thread(path)
    assert time.process_time() - began_s < 8
    assert [rows.tolist() for rows in of_thread.values()] == [[LANES - 1 - thread] for thread in of_thread]


def test_ranks_of_many_tracks_are_numbered_in_time() -> None:
    """With a new list of ranks for each track the phases of 60,000 took minutes; 1,000 ranks were asked of each track as well."""
    tracks = [Track("thread", "t", f"rank {number % 1000}: python") for number in range(LANES)]
    began_s = time.process_time()
    labels, number = Frame(0, [], [], tracks, [], lambda name: np.empty(0, np.int64),
                           {"ranks": {f"rank {at}": {} for at in range(1000)}}).rank_numbers
    phases = Phases.__new__(Phases)
    phases.rows = np.arange(LANES)
    phases.flag = np.zeros(LANES, np.int64)
    phases.frame = Frame(LANES, ["f"], [], tracks, [], lambda name: np.arange(LANES) % LANES if name == "track" else np.ones(
        LANES, np.int64))
    assert phases.host_ns()[ORDER[0]] == 1
    assert time.process_time() - began_s < 8
    assert labels[:2] == ["rank 0", "rank 1"] and number.tolist() == [at % 1000 for at in range(LANES)]

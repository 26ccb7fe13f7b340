"""What is asked lane by lane costs as many records as there are, not lanes times records."""

from __future__ import annotations

import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profiles.analysis.core.columns import rows_by_value
from profiles.analysis.trace.cpu_time import _Rows, _Sums
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

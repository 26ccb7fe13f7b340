"""Interval sets against a bitmap of every nanosecond."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles.analysis.core import intervals

SPAN = 60
sets = st.lists(st.tuples(st.integers(0, SPAN), st.integers(0, 20)), max_size=12)


def of(rows):
    start = np.array([start for start, _ in rows], np.int64)
    return intervals.union(start, start + np.array([length for _, length in rows], np.int64))


def bitmap(rows):
    out = np.zeros(SPAN + 30, bool)
    for start, length in rows:
        out[start:start + length] = True
    return out


@settings(deadline=None)
@given(sets, sets, st.integers(0, SPAN), st.integers(0, 30))
def test_against_a_bitmap(one, other, begin, width):
    a, bits = of(one), bitmap(one)
    assert a.length_ns == bits.sum()
    assert (a.start_ns[1:] > a.end_ns[:-1]).all()
    assert intervals.join(a, of(other)).length_ns == (bits | bitmap(other)).sum()
    end = begin + width
    inside = bits[begin:end].sum()
    assert intervals.clip(a, begin, end).length_ns == inside
    assert intervals.gaps(a, begin, end).length_ns == width - inside
    times = np.arange(bits.size)
    assert intervals.covered_before(a, times).tolist() == np.concatenate(([0], np.cumsum(bits)))[:-1].tolist()
    assert intervals.overlap_ns(a, np.array([begin]), np.array([end])).tolist() == [inside]

"""Groups of small launches that repeat: found once with their period, and at the same cost whatever the launches are."""

from __future__ import annotations

import numpy as np

from profiles.analysis.trace.needed.kinds.loops import FEWEST_ELEMENTS, MOST_PERIOD, _repeats


def found(items: list[int], wrong: frozenset[int] = frozenset()) -> list[tuple[int, int, int]]:
    return sorted(_repeats(np.array(items, np.int64), np.array([item not in wrong for item in items], np.bool_)))


def test_a_group_is_found_where_it_begins_with_its_period_and_count() -> None:
    assert found([9, 8, *[1, 2, 3] * 40, 7])[0] == (2, 3, 40)
    assert found([1, 2] * (FEWEST_ELEMENTS - 1)) == []
    assert found([1, 2] * 40, wrong=frozenset({2})) == []               # one of the group is no small launch
    assert found([*range(MOST_PERIOD + 1)] * 40) == []                  # too long for a row


def test_one_launch_again_and_again_is_no_group() -> None:
    assert found([5] * 200_000) == []           # a search that tries each place again takes minutes

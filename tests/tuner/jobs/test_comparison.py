"""Two jobs side by side, against numbers worked out by hand."""

import math

import pytest

from tuner.jobs.comparison import best_shared_config, carried_losses, compare
from tuner.tuning.trial import Measured, Reason, Rejected, Trial


def trial(number, a, ms, **facts):
    outcome = Rejected(Reason.SPILLS) if ms is None else Measured(ms, ms, ms, 9, facts)
    return Trial(number, {"A": a}, outcome, float(number + 1))


A = [trial(0, 1, 2.0), trial(1, 2, 1.0), trial(2, 3, 4.0), trial(3, 4, None), trial(4, 5, 3.0), trial(5, 6, 8.0)]
B = [trial(0, 6, 16.0), trial(1, 5, 6.0), trial(2, 3, 8.0), trial(3, 1, 4.0), trial(4, 2, 2.0), trial(5, 9, 0.5, ended="raced")]


def test_one_problem_is_measured_by_the_better_winner():
    found = compare(A, B, same_problem=True)
    assert found.best_ms == (1.0, 2.0)                                  # the raced 0.5 ms is no time
    assert [each.trials for each in found.reached[0]] == [2, 2, 2, 2]
    assert [each.trials for each in found.reached[1]] == [None] * 4        # a raced trial's few samples reach nothing
    assert found.failures == (("spills", 1, 0),)


def test_what_both_measured_gives_ratio_interval_and_order():
    found = compare(A, B, same_problem=False)
    assert len(found.pairs) == 5 and found.ratio == pytest.approx(2.0)
    assert found.interval == pytest.approx((2.0, 2.0)) and found.rank == pytest.approx(1.0)
    assert found.crossed[0].ms == 2.0 and found.crossed[0].loss == 1.0
    assert [each.trials for each in found.reached[1]] == [5] * 4           # each to its own best


def test_few_pairs_have_no_interval_and_none_no_ratio():
    few = compare(A[:2], B[3:5], same_problem=True)
    assert few.ratio == pytest.approx(2.0) and few.interval is None and few.rank is None
    assert compare(A[:1], B[:1], same_problem=True).ratio is None
    empty = compare([], B, same_problem=True)
    assert empty.best_ms == (None, 2.0) and empty.crossed[0].loss is None and empty.reached[0][0].trials is None


def test_one_winner_at_another_shape_and_one_for_all():
    """A=2 is best of the first, A=3 of the second; A=1 is the least bad for both."""
    first = [trial(0, 1, 1.2), trial(1, 2, 1.0), trial(2, 3, 3.0)]
    second = [trial(0, 1, 2.2), trial(1, 3, 2.0), trial(2, 2, 5.0)]
    assert carried_losses([first, second]) == [[1.0, 2.5], [3.0, 1.0]]
    best = best_shared_config([first, second])
    assert best.config == {"A": 1} and best.worst == pytest.approx(1.2) and best.mean == pytest.approx(math.sqrt(1.2 * 1.1))
    assert best_shared_config([first, [trial(0, 7, 1.0)]]) is None and best_shared_config([]) is None
    assert carried_losses([first, []]) == [[1.0, None], [None, None]]

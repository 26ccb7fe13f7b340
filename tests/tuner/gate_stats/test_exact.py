"""The exact rank test against SciPy's, against brute force and against numbers from tables."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from tuner.gate.stats import distributions

rng = np.random.default_rng(1)


def by_permutations(candidate, baseline):
    """SciPy counts every choice of runs; the statistic is the candidate's sum of midranks."""
    def rank_sum(c, b, axis=-1):
        return np.take(stats.rankdata(np.concatenate([c, b], axis=-1), axis=-1), range(c.shape[-1]), axis=-1).sum(axis=-1)

    return stats.permutation_test((candidate, baseline), rank_sum, vectorized=True, n_resamples=np.inf,
                                  alternative="greater").pvalue


@pytest.mark.parametrize(("candidates", "baselines"), [(1, 4), (3, 3), (5, 5), (5, 10), (10, 5), (9, 12), (12, 20)])
def test_without_ties_it_is_mann_whitneys_exact_test(candidates, baselines):
    for shift in (0, 0.5, 1.5):
        c, b = rng.normal(shift, 1, candidates), rng.normal(0, 1, baselines)
        expected = stats.mannwhitneyu(c, b, alternative="greater", method="exact").pvalue
        assert distributions.rank_sum_p(c, b) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("candidates", "baselines"), [(2, 3), (5, 5), (3, 8), (8, 3), (5, 10)])
def test_with_ties_it_is_the_exact_permutation_test(candidates, baselines):
    for values in (2, 3, 6):
        c, b = rng.integers(0, values, candidates).astype(float) + 0.5, rng.integers(0, values, baselines).astype(float)
        c[0] = b[0]
        assert distributions.rank_sum_p(c, b) == pytest.approx(by_permutations(c, b), rel=1e-9)


def test_ties_do_not_blunt_complete_separation():
    """SciPy's normal approximation says 0.0049 here, one-sided; the truth is 1 of 252, 0.0040."""
    c, b = np.array([11.0, 11, 12, 12, 12]), np.array([10.0, 10, 10, 9, 9])
    assert distributions.rank_sum_p(c, b) == pytest.approx(1 / 252)
    assert stats.mannwhitneyu(c, b, alternative="greater").pvalue > 0.0045
    assert distributions.rank_sum_p(np.full(5, 2.0), np.full(5, 2.0)) == 1
    assert distributions.smallest_p(5, 10) == pytest.approx(1 / 3003)
    assert distributions.smallest_p(1000, 1000) >= 0


def test_many_runs_fall_back_on_the_normal_limit_which_is_near_and_not_too_small():
    c, b = rng.normal(0.4, 1, 50), rng.normal(0, 1, 60)
    assert distributions._steps(50, 60) > distributions.MOST_STEPS
    truth = stats.mannwhitneyu(c, b, alternative="greater", method="exact").pvalue
    assert truth * 0.98 < distributions.rank_sum_p(c, b) < truth * 1.2


@pytest.mark.parametrize(("candidates", "baselines", "risk"), [
    (5, 10, 0.05), (5, 10, 0.01 / 13), (5, 5, 0.05), (8, 10, 0.01), (2, 2, 0.05)])
def test_the_cut_is_the_last_one_that_keeps_the_risk(candidates, baselines, risk):
    k = distributions.cutoff(candidates, baselines, risk)
    def at_most(u):
        return sum(exact_pmf(candidates, baselines)[: u + 1])
    assert k == 0 or at_most(k - 1) <= risk
    assert at_most(k) > risk


def exact_pmf(n, m):
    """Of U, by enumeration of ranks."""
    counts = np.zeros(n * m + 1)
    for chosen in itertools.combinations(range(n + m), n):
        counts[sum(chosen) - n * (n - 1) // 2] += 1
    return counts / counts.sum()


def test_cuts_of_five_against_ten_stand_in_printed_tables():
    """Mann and Whitney's table, one-sided: U ≤ 11 at 0.05, U ≤ 6 at 0.01 for 5 and 10."""
    assert distributions.cutoff(5, 10, 0.05) - 1 == 11
    assert distributions.cutoff(5, 10, 0.01) - 1 == 6


def test_joint_p_is_the_share_of_choices_where_either_number_looks_so_extreme():
    for draw in range(5):
        own = np.random.default_rng(draw)
        c, b = own.normal(0.6, 1, (2, 4)), own.normal(0, 1, (2, 6))
        c[1], b[1] = 0.5 * c[0] + c[1], 0.5 * b[0] + b[1]
        both = np.concatenate([c, b], axis=1)
        ranks = stats.rankdata(both, axis=1)
        sums = np.array([ranks[:, list(chosen)].sum(axis=1) for chosen in itertools.combinations(range(10), 4)])
        p_of = np.stack([[np.mean(sums[:, m] >= value) for value in sums[:, m]] for m in (0, 1)], axis=1)
        for metric, found in enumerate(distributions.joint_p(list(c), list(b))):
            alone = np.mean(sums[:, metric] >= ranks[metric, :4].sum())
            assert found == pytest.approx(np.mean(p_of.min(axis=1) <= alone + 1e-12))
            assert alone <= found <= min(1, 2 * alone) + 1e-12


def test_numbers_that_move_together_cost_nothing():
    c, b = np.arange(5.0) + 20, np.arange(10.0)
    assert distributions.joint_p([c, c * 1.1], [b, b * 1.1]) == pytest.approx([1 / 3003, 1 / 3003])
    many_c, many_b = np.arange(12.0) + 100, np.arange(20.0)
    assert math.comb(32, 12) > distributions.MOST_CHOICES
    assert distributions.joint_p([many_c, many_c], [many_b, many_b]) == pytest.approx([2 / math.comb(32, 12)] * 2)


def test_holm_steps_down_and_stops():
    assert distributions.holm_levels([0.001, 0.004, 0.5], 0.01, 3) == pytest.approx([0.01 / 3, 0.005, 0.01])
    # the second stops: all after it are judged at its level
    assert distributions.holm_levels([0.001, 0.006, 0.0061], 0.01, 3) == pytest.approx([0.01 / 3, 0.005, 0.005])
    assert distributions.holm_levels([0.5], 0.01, 13) == pytest.approx([0.01 / 13])
    assert distributions.holm_levels([], 0.01, 13) == []


def test_identical_builds_are_significant_no_more_often_than_said():
    """5 against 10 draws of heavily tied values: P(p ≤ level) ≤ level for each level."""
    draws = [distributions.rank_sum_p(each[:5], each[5:]) for each in rng.integers(0, 6, (3000, 15)).astype(float)]
    for level in (0.01, 0.05, 0.2):
        assert np.mean(np.array(draws) <= level) <= level + 3 * (level / 3000) ** 0.5

"""Tails and quantiles of the normal, Student's t and chi-square distributions.

scipy.special computes what scipy.stats wraps, to the last bit, at a third of its import time; and it is imported here,
inside the functions, because few of the processes that import the gate's rules ever judge anything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

QUARTILE = 0.6744897501960817       # of the standard normal: its median absolute deviation


def normal_cdf(z: NDArray[np.floating[Any]]) -> Floats:
    """P(Z ≤ z) at every z, same shape."""
    from scipy.special import ndtr

    return np.asarray(ndtr(z))


def normal_tail(z: float) -> float:
    """P(Z > z)."""
    from scipy.special import ndtr

    return float(ndtr(-z))


def normal_quantile(p: float) -> float:
    """The z with P(Z ≤ z) = p."""
    from scipy.special import ndtri

    return float(ndtri(p))


def t_tail(t: float, free: float) -> float:
    """P(T > t) with `free` degrees of freedom."""
    from scipy.special import stdtr

    return float(stdtr(free, -t))


def t_quantile(p: float, free: float) -> float:
    """The t with P(T ≤ t) = p."""
    from scipy.special import stdtrit

    return float(stdtrit(free, p))


def chi2_tail(x: float, free: float) -> float:
    """P(X > x) with `free` degrees of freedom."""
    from scipy.special import chdtrc

    return float(chdtrc(free, x))


def deviation_around_zero(values: Floats) -> float:
    """Median of |values|, scaled to the standard deviation of a normal distribution; NaN without values."""
    return float(np.median(np.abs(values)) / QUARTILE) if values.size else math.nan


# The exact rank test on fresh runs, ties included: its null distribution, Holm's steps, and the interval that inverts it.
#
# Null hypothesis: the runs of both builds are exchangeable, so each choice of which runs are the candidate's is equally likely.
# The statistic is the rank sum of the candidate's run medians (Mann and Whitney's U), with midranks for ties; its distribution
# is counted over all choices, given the ties that are there (Streitberg and Röhmel's shift algorithm, 1986: a table of (runs
# chosen, sum of ranks) filled one run at a time; doubled midranks keep it in whole numbers). SciPy's `mannwhitneyu` leaves the
# exact distribution as soon as two runs tie, and its normal approximation says 0.012 where complete separation of 5 and 5 runs
# is 0.008; `permutation_test` counts 30 million choices for 10 and 20 runs one by one. Both are the oracles of
# tests/tuner/gate_stats/test_exact.py.
#
# How much slower is Hodges and Lehmann's ratio: each pair of a candidate's and a baseline's run gives one ratio, their median
# is the estimate, and the k-th smallest and the k-th largest are its bounds, k from the exact distribution.

Floats = NDArray[np.float64]

MOST_STEPS = 5e7        # of the counting; beyond it (50 and 60 runs) the normal limit, whose tail is a little too heavy: safe
MOST_CHOICES = 60_000   # that are enumerated to judge two metrics at once: 8 and 10 runs
ROUNDING = 1e-9         # shares of choices are sums of exact counts; this only swallows the last bits of a float


def rank_sum_p(candidate: Floats, baseline: Floats) -> float:
    """Return P(the candidate's rank sum is so large or larger | exchangeable), one-sided.

    Small says that the candidate is slower.
    """
    ranks = doubled_ranks(np.concatenate([candidate, baseline]))
    chosen, others = len(candidate), len(baseline)
    if not chosen or not others:
        return 1.0
    observed, total = int(ranks[:chosen].sum()), int(ranks.sum())
    if _steps(chosen, others) > MOST_STEPS:
        from scipy.stats import mannwhitneyu  # only here: it takes most of a second to import

        return float(mannwhitneyu(candidate, baseline, alternative="greater", method="asymptotic").pvalue)
    pattern = tuple(sorted(ranks.tolist()))
    if chosen <= others:
        return float(_upper_tail(pattern, chosen)[observed])
    # counted over the smaller side: the candidate's sum is large where the baseline's is small
    at_least = _upper_tail(pattern, others)
    return float(1.0 - at_least[total - observed + 1]) if total - observed + 1 < len(at_least) else 1.0


def doubled_ranks(values: Floats) -> NDArray[np.int64]:
    """Return twice the midrank of each value: 2, 4, … without ties."""
    ordered = np.sort(values)
    below, up_to = np.searchsorted(ordered, values, "left"), np.searchsorted(ordered, values, "right")
    return (below + up_to + 1).astype(np.int64)


def joint_p(candidate: Sequence[Floats], baseline: Sequence[Floats]) -> list[float]:
    """Return `rank_sum_p` of several metrics of the same runs, each corrected for having looked at all.

    Westfall and Young's minP over the same choices of runs: the share of choices in which any metric looks as extreme as
    this one does. Metrics that move together (p50 and p95 of a slower kernel) so cost nothing, where Bonferroni would
    double every p. With more choices than are enumerated it is Bonferroni.
    """
    marginal = [rank_sum_p(c, b) for c, b in zip(candidate, baseline, strict=True)]
    if len(marginal) == 1:
        return marginal
    chosen, runs = len(candidate[0]), len(candidate[0]) + len(baseline[0])
    if math.comb(runs, chosen) > MOST_CHOICES:
        return [min(1.0, p * len(marginal)) for p in marginal]
    choices = _choices(runs, chosen)
    smallest = np.ones(len(choices))
    for c, b in zip(candidate, baseline, strict=True):
        sums = doubled_ranks(np.concatenate([c, b]))[choices].sum(axis=1)
        ordered = np.sort(sums)
        np.minimum(smallest, 1.0 - np.searchsorted(ordered, sums, "left") / len(sums), out=smallest)
    return [max(p, float(np.mean(smallest <= p * (1 + ROUNDING)))) for p in marginal]


def smallest_p(candidate_runs: int, baseline_runs: int) -> float:
    """Return the p of complete separation: 1 of all choices; 5 of 15 runs: 1/3003."""
    if not candidate_runs or not baseline_runs:
        return 1.0
    a, b, both = (math.lgamma(runs + 1) for runs in (candidate_runs, baseline_runs, candidate_runs + baseline_runs))
    return math.exp(a + b - both)


@lru_cache(maxsize=512)
def cutoff(candidate_runs: int, baseline_runs: int, risk: float) -> int:
    """Return the largest k with P(U < k) ≤ `risk`; 0: none has.

    U is the number of (candidate, baseline) pairs in the unexpected order.

    The k-th smallest ratio of all pairs is then a bound below the true ratio with confidence 1 - `risk` (Hodges and
    Lehmann's interval; Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 4.3). Where runs tie the closed
    bound is still kept, with a little more confidence than asked for.
    """
    below = np.asarray(null_distribution(candidate_runs, baseline_runs))
    return int(np.searchsorted(below, risk * (1 + ROUNDING), "right"))


@lru_cache(maxsize=512)
def null_distribution(candidate_runs: int, baseline_runs: int) -> tuple[float, ...]:
    """Return P(U ≤ u) for u = 0, 1, …, without ties."""
    small, large = sorted((candidate_runs, baseline_runs))
    pairs, runs = small * large, small + large
    if _steps(small, large) > MOST_STEPS:
        spread = math.sqrt(pairs * (runs + 1) / 12)
        return tuple(normal_cdf((np.arange(pairs + 1) + 0.5 - pairs / 2) / spread).tolist())
    at_least = _upper_tail(tuple(range(2, 2 * runs + 2, 2)), small)
    largest = small * (2 * runs - small + 1)                # doubled rank sum of complete separation: U = 0
    return tuple(float(at_least[largest - 2 * u]) for u in range(pairs + 1))


def bound_confidence(candidate_runs: int, baseline_runs: int, k: int) -> float:
    """Return the confidence of the bound at the k-th pair (1: the outermost)."""
    return 1.0 - null_distribution(candidate_runs, baseline_runs)[k - 1] if k > 0 else 1.0


def holm_levels(p_values: Sequence[float], alpha: float, family: int) -> list[float]:
    """Return the level at which Holm's step-down test judges each p.

    It is alpha / what is left of the family when the p's turn comes.

    What is not significant is at the level at which the stepping stopped. `family` ≥ len(p_values).
    """
    levels, left, stopped = [0.0] * len(p_values), family, False
    for index in sorted(range(len(p_values)), key=lambda i: p_values[i]):
        levels[index] = alpha / left
        stopped = stopped or p_values[index] > levels[index] * (1 + ROUNDING)
        left -= not stopped
    return levels


def _steps(small: int, large: int) -> float:
    small, large = sorted((small, large))
    return 2.0 * small**2 * (small + large) ** 2


@lru_cache(maxsize=4096)
def _upper_tail(pattern: tuple[int, ...], chosen: int) -> Floats:
    """P(sum of the `chosen` ranks ≥ s) for s = 0, 1, …; `pattern`: all doubled midranks, sorted."""
    width = sum(pattern[-chosen:]) + 1
    ways = np.zeros((chosen + 1, width))
    ways[0, 0] = 1.0
    for index, rank in enumerate(pattern):
        top = min(index + 1, chosen)
        if rank < width:
            ways[1 : top + 1, rank:] += ways[:top, : width - rank].copy()
    counts = ways[chosen]
    tail: Floats = np.cumsum(counts[::-1])[::-1] / counts.sum()
    return tail


@lru_cache(maxsize=8)
def _choices(runs: int, chosen: int) -> NDArray[np.int16]:
    """Every choice of `chosen` of the runs, a row each."""
    flat = np.fromiter((i for row in combinations(range(runs), chosen) for i in row), np.int16)
    return flat.reshape(-1, chosen)


@dataclass(frozen=True)
class Bounds:
    """Ratio of candidate to baseline; `low` and `high` hold with the risks asked for only where `*_kept`."""

    ratio: float
    low: float
    high: float
    low_kept: bool           # false: so few runs reach that confidence at no bound; it is then the outermost pair
    high_kept: bool
    confidence: float        # of low and high together
    low_confidence: float    # of low alone


def ratio_bounds(candidate: Floats, baseline: Floats, low_risk: float, high_risk: float) -> Bounds:
    """Return the ratio of run medians with its interval, which inverts the exact rank test.

    `low_risk`, `high_risk`: probabilities that the true ratio lies below `low`, above `high`.
    """
    pairs = np.sort(np.divide.outer(candidate, baseline), axis=None)
    low_k, high_k = (cutoff(len(candidate), len(baseline), risk) for risk in (low_risk, high_risk))
    low_at, high_at = max(low_k, 1), max(high_k, 1)
    low_held, high_held = (bound_confidence(len(candidate), len(baseline), k) for k in (low_at, high_at))
    return Bounds(float(_middle(pairs)), float(pairs[low_at - 1]), float(pairs[-high_at]), low_k > 0, high_k > 0,
                  max(low_held + high_held - 1.0, 0.0), low_held)


def ratio_estimate(candidate: Floats, baseline: Floats) -> float:
    """Return Hodges and Lehmann's ratio of run medians."""
    return float(_middle(np.sort(np.divide.outer(candidate, baseline), axis=None)))


def _middle(ordered: Floats) -> float:
    half = len(ordered) // 2
    return float(ordered[half]) if len(ordered) % 2 else float((ordered[half - 1] * ordered[half]) ** 0.5)

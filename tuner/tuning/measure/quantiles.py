"""Quantiles of samples, and the interval of a median without an assumption about their distribution. Plain Python."""

from __future__ import annotations

import math
from collections.abc import Sequence

from profiles.base.numbers import quantile


def median_interval(ordered: Sequence[float]) -> tuple[float, float]:
    """Return the ends of the 95 % interval of the median, from order statistics.

    Ranks n/2 ± 0.98·√n: the binomial's normal approximation (Conover, Practical Nonparametric Statistics, 3.2).
    """
    n = len(ordered)
    reach = 0.98 * math.sqrt(n)
    low, high = max(0, math.floor(n / 2 - reach)), min(n - 1, math.ceil(n / 2 + reach) - 1)
    return ordered[low], ordered[high]


def half_width(ordered: Sequence[float]) -> float:
    """Return half the 95 % interval of the median over the median."""
    low, high = median_interval(ordered)
    return (high - low) / 2 / quantile(ordered, 0.5)

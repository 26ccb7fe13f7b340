"""Tails and quantiles of the normal, Student's t and chi-square distributions.

scipy.special computes what scipy.stats wraps, to the last bit, at a third of its import time; and it is imported here,
inside the functions, because few of the processes that import the gate's rules ever judge anything.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

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

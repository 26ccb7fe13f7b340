"""How much slower: the Hodges-Lehmann ratio of run medians, and the interval that inverts the exact rank test.

Each pair of a candidate's and a baseline's run gives one ratio. Their median is the estimate: one outlier run moves it
little. The k-th smallest is a bound below the true ratio, the k-th largest one above it, k from the exact distribution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profiles.analysis.gate.exact import confidence, cut

Floats = NDArray[np.float64]


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


def bounds(candidate: Floats, baseline: Floats, low_risk: float, high_risk: float) -> Bounds:
    """`low_risk`, `high_risk`: probabilities that the true ratio lies below `low`, above `high`."""
    pairs = np.sort(np.divide.outer(candidate, baseline), axis=None)
    low_k, high_k = (cut(len(candidate), len(baseline), risk) for risk in (low_risk, high_risk))
    low_at, high_at = max(low_k, 1), max(high_k, 1)
    low_held, high_held = (confidence(len(candidate), len(baseline), k) for k in (low_at, high_at))
    return Bounds(float(_middle(pairs)), float(pairs[low_at - 1]), float(pairs[-high_at]), low_k > 0, high_k > 0,
                  max(low_held + high_held - 1.0, 0.0), low_held)


def estimate(candidate: Floats, baseline: Floats) -> float:
    """The ratio alone."""
    return float(_middle(np.sort(np.divide.outer(candidate, baseline), axis=None)))


def _middle(ordered: Floats) -> float:
    half = len(ordered) // 2
    return float(ordered[half]) if len(ordered) % 2 else float((ordered[half - 1] * ordered[half]) ** 0.5)

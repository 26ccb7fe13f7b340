"""Numbers that many rooms compute, in plain Python."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence


def quantile(ordered: Sequence[float], q: float) -> float:
    """Return the quantile of ascending values, linear between order statistics (Hyndman and Fan, type 7)."""
    position = q * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def median(values: Iterable[float | None]) -> float | None:
    """Return the median of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return float(statistics.median(known)) if known else None

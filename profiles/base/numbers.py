"""Numbers that many rooms compute, in plain Python."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any


def quantile(ordered: Sequence[float], q: float) -> float:
    """Return the quantile of ascending values, linear between order statistics (Hyndman and Fan, type 7)."""
    position = q * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def median(values: Iterable[float | None]) -> float | None:
    """Return the median of what is known; None where nothing is."""
    numbers = [value for value in values if value is not None]
    return float(statistics.median(numbers)) if numbers else None


def finite_number(value: Any) -> float | None:
    """Return a finite number as it was read, as a float; None for all else. A boolean is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:           # a whole number beyond all floats
        return None


def positive_number(value: Any) -> float | None:
    """Return a finite number above 0 as a float; None for all else. So it is true exactly where there is one."""
    number = finite_number(value)
    return number if number is not None and number > 0 else None

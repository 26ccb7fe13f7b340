"""The part of an axis worth a look: outliers are marked at its edge and do not press the rest into a line.

The rule of static/js/lib/band.js as well; tests/data/bands.json holds both to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from profiles.base.numbers import quantile

LEAST = 5            # of fewer values none is an outlier
FENCE = 3.0          # quartile distances beyond the quartiles: Tukey's "far out" (Exploratory Data Analysis, 1977)
NOISE = 0.01         # a distance of quartiles below so much of their size says nothing
GAIN = 2.0           # an axis is cut only where what is left gets at least so much more of it


@dataclass(frozen=True)
class Band:
    """From `low` to `high`; values beyond are `below` and `above`, ascending."""

    low: float
    high: float
    below: tuple[float, ...] = ()
    above: tuple[float, ...] = ()

    @property
    def cut(self) -> bool:
        return bool(self.below or self.above)

    def padded(self, share: float = 0.06, zero: bool = False) -> tuple[float, float]:
        """Return the ends of an axis with air; one that begins at zero gets none there."""
        air = share * (self.high - self.low) or share * abs(self.high) or 1.0
        return (self.low if zero and self.low == 0 else self.low - air), self.high + air


def band(values: Iterable[float], marks: Iterable[float] = (), zero: bool = False) -> Band:
    """Return the band of values that hold together, with every mark (a baseline, a limit) and, if `zero`, 0 in it.

    The whole range where cutting would not at least double the room of what stays. (0, 1) without a number.
    """
    numbers = sorted(float(value) for value in values if math.isfinite(value))
    always = [float(mark) for mark in marks if math.isfinite(mark)] + ([0.0] if zero else [])
    if not numbers:
        return Band(min(always, default=0.0), max(always, default=1.0))
    low, high = min([numbers[0], *always]), max([numbers[-1], *always])
    if len(numbers) < LEAST:
        return Band(low, high)
    first, third = quantile(numbers, 0.25), quantile(numbers, 0.75)
    reach = FENCE * max(third - first, NOISE * max(abs(first), abs(third)))
    inside = [value for value in numbers if first - reach <= value <= third + reach]
    near, far = min([inside[0], *always]), max([inside[-1], *always])
    if high - low < GAIN * (far - near) or high == low:
        return Band(low, high)
    return Band(near, far, tuple(value for value in numbers if value < near), tuple(value for value in numbers if value > far))


class NamedRows:
    """What a picture of rows has: where it is narrow, each row has its name above it, and all rows grow by that. Pixels."""

    rows: Sequence[Any]
    top: int
    axis_y: int

    @property
    def more(self) -> int:
        return 14 * len(self.rows)

    @property
    def deep(self) -> int:
        return self.axis_y - self.top

    @property
    def grow(self) -> float:
        return round(1 + self.more / self.deep, 4)


@dataclass(frozen=True)
class RatioAxis:
    """Ratios on a logarithmic axis: twice as slow is as far from 1 as twice as fast.

    left, right  its ends, per cent of the picture's width
    low, high    logarithms of the ratios there
    """

    left: float
    right: float
    low: float
    high: float

    def at(self, ratio: float | None) -> float | None:
        """Return the place of a ratio, per cent of the width, what lies beyond at an end; None where there is none."""
        if ratio is None or ratio <= 0 or not math.isfinite(ratio):
            return None
        share = (math.log(ratio) - self.low) / (self.high - self.low)
        return round(self.left + (self.right - self.left) * min(1.0, max(0.0, share)), 3)

    def holds(self, ratio: float) -> bool:
        """Return whether a ratio lies on the axis."""
        return self.low - 1e-9 <= math.log(ratio) <= self.high + 1e-9

    def changes(self, steps: Sequence[float], same: str) -> list[tuple[float, str]]:
        """Return (place, text) of up to three round changes on each side of `same`, the first of `steps` that gives so few."""
        step = next((step for step in steps if math.expm1(self.high) / step <= 3.5), steps[-1])
        values = [n * step for n in range(-3, 4) if n * step > -1 and self.low <= math.log1p(n * step) <= self.high]
        return [(self.at(1 + value) or self.left, f"{100 * value:+g} %".replace("-", "\N{MINUS SIGN}") if value else same)
                for value in values]

"""Pictures of fresh runs, one dot a run median. Laid out here, drawn as SVG by templates: places across are per cent of width."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from profiles.band import NamedRows, band
from profiles.base.words import shorten

ROW_PX, TOP_PX, AXIS_PX = 24, 20, 22
LEFT, RIGHT = 33.0, 98.0                # per cent: names stand left of it
LEAST_PCT, MOST_PCT = 1.0, 30.0         # an axis shows at least so much on either side, and at most
NAME_CHARS = 44


@dataclass(frozen=True)
class Dot:
    """One fresh run."""

    us: float                           # its median
    title: str                          # on hover
    kind: str = ""                      # "newest" | "": drawn stronger or not
    href: str = ""


@dataclass(frozen=True)
class Row:
    """One kernel or one build: dots of its runs, a line at their median."""

    name: str
    dots: Sequence[Dot]
    median_us: float | None
    href: str = ""
    title: str = ""


@dataclass(frozen=True)
class PlacedDot:
    at: float
    y: float
    dot: Dot
    beyond: bool                        # off the axis: drawn at its end as an arrow


@dataclass(frozen=True)
class PlacedRow:
    row: Row
    y: float
    name: str
    dots: Sequence[PlacedDot]
    median_at: float | None

    @property
    def top(self) -> float:
        return self.y - ROW_PX / 2


@dataclass(frozen=True)
class Strips(NamedRows):
    rows: Sequence[PlacedRow]
    ticks: Sequence[tuple[float, str]]
    unit: str
    height: int
    axis_y: int
    left: float = LEFT
    top: int = TOP_PX
    zero_at: float | None = None


def relative_strips(rows: Sequence[Row]) -> Strips | None:
    """Many kernels on one axis: how far each run's median lies from the kernel's median, in per cent."""
    timed_rows = [row for row in rows if row.median_us]
    if not timed_rows:
        return None
    away = [abs(100 * (dot.us / row.median_us - 1)) for row in timed_rows for dot in row.dots if row.median_us]
    most = min(MOST_PCT, max(LEAST_PCT, _quantile(away, 0.99) * 1.15))
    return _place_rows(rows, lambda row, us: 100 * (us / row.median_us - 1) if row.median_us else 0.0, -most, most,
                   "from the kernel's median (%)", zero=True)


def time_strips(rows: Sequence[Row]) -> Strips | None:
    """One kernel: the median of each run in µs, one row a build."""
    every = [dot.us for row in rows for dot in row.dots]
    if not every:
        return None
    low, high = band(every, [row.median_us for row in rows if row.median_us]).padded(0.05)
    return _place_rows(rows, lambda row, us: us, low, high, "median of each fresh run (µs)")


def _place_rows(rows: Sequence[Row], value: Callable[[Row, float], float], low: float, high: float, unit: str,
                zero: bool = False) -> Strips:
    def at(number: float) -> float:
        share = (min(max(number, low), high) - low) / (high - low)
        return round(LEFT + share * (RIGHT - LEFT), 3)

    placed = []
    for number, row in enumerate(rows):
        y = TOP_PX + ROW_PX * (number + 0.5)
        dots = [PlacedDot(at(shown), y + _jitter(index), dot, not low <= shown <= high)
                for index, dot in enumerate(row.dots) for shown in [value(row, dot.us)]]
        middle = at(value(row, row.median_us)) if row.median_us else None
        placed.append(PlacedRow(row, y, shorten(row.name, NAME_CHARS), dots, middle))
    axis = TOP_PX + ROW_PX * len(rows)
    return Strips(placed, [(at(tick), _text(tick, zero)) for tick in ticks(low, high)], unit, axis + AXIS_PX + 16, axis,
                  zero_at=at(0.0) if zero else None)


def _jitter(index: int) -> float:
    """Dots of one run after the other do not hide each other: up and down by a few pixels, the same in each drawing."""
    return (0, -4, 4, -2, 2)[index % 5]


def ticks(low: float, high: float) -> list[float]:
    """At most nine round numbers."""
    span = high - low
    scale = 10.0 ** math.floor(math.log10(span)) if span > 0 else 1.0
    step = next((factor * scale / 10 for factor in (1, 2, 5, 10, 20, 50, 100) if span / (factor * scale / 10) <= 8), scale * 10)
    first = math.ceil(low / step)
    return [round(index * step, 9) for index in range(first, math.floor(high / step) + 1)]


def _text(value: float, signed: bool) -> str:
    text = f"{value:g}".replace("-", "\N{MINUS SIGN}")
    return text if not signed or value <= 0 else f"+{text}"


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

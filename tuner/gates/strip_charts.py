"""The run medians of one kernel, a strip for each side, laid out as the intervals are: per cent across, pixels down."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tuner.gates.charts import Tick, percent

STRIP_PX, STRIP_TOP_PX, STRIP_BOTTOM_PX = 76, 34, 34
STRIP_LEFT, STRIP_RIGHT = 13.0, 98.0
DOT_SHARE, DOT_PX = 0.95, 9            # a dot's width on the axis, per cent, at 1,000 px; how far touching ones are moved apart


@dataclass(frozen=True)
class RunMedian:
    """One fresh run. `us` is its p50; `href` leads to its row of the table."""

    us: float
    title: str
    href: str = ""


@dataclass(frozen=True)
class Dot:
    at: float
    y: int
    run: RunMedian


@dataclass(frozen=True)
class Strip:
    name: str                      # "baseline" | "candidate"
    build: str
    y: int
    dots: list[Dot]
    median_at: float
    median_us: float

    @property
    def top(self) -> int:
        return self.y - STRIP_PX // 2


@dataclass(frozen=True)
class StripPlot:
    strips: list[Strip]
    ticks: list[Tick]              # µs
    levels: list[tuple[str, Tick]]             # ("floor", …), ("target", …) above the baseline's median, where on the axis
    left: float
    right: float
    height: int
    axis_y: int
    band: tuple[float, float, int] | None = None       # the interval, as times of the candidate: left, width, y of its strip
    top: int = STRIP_TOP_PX

    @property
    def shift_at(self) -> float:
        """Where the difference of the medians is written: above the middle of it."""
        return round(sum(strip.median_at for strip in self.strips) / len(self.strips), 3)


def strip_plot(sides: Sequence[tuple[str, str, Sequence[RunMedian]]], floor: float, target: float,
               interval: tuple[float, float] | None = None) -> StripPlot | None:
    """(name, build, runs) of each side, the baseline first; `interval`: of candidate ÷ baseline. None where no side has a run."""
    values = [run.us for _, _, runs in sides for run in runs]
    if not values:
        return None
    baseline = median([run.us for run in sides[0][2]]) if sides[0][2] else None
    ends = [*values, *([baseline * (1 + target)] if baseline else [])]
    bounds = [ratio * baseline for ratio in interval if 0 < ratio < math.inf] if baseline and interval else []
    ends += [us for us in bounds if us < 2 * max(values)]
    low, high = min(ends), max(ends)
    pad = (high - low) * 0.06 or high * 0.02
    low, high = low - pad, high + pad

    def at(us: float) -> float:
        return round(STRIP_LEFT + (STRIP_RIGHT - STRIP_LEFT) * (us - low) / (high - low), 3)

    strips = []
    for name, build, runs in sides:
        if runs:
            y = STRIP_TOP_PX + STRIP_PX * len(strips) + STRIP_PX // 2
            middle = median([run.us for run in runs])
            strips.append(Strip(name, build, y, _swarm([(at(run.us), run) for run in runs], y), at(middle), middle))
    bottom = STRIP_TOP_PX + STRIP_PX * len(strips)
    levels = [(name, Tick(at(baseline * (1 + by)), percent(1 + by))) for name, by in (("floor", floor), ("target", target))
              ] if baseline else []
    band = None
    if len(bounds) == 2 and len(strips) == 2:
        left, right = (min(STRIP_RIGHT, max(STRIP_LEFT, at(us))) for us in bounds)
        band = (left, round(right - left, 3), strips[1].y)
    return StripPlot(strips, [Tick(at(value), text) for value, text in _nice(low, high)], levels, STRIP_LEFT, STRIP_RIGHT,
                     bottom + STRIP_BOTTOM_PX, bottom, band)


def _swarm(places: list[tuple[float, RunMedian]], y: int) -> list[Dot]:
    """Dots that would cover each other are moved up and down in turn; none leaves its strip."""
    room = STRIP_PX // 2 - 10
    lanes: dict[int, float] = {}
    steps = [0, *(sign * DOT_PX * n for n in range(1, room // DOT_PX + 1) for sign in (-1, 1))]
    dots = []
    for at, run in sorted(places, key=lambda place: place[0]):
        step = next((step for step in steps if at - lanes.get(step, -9.0) >= DOT_SHARE), steps[len(dots) % len(steps)])
        lanes[step] = at
        dots.append(Dot(at, y + step, run))
    return dots


def _nice(low: float, high: float) -> list[tuple[float, str]]:
    """Five to nine round values with as many digits as tell them apart."""
    raw = (high - low) / 6
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    digits = max(0, -math.floor(math.log10(step)))
    first, last = math.ceil(low / step), math.floor(high / step)
    return [(n * step, f"{n * step:,.{digits}f}") for n in range(first, last + 1)]

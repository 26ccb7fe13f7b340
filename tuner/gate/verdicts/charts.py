"""Pictures of a gate: the interval of every kernel beside its limits, and the run medians of one kernel.

They are laid out here and drawn as SVG by templates: places across are per cent of the picture's width, so that text keeps its
size at any width and the page's colours hold; places down are pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from profiles.band import NamedRows, RatioAxis
from profiles.band import band as band_of
from profiles.base.words import shorten
from tuner.gate.stats.results import percent_text
from tuner.gate.stats.rule import SIGN, Rule

ROW_PX, TOP_PX, BOTTOM_PX = 26, 30, 24
LEFT, RIGHT = 31.0, 79.0               # per cent: where the axis begins and ends; names stand left of it, numbers right
NAME_CHARS, WHY_CHARS = 40, 60         # what fits beside and on the axis at 1,000 px; all of it on hover
LEAST, MOST = math.log(0.94), math.log(1.10)       # an axis shows at least so much …
FURTHEST = 4                           # … and at most so many targets on either side: what lies beyond gets an arrow
TIMES = 10.0                           # a change beyond it is no per cent that anybody reads
TICKS_PCT = (1, 2, 5, 10, 20)
MOST_TICKS = 9


@dataclass(frozen=True)
class Point:
    """One kernel as the interval plot needs it. Ratios: candidate ÷ baseline."""

    label: str
    verdict: str
    url: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    ratio_p95: float | None = None
    detectable: float | None = None            # a fraction
    floor: float = Rule.floor
    target: float = Rule.target
    reason: str = ""
    pk: int = 0                                # of its row, where a page marks the one that is chosen
    of: str = ""                               # the quantity where it is not the p50: "mean"


@dataclass(frozen=True)
class PlotLine:
    """A row of the plot. All `*_at` are per cent of the width; None: not there."""

    point: Point
    y: int
    at: float | None
    low_at: float | None
    high_at: float | None
    p95_at: float | None
    detectable_at: float | None
    beyond: str                    # "", "left" or "right": where the ratio lies off the axis
    cut_left: bool                 # the interval goes on beyond the axis
    cut_right: bool
    own_rule: tuple[float, float] | None       # floor and target where they are not the suite's

    @property
    def top(self) -> int:
        return self.y - ROW_PX // 2

    @property
    def bottom(self) -> int:
        return self.y + ROW_PX // 2

    @property
    def name(self) -> str:
        of = f" · {self.point.of}" if self.point.of else ""
        return shorten(self.point.label, NAME_CHARS - len(of)) + of

    @property
    def why(self) -> str:
        return shorten(self.point.reason, WHY_CHARS)

    @property
    def sign(self) -> str:
        return SIGN.get(self.point.verdict, "")

    @property
    def ratio(self) -> str:
        return _ratio_text(self.point.ratio) if self.point.ratio else ""

    @property
    def interval(self) -> str:
        """"[+6.9, +9.4]": ends in per cent, as the number before it."""
        if not self.point.low or not self.point.high:
            return ""
        return f"[{_ratio_text(self.point.low).removesuffix(' %')}, {_ratio_text(self.point.high).removesuffix(' %')}]"


@dataclass(frozen=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True)
class IntervalPlot(NamedRows):
    rows: list[PlotLine]
    ticks: list[Tick]
    one_at: float
    floor: Tick
    target: Tick
    faster: Tick                   # the floor on the other side
    left: float
    right: float
    height: int
    axis_y: int
    unlisted: int
    top: int = TOP_PX - 12
    row_px: int = ROW_PX

    @property
    def between_width(self) -> float:
        return round(self.target.at - self.floor.at, 3)

    @property
    def slower_width(self) -> float:
        return round(self.right - self.target.at, 3)


def _ratio_text(ratio: float) -> str:
    """Return a change as per cent, one of more than ten times as so many times: "1000×", "0.001×"."""
    return percent_text(ratio) if 1 / TIMES < ratio < TIMES else f"{ratio:.3g}×" if ratio < 1000 else f"{ratio:,.0f}×"


def _ticks(axis: RatioAxis) -> list[Tick]:
    low_pct, high_pct = (math.exp(axis.low) - 1) * 100, (math.exp(axis.high) - 1) * 100
    step = next((step for step in TICKS_PCT if (high_pct - low_pct) / step < MOST_TICKS), TICKS_PCT[-1])
    numbers = range(math.ceil(low_pct / step), math.floor(high_pct / step) + 1)
    return [Tick(axis.at(1 + n * step / 100) or LEFT, tick_text(1 + n * step / 100)) for n in numbers]


def tick_text(ratio: float) -> str:
    """1.05 → "+5 %", 1.025 → "+2.5 %": a round change at an axis."""
    return percent_text(ratio).replace(".0 %", " %")


def interval_plot(points: Sequence[Point], floor: float, target: float, most: int = 40, of: int | None = None) -> IntervalPlot:
    """Kernels in the order given, worst first, at most `most`; their ratios decide how wide the axis is.

    `of`: how many kernels there are, where not all of them were given.
    """
    shown = list(points[:most])
    ratios = [value for point in shown for value in (point.ratio, point.low, point.high) if value is not None and value > 0]
    logs = [math.log(value) for value in ratios if math.isfinite(value)]
    furthest = math.log(1 + FURTHEST * max(target, 0.01))
    axis = RatioAxis(LEFT, RIGHT, max(-furthest, min([LEAST, *logs]) - 0.004),
                     min(furthest, max([MOST, math.log(1 + target) + 0.02, *logs]) + 0.004))
    lines = [_plot_line(point, TOP_PX + ROW_PX * n + ROW_PX // 2, axis, floor, target) for n, point in enumerate(shown)]
    bottom = TOP_PX + ROW_PX * len(shown)
    return IntervalPlot(
        lines, _ticks(axis), axis.at(1.0) or LEFT, Tick(axis.at(1 + floor) or LEFT, tick_text(1 + floor)),
        Tick(axis.at(1 + target) or LEFT, tick_text(1 + target)), Tick(axis.at(1 - floor) or LEFT, tick_text(1 - floor)),
        LEFT, RIGHT, bottom + BOTTOM_PX, bottom, max(len(points), of or 0) - len(shown))


def _plot_line(point: Point, y: int, axis: RatioAxis, floor: float, target: float) -> PlotLine:
    ratio = point.ratio if point.ratio is not None and point.ratio > 0 and math.isfinite(point.ratio) else None
    beyond = "" if ratio is None or axis.holds(ratio) else "right" if ratio > 1 else "left"
    own = (point.floor, point.target) != (floor, target)
    return PlotLine(
        point, y, axis.at(ratio), axis.at(point.low), axis.at(point.high),
        axis.at(point.ratio_p95) if point.ratio_p95 and axis.holds(point.ratio_p95) else None,
        axis.at(1 + point.detectable) if point.detectable is not None and axis.holds(1 + point.detectable) else None,
        beyond, bool(point.low and not axis.holds(point.low)), bool(point.high and not axis.holds(point.high)),
        (axis.at(1 + point.floor) or LEFT, axis.at(1 + point.target) or LEFT) if own else None)


STRIP_PX, STRIP_TOP_PX, STRIP_BOTTOM_PX = 76, 34, 34
STRIP_LEFT, STRIP_RIGHT = 13.0, 98.0
LEVELS_APART = 14.0                    # per cent of the width that the word of a level takes
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
    beyond: bool = False           # off the axis: drawn hollow at its end, its time on hover


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
    medians = [median([run.us for run in runs]) for _, _, runs in sides if runs]
    low, high = band_of(values, [*medians, *ends[len(values):]]).padded()

    def at(us: float) -> float:
        return round(STRIP_LEFT + (STRIP_RIGHT - STRIP_LEFT) * (min(high, max(low, us)) - low) / (high - low), 3)

    strips: list[Strip] = []
    for name, build, runs in sides:
        if runs:
            y = STRIP_TOP_PX + STRIP_PX * len(strips) + STRIP_PX // 2
            middle = median([run.us for run in runs])
            strips.append(Strip(name, build, y, _swarm([(at(run.us), run, not low <= run.us <= high) for run in runs], y),
                                at(middle), middle))
    bottom = STRIP_TOP_PX + STRIP_PX * len(strips)
    levels = [(name, Tick(at(baseline * (1 + by)), tick_text(1 + by))) for name, by in (("floor", floor), ("target", target))
              ] if baseline else []
    if len(levels) == 2 and levels[1][1].at - levels[0][1].at < LEVELS_APART:        # their words would cover each other
        levels = levels[1:]
    band = None
    if len(bounds) == 2 and len(strips) == 2:
        left, right = (min(STRIP_RIGHT, max(STRIP_LEFT, at(us))) for us in bounds)
        band = (left, round(right - left, 3), strips[1].y)
    return StripPlot(strips, [Tick(at(value), text) for value, text in _round_values(low, high)], levels, STRIP_LEFT, STRIP_RIGHT,
                     bottom + STRIP_BOTTOM_PX, bottom, band)


def _swarm(places: list[tuple[float, RunMedian, bool]], y: int) -> list[Dot]:
    """Dots that would cover each other are moved up and down in turn; none leaves its strip."""
    room = STRIP_PX // 2 - 10
    lanes: dict[int, float] = {}
    steps = [0, *(sign * DOT_PX * n for n in range(1, room // DOT_PX + 1) for sign in (-1, 1))]
    dots: list[Dot] = []
    for x, run, beyond in sorted(places, key=lambda place: place[0]):
        step = next((step for step in steps if x - lanes.get(step, -9.0) >= DOT_SHARE), steps[len(dots) % len(steps)])
        lanes[step] = x
        dots.append(Dot(x, y + step, run, beyond))
    return dots


def _round_values(low: float, high: float) -> list[tuple[float, str]]:
    """Five to nine round values with as many digits as tell them apart."""
    raw = (high - low) / 6
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    digits = max(0, -math.floor(math.log10(step)))
    first, last = math.ceil(low / step), math.floor(high / step)
    return [(n * step, f"{n * step:,.{digits}f}") for n in range(first, last + 1)]

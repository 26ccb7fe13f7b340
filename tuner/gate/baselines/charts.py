"""How each baseline spreads: run medians of every kernel around their own median, laid out here and drawn by the template as SVG.

Places across are per cent of the picture's width, places down are pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from profiles.band import NamedRows
from profiles.base.words import shorten

ROW_PX, TOP_PX, BOTTOM_PX = 26, 22, 38
LEFT, RIGHT = 31.0, 88.0
LEAST, FURTHEST = 0.01, 0.15           # an axis shows at least ±1 %, and at most ±15 %: what lies beyond sits on its end
NAME_CHARS, MOST_ROWS = 40, 40
STEPS = (0.0025, 0.005, 0.01, 0.02, 0.05)


@dataclass(frozen=True)
class Spread:
    """One kernel: run medians in µs with what to say of each on hover."""

    name: str
    us: Sequence[float]
    titles: Sequence[str]
    says: str                       # right of the axis


@dataclass(frozen=True)
class Row:
    name: str
    full: str
    y: int
    dots: list[tuple[float, str, bool]]        # place, title, lies beyond the axis
    says: str


@dataclass(frozen=True)
class SpreadPlot(NamedRows):
    rows: list[Row]
    ticks: list[tuple[float, str]]
    zero_at: float
    height: int
    axis_y: int
    left: float = LEFT
    right: float = RIGHT
    top: int = TOP_PX - 10
    unlisted: int = 0


def spread_plot(kernels: Sequence[Spread]) -> SpreadPlot | None:
    """None without runs."""
    shown = [kernel for kernel in kernels if kernel.us][:MOST_ROWS]
    if not shown:
        return None
    middles = [median(kernel.us) for kernel in shown]
    furthest = max(abs(us / middle - 1) for kernel, middle in zip(shown, middles, strict=True) for us in kernel.us)
    reach = min(FURTHEST, max(LEAST, furthest * 1.08))

    def at(share: float) -> float:
        return round(LEFT + (RIGHT - LEFT) * (min(reach, max(-reach, share)) + reach) / (2 * reach), 3)

    rows = []
    for n, (kernel, middle) in enumerate(zip(shown, middles, strict=True)):
        shares = [us / middle - 1 for us in kernel.us]
        dots = [(at(share), title, abs(share) > reach) for share, title in zip(shares, kernel.titles, strict=True)]
        rows.append(Row(shorten(kernel.name, NAME_CHARS), kernel.name, TOP_PX + ROW_PX * n + ROW_PX // 2, dots, kernel.says))
    step = next((step for step in STEPS if reach / step <= 4), STEPS[-1])
    count = math.floor(reach / step)
    ticks = [(at(n * step), f"{n * step * 100:+.3g} %".replace("-", "−") if n else "0") for n in range(-count, count + 1)]
    bottom = TOP_PX + ROW_PX * len(shown)
    return SpreadPlot(rows, ticks, at(0.0), bottom + BOTTOM_PX, bottom,
                      unlisted=sum(bool(kernel.us) for kernel in kernels) - len(shown))

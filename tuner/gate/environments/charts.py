"""The picture of effects: each with its interval beside the line of no effect. Places are per cent of the width, so it scales."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from profiles.band import NamedRows, RatioAxis
from tuner.gate.stats.effects import Effect

LEFT, RIGHT = 36.0, 84.0
ROW_PX, TOP_PX, BOTTOM_PX = 26, 8, 26
LEAST = 0.015                  # half of the axis at least: ±1.5 %
MOST = 0.5                     # logarithm; what lies beyond is cut
MOST_ROWS = 40
STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


@dataclass(frozen=True)
class Row:
    effect: Effect
    name: str
    y: int
    at: float | None
    low_at: float | None
    high_at: float | None
    beyond: str                # "left" | "right": the point lies outside the axis
    text: str                  # "▲ +5.08 %"


@dataclass(frozen=True)
class Plot(NamedRows):
    rows: list[Row]
    ticks: list[tuple[float, str]]
    one_at: float
    top: int
    axis_y: int
    height: int


def effect_plot(effects: Sequence[tuple[str, Effect]]) -> Plot | None:
    """Named effects in the order given, those that can be told; None where there is none."""
    shown = [(name, effect) for name, effect in effects if effect.ratio is not None][:MOST_ROWS]
    if not shown:
        return None
    logs = [abs(math.log(value)) for _, effect in shown for value in (effect.ratio, effect.low, effect.high) if value]
    half = min(MOST, max(LEAST, *logs) * 1.08)
    axis = RatioAxis(LEFT, RIGHT, -half, half)
    rows = [Row(effect, name, TOP_PX + ROW_PX * n + ROW_PX // 2, axis.at(effect.ratio), axis.at(effect.low), axis.at(effect.high),
                "" if axis.holds(effect.ratio or 1) else "right" if (effect.ratio or 1) > 1 else "left",
                (("▲ " if (effect.ratio or 1) > 1 else "▼ ") if effect.sure else "") + effect.text)
            for n, (name, effect) in enumerate(shown)]
    bottom = TOP_PX + ROW_PX * len(rows)
    return Plot(rows, axis.changes(STEPS, "same"), axis.at(1.0) or LEFT, TOP_PX, bottom, bottom + BOTTOM_PX)

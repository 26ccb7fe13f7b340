"""The picture of a re-validation: every fresh run of every side against its default. Places across are per cent of the width."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from profiles.band import RatioAxis
from tuner.gate.stats.results import percent_text

LEFT, RIGHT = 31.0, 82.0
ROW_PX, HEAD_PX, TOP_PX, BOTTOM_PX = 22, 26, 10, 40
LEAST, FURTHEST = 0.02, 0.6             # an axis shows at least ±2 %; what lies further out sits on its end
MOST_KERNELS = 12
STEPS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)


@dataclass(frozen=True)
class Row:
    name: str
    y: int
    dots: list[tuple[float, str]]       # place, what to say on hover
    low_at: float | None                # interval of the ratio to the default
    high_at: float | None
    text: str                           # "▼ −7.1 %"
    kind: str                           # "faster" | "slower" | "pass": of its colour and sign
    serves: bool


@dataclass(frozen=True)
class Group:
    key: str
    y: int
    outcome: str
    rows: list[Row]


@dataclass(frozen=True)
class Plot:
    groups: list[Group]
    ticks: list[tuple[float, str]]
    zero_at: float
    right: float
    axis_y: int
    height: int
    unlisted: int


def side_plot(kernels: Sequence[Mapping[str, Any]]) -> Plot | None:
    """Of the first kernels that were decided; None where none was."""
    shown = [each for each in kernels if any(side.get("p50_us") for side in each["sides"]) and _default_us(each)][:MOST_KERNELS]
    if not shown:
        return None
    logs = [abs(math.log(us / _default_us(each))) for each in shown for side in each["sides"] for us in side.get("p50_us") or ()]
    logs += [abs(math.log(side[end])) for each in shown for side in each["sides"] for end in ("low", "high") if side.get(end)]
    half = min(FURTHEST, max(LEAST, *logs) * 1.06)
    axis = RatioAxis(LEFT, RIGHT, -half, half)
    y, groups = TOP_PX, []
    for each in shown:
        default, rows, head = _default_us(each), [], y + HEAD_PX // 2
        y += HEAD_PX
        for side in each["sides"]:
            dots = [(axis.at(us / default) or LEFT, f"{us:.4g} µs, {percent_text(us / default)}")
                    for us in side.get("p50_us") or ()]
            rows.append(Row(side["name"], y + ROW_PX // 2, dots, axis.at(side.get("low")), axis.at(side.get("high")),
                            *_said(side), serves=side["serves"]))
            y += ROW_PX
        groups.append(Group(each["key"], head, each["outcome"], rows))
    decided = sum(bool(each["found"]) for each in kernels)
    return Plot(groups, axis.changes(STEPS, "default"), axis.at(1.0) or LEFT, RIGHT, y + 6, y + 6 + BOTTOM_PX, decided - len(shown))


def _default_us(kernel: Mapping[str, Any]) -> float:
    return next((side.get("us") or 0.0 for side in kernel["sides"] if "verdict" not in side), 0.0)


def _said(side: Mapping[str, Any]) -> tuple[str, str]:
    """(text, kind)."""
    if not side.get("us"):
        return "no run", "pass"
    if side.get("ratio") is None:
        return f"{side['us']:.4g} µs", "pass"
    sure = "faster" if side["high"] < 1 else "slower" if side["low"] > 1 else "pass"
    return {"faster": "▼ ", "slower": "▲ ", "pass": ""}[sure] + percent_text(side["ratio"]), sure

"""The figure of the fleet's page: GPU-hours over time, stacked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from bokeh.models import ColumnDataSource, HoverTool, Range1d

from profiles.fleet.browse.time_selectors import OverTime
from profiles.theme import SERIES, cached_figure, figure, item

HOUR_MS = 3_600_000
OTHERS = "#a08c7d"


def colours(count: int, others: bool) -> list[str]:
    """Return one colour for each series, in their order; the last one is that of all others, where there are more."""
    own = [SERIES[index % len(SERIES)] for index in range(count - int(others))]
    return [*own, *([OTHERS] if others else [])]


def hours_figure(over_time: OverTime, labels: Sequence[str]) -> dict[str, Any] | None:
    """Return stacked bars, one a step; None without a value."""
    if not over_time.has_values:
        return None
    key = ("fleet hours", over_time.step_hours, over_time.starts, over_time.series, tuple(labels))
    return cached_figure(key, lambda: _hours(over_time, labels))


def _hours(over_time: OverTime, labels: Sequence[str]) -> dict[str, Any]:
    step = over_time.step_hours
    highest = max(sum(line.hours[index] for line in over_time.series) for index in range(len(over_time.starts)))
    unit = over_time.unit
    scale = 3600.0 if unit == "GPU-seconds" else 1.0
    highest *= scale
    first, last = over_time.starts[0] * HOUR_MS, (over_time.starts[-1] + step) * HOUR_MS
    plot = figure(height=220, x_axis_type="datetime", x_range=Range1d(start=first, end=last),
                  y_range=Range1d(start=0, end=highest * 1.05 or 1.0))
    below = [0.0] * len(over_time.starts)
    others = over_time.series[-1].key is None
    for series, label, colour in zip(over_time.series, labels, colours(len(over_time.series), others), strict=True):
        top = [low + hours * scale for low, hours in zip(below, series.hours, strict=True)]
        data = ColumnDataSource({
            "left": [start * HOUR_MS + 0.04 * step * HOUR_MS for start in over_time.starts],
            "right": [(start + step) * HOUR_MS - 0.04 * step * HOUR_MS for start in over_time.starts],
            "bottom": below, "top": top, "name": [label] * len(top),
            "value": [f"{hours * scale:,.4g} {unit}" for hours in series.hours],
            "when": [_when(start, step) for start in over_time.starts]})
        bars = plot.quad(left="left", right="right", bottom="bottom", top="top", source=data, color=colour, line_width=0)
        plot.add_tools(HoverTool(renderers=[bars], tooltips=[("", "@name"), ("in kernels", "@value"), ("", "@when")]))
        below = top
    plot.yaxis.axis_label = f"{unit} in kernels {'a day' if step == 24 else 'an hour'}"
    plot.xaxis.axis_label = "UTC"
    plot.xgrid.grid_line_color = None
    return item(plot)


def _when(hour: int, step: int) -> str:
    moment = datetime.fromtimestamp(hour * 3600, UTC)
    return f"{moment:%Y-%m-%d}" if step == 24 else f"{moment:%Y-%m-%d %H:%M} UTC"

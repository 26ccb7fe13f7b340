"""The figure of one kernel's days in production."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

from bokeh.models import ColumnDataSource, HoverTool
from bokeh.models.annotations import Label, Span

from profiles.theme import SERIES, SLOWER, figure, fit, follows, item, kept_figure
from tuner.gate.stats.results import percent_text
from tuner.models import ProductionPoint, ProductionRegression

MOST_BUILDS = len(SERIES)


@kept_figure
def series_figure(points: Sequence[ProductionPoint], row: ProductionRegression) -> dict[str, Any] | None:
    """Blocks of each day as dots, coloured by build, the days' medians, and where the change lies; None without points."""
    if not points:
        return None
    plot = figure(height=300, x_axis_type="datetime", x_axis_label="day (UTC)", y_axis_label="time of a launch (µs)")
    builds = list(dict.fromkeys(point.build for point in points))
    shown = builds[-MOST_BUILDS:]
    for number, build in enumerate(shown):
        own = [point for point in points if point.build == build]
        rows = [(_moment(point, block), us, build or "unknown", point.gpus, point.launches)
                for point in own for block, us in enumerate(point.us)]
        names = ("x", "us", "build", "gpus", "launches")
        source = ColumnDataSource(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
        dots = plot.scatter("x", "us", source=source, size=5, alpha=0.55, color=SERIES[number], legend_label=build or "unknown")
        plot.line([_noon(point) for point in own], [median(point.us) for point in own], line_width=1.5, color=SERIES[number],
                  legend_label=build or "unknown")
        plot.add_tools(HoverTool(renderers=[dots], tooltips=[
            ("build", "@build"), ("four hours", "@us{0.00} µs"), ("GPUs", "@gpus"), ("launches of the day", "@launches{0,0}")]))
    blocks = [(_moment(point, block), us) for point in points if point.build in shown for block, us in enumerate(point.us)]
    fit(plot, [moment for moment, _ in blocks], [us for _, us in blocks], [f"{us:,.4g} µs" for _, us in blocks])
    since_ms = datetime(row.since.year, row.since.month, row.since.day, tzinfo=UTC).timestamp() * 1000
    plot.add_layout(Span(location=since_ms, dimension="height", line_color=SLOWER, line_dash="dashed", line_width=1.5))
    plot.add_layout(follows(Label(x=since_ms, y=8, y_units="screen", x_offset=4,
                                  text=f"▲ {percent_text(row.ratio)}", text_font_style="bold"), text_color="--text"))
    plot.legend.orientation = "horizontal"
    plot.add_layout(plot.legend[0], "below")
    return item(plot)


def _moment(point: ProductionPoint, block: int) -> datetime:
    return datetime(point.day.year, point.day.month, point.day.day, tzinfo=UTC) + timedelta(hours=4 * block + 2)


def _noon(point: ProductionPoint) -> datetime:
    return _moment(point, 0) + timedelta(hours=10)

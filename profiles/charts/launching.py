"""Figures of the topic "launches": how long launches wait and for what, and how deep each stream's queue is over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bokeh.models import ColumnDataSource, NumeralTickFormatter, Range1d
from bokeh.models.annotations import Label, Span

from profiles.charts.counters import time_text
from profiles.theme import PALETTE, SERIES, figure, follows, item

# part of the delay, its legend, colour, hatch: never colour alone
PARTS = (("in_call", "most of it in the call", PALETTE["runtime"], ""),
         ("queued", "most of it queued behind other work", PALETTE["compute"], "/"),
         ("ready", "most of it ready, not started", PALETTE["communication"], "x"))
DASHES = ("solid", "dashed", "dotted", "dotdash", "dashdot", "solid")


def delay_figure(numbers: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return launches by delay, stacked by what makes most of each delay, or None.

    Four classes a decade.
    """
    bins = numbers["delay_bins"]
    if not bins:
        return None
    names = [_class_text(each) for each in bins]
    data = {"delay": names, **{part: [each[part] for each in bins] for part, *_ in PARTS}}
    plot = figure(height=310, x_range=names, hover=[("delay", "@delay"), ("launches", "@$name{0,0}"), ("", "$name")],
                  x_axis_label="delay, from the begin of the call to the start of the kernel", y_axis_label="launches")
    bars = plot.vbar_stack([part for part, *_ in PARTS], x="delay", width=0.92, source=ColumnDataSource(data),
                           color=[colour for _, _, colour, _ in PARTS], hatch_pattern=[hatch or " " for *_, hatch in PARTS],
                           hatch_alpha=0.35, legend_label=[text for _, text, *_ in PARTS])
    for bar in bars:
        follows(bar.glyph, hatch_color="--panel")
    plot.xaxis.major_label_orientation = 0.9
    plot.y_range.start = 0
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0")
    _legend_below(plot)
    return item(plot)


def _class_text(each: Mapping[str, Any]) -> str:
    if not each["from_ns"]:
        return f"under {time_text(each['to_ns'])}"
    return f"{time_text(each['from_ns'])}"


def queue_figure(numbers: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the queue depth of the busiest streams as staircases, or None.

    With the limit where one comes near.
    """
    shown = [queue for queue in numbers["queues"] if queue["most"] > 0]
    if not shown:
        return None
    start, end, limit = numbers["start_ns"], numbers["end_ns"], numbers["queue_limit"]
    plot = figure(height=310, hover=[("stream", "@stream"), ("at", "@at ms"), ("waiting", "@depth{0,0}")],
                  x_axis_label="ms since the trace began",
                  y_axis_label="launches waiting", x_range=Range1d(start / 1e6, end / 1e6))
    for index, queue in enumerate(shown):
        at = [ns / 1e6 for ns in queue["time_ns"]]
        source = ColumnDataSource({"at": at, "depth": queue["depth"], "stream": [queue["stream"]] * len(at)})
        plot.step("at", "depth", source=source, mode="after", line_width=1.6, line_color=SERIES[index % len(SERIES)],
                  line_dash=DASHES[index % len(DASHES)], legend_label=queue["stream"])
    if max(queue["most"] for queue in shown) > limit / 2:
        plot.add_layout(follows(Span(location=limit, dimension="width", line_dash="dashed", line_width=1.5), line_color="--muted"))
        plot.add_layout(follows(Label(x=end / 1e6, y=limit, x_offset=-4, y_offset=2, text_align="right", text_font_size="11px",
                                      text=f"launches that a queue holds: {limit:,}"), text_color="--muted"))
    plot.y_range.start = 0
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0")
    _legend_below(plot)
    return item(plot)


def _legend_below(plot: Any) -> None:
    """Within the plane it would lie on bars and lines."""
    plot.legend.location = "left"
    plot.add_layout(plot.legend[0], "below")

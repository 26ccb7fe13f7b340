"""Pictures of single runs that a person zooms into: in the order taken with their clock, and the samples of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from bokeh.layouts import column
from bokeh.models import ColumnDataSource, HoverTool, NumeralTickFormatter

from profiles.theme import NEUTRAL, SERIES, figure, fit, item, kept_figure

COLOURS = {"baseline": NEUTRAL, "candidate": SERIES[3]}
MARKERS = {"baseline": "circle", "candidate": "diamond"}
POINTS = 200           # of a run's distribution; more cannot be seen


@dataclass(frozen=True)
class RunSamples:
    """One fresh run with its samples, µs."""

    side: str                      # "baseline" | "candidate"
    build: str
    label: str
    order: int                     # 1 is the first that was taken
    us: Sequence[float]
    sm_clock_mhz: float | None


@kept_figure
def order_figure(runs: Sequence[RunSamples]) -> dict[str, Any] | None:
    """Median with the 5th to 95th percentile of each run over the order in which they were taken; the SM clock below."""
    if not runs:
        return None
    plot = figure(height=260, y_axis_label="time (µs)", min_border_left=64)
    clock = figure(height=150, x_axis_label="run, in the order taken", y_axis_label="clock (MHz)", x_range=plot.x_range,
                   min_border_left=64, tools="")
    dots = []
    for side, colour in COLOURS.items():
        mine = [run for run in runs if run.side == side]
        if not mine:
            continue
        quantiles = np.array([np.quantile(run.us, (0.05, 0.5, 0.95)) for run in mine])
        source = ColumnDataSource({
            "order": [run.order for run in mine], "p5": quantiles[:, 0], "p50": quantiles[:, 1], "p95": quantiles[:, 2],
            "label": [run.label for run in mine], "build": [run.build for run in mine], "n": [len(run.us) for run in mine],
            "mhz": [float("nan") if run.sm_clock_mhz is None else run.sm_clock_mhz for run in mine],
            "clock": ["not sampled" if run.sm_clock_mhz is None else f"{run.sm_clock_mhz:,.0f} MHz" for run in mine]})
        plot.segment("order", "p5", "order", "p95", source=source, line_width=2, line_alpha=0.55, color=colour, legend_label=side)
        dots.append(plot.scatter("order", "p50", source=source, size=9, marker=MARKERS[side], color=colour, legend_label=side))
        dots.append(clock.scatter("order", "mhz", source=source, size=7, marker=MARKERS[side], color=colour))
    tips = [("run", "@label of @build"), ("median", "@p50{0.00} µs"), ("5 to 95 %", "@p5{0.00} to @p95{0.00} µs"), ("n", "@n"),
            ("SM clock", "@clock")]
    plot.add_tools(HoverTool(renderers=dots[::2], tooltips=tips))
    clock.add_tools(HoverTool(renderers=dots[1::2], tooltips=tips))
    ordered = sorted(runs, key=lambda run: run.order)
    ends = [(run.order, us) for run in ordered for us in np.quantile(run.us, (0.05, 0.5, 0.95)).tolist()]
    fit(plot, [order for order, _ in ends], [us for _, us in ends], [f"{us:,.4g} µs" for _, us in ends])
    plot.xaxis.visible = False
    plot.legend.orientation = "horizontal"
    plot.add_layout(plot.legend[0], "above")
    clock.y_range.range_padding = 0.4           # markers at the ends stay whole
    clock.yaxis.ticker.desired_num_ticks = 3
    clock.yaxis.ticker.min_interval = 1          # MHz: a steady clock would get the same label twice
    clock.yaxis.formatter = NumeralTickFormatter(format="0,0")
    has_clocks = any(run.sm_clock_mhz is not None for run in runs)
    if not has_clocks:
        plot.xaxis.visible = True
        plot.xaxis.axis_label = "run, in the order taken"
    return item(column(plot, clock, sizing_mode="stretch_width") if has_clocks else plot)


@kept_figure
def samples_figure(runs: Sequence[RunSamples]) -> dict[str, Any] | None:
    """The share of samples at or below each time, one line a run: how far apart identical runs lie stands beside the shift."""
    if not runs:
        return None
    plot = figure(height=300, x_axis_label="time of one sample (µs)", y_axis_label="share of samples (%)", min_border_left=64)
    lines = []
    shares = np.linspace(0, 1, POINTS)
    for side, colour in COLOURS.items():
        mine = [run for run in runs if run.side == side]
        if not mine:
            continue
        source = ColumnDataSource({
            "xs": [np.quantile(run.us, shares) for run in mine], "ys": [shares * 100 for _ in mine],
            "label": [run.label for run in mine], "build": [run.build for run in mine], "n": [len(run.us) for run in mine],
            "p50": [float(np.median(run.us)) for run in mine]})
        lines.append(plot.multi_line("xs", "ys", source=source, color=colour, line_width=1.5, line_alpha=0.75, legend_label=side,
                                     line_dash="solid" if side == "candidate" else "dashed"))
    plot.add_tools(HoverTool(renderers=lines, line_policy="nearest", tooltips=[
        ("run", "@label of @build"), ("time", "$data_x{0.00} µs"), ("samples at or below", "$data_y{0} %"),
        ("median", "@p50{0.00} µs"), ("n", "@n")]))
    every = np.concatenate([np.asarray(run.us, dtype=float) for run in runs])
    low, high = np.quantile(every, (0.0, 0.99))
    pad = (high - low) * 0.05 or high * 0.02
    plot.x_range.start, plot.x_range.end = low - pad, high + pad       # the slowest 1 % lie to the right: zoom out for them
    plot.y_range.start, plot.y_range.end = 0, 102
    plot.legend.location = "bottom_right"
    return item(plot)

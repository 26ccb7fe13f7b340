"""The course of a launch over time: one panel per part of the GPU, on one time axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from bokeh.layouts import column
from bokeh.models import ColumnDataSource, Range1d
from bokeh.models.annotations import BoxAnnotation

from profiles.analysis.kernel.sampling import PANELS, Series, Window
from profiles.theme import SERIES, cached_figure, figure, follows, item

MAX_POINTS = 1_500                # per line; beyond, the mean of neighbours
HEIGHT_PX = {"SM": 250, "Memory": 220, "Hit rates": 170, "Blocks": 160}
TITLES = {"SM": "SM: issue and pipes", "Memory": "Memory throughput", "Hit rates": "Cache hit rates", "Blocks": "Blocks started"}
DASHES = ("solid", "dashed", "dotted", "dotdash")


def sampling_figures(page: Mapping[str, Any]) -> dict[str, Any]:
    """The figure of a page made by `source.sampling_selectors.sampling_page`."""
    if not page["series"]:
        return {}
    base = page["base"]
    return {"figure": cached_figure((page["version"], base["version"] if base else None), lambda: sampling_figure(
        page["series"], page["window"], base["series"] if base else (), base["window"] if base else None))}


def sampling_figure(series: Sequence[Series], window: Window | None, base: Sequence[Series] = (),
                    base_window: Window | None = None) -> dict[str, Any] | None:
    """Return panels with the same time axis, None where no series has a panel.

    The window in which the kernel ran is light. A baseline's series lie behind those of the same name, thin and dotted, each
    from its own kernel's first sample on.
    """
    shown = [curve for curve in series if curve.panel and curve.values.any()]
    if not shown:
        return None
    last = max(int(curve.time_ns[-1]) for curve in shown)
    left, right = (window.start_ns, window.end_ns) if window else (0, last)
    base_start = base_window.start_ns if base_window else 0
    if base_window and window:
        right = max(right, window.start_ns + base_window.length_ns)
    margin = 0.04 * (right - left) or 1.0
    start = window.start_ns if window else 0
    axis = Range1d(start=(left - margin - start) / 1e3, end=(right + margin - start) / 1e3,
                   bounds=(min(-start, left - margin - start) / 1e3, max(last - start, right + margin - start) / 1e3))
    behind = {(curve.panel, curve.name): curve for curve in base}
    panels = [panel for panel in PANELS if any(curve.panel == panel for curve in shown)]
    plots = [_panel(panel, [curve for curve in shown if curve.panel == panel], axis, window, start, panel == panels[-1],
                    behind, base_start) for panel in panels]
    return item(column(*plots, sizing_mode="stretch_width"))


def _panel(panel: str, series: Sequence[Series], axis: Range1d, window: Window | None, start_ns: int, last: bool,
           behind: Mapping[tuple[str, str], Series], base_start_ns: int) -> Any:
    percent = all(curve.unit == "%" for curve in series)
    olds = [old for curve in series if (old := behind.get((curve.panel, curve.name)))]
    plot = figure(hover=[("", "$name"), ("time", "@time{0.0} µs"), ("value", "@value{0.0} @unit")], height=HEIGHT_PX[panel],
                  x_range=axis, title=TITLES[panel], tools="xpan,xwheel_zoom,xbox_zoom,reset,save",
                  x_axis_label="µs since the kernel's first sample" if last else None,
                  y_axis_label="% of peak" if percent and panel != "Hit rates" else "%" if percent else "per sample")
    if percent:
        plot.y_range = Range1d(start=0, end=max(104.0, 1.04 * max(float(curve.values.max()) for curve in [*series, *olds])))
    else:
        plot.y_range.start = 0
    for index, curve in enumerate(series):              # behind all that is of this kernel
        if old := behind.get((curve.panel, curve.name)):
            time, values = thin(old)
            units = [old.unit or ""] * len(values)
            source = ColumnDataSource({"time": (time - base_start_ns) / 1e3, "value": values, "unit": units})
            plot.step("time", "value", source=source, mode="after", line_width=1.2, line_color=SERIES[index % len(SERIES)],
                      line_dash=(2, 3), line_alpha=0.8, name=f"baseline: {curve.label}")
    for index, curve in enumerate(series):
        time, values = thin(curve)
        source = ColumnDataSource({"time": (time - start_ns) / 1e3, "value": values, "unit": [curve.unit or ""] * len(values)})
        plot.step("time", "value", source=source, mode="after", line_width=1.8, line_color=SERIES[index % len(SERIES)],
                  line_dash=DASHES[(index // len(SERIES)) % len(DASHES)], legend_label=curve.label, name=curve.label)
    if window is not None and window.tail_ns > 2 * window.step_ns:
        tail = BoxAnnotation(left=(window.end_ns - window.tail_ns - start_ns) / 1e3, right=(window.end_ns - start_ns) / 1e3,
                             fill_alpha=0.14, fill_color="#97a1b3", line_color=None)
        plot.add_layout(follows(tail, fill_color="--muted"))
    plot.yaxis.ticker.desired_num_ticks = 4
    plot.legend.orientation = "horizontal"
    plot.legend.location = "top_left"
    plot.legend.update(margin=0, padding=0, spacing=16)
    plot.add_layout(plot.legend[0], "above")
    plot.title.standoff = 0
    return plot


def thin(series: Series) -> tuple[Any, Any]:
    """Return times and values, of many the mean of neighbours."""
    size = series.values.size
    if size <= MAX_POINTS:
        return series.time_ns, series.values
    step = -(-size // MAX_POINTS)
    starts = np.arange(0, size, step)
    counts = np.diff([*starts.tolist(), size])
    return series.time_ns[starts], np.add.reduceat(series.values, starts) / counts

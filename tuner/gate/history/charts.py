"""Pictures of series over builds: the large one of a kernel, and the small one that stands in its row of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from bokeh.models import ColumnDataSource, FixedTicker, HoverTool
from bokeh.models.annotations import BoxAnnotation, Label, Span

from profiles.band import band
from profiles.base.words import shorten
from profiles.theme import FASTER, PALETTE, SERIES, SLOWER, figure, fit, follows, item, kept_figure

MOST_TICKS, LABEL_CHARS = 14, 12
SMALL_WIDTH, SMALL_HEIGHT, SMALL_EDGE = 180, 30, 3


@kept_figure
def series_figure(points: Sequence[Any], steps: Sequence[Any], *, baseline_us: float | None = None,
                  marks: Mapping[str, str] | None = None, verdicts: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Fresh runs as dots, each build's median as a line with its interval, the level between changes, the changes themselves.

    points: builds with `us`, `median_us`, `interval`; steps: changes by names of builds; marks: build -> "intended" …;
    verdicts: build -> what its gate said.
    """
    names = [point.build.name for point in points]
    plot = figure(height=340, x_axis_label="build, oldest first", y_axis_label="run median (µs)",
                  x_range=(-0.7, max(len(names), 2) - 0.3))
    every = max(1, -(-len(names) // MOST_TICKS))
    plot.xaxis.ticker = FixedTicker(ticks=list(range(len(names) - 1, -1, -every)))
    plot.xaxis.major_label_overrides = {index: shorten(name, LABEL_CHARS) for index, name in enumerate(names)}
    plot.xaxis.major_label_orientation = 0.6
    plot.xgrid.grid_line_color = None
    _ranges(plot, names, steps)
    _interval_band(plot, points)
    _dots(plot, points, verdicts or {})
    _levels(plot, points, names, steps)
    if baseline_us:
        line = plot.line([-0.5, len(names) - 0.5], [baseline_us, baseline_us], line_dash="dashed", line_width=1.5,
                         color=PALETTE["annotation"])
        follows(line.glyph, line_color="--muted")
        plot.add_layout(follows(Label(x=-0.5, y=baseline_us, y_offset=2, text=f"baseline {baseline_us:,.4g} µs",
                                      text_font_size="11px"), text_color="--muted"))
    runs = [(index, us) for index, point in enumerate(points) for us in point.us]
    fit(plot, [index for index, _ in runs], [us for _, us in runs], [f"{us:,.4g} µs" for _, us in runs],
        marks=[*(point.median_us for point in points), *([baseline_us] if baseline_us else [])])
    for name, text in (marks or {}).items():
        if name in names:
            position = names.index(name)
            line = Span(location=position - 0.5, dimension="height", line_dash="dotted", line_width=1.5)
            plot.add_layout(follows(line, line_color="--text"))
            plot.add_layout(follows(Label(x=position - 0.5, y=6, y_units="screen", x_offset=4, text=text), text_color="--text"))
    plot.legend.location = "top_left"
    plot.legend.orientation = "horizontal"
    plot.legend.spacing = 14
    plot.add_layout(plot.legend[0], "below")
    return item(plot)


def _interval_band(plot: Any, points: Sequence[Any]) -> None:
    spans = [(index, point.interval) for index, point in enumerate(points) if point.interval]
    if spans:
        plot.varea([index for index, _ in spans], [span[0] for _, span in spans], [span[1] for _, span in spans],
                   fill_alpha=0.18, fill_color=SERIES[0], legend_label="interval of a build's median")


def _dots(plot: Any, points: Sequence[Any], verdicts: Mapping[str, str]) -> None:
    rows = [(spot, us, point.build.name, verdicts.get(point.build.name, "no gate"), len(point.us))
            for spot, point in enumerate(points) for us in point.us]
    source = ColumnDataSource(dict(zip(("x", "us", "build", "verdict", "n"), map(list, zip(*rows, strict=True)), strict=True)))
    dots = plot.scatter("x", "us", source=source, size=5, alpha=0.55, color=SERIES[0], legend_label="fresh run")
    plot.add_tools(HoverTool(renderers=[dots], tooltips=[
        ("build", "@build"), ("this run", "@us{0.000} µs"), ("runs", "@n"), ("its gate", "@verdict")]))
    slower = [spot for spot, point in enumerate(points) if verdicts.get(point.build.name) == "SLOWER"]
    if slower:
        plot.scatter(slower, [points[spot].median_us for spot in slower], size=13, marker="triangle", fill_alpha=0, line_width=2,
                     line_color=SLOWER, legend_label="▲ its gate says SLOWER")


def _levels(plot: Any, points: Sequence[Any], names: Sequence[str], steps: Sequence[Any]) -> None:
    """Median of the builds' medians from change to change."""
    plot.line(list(range(len(points))), [point.median_us for point in points], line_width=1.2, color=SERIES[0],
              legend_label="median of a build")
    bounds = [0, *(names.index(step.build) for step in steps if step.build in names), len(names)]
    xs, ys = [], []
    for first, end in pairwise(bounds):
        medians = sorted(point.median_us for point in points[first:end])
        if medians:
            level = medians[len(medians) // 2]
            xs.append([first - 0.5, end - 0.5])
            ys.append([level, level])
    lines = plot.multi_line(xs, ys, line_width=2.5, color=PALETTE["annotation"], legend_label="level between changes")
    follows(lines.glyph, line_color="--text")


def _ranges(plot: Any, names: Sequence[str], steps: Sequence[Any]) -> None:
    """Where each change lies: shaded from the last build before it to the first after it, named by its size."""
    for number, step in enumerate(steps):
        if step.good not in names or step.bad not in names:
            continue
        colour = SLOWER if step.slower else FASTER
        plot.add_layout(BoxAnnotation(left=names.index(step.good), right=names.index(step.bad), fill_color=colour, fill_alpha=0.16,
                                      line_color=colour, line_alpha=0.5, line_dash="dashed"))
        plot.add_layout(follows(Label(x=names.index(step.bad), y=8 + 16 * (number % 2), y_units="screen", x_offset=4,
                                      text=f"{'▲' if step.slower else '▼'} {step.change_pct:+.1f} %", text_font_style="bold"),
                                text_color="--text"))


def small(points: Sequence[Any], steps: Sequence[Any]) -> dict[str, Any]:
    """The medians as a polyline of an SVG of SMALL_WIDTH × SMALL_HEIGHT, with a line where each change is."""
    medians = [point.median_us for point in points]
    limits = band(medians)
    low, high = limits.low, limits.high
    middle: float = (low + high) / 2
    span: float = max(high - low, 0.03 * middle)                # a hair's breadth of noise must not look like a mountain
    wide, tall = SMALL_WIDTH - 2 * SMALL_EDGE, SMALL_HEIGHT - 2 * SMALL_EDGE

    def across(at: float) -> float:
        return round(SMALL_EDGE + wide * (at / max(len(medians) - 1, 1)), 1)

    def down(us: float) -> float:
        return round(SMALL_EDGE + tall * min(1.0, max(0.0, 0.5 - (us - middle) / span)), 1)

    names = [point.build.name for point in points]
    return {"width": SMALL_WIDTH, "height": SMALL_HEIGHT,
            "line": " ".join(f"{across(index)},{down(us)}" for index, us in enumerate(medians)),
            "beyond": [(across(index), "▲" if us > high else "▼") for index, us in enumerate(medians) if not low <= us <= high],
            "last": (across(len(medians) - 1), down(medians[-1])),
            "steps": [{"x": across(names.index(step.build) - 0.5), "slower": step.slower} for step in steps if step.build in names]}

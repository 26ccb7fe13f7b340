"""Figures of counters: stalls, and what a kernel page shows. Made from what selectors give."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Protocol

from bokeh.models import ColumnDataSource

from profiles.analysis.kernel.anatomy import Anatomy
from profiles.charts.figure_cache import cached_figure
from profiles.charts.memory_chart import memory_chart
from profiles.charts.roofline import roofline_figure
from profiles.charts.words import time_text
from profiles.theme import PALETTE, figure, follows, item

__all__ = ["stall_figure", "tab_figures", "time_text"]


def stall_figure(stalls: Sequence[Mapping[str, Any]], baseline: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any] | None:
    """Cycles a warp spends in each state between two instructions, longest on top; shares where no cycles are known.

    The baseline's are hollow bars.
    """
    chosen = [stall for stall in stalls if stall["share_pct"] >= 0.1][:12]
    if not chosen:
        return None
    names, known = [stall["known"].title for stall in chosen], all(stall["cycles"] is not None for stall in chosen)
    sizes = [stall["cycles"] if known else stall["share_pct"] for stall in chosen]
    source = ColumnDataSource({
        "name": names, "cycles": sizes, "meaning": [stall["known"].meaning for stall in chosen],
        "fix": [stall["known"].fix for stall in chosen], "share": [f"{stall['share_pct']:.1f} %" for stall in chosen],
        "colour": [PALETTE["idle"] if stall["reason"] == "selected" else PALETTE["communication"] for stall in chosen],
        "text": [f"{size:.2f}" for size in sizes] if known else [f"{size:.1f} %" for size in sizes],
    })
    plot = figure(height=60 + 24 * len(chosen), y_range=list(reversed(names)),
                  x_axis_label="cycles per issued instruction" if known else "share of a warp's active cycles, %",
                  hover=[("state", "@name"), ("cycles", "@text"), ("share", "@share"), ("means", "@meaning"), ("fix", "@fix")])
    plot.hbar(y="name", right="cycles", height=0.7, source=source, fill_color="colour", line_color=None)
    labels = plot.text("cycles", "name", text="text", source=source, x_offset=5, y_offset=0, text_baseline="middle",
                       text_font_size="11px")
    follows(labels.glyph, text_color="--text")
    unit = "cycles" if known else "share_pct"
    before = {each["reason"]: each[unit] for each in baseline if each[unit] is not None}
    hollow = [(stall["known"].title, before[stall["reason"]]) for stall in chosen if stall["reason"] in before]
    if hollow:
        old = plot.hbar(y=[name for name, _ in hollow], right=[size for _, size in hollow], height=0.9, fill_color=None,
                        line_width=1.5, line_dash="dashed", name="baseline")
        follows(old.glyph, line_color="--text")
        plot.hover.renderers = [plot.renderers[0]]
    plot.x_range.start = 0
    plot.x_range.end = 1.12 * max([*sizes, *(size for _, size in hollow)])
    plot.ygrid.grid_line_color = None
    return item(plot)


class Shown(Protocol):
    """What the figures take of a kernel's page; each is computed when it is asked for."""

    @property
    def version(self) -> Hashable: ...
    @property
    def measured_version(self) -> Hashable: ...
    @property
    def anatomy(self) -> Anatomy: ...
    @property
    def stalls(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def points(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def ceilings(self) -> Sequence[Mapping[str, Any]]: ...


def tab_figures(page: Shown, base: Shown | None, tab: str) -> dict[str, Any]:
    """The figures of one tab of a kernel, with the baseline's values where there is one."""
    version = (page.version, base.version if base else None)
    if tab == "memory":
        return {"chart": memory_chart(page.anatomy.chart, base.anatomy.chart if base else None)}
    if tab == "warps":
        return {"stall_figure": cached_figure((version, "stalls"), lambda: stall_figure(page.stalls, base.stalls if base else ()))}
    return {"roofline_figure": cached_figure((version, page.measured_version, "roofline"),
                                             lambda: _roofline(page, base))} if tab == "" else {}


def _roofline(page: Shown, base: Shown | None) -> dict[str, Any] | None:
    """Dots of the launches; of a baseline too, joined by an arrow from its longest launch to the longest one here."""
    points = list(page.points)
    if base is None or not points or not base.points:
        return roofline_figure(points, page.ceilings, height=420, tap=False)
    old = max(base.points, key=lambda point: point["time_ns"] or 0.0)
    new = max(range(len(points)), key=lambda at: points[at]["time_ns"] or 0.0)
    return roofline_figure([*points, {**old, "short_name": "baseline"}], page.ceilings, height=420, tap=False,
                           pairs=[(len(points), new)])

"""Figures of counters: stalls, and what a kernel page shows. Made from what selectors give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bokeh.models import ColumnDataSource

from profiles.charts.figure_cache import cached_figure
from profiles.charts.memory_chart import memory_chart
from profiles.charts.roofline import roofline_figure
from profiles.charts.words import time_text
from profiles.theme import PALETTE, figure, follows, item

__all__ = ["kernel_figures", "stall_figure", "time_text"]


def stall_figure(stalls: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Cycles a warp spends in each state between two instructions, longest on top; shares where no cycles are known."""
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
    plot.x_range.start = 0
    plot.x_range.end = 1.12 * max(sizes)
    plot.ygrid.grid_line_color = None
    return item(plot)


def kernel_figures(page: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a kernel page made by `selectors_counters.kernel_page`."""
    if page["whole"] is None:
        return {}
    return {
        "chart": memory_chart(page["anatomy"].chart),
        "roofline_figure": cached_figure((page["version"], "roofline"), lambda: roofline_figure(
            page["points"], page["ceilings"], height=420, tap=False)),
        "stall_figure": cached_figure((page["version"], "stalls"), lambda: stall_figure(page["stalls"])),
    }

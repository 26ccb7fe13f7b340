"""The leaderboard as a figure."""

from __future__ import annotations

from typing import Any

from bokeh.models import ColumnDataSource, FactorRange, HoverTool
from bokeh.models.annotations import Span

from profiles.theme import PALETTE, SERIES, figure, item, kept_figure


@kept_figure
def score_figure(document: dict[str, Any]) -> dict[str, Any] | None:
    """Return methods from best to worst, a dot per public space and a mean; None without scores."""
    methods = [each for each in document["methods"] if each["mean_score"] is not None]
    if not methods:
        return None
    titles = {each["method"]: each["title"] for each in methods}
    rows = [row for row in document["rows"] if row["public"] and row["method"] in titles]
    plot = figure(height=60 + 34 * len(methods), x_axis_label="score (0 random search, 1 optimum at once)",
                  y_range=FactorRange(*[each["title"] for each in reversed(methods)]))
    plot.add_layout(Span(location=0, dimension="height", line_color=PALETTE["annotation"], line_dash="dashed"))
    for place, space in enumerate(dict.fromkeys(row["space"] for row in rows)):
        mine = [row for row in rows if row["space"] == space]
        source = ColumnDataSource({"score": [row["score"] for row in mine], "method": [titles[row["method"]] for row in mine],
                                   "space": [space] * len(mine)})
        plot.scatter("score", "method", source=source, size=8, alpha=0.8, color=SERIES[place % len(SERIES)], legend_label=space)
    means = ColumnDataSource({"score": [each["mean_score"] for each in methods], "method": [each["title"] for each in methods],
                              "space": ["mean of all"] * len(methods)})
    plot.scatter("score", "method", source=means, size=13, marker="diamond", color=PALETTE["other"], legend_label="mean of all")
    plot.add_tools(HoverTool(tooltips=[("method", "@method"), ("space", "@space"), ("score", "@score{0.00}")]))
    plot.add_layout(plot.legend[0], "right")
    plot.legend.click_policy = "hide"
    return item(plot)

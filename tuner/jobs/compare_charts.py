"""Pictures of two jobs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bokeh.models import ColumnDataSource, HoverTool

from profiles.theme import PALETTE, SERIES, figure, follows, item
from tuner.jobs.charts import config_text, progress_columns
from tuner.jobs.comparison import Pair
from tuner.trial import Trial


def two_curves(trials: tuple[Sequence[Trial], Sequence[Trial]], labels: tuple[str, str], *,
               best_ms: tuple[float | None, float | None], same: bool, by_seconds: bool) -> dict[str, Any]:
    """Best so far of two jobs as multiples of the best: of the better of the two for one problem, else each of its own."""
    known = [ms for ms in best_ms if ms is not None]
    plot = figure(height=300, x_axis_label="job time (s)" if by_seconds else "trial", y_axis_label="best so far ÷ best",
                  y_axis_type="log")
    for at, (each, label, own_ms, dash) in enumerate(zip(trials, labels, best_ms, ("solid", "dashed"), strict=True)):
        goal = min(known) if same and known else own_ms
        columns = progress_columns(each) if goal else progress_columns(())
        source = ColumnDataSource({"x": columns["at_s" if by_seconds else "number"], "ms": columns["best"],
                                   "times": [ms / (goal or 1.0) for ms in columns["best"]]})
        line = plot.step("x", "times", source=source, mode="after", line_width=2.5, line_dash=dash, color=SERIES[at],
                         legend_label=label)
        plot.add_tools(HoverTool(renderers=[line], tooltips=[(label, "@times{0.000}×"), ("best so far", "@ms{0.0000} ms")]))
    plot.legend.location = "top_right"
    return item(plot)


def pairs_figure(pairs: Sequence[Pair], labels: tuple[str, str]) -> dict[str, Any]:
    """Each configuration that both measured: on the line both measured it alike, above it the first was faster."""
    plot = figure(height=300, x_axis_type="log", y_axis_type="log", x_axis_label=f"{labels[0]} (ms)",
                  y_axis_label=f"{labels[1]} (ms)")
    source = ColumnDataSource({"a": [pair.a_ms for pair in pairs], "b": [pair.b_ms for pair in pairs],
                               "ratio": [pair.b_ms / pair.a_ms for pair in pairs],
                               "config": [config_text(pair.config) for pair in pairs]})
    dots = plot.scatter("a", "b", source=source, size=6, alpha=0.6, color=SERIES[0])
    low = min(min(pair.a_ms, pair.b_ms) for pair in pairs)
    high = max(max(pair.a_ms, pair.b_ms) for pair in pairs)
    same = plot.line([low, high], [low, high], line_dash="dashed", line_width=1.5, color=PALETTE["annotation"])
    follows(same.glyph, line_color="--muted")
    plot.add_tools(HoverTool(renderers=[dots], tooltips=[
        ("configuration", "@config"), (labels[0], "@a{0.0000} ms"), (labels[1], "@b{0.0000} ms"), ("ratio", "@ratio{0.00}")]))
    return item(plot)

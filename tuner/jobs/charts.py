"""Figures of a search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bokeh.models import ColumnDataSource, HoverTool

from profiles.theme import PALETTE, SERIES, figure, follows, item, kept_figure
from tuner.jobs.comparison import Pair
from tuner.tuning.trial import Config, Trial


def progress_columns(trials: Sequence[Trial]) -> dict[str, list[Any]]:
    """Return columns of a curve: measured trials, and the best so far at each.

    Times in ms. A raced trial is a dot, but no best: it was given up.
    """
    columns: dict[str, list[Any]] = {name: [] for name in ("number", "ms", "best", "config", "at_s")}
    best = float("inf")
    for trial in trials:
        if trial.median_ms is None:
            continue
        if trial.outcome.facts.get("ended") != "raced" or best == float("inf"):
            best = min(best, trial.median_ms)
        row = (trial.number + 1, trial.median_ms, best, config_text(trial.config), trial.at_s)
        for name, value in zip(columns, row, strict=True):
            columns[name].append(value)
    return columns


def config_text(config: Config) -> str:
    """Return a configuration as text."""
    return " ".join(f"{name}={value}" for name, value in config.items())


@kept_figure
def progress_curves(trials: tuple[Sequence[Trial], Sequence[Trial]], labels: tuple[str, str], *,
               best_ms: tuple[float | None, float | None], same: bool, by_seconds: bool) -> dict[str, Any]:
    """Return best so far of two jobs as multiples of the best (of both for one problem, else of each)."""
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


@kept_figure
def pairs_figure(pairs: Sequence[Pair], labels: tuple[str, str]) -> dict[str, Any]:
    """Return a scatter of what both jobs measured; above the line the first was faster."""
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

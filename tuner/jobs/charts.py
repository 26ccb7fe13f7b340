"""Figures of a search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bokeh.models import ColumnDataSource, HoverTool, Range1d

from profiles.theme import PALETTE, SERIES, figure, follows, item
from tuner.jobs.comparison import Pair
from tuner.trial import Config, Trial


def progress_columns(trials: Sequence[Trial]) -> dict[str, list[Any]]:
    """Return columns of the live source: measured trials, and the best so far at each.

    static/js/tune/live.js appends to the same columns; times in ms. A raced trial is a dot, but no best: it was given up.
    """
    columns: dict[str, list[Any]] = {name: [] for name in ("number", "ms", "best", "config", "at_s", "alpha")}
    best = float("inf")
    for trial in trials:
        if trial.median_ms is None:
            continue
        if trial.outcome.facts.get("ended") != "raced" or best == float("inf"):
            best = min(best, trial.median_ms)
        row = (trial.number + 1, trial.median_ms, best, config_text(trial.config), trial.at_s, SHOWN)
        for name, value in zip(columns, row, strict=True):
            columns[name].append(value)
    return columns


SHOWN = 0.55             # opacity of a dot; what is not picked is fainter


def config_text(config: Config) -> str:
    """Return a configuration as text."""
    return " ".join(f"{name}={value}" for name, value in config.items())


def progress_figure(trials: Sequence[Trial], *, budget_trials: int, default_ms: float | None, library_ms: float | None,
                    log: bool, budget_seconds: float | None = None) -> dict[str, Any]:
    """Return best so far over trials, every measured trial a dot, default and library as lines.

    budget_seconds: given, the axis is the job's time in place of the number of trials.

    Models by name for the page's script: sources "live", "default", "library", and the range "width".
    """
    if budget_seconds is not None:
        x, end, label = "at_s", max([budget_seconds, *(trial.at_s for trial in trials)]), "job time (s)"
    else:
        x, end, label = "number", max([budget_trials, *(trial.number + 1 for trial in trials)]), "trial"
    plot = figure(height=340, x_axis_label=label, y_axis_label="median time (ms)",
                  y_axis_type="log" if log else "linear",
                  x_range=Range1d(start=0, end=end + 1, bounds=(0, end + 1), name="width"))
    live = ColumnDataSource(progress_columns(trials), name="live")
    dots = plot.scatter(x, "ms", source=live, size=5, alpha="alpha", color=PALETTE["annotation"],
                        legend_label="each trial")
    plot.step(x, "best", source=live, mode="after", line_width=2.5, color=PALETTE["compute"],
              legend_label="best so far")
    for name, label, ms, dash in (("default", "default configuration", default_ms, "dashed"),
                                  ("library", "vendor library", library_ms, "dotdash")):
        source = ColumnDataSource(level_columns(ms, end), name=name)
        colour = SERIES[1] if name == "default" else SERIES[2]
        plot.line("number", "ms", source=source, line_dash=dash, line_width=1.5, color=colour, legend_label=label)
    plot.add_tools(HoverTool(renderers=[dots], tooltips=[
        ("trial", "@number"), ("median", "@ms{0.0000} ms"), ("best so far", "@best{0.0000} ms"),
        ("configuration", "@config")]))
    plot.legend.location = "top_right"
    plot.legend.background_fill_alpha = 0.7
    follows(plot.legend[0], background_fill_color="--panel")
    return item(plot)


def level_columns(ms: float | None, end: float) -> dict[str, list[float]]:
    """Return a level line over the whole width; empty while it is unknown."""
    return {"number": [], "ms": []} if ms is None else {"number": [0, end + 1], "ms": [ms, ms]}


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

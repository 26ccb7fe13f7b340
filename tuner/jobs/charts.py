"""Pictures of a search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bokeh.models import ColumnDataSource, HoverTool, Range1d

from profiles.theme import PALETTE, SERIES, figure, follows, item
from tuner.trial import Config, Trial


def progress_columns(trials: Sequence[Trial]) -> dict[str, list[Any]]:
    """Column per field of the live source: measured trials, and the best so far at each of them.

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
    return " ".join(f"{name}={value}" for name, value in config.items())


def progress_figure(trials: Sequence[Trial], *, budget_trials: int, default_ms: float | None, library_ms: float | None,
                    log: bool, budget_seconds: float | None = None) -> dict[str, Any]:
    """Best so far over trials, with every measured trial as a dot and the default and the library as lines.

    budget_seconds: given, the axis is the job's time in place of the number of trials.

    Models by name for the page's script: sources "live", "default", "library", and the range "width".
    """
    if budget_seconds is not None:
        x, end, label = "at_s", max([budget_seconds, *(trial.at_s for trial in trials)]), "job time (s)"
    else:
        x, end, label = "number", max([budget_trials, *(trial.number + 1 for trial in trials)]), "trial"
    plot = figure(height=340, x_axis_label=label, y_axis_label="median time (ms)",
                  y_axis_type="log" if log else "linear",
                  x_range=Range1d(0, end + 1, bounds=(0, end + 1), name="width"))
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
    """A level line over the whole width, nothing while it is unknown."""
    return {"number": [], "ms": []} if ms is None else {"number": [0, end + 1], "ms": [ms, ms]}

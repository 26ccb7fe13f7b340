"""The figure of a search: made here for a running job and for one that ended, filled by its page as rows become known.

It holds no trial. static/js/tune/progress.js fills its sources from the rows of a snapshot and from the messages of a worker, so a
point stands as soon as its row does, and a finished job's figure is the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bokeh.models import ColumnDataSource, HoverTool, LinearScale, NumeralTickFormatter, Range1d

from profiles.base.words import pairs_text
from profiles.theme import PALETTE, SERIES, figure, follows, item, kept_figure
from tuner.jobs.comparison import Pair
from tuner.tuning.trial import Trial

# Figures of a search.


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
        row = (trial.number + 1, trial.median_ms, best, pairs_text(trial.config), trial.at_s)
        for name, value in zip(columns, row, strict=True):
            columns[name].append(value)
    return columns


@kept_figure
def progress_curves(trials: tuple[Sequence[Trial], Sequence[Trial]], labels: tuple[str, str], *,
               best_ms: tuple[float | None, float | None], same: bool, by_seconds: bool) -> dict[str, Any]:
    """Return best so far of two jobs as multiples of the best (of both for one problem, else of each)."""
    times_ms = [ms for ms in best_ms if ms is not None]
    plot = figure(height=300, x_axis_label="job time (s)" if by_seconds else "trial", y_axis_label="best so far ÷ best",
                  y_axis_type="log")
    for index, (own_trials, label, own_ms, dash) in enumerate(zip(trials, labels, best_ms, ("solid", "dashed"), strict=True)):
        goal = min(times_ms) if same and times_ms else own_ms
        columns = progress_columns(own_trials) if goal else progress_columns(())
        source = ColumnDataSource({"x": columns["at_s" if by_seconds else "number"], "ms": columns["best"],
                                   "times": [ms / (goal or 1.0) for ms in columns["best"]]})
        line = plot.step("x", "times", source=source, mode="after", line_width=2.5, line_dash=dash, color=SERIES[index],
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
                               "config": [pairs_text(pair.config) for pair in pairs]})
    dots = plot.scatter("a", "b", source=source, size=6, alpha=0.6, color=SERIES[0])
    low = min(min(pair.a_ms, pair.b_ms) for pair in pairs)
    high = max(max(pair.a_ms, pair.b_ms) for pair in pairs)
    same = plot.line([low, high], [low, high], line_dash="dashed", line_width=1.5, color=PALETTE["annotation"])
    follows(same.glyph, line_color="--muted")
    plot.add_tools(HoverTool(renderers=[dots], tooltips=[
        ("configuration", "@config"), (labels[0], "@a{0.0000} ms"), (labels[1], "@b{0.0000} ms"), ("ratio", "@ratio{0.00}")]))
    return item(plot)


HEIGHT_PX = 286
LABELS_PX = 118                  # right of the frame: the names of the lines
OVERS = {"trials": ("trial", "trial"), "seconds": ("at_s", "job time (s)")}      # column and title of what runs across
# Lines that a time is compared with: colour of the page and dashes. Their names stand beside them, so no colour speaks alone.
LEVELS = {"default": ("--warn", "dashed"), "library": ("--ok", "dotdash"), "ceiling": ("--text", "dotted")}
POINT = ("trial", "at_s", "us", "alpha", "config", "outcome", "time", "interval", "best")


@kept_figure
def progress_figure(over: str = "trials", *, log: bool = True) -> dict[str, Any]:
    """Return the empty figure: times in µs over trials, or over the seconds of the job.

    Sources by name, each with the columns `POINT`: "progress-measured" (by time), "progress-raced" (given up early),
    "progress-failed" and "progress-slower" (marks at the upper edge: without a time, or slower than the axis shows);
    "progress-best" (the incumbent), "progress-<level>" for each of `LEVELS` and "progress-labels".
    """
    across, title = OVERS[over]
    plot = figure(height=HEIGHT_PX, name="progress-plot", x_axis_label=title, y_axis_label="median time (µs)",
                  y_axis_type="log" if log else "linear", x_range=Range1d(start=0, end=1), y_range=Range1d(start=1, end=10),
                  min_border_right=LABELS_PX, toolbar_location="right", tools="pan,wheel_zoom,box_zoom,reset,tap")
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[000]")
    plot.xaxis.formatter = NumeralTickFormatter(format="0,0.[0]")
    plot.extra_y_ranges = {"edge": Range1d(start=0, end=1)}        # marks at the edge stay there, whatever the axis of times shows
    plot.extra_y_scales = {"edge": LinearScale()}
    for name, (colour, dash) in LEVELS.items():
        line = plot.hspan(y="us", source=ColumnDataSource({"us": []}, name=f"progress-{name}"), line_dash=dash, line_width=1.5)
        follows(line.glyph, line_color=colour)
    shown = [_points(plot, across, name) for name in ("measured", "raced", "failed", "slower")]
    best = plot.step(across, "us", source=ColumnDataSource({name: [] for name in (across, "us")}, name="progress-best"),
                     mode="after", line_width=2.5)
    follows(best.glyph, line_color="--accent")
    labels = ColumnDataSource({name: [] for name in ("x", "us", "text", "dy")}, name="progress-labels")
    named = plot.text("x", "us", text="text", x_offset=6, y_offset="dy", text_baseline="middle", source=labels,
                      text_font_size="11px", level="annotation")         # right of the frame, which cuts off what is below
    follows(named.glyph, text_color="--text")
    plot.add_tools(HoverTool(renderers=shown, tooltips=[
        ("trial", "@trial, @outcome"), ("median", "@time"), ("95 % interval", "@interval"), ("best so far", "@best"),
        ("configuration", "@config"), ("job time", "@at_s{0.0} s")]))
    return item(plot) | {"said": "Best time so far over the trials"}


def _points(plot: Any, across: str, name: str) -> Any:
    """Draw one kind of outcome; return its renderer. Shape and place differ with the outcome, not the colour alone."""
    source = ColumnDataSource({column: [] for column in POINT}, name=f"progress-{name}")
    marker, size, edge, colour, filled = {
        "measured": ("circle", 6, False, "--muted", True), "raced": ("circle", 6, False, "--muted", False),
        "failed": ("x", 7, True, "--bad", False), "slower": ("triangle", 7, True, "--muted", True)}[name]
    if edge:
        source.data["top"] = []
    drawn = plot.scatter(across, "top" if edge else "us", source=source, marker=marker, size=size, line_alpha="alpha",
                         fill_alpha="alpha" if filled else 0.0, line_width=1.5 if marker == "x" else 1,
                         nonselection_line_alpha="alpha", nonselection_fill_alpha="alpha" if filled else 0.0,
                         selection_line_alpha=1.0, selection_line_width=3, **({"y_range_name": "edge"} if edge else {}))
    for glyph in (drawn.glyph, drawn.nonselection_glyph):
        follows(glyph, line_color=colour, **({"fill_color": colour} if filled else {}))
    follows(drawn.selection_glyph, line_color="--accent", fill_color="--accent")
    return drawn

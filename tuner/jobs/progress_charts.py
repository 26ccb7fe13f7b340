"""The figure of a search: made here for a running job and for one that ended, filled by its page as rows become known.

It holds no trial. static/js/tune/progress.js fills its sources from the rows of a snapshot and from the messages of a worker, so a
point stands as soon as its row does, and a finished job's figure is the same one.
"""

from __future__ import annotations

from typing import Any

from bokeh.models import ColumnDataSource, HoverTool, LinearScale, NumeralTickFormatter, Range1d

from profiles.theme import figure, follows, item, kept_figure

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

"""One look for every Bokeh figure, and the categories' colours: the same as `--cat-…` in static/css/base/ridgepoint.css.

The neutral colours set here suit the light theme. static/js/lib/figures.js repaints text, axes, grids and backgrounds
from the page's custom properties when it embeds a figure and whenever the theme switches; glyphs keep their colour. A
glyph or annotation that must follow the theme says so with `follows(model, line_color="--text")`.

Figures are kept once they are made: a Bokeh figure takes some 80 ms to build, longer than everything else of its page.
"""

from __future__ import annotations

import hashlib
import pickle
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from bokeh.embed import json_item
from bokeh.model import Model
from bokeh.models import Axis, Column, ColumnDataSource, HoverTool, Plot, Range1d, Row, TapTool
from bokeh.models.annotations import Legend, Title
from bokeh.plotting import figure as bokeh_figure
from bokeh.themes import Theme

from profiles.band import Band, band

PALETTE: dict[str, str] = {
    "compute": "#2a8fd0",
    "communication": "#e09a00",
    "memory": "#0aa27a",
    "runtime": "#cc79a7",
    "cpu": "#7cc4ec",
    "python": "#d9cb33",
    "annotation": "#97a1b3",
    "idle": "#c9ced8",
    "other": "#a08c7d",
}
# For series that are no category (builds, strategies, kernels): Okabe-Ito, in this order, readable on both themes.
SERIES: tuple[str, ...] = ("#2a8fd0", "#e09a00", "#0aa27a", "#d5663b", "#cc79a7", "#7cc4ec", "#b3a625", "#97a1b3")
# "Slower" and "faster" never by colour alone: give ▲ ▼ and a sign too.
SLOWER, FASTER, NEUTRAL = "#d5663b", "#2a8fd0", "#97a1b3"

KEPT_FIGURES = 32               # of each function
P = ParamSpec("P")
R = TypeVar("R")
_TEXT, _MUTED, _LINE = "#171b22", "#586173", "#dadee5"
_FONT = "system-ui, -apple-system, Segoe UI, Roboto, sans-serif"
TOOLS = "pan,wheel_zoom,box_zoom,reset,save"

THEME = Theme(
    json={
        "attrs": {
            "Plot": {"background_fill_color": None, "border_fill_color": None, "outline_line_color": _LINE},
            "Axis": {
                "axis_line_color": _LINE,
                "major_tick_line_color": _LINE,
                "minor_tick_line_color": None,
                "major_label_text_color": _MUTED,
                "major_label_text_font": _FONT,
                "major_label_text_font_size": "12px",
                "axis_label_text_color": _MUTED,
                "axis_label_text_font": _FONT,
                "axis_label_text_font_size": "12px",
                "axis_label_text_font_style": "normal",
            },
            "Grid": {"grid_line_color": _LINE, "grid_line_alpha": 0.8},
            "Title": {"text_color": _TEXT, "text_font": _FONT, "text_font_size": "13px", "text_font_style": "bold"},
            "Legend": {
                "background_fill_alpha": 0.0,
                "border_line_alpha": 0.0,
                "label_text_color": _TEXT,
                "label_text_font": _FONT,
                "label_text_font_size": "12px",
                "glyph_height": 12,
                "glyph_width": 14,
                "spacing": 2,
                "padding": 4,
            },
            "ColorBar": {
                "background_fill_alpha": 0.0,
                "title_text_font": _FONT,
                "title_text_color": _MUTED,
                "major_label_text_color": _MUTED,
                "major_label_text_font": _FONT,
            },
            "Text": {"text_font": {"value": _FONT}, "text_font_size": "12px"},     # a bare string would name a column
            "Label": {"text_font": _FONT, "text_font_size": "12px", "text_color": _MUTED},
            "LabelSet": {"text_font": {"value": _FONT}, "text_font_size": "12px", "text_color": _TEXT},
        }
    }
)


def figure(*, hover: Sequence[tuple[str, str]] | str | None = None, tap: bool = False, **options: Any) -> Any:
    """Return a figure that fills its column. Any Bokeh option passes through.

    hover: tooltips, [("kernel", "@name"), …]; a template string is shown as it is. Values are escaped by Bokeh unless
    a field says `{safe}`, which no figure here may use: names come from uploaded files.
    """
    options = {
        "sizing_mode": "stretch_width",
        "height": 320,
        "tools": TOOLS,
        "toolbar_location": "above",
        "output_backend": "canvas",
        "active_scroll": None,
        "min_border_right": 12,
        **options,
    }
    plot = bokeh_figure(**options)
    plot.toolbar.logo = None
    plot.toolbar.autohide = True
    if hover is not None:
        plot.add_tools(HoverTool(tooltips=hover if isinstance(hover, str) else list(hover)))
    if tap and not any(isinstance(tool, TapTool) for tool in plot.tools):
        plot.add_tools(TapTool())
    return plot


def follows(model: Model, **properties: str) -> Model:
    """Mark properties that take a custom property of the page.

    ``follows(span, line_color="--muted")``.
    """
    model.tags = [*model.tags, {"follows": properties}]
    return model


MOST_TOLD = 6          # outliers with their value beside their mark; further ones say it on hover


def fit(plot: Any, x: Sequence[Any], y: Sequence[float], texts: Sequence[str], *, marks: Sequence[float] = (),
        zero: bool = False) -> Band:
    """Fit the figure's upright axis to the band of `y` (`profiles.band`), and mark what lies beyond at its edge.

    `texts` are the values as people read them, of each `y`. `marks` stay inside; `zero`: bars, which begin there.
    """
    span = band(y, marks, zero)
    low, high = span.padded(zero=zero)
    plot.y_range = Range1d(start=low, end=high)
    if not span.cut:
        return span
    for hover in plot.select({"type": HoverTool}):
        if hover.renderers == "auto":               # what it says is not known of the marks
            hover.renderers = list(plot.renderers)
    for sign, marker, edge, beyond in (("▲", "triangle", high, [row for row, value in enumerate(y) if value > span.high]),
                                       ("▼", "inverted_triangle", low, [row for row, value in enumerate(y) if value < span.low])):
        if not beyond:
            continue
        labels = [f"{sign} {texts[row]}" for row in beyond]
        inner = edge - (0.03 if sign == "▲" else -0.03) * (high - low)
        source = ColumnDataSource({"x": [x[row] for row in beyond], "y": [inner] * len(beyond), "text": labels,
                                   "shown": [text if len(beyond) <= MOST_TOLD else "" for text in labels],
                                   "align": ["left" if row < len(x) / 2 else "right" for row in beyond],
                                   "dx": [8 if row < len(x) / 2 else -8 for row in beyond]})
        drawn = plot.scatter("x", "y", source=source, size=9, marker=marker, fill_alpha=0.0, line_width=1.5, name="outliers")
        named = plot.text("x", "y", text="shown", source=source, x_offset="dx", text_align="align", text_font_size="11px",
                          text_baseline="middle", name="outliers")
        follows(drawn.glyph, line_color="--text")
        follows(named.glyph, text_color="--text")
        plot.add_tools(HoverTool(renderers=[drawn], visible=False, tooltips=[("beyond the axis", "@text")]))
    return span


def item(model: Model) -> dict[str, Any]:
    """Return what a template hands to `json_script`: the themed model without a target.

    Legends hide what is clicked. ``room`` is its height in CSS pixels: the page keeps it before the figure is drawn.
    ``said`` is what it shows in words.
    """
    for legend in model.select({"type": Legend}):
        if isinstance(legend, Legend) and legend.click_policy == "none":
            legend.click_policy = "hide"
    embedded: dict[str, Any] = dict(json_item(model, theme=THEME))
    embedded.pop("target_id", None)
    return embedded | {"room": _height_px(model), "said": "; ".join(_said(model))}


def _said(model: Model) -> list[str]:
    """Return what each plot shows, for those who do not see it: its axes and what its legend names."""
    if isinstance(model, (Column, Row)):
        return [line for child in model.children if isinstance(child, Model) for line in _said(child)]
    if not isinstance(model, Plot):
        return []
    axes = [next((str(axis.axis_label) for axis in side if isinstance(axis, Axis) and axis.axis_label), "")
            for side in (model.left, model.below)]
    entries: list[Any] = [each for legend in model.select({"type": Legend}) if isinstance(legend, Legend) for each in legend.items]
    names = [str(entry.label.value) for entry in entries if hasattr(entry.label, "value")]
    title = str(model.title.text) if isinstance(model.title, Title) and model.title.text else ""
    words = " over ".join(label for label in axes if label)
    return [": ".join(part for part in (title, words) if part) + (f" ({', '.join(names[:12])})" if names else "")]


def kept_figure(make: Callable[P, R]) -> Callable[P, R]:
    """Keep what a function of plain values made: Bokeh takes some 80 ms for a figure, to compare its arguments takes one.

    Decorates a function whose answer its arguments alone decide. The answer is shared: nobody may change it.
    """
    figures: OrderedDict[bytes, R] = OrderedDict()
    lock = threading.Lock()

    @wraps(make)
    def kept(*args: P.args, **options: P.kwargs) -> R:
        key = hashlib.sha256(pickle.dumps((args, options), protocol=5)).digest()
        with lock:
            if key in figures:
                figures.move_to_end(key)
                return figures[key]
        answer = make(*args, **options)
        with lock:
            figures[key] = answer
            while len(figures) > KEPT_FIGURES:
                figures.popitem(last=False)
        return answer

    return kept


def _height_px(model: Model) -> int:
    """Return how high a figure stands, 0 where only the browser knows."""
    if isinstance(model, Column):
        return sum(_height_px(child) for child in model.children if isinstance(child, Model))
    if isinstance(model, Row):
        return max((_height_px(child) for child in model.children if isinstance(child, Model)), default=0)
    return int(getattr(model, "height", None) or 0)


CACHED_FIGURES = 128
_figures: OrderedDict[Hashable, dict[str, Any] | None] = OrderedDict()


def cached_figure(key: Hashable, make: Callable[[], dict[str, Any] | None]) -> dict[str, Any] | None:
    """The figure of `key`, which names everything it is made of; the latest ones are kept."""
    if key in _figures:
        _figures.move_to_end(key)
        return _figures[key]
    document = _figures[key] = make()
    while len(_figures) > CACHED_FIGURES:
        _figures.popitem(last=False)
    return document

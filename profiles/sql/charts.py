"""A result as a figure: bars, a line, dots or a histogram of two of its columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from bokeh.models import ColumnDataSource

from profiles import theme
from profiles.base.words import shorten
from profiles.ingest.arrays import stable_order
from profiles.ingest.trace import TraceError

BARS, POINTS, BINS = 60, 5_000, 60
LABEL_CHARS = 48
_SCALES = {"ns": ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns")), "bytes": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B"))}


@dataclass(frozen=True)
class Series:
    """A column. `numbers` is None where it holds no numbers; null is NaN."""

    name: str
    numbers: list[float] | None
    texts: list[str]


def chart(kind: str, x: Series, y: Series | None) -> tuple[dict[str, Any], str]:
    """Return the figure for `json_script`, and a sentence on what it shows and leaves out.

    Raises TraceError.
    """
    if kind == "histogram":
        return _histogram(_numeric(x))
    if y is None:
        raise TraceError("chart", f"a {kind} chart needs a column for its height", "Choose a column of numbers as y")
    return _bars(x, _numeric(y)) if kind == "bar" else _points(kind, _numeric(x), _numeric(y))


def _numeric(series: Series) -> Series:
    if series.numbers is None:
        raise TraceError("chart", f"the column {series.name} holds no numbers", "Choose one with numbers, or make bars")
    return series


def _scale(series: Series) -> tuple[np.ndarray, str]:
    """Values in the unit that suits their size, and the axis' label. Units are read from the name: total_ns, bytes."""
    values = np.array(series.numbers, np.float64)
    unit = next((unit for unit in _SCALES if series.name == unit or series.name.endswith(f"_{unit}")), None)
    if unit is None:
        return values, series.name
    most = float(np.nanmax(np.abs(values), initial=0.0))
    factor, shown = next((scale for scale in _SCALES[unit] if most >= scale[0]), _SCALES[unit][-1])
    return values / factor, f"{series.name.removesuffix(unit).rstrip('_') or series.name} ({shown})"


def _bars(x: Series, y: Series) -> tuple[dict[str, Any], str]:
    values, label = _scale(y)
    shown = [shorten(text, LABEL_CHARS) for text in x.texts[:BARS]]
    shown = [text if shown.index(text) == i else f"{text} #{i + 1}" for i, text in enumerate(shown)]
    source = ColumnDataSource({"x": shown, "y": _finite(values[:BARS]), "full": x.texts[:BARS]})
    plot = theme.figure(hover=[(x.name, "@full"), (label, "@y{0,0.[0000]}")], y_range=shown[::-1], x_axis_label=label,
                        height=max(180, 60 + 22 * len(shown)))
    plot.hbar(y="x", right="y", height=0.72, source=source, fill_color=theme.SERIES[0], line_color=None)
    plot.x_range.start = min(0.0, float(np.nanmin(values[:BARS], initial=0.0)))
    plot.ygrid.grid_line_color = None
    which = f"The first {BARS} of {len(x.texts):,} rows" if len(x.texts) > BARS else "Every row"
    return theme.item(plot), f"{which}: {label} by {x.name}, in the order of the table."


def _points(kind: str, x: Series, y: Series) -> tuple[dict[str, Any], str]:
    across, across_label = _scale(x)
    up, up_label = _scale(y)
    order = stable_order(across) if kind == "line" else np.arange(across.size)
    keep = order[np.isfinite(across[order]) & np.isfinite(up[order])]
    step = math.ceil(keep.size / POINTS) if keep.size > POINTS else 1
    drawn = keep[::step]
    source = ColumnDataSource({"x": across[drawn].tolist(), "y": up[drawn].tolist()})
    plot = theme.figure(hover=[(across_label, "@x{0,0.[0000]}"), (up_label, "@y{0,0.[0000]}")], x_axis_label=across_label,
                        y_axis_label=up_label)
    if kind == "line":
        plot.line("x", "y", source=source, line_color=theme.SERIES[0], line_width=1.5)
    else:
        plot.scatter("x", "y", source=source, size=6, fill_color=theme.SERIES[0], fill_alpha=0.6, line_color=None)
    words = [f"Every {step}th of {keep.size:,} points" if step > 1 else f"{keep.size:,} points",
             f": {up_label} over {across_label}.",
             f" {across.size - keep.size:,} rows without both numbers are left out." if keep.size < across.size else ""]
    return theme.item(plot), "".join(words)


def _histogram(x: Series) -> tuple[dict[str, Any], str]:
    values, label = _scale(x)
    finite = values[np.isfinite(values)]
    if not finite.size:
        raise TraceError("chart", f"the column {x.name} holds no number at all", "Choose another")
    try:
        with np.errstate(over="raise", invalid="raise"):
            counts, edges = np.histogram(finite, min(BINS, max(1, int(np.sqrt(finite.size) * 2))))
    except (ValueError, ArithmeticError):
        raise TraceError("chart", f"the numbers of {x.name} lie too near or too far apart for classes",
                         "Round them, or draw bars") from None
    source = ColumnDataSource({"left": edges[:-1].tolist(), "right": edges[1:].tolist(), "count": counts.tolist()})
    plot = theme.figure(hover=[(label, "@left{0,0.[000]} – @right{0,0.[000]}"), ("rows", "@count")], x_axis_label=label,
                        y_axis_label="rows")
    plot.quad(left="left", right="right", bottom=0, top="count", source=source, fill_color=theme.SERIES[0], line_color=None)
    plot.y_range.start = 0
    lost = values.size - finite.size
    words = f"How many of {finite.size:,} rows have which {label}."
    return theme.item(plot), f"{words} {lost:,} rows without a number are left out." if lost else words


def _finite(values: np.ndarray) -> list[float | None]:
    return [float(value) if math.isfinite(value) else None for value in values]

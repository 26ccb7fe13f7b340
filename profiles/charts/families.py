"""The series of one kernel family: time per launch in each profile, oldest left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bokeh.models import ColumnDataSource, FactorRange
from bokeh.models.annotations import Whisker

from profiles.analysis.core.sentences import time_text
from profiles.base.words import shorten
from profiles.theme import SERIES, cached_figure, figure, fit, follows, item, kept_figure

MARKERS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "hex")
MOST_SERIES = 6
UPRIGHT = 5                     # names beside each other; more are turned
_SCALES = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


def series_figure(points: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the mean per launch with the span from p50 to p95 where the profile states it.

    None with fewer than two profiles.

    One colour and marker per GPU and kind of profile: times of a trace and of a profiler's replay are not the same thing.
    Lines join profiles of one model.
    """
    if len(points) < 2:
        return None
    names = ("profile", "build", "model", "gpu", "kind", "mean_ns", "p50_ns", "p95_ns", "launches")
    key = tuple(tuple(point[name] for name in names) for point in points)
    return cached_figure(("family series", key), lambda: _series(points))


def _series(points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    top_ns = max(max(point["mean_ns"], point["p95_ns"] or 0.0) for point in points)
    scale, unit = next((pair for pair in _SCALES if top_ns >= pair[0]), _SCALES[-1])
    factors = [f"{number + 1} · {shorten(point['build'] or point['profile'], 14)}" for number, point in enumerate(points)]
    plot = figure(height=260, x_range=FactorRange(factors=factors),
                  hover=[("profile", "@profile"), ("build", "@build"), ("GPU", "@gpu"), ("mean per launch", "@mean_text"),
                         ("p50, p95", "@spread_text"), ("launches", "@launches")])
    groups: dict[tuple[str, str], list[int]] = {}
    for number, point in enumerate(points):
        groups.setdefault((point["gpu"] or "GPU unknown", point["kind"]), []).append(number)
    for place, ((gpu, kind), numbers) in enumerate(groups.items()):
        _draw(plot, [points[n] for n in numbers], [factors[n] for n in numbers], scale, place % MOST_SERIES,
              f"{gpu}, {'traces' if kind == 'trace' else 'counter reports' if kind == 'counters' else 'sums'}")
    told = [(factor, ns, word) for factor, point in zip(factors, points, strict=True)
            for ns, word in ((point["mean_ns"], ""), (point["p95_ns"], "p95 ")) if ns is not None]
    fit(plot, [factor for factor, *_ in told], [ns / scale for _, ns, _ in told], [word + time_text(ns) for _, ns, word in told],
        zero=True)
    plot.yaxis.axis_label = f"time per launch ({unit})"
    plot.xaxis.axis_label = "profile, oldest left"
    if len(points) > UPRIGHT:
        plot.xaxis.major_label_orientation = 0.6
    plot.legend.location = "bottom_left"
    return item(plot)


@kept_figure
def launches_figure(launches: Sequence[Any]) -> dict[str, Any] | None:
    """Return the duration of each launch over the time that it began at.

    None where no times are known, or of one launch.
    """
    timed = [launch for launch in launches if launch.start_ns is not None]
    if len(timed) < 2:
        return None
    top_ns = max(launch.dur_ns for launch in timed)
    scale, unit = next((pair for pair in _SCALES if top_ns >= pair[0]), _SCALES[-1])
    plot = figure(height=220, tap=True, hover=[("begins at", "@at"), ("takes", "@took"), ("on", "@track")])
    at_ms, durations = [launch.start_ns / 1e6 for launch in timed], [launch.dur_ns / scale for launch in timed]
    took = [time_text(launch.dur_ns) for launch in timed]
    data = ColumnDataSource({"x": at_ms, "y": durations, "at": [time_text(launch.start_ns) for launch in timed], "took": took,
                             "track": [launch.track for launch in timed]})
    plot.scatter("x", "y", source=data, size=6, alpha=0.6, color=SERIES[0])
    fit(plot, at_ms, durations, took, zero=True)
    plot.xaxis.axis_label = "begins at, since the start of the trace (ms)"
    plot.yaxis.axis_label = f"duration ({unit})"
    return item(plot)


def _draw(plot: Any, points: Sequence[Mapping[str, Any]], factors: Sequence[str], scale: float, place: int, label: str) -> None:
    rows = [{
        "x": factor, "mean": point["mean_ns"] / scale, "profile": point["profile"], "build": point["build"] or "—",
        "gpu": point["gpu"], "mean_text": time_text(point["mean_ns"]), "launches": f"{point['launches']:,}",
        "low": (point["p50_ns"] or point["mean_ns"]) / scale, "high": (point["p95_ns"] or point["mean_ns"]) / scale,
        "spread_text": "not stated" if point["p50_ns"] is None or point["p95_ns"] is None else
        f"{time_text(point['p50_ns'])}, {time_text(point['p95_ns'])}"} for point, factor in zip(points, factors, strict=True)]
    data = ColumnDataSource({name: [row[name] for row in rows] for name in rows[0]})
    colour = SERIES[place % len(SERIES)]
    plot.add_layout(follows(Whisker(base="x", lower="low", upper="high", source=data, line_width=1), line_color="--muted"))
    models: dict[str, list[int]] = {}
    for number, point in enumerate(points):
        models.setdefault(point["model"], []).append(number)
    for model, numbers in models.items():               # of profiles without a model nothing says that they ran the same
        if model and len(numbers) > 1:
            plot.line([rows[n]["x"] for n in numbers], [rows[n]["mean"] for n in numbers], color=colour, line_width=1.5)
    plot.scatter("x", "mean", source=data, color=colour, size=9, marker=MARKERS[place], legend_label=label)

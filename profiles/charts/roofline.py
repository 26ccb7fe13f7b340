"""The roofline of one or several profiles: dots at every level of memory, arrows from before to after, regions of families."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from bokeh.models import ColumnDataSource

from profiles.analysis.core import gpus
from profiles.analysis.core.sentences import si_text
from profiles.analysis.kernel.bounds import WORDS
from profiles.analysis.kernel.roofline import LEVELS
from profiles.charts.roofline_plane import SENSES, label_places, legend, plane, plot, roof_boxes, short, time_text
from profiles.theme import PALETTE, SERIES, follows, item

BOUND_COLOURS = {"memory": PALETTE["memory"], "compute": PALETTE["compute"], "latency": PALETTE["communication"],
                 "launch": PALETTE["runtime"], "": PALETTE["other"]}
BOUND_MARKERS = {"memory": "circle", "compute": "square", "latency": "triangle", "launch": "inverted_triangle", "": "diamond"}
MARKERS = ("circle", "square", "triangle", "diamond", "hex", "inverted_triangle", "star", "plus")
KEYS = {"precision": "precision_label", "profile": "profile_label", "build": "build", "family": "family_label"}   # to colour by
SIZES_PX = (9.0, 34.0)           # of the shortest and the longest dot, by the square root of time
ENTRIES = 14                     # of dots in the legend; the rest of many groups share one
REGIONS = 6                      # families with a region of their own, the longest times first
BEYOND = 1.03                    # a dot beyond the axis stands so far within its edge
ALL_LEVELS = 12                  # up to so many dots, their traffic at L1 and L2 shows at once
HOVER = [("kernel", "@name"), ("profile", "@profile_text"), ("time", "@time_text"), ("launches", "@launches"),
         ("rate", "@rate_text"), ("intensity", "@intensity_text"), ("of its roof", "@roof_text"), ("traffic", "@dram_text"),
         ("bound", "@bound_text"), ("work", "@work_text"), ("SM clock", "@clock_text"), ("", "@note")]


def dot_columns(points: Sequence[Mapping[str, Any]], places: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the columns of the dots' data source.

    static/js/profiles/roofline.js filters rows of the same names.
    """
    longest = max((point["time_ns"] for point in points), default=1.0)
    rows = [{**_dot(point, longest), **place} for point, place in zip(points, places, strict=True)]
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def _dot(point: Mapping[str, Any], longest_ns: float) -> dict[str, Any]:
    low, high = SIZES_PX
    work = ", ".join(f"{si_text(flop, 'FLOP')} {gpus.PRECISIONS.get(precision, precision)}"
                     for precision, flop in point["by_precision"].items())
    moved, roof = point["dram_bytes_s"], point["roof_pct"]
    traffic = "DRAM" if point.get("basis", "counters") == "counters" else "least bytes"
    return {
        "x": point["intensity"], "y": point["flop_s"], "name": point["short_name"],
        "full_name": f"{point['short_name']} {point['name']}", "url": point["url"],
        "size": low + (high - low) * math.sqrt(point["time_ns"] / longest_ns), "time_ns": point["time_ns"],
        "launches": point["launches"], "precision": point["precision_label"], "bound": point["bound"],
        "profile": str(point.get("profile_id", "")), "profile_text": point.get("profile_label", ""),
        "time_text": time_text(point["time_ns"]), "rate_text": si_text(point["flop_s"], "FLOP/s"),
        "intensity_text": si_text(point["intensity"], "FLOP/B"),
        "roof_text": "unknown" if roof is None else f"{roof:.1f} % of {si_text(point['roof'], 'FLOP/s')} ({point['side']} roof)",
        "dram_text": "unknown" if moved is None else f"{traffic}: {si_text(point['dram_bytes'], 'B')}, {si_text(moved, 'B/s')}",
        "bound_text": WORDS.get(point["bound"], ""), "work_text": work, "note": "; ".join(point["notes"]),
        "clock_text": si_text(point["sm_clock_hz"], "Hz") if point["sm_clock_hz"] else "unknown",
    }


def roofline_figure(points: Sequence[Mapping[str, Any]], ceilings: Sequence[Mapping[str, Any]], *, colour: str = "bound",
                    height: int = 560, tap: bool = True, pairs: Sequence[tuple[int, int]] = (),
                    family: str = "") -> dict[str, Any] | None:
    """Log-log: roofs, ceilings and one named dot per point. None without a dot.

    Data sources named `points-0`, `points-1`, … carry the columns that the page's script filters by. `pairs`: indices in
    `points` of the same kernel before and after. `family`: the one whose region is drawn.
    """
    kept = {index: dot for index, dot in enumerate(points) if dot["intensity"] and dot["flop_s"] and not dot["reason"]}
    dots = list(kept.values())
    if not dots:
        return None
    frame = plane(dots, ceilings, height)
    made = plot(frame, ceilings, height, tap, HOVER)
    columns = dot_columns(dots, label_places(dots, frame, roof_boxes(frame, ceilings)))
    numbers = iter(range(1_000_000))
    if colour == "family" or family:
        _regions(made, dots, family)
    for label, fill, marker, chosen, from_shapes in _by_basis(_groups(dots, colour), dots):
        rows = [i for i, dot in enumerate(dots) if id(dot) in chosen]
        source = _source(columns, rows, f"points-{next(numbers)}")
        alpha = 0.0 if from_shapes else 0.75                 # hollow: nobody counted their bytes
        shown = made.scatter("x", "y", size="size", marker=marker, source=source, fill_color=fill, fill_alpha=alpha,
                             line_color=fill, line_width=2.5 if from_shapes else 1.5, legend_label=label, name="dots",
                             nonselection_fill_alpha=alpha, hover_line_color="#171b22")
        named = made.text("x", "y", text="label", source=source, x_offset="dx", y_offset="dy", text_align="align",
                          text_baseline="middle", text_font_size="11px", legend_label=label)
        follows(named.glyph, text_color="--text")
        follows(shown.hover_glyph, line_color="--text")
    for level in ("l2", "l1"):
        _level_dots(made, dots, columns, level, numbers, (frame.left, frame.right))
    _pair_arrows(made, columns, [(list(kept).index(a), list(kept).index(b)) for a, b in pairs if a in kept and b in kept], numbers)
    made.hover.renderers = [renderer for renderer in made.renderers if renderer.name == "dots"]
    from_shapes = any(dot.get("basis", "counters") != "counters" for dot in dots)
    legend(made, 2 if from_shapes else 3 if colour == "family" else 4)          # entries are as wide as what they say
    return item(made)


def _source(columns: Mapping[str, list[Any]], rows: Sequence[int], name: str, **more: list[Any]) -> ColumnDataSource:
    return ColumnDataSource({key: [values[i] for i in rows] for key, values in columns.items()} | more, name=name)


def _level_dots(made: Any, dots: Sequence[Mapping[str, Any]], columns: Mapping[str, list[Any]], level: str, numbers: Any,
                ends: tuple[float, float]) -> None:
    """The same work over the traffic at another level: hollow, at the same height, tied to the dot of the DRAM.

    What lies beyond the axis, whose `ends` are given, is marked at its edge and says its number on hover.
    """
    rows = [i for i, dot in enumerate(dots) if dot.get("levels", {}).get(level, {}).get("intensity")]
    if not rows:
        return
    levels = [dots[i]["levels"][level] for i in rows]
    texts = [f"{LEVELS[level]}: {si_text(traffic['bytes'], 'B')}, {si_text(traffic['bytes_s'] or 0, 'B/s')}"
             + (f", {traffic['roof_pct']:.1f} % of its bandwidth" if traffic["roof_pct"] is not None else "") for traffic in levels]
    source = _source(columns, rows, f"points-{next(numbers)}", dram_text=texts, tied=[dots[i]["intensity"] for i in rows],
                     x=[min(max(traffic["intensity"], ends[0] * BEYOND), ends[1] / BEYOND) for traffic in levels],
                     beyond=["◂" if each["intensity"] < ends[0] else "▸" if each["intensity"] > ends[1] else "" for each in levels],
                     intensity_text=[si_text(traffic["intensity"], "FLOP/B") for traffic in levels])
    shown, label = len(dots) <= ALL_LEVELS, f"traffic at {LEVELS[level]}"
    ties = made.segment("x", "y", "tied", "y", source=source, line_width=1, line_dash="dotted", legend_label=label, visible=shown)
    hollow = made.scatter("x", "y", size=8, marker={"l2": "diamond", "l1": "star"}[level], source=source, fill_alpha=0.0,
                          line_width=1.5, legend_label=label, name="dots", visible=shown)
    edge = made.text("x", "y", text="beyond", source=source, x_offset=-12, text_baseline="middle", text_align="center",
                     text_font_size="11px", legend_label=label, visible=shown)
    follows(edge.glyph, text_color="--text")
    follows(ties.glyph, line_color="--muted")
    follows(hollow.glyph, line_color="--text")


def _pair_arrows(made: Any, columns: Mapping[str, list[Any]], pairs: Sequence[tuple[int, int]], numbers: Any) -> None:
    """A line from before to after with a triangle at its end; slower is dashed and says so."""
    def mean(index: int) -> float:
        return float(columns["time_ns"][index]) / float(columns["launches"][index])

    for slower, colour, dash, label in SENSES:
        chosen = [(a, b) for a, b in pairs if (mean(b) > mean(a)) == slower]
        if not chosen:
            continue
        after = [b for _, b in chosen]
        change = [f"{columns['time_text'][b]} ({100 * (mean(b) / mean(a) - 1):+.1f} % per launch)" for a, b in chosen]
        source = _source(columns, after, f"points-{next(numbers)}", x0=[columns["x"][a] for a, _ in chosen],
                         y0=[columns["y"][a] for a, _ in chosen], time_text=change)
        made.segment("x0", "y0", "x", "y", source=source, line_color=colour, line_width=2, line_dash=dash, legend_label=label)
        made.scatter("x", "y", size=9, marker="triangle" if slower else "inverted_triangle", source=source, fill_color=colour,
                     line_color=colour, legend_label=label, name="dots")


def _groups(dots: Sequence[Mapping[str, Any]], colour: str) -> list[tuple[str, str, str, set[int]]]:
    """(label, colour, marker, ids of its dots): never colour alone."""
    if colour not in KEYS:
        return [(WORDS[bound], BOUND_COLOURS[bound], BOUND_MARKERS[bound], chosen)
                for bound in WORDS if (chosen := {id(dot) for dot in dots if dot["bound"] == bound})]
    key = KEYS[colour]
    spent: dict[str, float] = {}
    for dot in dots:
        spent[dot.get(key) or ""] = spent.get(dot.get(key) or "", 0.0) + dot["time_ns"]
    names = sorted(spent, key=lambda name: -spent[name]) if colour == "family" else sorted(spent)
    groups = [(_entry(name) or f"no {colour}", SERIES[i % len(SERIES)], MARKERS[i % len(MARKERS)],
               {id(dot) for dot in dots if (dot.get(key) or "") == name}) for i, name in enumerate(names[:ENTRIES])]
    rest = {id(dot) for dot in dots if (dot.get(key) or "") in names[ENTRIES:]}
    return [*groups, (f"the other {len(names) - ENTRIES}", PALETTE["other"], "circle", rest)] if rest else groups


def _by_basis(groups: Sequence[tuple[str, str, str, set[int]]], dots: Sequence[Mapping[str, Any]]
              ) -> list[tuple[str, str, str, set[int], bool]]:
    """Each group parted into what was counted and what stands on shapes, which says so in the legend."""
    of_shapes = {id(dot) for dot in dots if dot.get("basis", "counters") != "counters"}
    parted = []
    for label, fill, marker, chosen in groups:
        if chosen - of_shapes:
            parted.append((label, fill, marker, chosen - of_shapes, False))
        if chosen & of_shapes:
            parted.append((f"{label}, from shapes (minimal bytes)", fill, marker, chosen & of_shapes, True))
    return parted


def _entry(name: str) -> str:
    """As long as a column of the legend takes."""
    return short(name, 24)


def _regions(made: Any, dots: Sequence[Mapping[str, Any]], family: str) -> None:
    """The region that a family of kernels covers: the convex hull of its dots, a little wider."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for dot in dots:
        groups.setdefault(str(dot.get("family") or ""), []).append(dot)
    order = sorted((name for name in groups if name and len(groups[name]) > 1),
                   key=lambda name: -sum(dot["time_ns"] for dot in groups[name]))
    for index, name in enumerate([family] if family in groups else order[:REGIONS]):
        xs, ys = hull([(dot["intensity"], dot["flop_s"]) for dot in groups[name]])
        fill = SERIES[index % len(SERIES)]
        made.patch(xs, ys, fill_color=fill, fill_alpha=0.14, line_color=fill, line_dash="dashed", line_alpha=0.7,
                   legend_label=f"region of {_entry(groups[name][0].get('family_label') or name)}")


MARGIN = 0.06                       # decades


def hull(places: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Return the convex hull on logarithmic axes (Andrew's monotone chain).

    Widened by MARGIN decades into an octagon per dot.
    """
    angles = np.arange(8) * np.pi / 4
    around = [(math.log10(x) + MARGIN * math.cos(a), math.log10(y) + MARGIN * math.sin(a)) for x, y in places for a in angles]
    points = sorted(set(around))

    def chain(ordered: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        line: list[tuple[float, float]] = []
        for point in ordered:
            while len(line) > 1 and _turn(line[-2], line[-1], point) <= 0:
                line.pop()
            line.append(point)
        return line[:-1]

    ring = chain(points) + chain(points[::-1])
    return [10**x for x, _ in ring], [10**y for _, y in ring]


def _turn(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])

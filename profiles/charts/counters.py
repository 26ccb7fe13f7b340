"""Figures of counters: the roofline, stalls, and before → after on the roofline. Made from what selectors give."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bokeh.models import ColumnDataSource, FixedTicker, Range1d

from profiles.analysis import counters, gpus
from profiles.analysis.bounds import WORDS
from profiles.analysis.sentences import si_text
from profiles.theme import FASTER, PALETTE, SERIES, SLOWER, figure, follows, item

BOUND_COLOURS = {"memory": PALETTE["memory"], "compute": PALETTE["compute"], "latency": PALETTE["communication"],
                 "launch": PALETTE["runtime"], "": PALETTE["other"]}
BOUND_MARKERS = {"memory": "circle", "compute": "square", "latency": "triangle", "launch": "inverted_triangle", "": "diamond"}
BOUND_WORDS = WORDS
MARKERS = ("circle", "square", "triangle", "diamond", "hex", "inverted_triangle", "star", "plus")
SIZES_PX = (9.0, 34.0)           # of the shortest and the longest dot, by the square root of time
WIDTH_PX = 640                   # of the plane on a page of some 1100 px, for placing names
LETTER_PX = 6.2                  # of 11 px text, on average
NAMED = 14                       # dots with their name beside them; the rest say it on hover
_HOVER = [("kernel", "@name"), ("time", "@time_text"), ("launches", "@launches"), ("rate", "@rate_text"),
          ("intensity", "@intensity_text"), ("of its roof", "@roof_text"), ("DRAM", "@dram_text"), ("work", "@work_text"),
          ("SM clock", "@clock_text"), ("", "@note")]


def time_text(ns: float | None) -> str:
    if ns is None:
        return "unknown"
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if ns >= scale * 0.9995:
            return si_text(ns / scale, unit)
    return f"{ns:.0f} ns"


def dot_columns(points: Sequence[Mapping[str, Any]], places: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Columns of the dots' data source; static/js/profiles/roofline.js filters rows of the same names."""
    longest = max((point["time_ns"] for point in points), default=1.0)
    rows = [_dot(point, longest) | place for point, place in zip(points, places, strict=True)]
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def _dot(point: Mapping[str, Any], longest_ns: float) -> dict[str, Any]:
    low, high = SIZES_PX
    work = ", ".join(f"{si_text(flop, 'FLOP')} {gpus.PRECISIONS.get(precision, precision)}"
                     for precision, flop in point["by_precision"].items())
    moved = point["dram_bytes_s"]
    roof = point["roof_pct"]
    return {
        "x": point["intensity"], "y": point["flop_s"], "name": point["short_name"],
        "full_name": f"{point['short_name']} {point['name']}", "url": point["url"],
        "size": low + (high - low) * math.sqrt(point["time_ns"] / longest_ns), "time_ns": point["time_ns"],
        "launches": point["launches"],
        "precision": point["precision_label"], "bound": point["bound"], "time_text": time_text(point["time_ns"]),
        "rate_text": si_text(point["flop_s"], "FLOP/s"), "intensity_text": si_text(point["intensity"], "FLOP/B"),
        "roof_text": "unknown" if roof is None else f"{roof:.1f} % of {si_text(point['roof'], 'FLOP/s')} ({point['side']} roof)",
        "dram_text": "unknown" if moved is None else f"{si_text(point['dram_bytes'], 'B')}, {si_text(moved, 'B/s')}",
        "work_text": work, "note": "; ".join(point["notes"]),
        "clock_text": si_text(point["sm_clock_hz"], "Hz") if point["sm_clock_hz"] else "unknown",
    }


def _short(name: str, chars: int = 30) -> str:
    """The middle is left out: both ends tell kernels apart."""
    return name if len(name) <= chars else f"{name[:chars - 13]}…{name[-12:]}"


@dataclass(frozen=True)
class Frame:
    """The plane of a figure: ranges of both logarithmic axes, and about how large it is on the screen."""

    left: float
    right: float
    bottom: float
    top: float
    width_px: float
    height_px: float

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Pixels from the lower left corner."""
        return (self.width_px * math.log(x / self.left) / math.log(self.right / self.left),
                self.height_px * math.log(y / self.bottom) / math.log(self.top / self.bottom))


def label_places(points: Sequence[Mapping[str, Any]], frame: Frame, taken: Sequence[tuple[float, float, float, float]] = ()
                 ) -> list[dict[str, Any]]:
    """A place for each name where it covers no other, the longest times first; "" where none is free."""
    boxes = list(taken)
    for point in points:
        x, y = frame.at(point["intensity"], point["flop_s"])
        boxes.append((x - 5, y - 5, x + 5, y + 5))
    places: list[dict[str, Any]] = [{"label": "", "dx": 0.0, "dy": 0.0, "align": "left"} for _ in points]
    for index in sorted(range(len(points)), key=lambda i: -points[i]["time_ns"])[:NAMED]:
        text = _short(points[index]["short_name"])
        x, y = frame.at(points[index]["intensity"], points[index]["flop_s"])
        width = LETTER_PX * len(text)
        for dx, dy, align in ((15, 0, "left"), (-15, 0, "right"), (10, 17, "left"), (10, -17, "left"), (-10, 17, "right"),
                              (-10, -17, "right"), (14, 30, "left"), (14, -30, "left"), (-14, 30, "right"), (-14, -30, "right")):
            left = x + dx if align == "left" else x + dx - width
            box = (left, y + dy - 7, left + width, y + dy + 7)
            inside = box[0] >= 0 and box[2] <= frame.width_px and box[1] >= 0 and box[3] <= frame.height_px
            if inside and not any(_overlap(box, other) for other in boxes):
                places[index] = {"label": text, "dx": float(dx), "dy": float(-dy), "align": align}   # the screen's y grows down
                boxes.append(box)
                break
    return places


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def roofline_figure(points: Sequence[Mapping[str, Any]], ceilings: Sequence[Mapping[str, Any]], *, colour: str = "bound",
                    height: int = 560, tap: bool = True) -> dict[str, Any] | None:
    """Log-log: roofs, ceilings and one named dot per point. None without a dot.

    Each legend entry of dots is a data source named `points-0`, `points-1`, … (the page's script filters them).
    """
    dots = [point for point in points if point["intensity"] and point["flop_s"] and not point["reason"]]
    if not dots:
        return None
    frame = _plane(dots, ceilings, height)
    plot = _plot(frame, ceilings, height, tap)
    columns = dot_columns(dots, label_places(dots, frame, _roof_boxes(frame, ceilings)))
    for index, (label, fill, marker, chosen) in enumerate(_groups(dots, colour)):
        rows = [i for i, dot in enumerate(dots) if id(dot) in chosen]
        source = ColumnDataSource({name: [values[i] for i in rows] for name, values in columns.items()}, name=f"points-{index}")
        shown = plot.scatter("x", "y", size="size", marker=marker, source=source, fill_color=fill, fill_alpha=0.75,
                             line_color=fill, line_width=1.5, legend_label=label, name="dots",
                             nonselection_fill_alpha=0.75, hover_line_color="#171b22")
        named = plot.text("x", "y", text="label", source=source, x_offset="dx", y_offset="dy", text_align="align",
                          text_baseline="middle", text_font_size="11px", legend_label=label)
        follows(named.glyph, text_color="--text")
        follows(shown.hover_glyph, line_color="--text")
    plot.hover.renderers = [each for each in plot.renderers if each.name == "dots"]
    _legend(plot)
    return item(plot)


def _groups(dots: Sequence[Mapping[str, Any]], colour: str) -> list[tuple[str, str, str, set[int]]]:
    """(label, colour, marker, ids of its dots): never colour alone."""
    if colour == "precision":
        names = list(dict.fromkeys(dot["precision_label"] for dot in dots))
        return [(name or "unknown", SERIES[i % len(SERIES)], MARKERS[i % len(MARKERS)],
                 {id(dot) for dot in dots if dot["precision_label"] == name}) for i, name in enumerate(names)]
    return [(BOUND_WORDS[bound], BOUND_COLOURS[bound], BOUND_MARKERS[bound], chosen)
            for bound in BOUND_WORDS if (chosen := {id(dot) for dot in dots if dot["bound"] == bound})]


def _plane(dots: Sequence[Mapping[str, Any]], ceilings: Sequence[Mapping[str, Any]], height: int,
           width_px: float = WIDTH_PX) -> Frame:
    """Wide enough for the dots and for every ridge, at least three decades of rates."""
    slopes = [each["value"] for each in ceilings if each["kind"] == "dram"]
    levels = [each["value"] for each in ceilings if each["kind"] == "compute"]
    ridges = [level / slope for slope in slopes for level in levels]
    xs = [dot["intensity"] for dot in dots] + ridges
    left, right = min(xs) / 4, max(xs) * 10
    top = max([dot["flop_s"] for dot in dots] + levels) * 3
    bottom = min([dot["flop_s"] / 3 for dot in dots] + [top / 1e4])
    return Frame(left, right, bottom, top, width_px, height - 170)


def _plot(frame: Frame, ceilings: Sequence[Mapping[str, Any]], height: int, tap: bool) -> Any:
    """Axes and roofs."""
    plot = figure(height=height, hover=_HOVER, tap=tap, x_axis_type="log", y_axis_type="log",
                  x_range=Range1d(frame.left, frame.right), y_range=Range1d(frame.bottom, frame.top),
                  x_axis_label="arithmetic intensity (FLOP per byte of DRAM traffic)", y_axis_label="FLOP/s")
    _ticks(plot.xaxis[0], range(-6, 9), "")
    _ticks(plot.yaxis[0], range(3, 19), "FLOP/s")
    labels = _level_labels(frame, ceilings)
    for index, each in enumerate(ceilings):
        xs, ys = zip(*_line(each, ceilings, frame), strict=True)
        # the rate of a level stands at its line, that of a slope in the legend
        entry = each["label"] if each["kind"] != "compute" else each["name"]
        drawn = plot.line(list(xs), list(ys), line_width=1.6, line_dash="dashed" if each["kind"] == "l2" else "solid",
                          legend_label=entry, line_alpha=0.85)
        follows(drawn.glyph, line_color="--muted")
        if index in labels:
            name = plot.text([xs[1]], [ys[1]], text=[each["label"]], x_offset=labels[index], y_offset=-3, text_align="right",
                             text_baseline="bottom", text_font_size="11px", legend_label=entry)
            follows(name.glyph, text_color="--muted")
    return plot


def _level_labels(frame: Frame, ceilings: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """Pixels from the right edge where the name of each level ends: levels close together put theirs side by side."""
    places: dict[int, float] = {}
    levels = sorted((each["value"], index) for index, each in enumerate(ceilings) if each["kind"] == "compute")
    last_y, shift = -math.inf, -4.0
    for value, index in levels:
        _, y = frame.at(frame.right, value)
        shift = shift - LETTER_PX * (len(ceilings[index]["label"]) + 2) if y - last_y < 14 else -4.0
        places[index], last_y = shift, y
    return places


def _line(each: Mapping[str, Any], ceilings: Sequence[Mapping[str, Any]], frame: Frame) -> list[tuple[float, float]]:
    """Two ends: a level begins at its ridge, a slope ends at the highest level of its device."""
    same = [other for other in ceilings if other["device"] == each["device"]]
    if each["kind"] == "compute":
        start = min((each["value"] / other["value"] for other in same if other["kind"] == "dram"), default=frame.left)
        return [(start, each["value"]), (frame.right, each["value"])]
    peak = max((other["value"] for other in same if other["kind"] == "compute"), default=frame.top)
    return [(frame.left, frame.left * each["value"]), (peak / each["value"], peak)]


def _roof_boxes(frame: Frame, ceilings: Sequence[Mapping[str, Any]]) -> list[tuple[float, float, float, float]]:
    """Where the names of the levels stand, so that dots put theirs elsewhere."""
    boxes = []
    for index, shift in _level_labels(frame, ceilings).items():
        x, y = frame.at(frame.right, ceilings[index]["value"])
        boxes.append((x + shift - LETTER_PX * len(ceilings[index]["label"]), y, x + shift, y + 16))
    return boxes


def _ticks(axis: Any, powers: range, unit: str) -> None:
    """Powers of ten with SI prefixes; a formatter in script is not possible under the pages' CSP."""
    axis.ticker = FixedTicker(ticks=[10.0**power for power in powers],
                              minor_ticks=[digit * 10.0**power for power in powers for digit in range(2, 10)])
    axis.major_label_overrides = {10.0**power: _power_text(power, unit) for power in powers}


def _power_text(power: int, unit: str) -> str:
    """10, "FLOP/s" -> "10 GFLOP/s"; without a unit a plain number."""
    if not unit:
        return f"{10.0**power:,.0f}" if power >= 0 else f"{10.0**power:.{-power}f}"
    prefix = max(0, min(power // 3, 6))
    return f"{10 ** (power - 3 * prefix):g} {('', 'k', 'M', 'G', 'T', 'P', 'E')[prefix]}{unit}"


def _legend(plot: Any, columns: int = 4) -> None:
    """Below the plane, which keeps the whole width; a click hides what it names."""
    legend = plot.legend[0]
    plot.add_layout(legend, "below")
    legend.orientation, legend.ncols, legend.location, legend.click_policy = "horizontal", columns, "left", "hide"


def stall_figure(stalls: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Cycles a warp spends in each state between two instructions, longest on top."""
    chosen = [stall for stall in stalls if stall["share_pct"] >= 0.1][:12]
    if not chosen:
        return None
    names = [stall["known"].title for stall in chosen]
    source = ColumnDataSource({
        "name": names, "cycles": [stall["cycles"] for stall in chosen], "meaning": [stall["known"].meaning for stall in chosen],
        "fix": [stall["known"].fix for stall in chosen], "share": [f"{stall['share_pct']:.1f} %" for stall in chosen],
        "colour": [PALETTE["idle"] if stall["reason"] == "selected" else PALETTE["communication"] for stall in chosen],
        "text": [f"{stall['cycles']:.2f}" for stall in chosen],
    })
    plot = figure(height=60 + 24 * len(chosen), y_range=list(reversed(names)), x_axis_label="cycles per issued instruction",
                  hover=[("state", "@name"), ("cycles", "@text"), ("share", "@share"), ("means", "@meaning"), ("fix", "@fix")])
    plot.hbar(y="name", right="cycles", height=0.7, source=source, fill_color="colour", line_color=None)
    labels = plot.text("cycles", "name", text="text", source=source, x_offset=5, y_offset=0, text_baseline="middle",
                       text_font_size="11px")
    follows(labels.glyph, text_color="--text")
    plot.x_range.start = 0
    plot.x_range.end = 1.12 * max(stall["cycles"] for stall in chosen)
    plot.ygrid.grid_line_color = None
    return item(plot)


def kernel_figures(page: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a kernel page made by `selectors_counters.kernel_page`."""
    if page["whole"] is None:
        return {}
    return {
        "roofline_figure": _kept((page["version"], "roofline"), lambda: roofline_figure(
            page["points"], page["ceilings"], height=420, tap=False)),
        "stall_figure": _kept((page["version"], "stalls"), lambda: stall_figure(page["stalls"])),
    }


def roofline_figures(page: Mapping[str, Any]) -> dict[str, Any]:
    """The figure of a roofline page made by `selectors_counters.roofline_page`."""
    return {"figure": _kept((page["version"], page["per"], page["colour"]), lambda: roofline_figure(
        page["dots"], page["ceilings"], colour=page["colour"]))}


_figures: OrderedDict[Hashable, dict[str, Any] | None] = OrderedDict()
KEPT_FIGURES = 256


def _kept(key: Hashable, make: Callable[[], dict[str, Any] | None]) -> dict[str, Any] | None:
    """Counters never change once read, and a figure takes some 80 ms to build: the latest ones are kept."""
    if key not in _figures:
        _figures[key] = make()
        while len(_figures) > KEPT_FIGURES:
            _figures.popitem(last=False)
    return _figures[key]


def compare_point(name: str, facts: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """A point of the sum of some launches (`LaunchFacts` as JSON); None where it has no dot."""
    launches = [counters.from_json(each) for each in facts]
    whole = counters.combined(launches)
    if whole is None or whole.point.reason or not whole.point.intensity or not whole.point.flop_s:
        return None
    return {"name": name, "intensity": whole.point.intensity, "flop_s": whole.point.flop_s, "roof_pct": whole.point.roof_pct,
            "time_ns": whole.point.duration_ns, "launches": len(launches), "bound": whole.bound,
            "dram_roof": whole.roofs.dram_bytes_s, "compute_roof": whole.roofs.compute.get(whole.point.precision or ""),
            "precision": gpus.PRECISIONS.get(whole.point.precision or "", "")}


def compare_figure(old: Sequence[Mapping[str, Any] | None], new: Sequence[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    """An arrow from old to new per kernel, pair by pair; None where no pair has both points.

    Slower is an arrow downwards or left-down with a dashed line and ▲ time; faster is solid: never colour alone.
    """
    pairs = [(a, b) for a, b in zip(old, new, strict=True) if a and b]
    if not pairs:
        return None
    both = [point for pair in pairs for point in pair]
    ceilings = _compare_ceilings(both)
    frame = _plane(both, ceilings, 460, width_px=430)
    plot = _plot(frame, ceilings, 460, tap=False)
    after = [b for _, b in pairs]
    places = label_places([{**b, "short_name": b["name"]} for b in after], frame, _roof_boxes(frame, ceilings))
    named = {id(b): place for b, place in zip(after, places, strict=True)}
    for slower, colour, dash, label in ((True, SLOWER, "dashed", "▲ slower"), (False, FASTER, "solid", "▼ faster or equal")):
        chosen = [(a, b) for a, b in pairs if (_mean(b) > _mean(a)) == slower]
        if chosen:
            _arrows(plot, chosen, colour, dash, label, named)
    plot.hover.tooltips = [("kernel", "@name"), ("", "@side"), ("mean time", "@time_text"), ("change", "@change"),
                           ("rate", "@rate_text"), ("intensity", "@intensity_text"), ("of its roof", "@roof_text")]
    plot.hover.renderers = [each for each in plot.renderers if each.name == "dots"]
    _legend(plot, 3)
    return item(plot)


def _mean(point: Mapping[str, Any]) -> float:
    return float(point["time_ns"]) / int(point["launches"])


def _compare_ceilings(points: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The DRAM roof and one compute roof per precision that occurs, the highest of the points."""
    found = []
    dram = max((p["dram_roof"] for p in points if p["dram_roof"]), default=None)
    if dram:
        found.append({"kind": "dram", "name": "DRAM", "label": f"DRAM {si_text(dram, 'B/s')}", "value": dram, "device": ""})
    for precision in dict.fromkeys(p["precision"] for p in points):
        peak = max((p["compute_roof"] for p in points if p["precision"] == precision and p["compute_roof"]), default=None)
        if peak:
            found.append({"kind": "compute", "name": precision, "label": f"{precision} {si_text(peak, 'FLOP/s')}", "value": peak,
                          "device": ""})
    return found


def _arrows(plot: Any, pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], colour: str, dash: str, label: str,
            named: Mapping[int, Mapping[str, Any]]) -> None:
    """A hollow circle before, a filled triangle after, a line between."""
    plot.segment(x0=[a["intensity"] for a, _ in pairs], y0=[a["flop_s"] for a, _ in pairs],
                 x1=[b["intensity"] for _, b in pairs], y1=[b["flop_s"] for _, b in pairs], line_color=colour, line_width=2,
                 line_dash=dash, legend_label=label)
    ends = ("circle", None), ("triangle" if label.startswith("▲") else "inverted_triangle", colour)
    for which, (marker, fill) in enumerate(ends):
        points = [pair[which] for pair in pairs]
        source = ColumnDataSource({
            "x": [p["intensity"] for p in points], "y": [p["flop_s"] for p in points], "name": [p["name"] for p in points],
            "side": [("before", "after")[which]] * len(points), "time_text": [time_text(_mean(p)) for p in points],
            "change": [f"{100 * (_mean(b) / _mean(a) - 1):+.1f} %" for a, b in pairs],
            "rate_text": [si_text(p["flop_s"], "FLOP/s") for p in points],
            "intensity_text": [si_text(p["intensity"], "FLOP/B") for p in points],
            "roof_text": ["unknown" if p["roof_pct"] is None else f"{p['roof_pct']:.1f} %" for p in points],
            **{key: [named[id(p)][key] if which else "" for p in points] for key in ("label", "align")},
            **{key: [named[id(p)][key] if which else 0.0 for p in points] for key in ("dx", "dy")},
        })
        plot.scatter("x", "y", size=11, marker=marker, source=source, fill_color=fill, fill_alpha=0.9 if fill else 0.0,
                     line_color=colour, line_width=2, name="dots", legend_label=label)
        if which:
            names = plot.text("x", "y", text="label", source=source, x_offset="dx", y_offset="dy", text_align="align",
                              text_baseline="middle", text_font_size="11px", legend_label=label)
            follows(names.glyph, text_color="--text")

"""The plane of a roofline: logarithmic axes, roofs with their names, and places for the names of dots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bokeh.models import ColumnDataSource, FixedTicker, Range1d

from profiles.analysis.core import gpus
from profiles.analysis.core.sentences import si_text
from profiles.analysis.kernel import counters
from profiles.theme import FASTER, SLOWER, figure, follows, item, kept_figure


def time_text(ns: float | None) -> str:
    if ns is None:
        return "unknown"
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if ns >= scale * 0.9995:
            return si_text(ns / scale, unit)
    return f"{ns:.0f} ns"


WIDTH_PX = 640                   # of the plane on a page of some 1100 px, for placing names
LETTER_PX = 6.2                  # of 11 px text, on average
NAMED = 14                       # dots with their name beside them; the rest say it on hover
SLOPE_PX = (17, 30, 43)          # above the end of a slope stands its name, in three rows; below them is room for a level's
NAME_PX = 14                     # a name is so high
# A line stands for what the report states at its clock, what was measured on a GPU of the model, or its data sheet.
DASHES = {"stated": "solid", "measured": "dashed", "sheet": "dotdash", "other": "dotted"}
ENTRIES = {"measured": "measured ceilings (dashed)", "sheet": "data-sheet ceilings", "other": "other precisions"}


def short(name: str, chars: int = 30) -> str:
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
    """Return a place for each name where it covers no other, "" where none is free.

    The longest times come first.
    """
    boxes = list(taken)
    for point in points:
        for intensity in (point["intensity"], *(traffic["intensity"] for traffic in point.get("levels", {}).values())):
            if intensity:
                x, y = frame.at(intensity, point["flop_s"])
                boxes.append((x - 5, y - 5, x + 5, y + 5))
    places: list[dict[str, Any]] = [{"label": "", "dx": 0.0, "dy": 0.0, "align": "left"} for _ in points]
    for index in sorted(range(len(points)), key=lambda i: -points[i]["time_ns"])[:NAMED]:
        text = short(points[index]["short_name"])
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


def plane(dots: Sequence[Mapping[str, Any]], ceilings: Sequence[Mapping[str, Any]], height: int,
          width_px: float = WIDTH_PX) -> Frame:
    """Return a plane wide enough for the dots of every level and for every ridge.

    At least three decades of rates.
    """
    drawn = [ceiling for ceiling in ceilings if ceiling.get("origin", "stated") != "other"]
    slopes = [ceiling["value"] for ceiling in drawn if ceiling["kind"] == "dram"]
    levels = [ceiling["value"] for ceiling in drawn if ceiling["kind"] == "compute"]
    ridges = [level / slope for slope in slopes for level in levels]
    xs = [x for dot in dots for x in (dot["intensity"], *(traffic["intensity"] for traffic in dot.get("levels", {}).values())) if x]
    left, right = min(xs + ridges) / 4, max(xs + ridges) * 10
    top = max([dot["flop_s"] for dot in dots] + levels) * 3
    bottom = min([dot["flop_s"] / 3 for dot in dots] + [top / 1e4])
    rows = sum(ceiling["kind"] != "compute" and ceiling.get("origin", "stated") == _first_origin(ceilings) for ceiling in drawn)
    room_px = SLOPE_PX[min(max(rows, 1), len(SLOPE_PX)) - 1] + NAME_PX         # for names of slopes, above the highest level
    highest = max(levels, default=top / 3)
    top = max(top, highest * (highest / bottom) ** (room_px / (height - 170 - room_px)))
    # traffic so small that its dot would squeeze all others: the axis ends, the dot does not
    left = max(left, min(dot["intensity"] for dot in dots) / 300)
    right = min(right, max([dot["intensity"] for dot in dots] + ridges) * 300)
    return Frame(left, right, bottom, top, width_px, height - 170)


def plot(frame: Frame, ceilings: Sequence[Mapping[str, Any]], height: int, tap: bool, hover: Sequence[tuple[str, str]]) -> Any:
    """Return axes and roofs, each with its name on its line.

    What the reports state shows at once, with what was measured in its name; the legend holds only the groups that can be shown
    beside it, measured ones are dashed.
    """
    chart = figure(height=height, hover=hover, tap=tap, x_axis_type="log", y_axis_type="log",
                   x_range=Range1d(start=frame.left, end=frame.right), y_range=Range1d(start=frame.bottom, end=frame.top),
                   x_axis_label="arithmetic intensity (FLOP per byte of traffic)", y_axis_label="FLOP/s")
    _ticks(chart.xaxis[0], range(-6, 9), "")
    _ticks(chart.yaxis[0], range(3, 19), "FLOP/s")
    first, lines = _first_origin(ceilings), dict[str, tuple[list[list[float]], list[list[float]]]]()
    for ceiling in ceilings:
        # the database gives large rates back as whole numbers, which a script cannot hold
        xs, ys = (list(map(float, ends)) for ends in zip(*_line(ceiling, ceilings, frame), strict=True))
        across, up = lines.setdefault(ceiling.get("origin", "stated"), ([], []))
        across.append(xs)
        up.append(ys)
    for origin, (across, up) in lines.items():          # all of an origin at once: a browser takes as long for each renderer
        is_first = origin == first
        group = {} if is_first else {"legend_label": ENTRIES.get(origin, origin)}
        drawn = chart.multi_line(across, up, line_width=2.0 if is_first else 1.4, line_dash="solid" if is_first else DASHES[origin],
                                 line_alpha=0.85, visible=is_first or origin == "measured", **group)
        follows(drawn.glyph, line_color="--accent" if origin == "measured" else "--muted")
        if names := [] if origin == "measured" and not is_first else _roof_names(frame, ceilings, origin):
            source = ColumnDataSource({name: [row[name] for row in names] for name in names[0]})
            written = chart.text("x", "y", text="text", x_offset="dx", y_offset="dy", text_align="align", source=source,
                                 text_baseline="bottom" if is_first else "top", text_font_size="11px", visible=is_first, **group)
            follows(written.glyph, text_color="--muted")
    return chart


def _roof_names(frame: Frame, ceilings: Sequence[Mapping[str, Any]], origin: str) -> list[dict[str, Any]]:
    """The names of one origin's roofs at the upper ends of their lines: levels at the right edge, slopes in rows above their end.

    Those that are shown on request stand below their lines. Measured lines have theirs in the name of the line that they follow.
    """
    rows, names, labels, slopes = [], _names(ceilings), _level_labels(frame, ceilings, origin), 0
    above = -1.0 if origin == _first_origin(ceilings) else 1.0
    for index, ceiling in enumerate(ceilings):
        x, y = map(float, _line(ceiling, ceilings, frame)[1])
        if index in labels:
            text, shift = labels[index]
            rows.append({"x": x, "y": y, "text": text, "dx": shift, "dy": 3.0 * above, "align": "right"})
        elif ceiling["kind"] != "compute" and ceiling.get("origin", "stated") == origin:
            # ends of neighbours lie closer than names are wide; left of its end a slope lies below its name, and no level begins
            rows.append({"x": x, "y": y, "text": names[index], "dx": 0.0 if above < 0 else 6.0,
                         "dy": above * SLOPE_PX[slopes % len(SLOPE_PX)], "align": "right" if above < 0 else "left"})
            slopes += 1
    return rows


def _first_origin(ceilings: Sequence[Mapping[str, Any]]) -> str:
    """Return the lines that lead: what reports state, of traces alone the data sheet's."""
    origins = {ceiling.get("origin", "stated") for ceiling in ceilings}
    return next((origin for origin in ("stated", "sheet") if origin in origins), "measured")


def _names(ceilings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The label of each line; one that was measured lies close below its leading line and shares that one's name.

    "DRAM 4.80 TB/s, measured 4.68 TB/s".
    """
    first = _first_origin(ceilings)
    measured = {(each["device"], each["kind"], each.get("precision")): str(each["label"]).removeprefix("measured ").removeprefix(
        str(each.get("name", ""))).strip() for each in ceilings if each.get("origin") == "measured" and first != "measured"}
    names = []
    for ceiling in ceilings:
        leads = ceiling.get("origin", "stated") == first
        number = measured.get((ceiling["device"], ceiling["kind"], ceiling.get("precision"))) if leads else None
        names.append(f"{ceiling['label']}, measured {number}" if number else str(ceiling["label"]))
    return names


def _level_labels(frame: Frame, ceilings: Sequence[Mapping[str, Any]], origin: str = "") -> dict[int, tuple[str, float]]:
    """The name of each level and how many pixels left of the right edge it ends.

    Levels of one rate share a line and its name; those close together put theirs side by side, then below each other.
    """
    places: dict[int, tuple[str, float]] = {}
    names, origin = _names(ceilings), origin or _first_origin(ceilings)
    levels = sorted((ceiling["value"], index) for index, ceiling in enumerate(ceilings)
                    if ceiling["kind"] == "compute" and ceiling.get("origin", "stated") == origin)
    shared: list[list[int]] = []
    for value, index in levels:
        if shared and value < 1.01 * ceilings[shared[-1][0]]["value"]:
            shared[-1].append(index)
        else:
            shared.append([index])
    last_y, shift = -math.inf, -4.0
    for group in shared:
        text = " · ".join([*(str(ceilings[index].get("name", "")) for index in group[:-1]), names[group[-1]]])
        _, y = frame.at(frame.right, ceilings[group[0]]["value"])
        shift = shift - LETTER_PX * len(text) - 16 if y - last_y < 14 else -4.0
        if shift < 0.6 * -frame.width_px:                 # further left the line has not begun
            shift = -4.0
        places[group[0]] = (text, shift)
        last_y = y
    return places


def _line(each: Mapping[str, Any], ceilings: Sequence[Mapping[str, Any]], frame: Frame) -> list[tuple[float, float]]:
    """Two ends: a level begins at its ridge, a slope ends at the highest level of its device."""
    same = [other for other in ceilings if other["device"] == each["device"] and other.get("origin", "stated") == each.get(
        "origin", "stated")]
    near = same if any(other["kind"] == "dram" for other in same) else [
        other for other in ceilings if other["device"] == each["device"]]
    if each["kind"] == "compute":
        start = min((each["value"] / other["value"] for other in near if other["kind"] == "dram"), default=frame.left)
        return [(max(start, frame.left), each["value"]), (frame.right, each["value"])]
    peak = max((other["value"] for other in near if other["kind"] == "compute"), default=frame.top)
    return [(frame.left, frame.left * each["value"]), (peak / each["value"], peak)]


def legend(made: Any, columns: int = 4) -> None:
    """Below the plane, which keeps the whole width; a click hides or shows what it names."""
    box = made.legend[0]
    made.add_layout(box, "below")
    box.orientation, box.ncols, box.location, box.click_policy = "horizontal", columns, "left", "hide"
    follows(box, inactive_fill_color="--panel")


def roof_boxes(frame: Frame, ceilings: Sequence[Mapping[str, Any]]) -> list[tuple[float, float, float, float]]:
    """Return where the names of the roofs stand, so that dots put theirs elsewhere."""
    boxes, names = [], _names(ceilings)
    for index, (text, shift) in _level_labels(frame, ceilings).items():
        x, y = frame.at(frame.right, ceilings[index]["value"])
        boxes.append((x + shift - LETTER_PX * len(text), y, x + shift, y + 16))
    for index, ceiling in enumerate(ceilings):
        if ceiling["kind"] != "compute" and ceiling.get("origin", "stated") == _first_origin(ceilings):
            x, y = frame.at(*_line(ceiling, ceilings, frame)[1])
            boxes.append((x - LETTER_PX * len(names[index]), y, x, y + SLOPE_PX[-1] + 14))
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


# Before → after on the roofline: a hollow circle, a line, a filled triangle.

_HOVER = [("kernel", "@name"), ("", "@side"), ("mean time", "@time_text"), ("change", "@change"), ("rate", "@rate_text"),
          ("intensity", "@intensity_text"), ("of its roof", "@roof_text")]
SENSES = ((True, SLOWER, "dashed", "▲ slower"), (False, FASTER, "solid", "▼ faster or equal"))


def compare_point(name: str, facts: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return a point of the sum of some launches, None where it has no dot.

    `facts`: `LaunchFacts` as JSON.
    """
    launches = [counters.from_json(launch) for launch in facts]
    whole = counters.combine_launches(launches)
    if whole is None or whole.point.reason or not whole.point.intensity or not whole.point.flop_s:
        return None
    return {"name": name, "intensity": whole.point.intensity, "flop_s": whole.point.flop_s, "roof_pct": whole.point.roof_pct,
            "time_ns": whole.point.duration_ns, "launches": len(launches), "bound": whole.bound,
            "dram_roof": whole.roofs.dram_bytes_s, "compute_roof": whole.roofs.compute.get(whole.point.precision or ""),
            "precision": gpus.PRECISIONS.get(whole.point.precision or "", "")}


@kept_figure
def compare_figure(old: Sequence[Mapping[str, Any] | None], new: Sequence[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    """An arrow from old to new per kernel, pair by pair; None where no pair has both points.

    Slower is an arrow downwards or left-down with a dashed line and ▲ time; faster is solid: never colour alone.
    """
    pairs = [(a, b) for a, b in zip(old, new, strict=True) if a and b]
    if not pairs:
        return None
    both = [point for pair in pairs for point in pair]
    ceilings = _compare_ceilings(both)
    frame = plane(both, ceilings, 460, width_px=430)
    chart = plot(frame, ceilings, 460, tap=False, hover=_HOVER)
    after = [b for _, b in pairs]
    places = label_places([{**b, "short_name": b["name"]} for b in after], frame, roof_boxes(frame, ceilings))
    named = {id(b): place for b, place in zip(after, places, strict=True)}
    for slower, colour, dash, label in SENSES:
        chosen = [(a, b) for a, b in pairs if (_mean(b) > _mean(a)) == slower]
        if chosen:
            _arrows(chart, chosen, colour, dash, label, named)
    chart.hover.renderers = [renderer for renderer in chart.renderers if renderer.name == "dots"]
    legend(chart, 3)
    return item(chart)


def _mean(point: Mapping[str, Any]) -> float:
    return float(point["time_ns"]) / int(point["launches"])


def _compare_ceilings(points: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The DRAM roof and one compute roof per precision that occurs, the highest of the points."""
    ceilings = []
    dram = max((p["dram_roof"] for p in points if p["dram_roof"]), default=None)
    if dram:
        ceilings.append({"kind": "dram", "name": "DRAM", "label": f"DRAM {si_text(dram, 'B/s')}", "value": dram, "device": ""})
    for precision in dict.fromkeys(p["precision"] for p in points):
        peak = max((p["compute_roof"] for p in points if p["precision"] == precision and p["compute_roof"]), default=None)
        if peak:
            ceilings.append({"kind": "compute", "name": precision, "label": f"{precision} {si_text(peak, 'FLOP/s')}", "value": peak,
                          "device": ""})
    return ceilings


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

"""Before → after on the roofline: a hollow circle, a line, a filled triangle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bokeh.models import ColumnDataSource

from profiles.analysis.core import gpus
from profiles.analysis.core.sentences import si_text
from profiles.analysis.kernel import counters
from profiles.charts.roofline_plane import label_places, legend, plane, plot, roof_boxes
from profiles.charts.words import time_text
from profiles.theme import FASTER, SLOWER, follows, item, kept_figure

_HOVER = [("kernel", "@name"), ("", "@side"), ("mean time", "@time_text"), ("change", "@change"), ("rate", "@rate_text"),
          ("intensity", "@intensity_text"), ("of its roof", "@roof_text")]
SENSES = ((True, SLOWER, "dashed", "▲ slower"), (False, FASTER, "solid", "▼ faster or equal"))


def compare_point(name: str, facts: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return a point of the sum of some launches, None where it has no dot.

    `facts`: `LaunchFacts` as JSON.
    """
    launches = [counters.from_json(each) for each in facts]
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
    made = plot(frame, ceilings, 460, tap=False, hover=_HOVER)
    after = [b for _, b in pairs]
    places = label_places([{**b, "short_name": b["name"]} for b in after], frame, roof_boxes(frame, ceilings))
    named = {id(b): place for b, place in zip(after, places, strict=True)}
    for slower, colour, dash, label in SENSES:
        chosen = [(a, b) for a, b in pairs if (_mean(b) > _mean(a)) == slower]
        if chosen:
            _arrows(made, chosen, colour, dash, label, named)
    made.hover.renderers = [each for each in made.renderers if each.name == "dots"]
    legend(made, 3)
    return item(made)


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

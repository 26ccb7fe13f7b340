"""Occupancy over block size, registers and shared memory: the three curves of NVIDIA's calculator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bokeh.models import ColumnDataSource, FixedTicker, Range1d

from profiles.analysis.what_if import Curve, kib_text
from profiles.theme import PALETTE, SLOWER, figure, follows, item


def curve_figures(curves: Sequence[Curve], warps_per_sm: int) -> list[dict[str, Any]]:
    """One figure per parameter with a mark where the kernel stands."""
    return [_figure(curve, warps_per_sm) for curve in curves]


def _figure(curve: Curve, warps_per_sm: int) -> dict[str, Any]:
    scale = 1024.0 if curve.unit == "bytes" else 1.0
    xs = [x / scale for x in curve.x]
    source = ColumnDataSource({
        "x": xs, "warps": curve.warps, "blocks": curve.blocks, "limiter": curve.limiters,
        "asked": [kib_text(x) if curve.unit == "bytes" else str(x) for x in curve.x],
        "pct": [f"{100.0 * warps / warps_per_sm:.4g} %" for warps in curve.warps],
    })
    label = f"{curve.title}{' (KiB)' if curve.unit == 'bytes' else ''}"
    plot = figure(height=230, x_axis_label=label, y_axis_label="warps per SM", y_range=Range1d(0, warps_per_sm * 1.06),
                  tools="box_zoom,reset,save",
                  hover=[(curve.title, "@asked"), ("warps per SM", "@warps"), ("occupancy", "@pct"), ("blocks per SM", "@blocks"),
                         ("limited by", "@limiter")])
    # the value holds from each point on up to the next: resources are given in steps
    plot.step("x", "warps", source=source, mode="before", line_width=2, line_color=PALETTE["compute"])
    dots = plot.scatter("x", "warps", source=source, size=7, fill_alpha=0.0, line_alpha=0.0, name="points")
    plot.hover.renderers = [dots]
    plot.hover.mode = "vline"
    plot.hover.point_policy = "snap_to_data"
    at = curve.x.index(curve.at)
    line = plot.line([xs[at], xs[at]], [0, curve.warps[at]], line_dash="dashed", line_width=1.5)
    follows(line.glyph, line_color="--muted")
    plot.scatter([xs[at]], [curve.warps[at]], size=11, marker="diamond", fill_color=SLOWER, line_color=SLOWER)
    plot.yaxis[0].ticker = FixedTicker(ticks=list(range(0, warps_per_sm + 1, warps_per_sm // 4)))
    plot.x_range = Range1d(0, xs[-1])
    return item(plot)


def summary(curve: Curve, warps_per_sm: int) -> str:
    """The figure in words, for those who do not see it."""
    at = curve.x.index(curve.at)
    best = max(curve.warps)
    reached = [x for x, warps in zip(curve.x, curve.warps, strict=True) if warps == best]
    shown = [kib_text(x) if curve.unit == "bytes" else f"{x:,}" for x in (curve.at, reached[0], reached[-1])]
    if curve.warps[at] == best:
        return f"{curve.title}: {best} of {warps_per_sm} warps at {shown[0]}, the most there is; last at {shown[2]}."
    where = f"from {shown[1]} to {shown[2]}" if len(reached) > 1 and _whole(curve, best) else f"first at {shown[1]}"
    return f"{curve.title}: {curve.warps[at]} of {warps_per_sm} warps at {shown[0]}; the most, {best}, {where}."


def _whole(curve: Curve, best: int) -> bool:
    """Is the highest value one piece of the curve?"""
    first = curve.warps.index(best)
    return all(warps == best for warps in curve.warps[first : first + curve.warps.count(best)])

"""Pictures of the topic "memory": bytes by category over time, and bars of what makes the peak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from bokeh.models import ColumnDataSource, HoverTool, NumeralTickFormatter
from bokeh.models.annotations import Label, Span

from profiles.analysis.core.sentences import pct_of, si_text
from profiles.analysis.trace.memory.categories import CATEGORIES
from profiles.charts.counters import time_text
from profiles.theme import PALETTE, figure, follows, item

# Category of bytes -> category whose colour it takes, and a hatch: never colour alone.
LOOK = {"before": ("other", ""), "kept": ("compute", ""), "optimizer": ("communication", "/"), "gradients": ("runtime", "x"),
        "activations": ("memory", ""), "other": ("python", "."), "temporary": ("cpu", "\\"), "unknown": ("annotation", "")}


def timeline_figure(device: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return allocated bytes by category as stacked staircases, or None.

    The allocator's reserve is a line. None where only one moment is known.
    """
    series = device["series"]
    times = series["time_ns"]
    if len(times) < 2:
        return None
    at = _stairs_x([ns / 1e6 for ns in times])
    data: dict[str, Sequence[Any]] = {"at": at}
    keys = [key for key in CATEGORIES if key in series["parts"]]
    for key in keys:
        data[key] = _stairs_y([max(size, 0) / 1e9 for size in series["parts"][key]])
    plot = figure(height=320, x_axis_label="ms since the trace began", y_axis_label="memory (GB)")
    plot.varea_stack(keys, x="at", source=ColumnDataSource(data), color=[PALETTE[LOOK[key][0]] for key in keys],
                     fill_alpha=0.85, hatch_pattern=[LOOK[key][1] or " " for key in keys], hatch_alpha=0.3,
                     legend_label=[CATEGORIES[key] for key in keys])
    source = _total(series, times, keys)
    total = plot.step("at", "total", source=source, mode="after", line_width=1.2)
    follows(total.glyph, line_color="--text")
    moments = plot.scatter("at", "total", source=source, size=6, alpha=0)          # what the pointer finds
    plot.add_tools(HoverTool(renderers=[moments], mode="vline", tooltips=[
        ("at", "@time"), ("allocated", "@total_text"), ("reserved", "@reserved_text"), ("", "@parts")]))
    if series["reserved_bytes"] is not None and any(series["reserved_bytes"]):
        reserved = plot.step([ns / 1e6 for ns in times], [(size or float("nan")) / 1e9 if size is not None else float("nan")
                                                          for size in series["reserved_bytes"]],
                             mode="after", line_dash="dashed", line_width=1.5, legend_label="reserved by the allocator")
        follows(reserved.glyph, line_color="--muted")
    plot.add_layout(follows(Span(location=device["peak_ns"] / 1e6, dimension="height", line_dash="dotted", line_width=1.5),
                            line_color="--text"))
    late = device["peak_ns"] > (times[0] + times[-1]) / 2             # its name stands where there is room
    plot.add_layout(follows(Label(x=device["peak_ns"] / 1e6, y=device["peak_bytes"] / 1e9, y_offset=2, x_offset=-5 if late else 5,
                                  text_align="right" if late else "left", text=f"peak {si_text(device['peak_bytes'], 'B')}",
                                  text_font_size="11px"), text_color="--text"))
    plot.y_range.start = 0
    plot.yaxis.formatter = NumeralTickFormatter(format="0.[000]")
    plot.add_layout(plot.legend[0], "right")
    return item(plot)


def _total(series: Mapping[str, Any], times: Sequence[int], keys: Sequence[str]) -> ColumnDataSource:
    reserved = series["reserved_bytes"] or [None] * len(times)
    parts = ["; ".join(f"{CATEGORIES[key]} {si_text(series['parts'][key][i], 'B')}" for key in keys if series["parts"][key][i] > 0)
             for i in range(len(times))]
    return ColumnDataSource({
        "at": [ns / 1e6 for ns in times], "total": [size / 1e9 for size in series["total_bytes"]],
        "time": [time_text(ns) for ns in times], "total_text": [si_text(size, "B") for size in series["total_bytes"]],
        "reserved_text": ["unknown" if size is None else si_text(size, "B") for size in reserved], "parts": parts})


def _stairs_x(values: Sequence[float]) -> list[float]:
    """Each value holds until the next time."""
    return [each for before, after in pairwise(values) for each in (before, after)] + [values[-1]]


def _stairs_y(values: Sequence[float]) -> list[float]:
    return [each for before, _ in pairwise(values) for each in (before, before)] + [values[-1]]


def peak_bars(devices: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what makes each device's peak; the parts add up to it."""
    out = []
    for device in devices:
        peak = device["peak_bytes"]
        parts = [_part(key, size, pct_of(size, peak)) for key, size in device["parts_bytes"].items()]
        out.append({"label": device["label"], "peak_bytes": peak, "peak_ns": device["peak_ns"], "parts": parts,
                    "capacity_bytes": device["capacity_bytes"]})
    return out


def _part(key: str, size: int, pct: float) -> dict[str, Any]:
    label = CATEGORIES[key]
    return {"category": LOOK[key][0], "label": label, "bytes": size, "pct": pct, "css": f"{pct:.4f}",
            "wide": pct >= 5 + len(label) / 4}

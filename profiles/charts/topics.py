"""Pictures of the topics "communication", "launches" and "memory".

Bandwidth by message size, waits over time, bars of ranks and of causes; how long launches wait and for what, how deep each
stream's queue is over time; bytes by category over time, and bars of what makes the peak.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from bokeh.models import ColumnDataSource, FixedTicker, HoverTool, NumeralTickFormatter, Range1d
from bokeh.models.annotations import Label, Span

from profiles.analysis.core.sentences import pct_of, si_text
from profiles.analysis.trace.communication.stragglers import CAUSES
from profiles.analysis.trace.memory.categories import CATEGORIES
from profiles.charts.counters import time_text
from profiles.charts.trace import Part
from profiles.theme import PALETTE, SERIES, figure, fit, follows, item

# part of the delay, its legend, colour, hatch: never colour alone
PARTS = (("in_call", "most of it in the call", PALETTE["runtime"], ""),
         ("queued", "most of it queued behind other work", PALETTE["compute"], "/"),
         ("ready", "most of it ready, not started", PALETTE["communication"], "x"))
DASHES = ("solid", "dashed", "dotted", "dotdash", "dashdot", "solid")


def delay_figure(numbers: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return launches by delay, stacked by what makes most of each delay, or None.

    Four classes a decade.
    """
    bins = numbers["delay_bins"]
    if not bins:
        return None
    names = [_class_text(bucket) for bucket in bins]
    data = {"delay": names, **{part: [bucket[part] for bucket in bins] for part, *_ in PARTS}}
    plot = figure(height=310, x_range=names, hover=[("delay", "@delay"), ("launches", "@$name{0,0}"), ("", "$name")],
                  x_axis_label="delay, from the begin of the call to the start of the kernel", y_axis_label="launches")
    bars = plot.vbar_stack([part for part, *_ in PARTS], x="delay", width=0.92, source=ColumnDataSource(data),
                           color=[colour for _, _, colour, _ in PARTS], hatch_pattern=[hatch or " " for *_, hatch in PARTS],
                           hatch_alpha=0.35, legend_label=[text for _, text, *_ in PARTS])
    for bar in bars:
        follows(bar.glyph, hatch_color="--panel")
    plot.xaxis.major_label_orientation = 0.9
    plot.y_range.start = 0
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0")
    _legend_below(plot)
    return item(plot)


def _class_text(each: Mapping[str, Any]) -> str:
    if not each["from_ns"]:
        return f"under {time_text(each['to_ns'])}"
    return f"{time_text(each['from_ns'])}"


def queue_figure(numbers: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the queue depth of the busiest streams as staircases, or None.

    With the limit where one comes near.
    """
    shown = [queue for queue in numbers["queues"] if queue["most"] > 0]
    if not shown:
        return None
    start, end, limit = numbers["start_ns"], numbers["end_ns"], numbers["queue_limit"]
    plot = figure(height=310, hover=[("stream", "@stream"), ("at", "@at ms"), ("waiting", "@depth{0,0}")],
                  x_axis_label="ms since the trace began",
                  y_axis_label="launches waiting", x_range=Range1d(start / 1e6, end / 1e6))
    for index, queue in enumerate(shown):
        times_ms = [ns / 1e6 for ns in queue["time_ns"]]
        source = ColumnDataSource({"at": times_ms, "depth": queue["depth"], "stream": [queue["stream"]] * len(times_ms)})
        plot.step("at", "depth", source=source, mode="after", line_width=1.6, line_color=SERIES[index % len(SERIES)],
                  line_dash=DASHES[index % len(DASHES)], legend_label=queue["stream"])
    if max(queue["most"] for queue in shown) > limit / 2:
        plot.add_layout(follows(Span(location=limit, dimension="width", line_dash="dashed", line_width=1.5), line_color="--muted"))
        plot.add_layout(follows(Label(x=end / 1e6, y=limit, x_offset=-4, y_offset=2, text_align="right", text_font_size="11px",
                                      text=f"launches that a queue holds: {limit:,}"), text_color="--muted"))
    plot.y_range.start = 0
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0")
    _legend_below(plot)
    return item(plot)


def _legend_below(plot: Any) -> None:
    """Within the plane it would lie on bars and lines."""
    plot.legend.location = "left"
    plot.add_layout(plot.legend[0], "below")


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
    times_ms = _stairs_x([ns / 1e6 for ns in times])
    data: dict[str, Sequence[Any]] = {"at": times_ms}
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
    return [edge for before, after in pairwise(values) for edge in (before, after)] + [values[-1]]


def _stairs_y(values: Sequence[float]) -> list[float]:
    return [edge for before, _ in pairwise(values) for edge in (before, before)] + [values[-1]]


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


MARKERS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "hex", "star", "plus", "cross", "x")
MOST_BARS, MOST_COLOURS = 16, len(SERIES)
# What the late one did -> the colour of its category.
_CAUSE_CATEGORY = {"computing": "compute", "behind": "cpu", "copying": "memory", "communicating": "communication",
                   "host_late": "runtime", "queued": "annotation", "unknown": "idle"}


def bandwidth_figure(sizes: list[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return bus bandwidth over message size, both logarithmic.

    What is "at least" is hollow. None where no size is known.
    """
    rows = [row for row in sizes if row["bytes"] and row["bus_bytes_s"]]
    if not rows:
        return None
    tips = [("", "@operation of @size"), ("bus bandwidth", "@rate"), ("algorithm bandwidth", "@algorithm"), ("one takes", "@one"),
            ("launches", "@launches{0,0}"), ("", "@note")]
    plot = figure(height=300, x_axis_type="log", y_axis_type="log", hover=tips, x_axis_label="message size",
                  y_axis_label="bus bandwidth (GB/s)")
    operations = list(dict.fromkeys(row["operation"] for row in rows))
    for index, operation in enumerate(operations):
        mine = [row for row in rows if row["operation"] == operation]
        source = ColumnDataSource({
            "x": [row["bytes"] for row in mine], "y": [row["bus_bytes_s"] / 1e9 for row in mine],
            "operation": [row["operation"] for row in mine], "size": [si_text(row["bytes"], "B") for row in mine],
            "rate": [si_text(row["bus_bytes_s"], "B/s") for row in mine], "launches": [row["launches"] for row in mine],
            "algorithm": [si_text(row["algorithm_bytes_s"], "B/s") for row in mine],
            "one": [time_text(row["one_ns"]) for row in mine], "fill": [0.0 if row["at_least"] else 0.75 for row in mine],
            "note": ["at least: the kernel also waits" if row["at_least"] else "" for row in mine]})
        plot.scatter("x", "y", source=source, size=11, marker=MARKERS[index % len(MARKERS)], fill_alpha="fill", line_width=1.5,
                     color=SERIES[index % len(SERIES)], legend_label=operation)
    low, high = (pick(row["bus_bytes_s"] for row in rows) / 1e9 for pick in (min, max))
    plot.y_range = Range1d(min(low / 2, high / 10), high * 2)
    small, large = (pick(row["bytes"] for row in rows) for pick in (min, max))
    plot.x_range = Range1d(min(small / 2, large / 30), max(large * 2, small * 30))          # at least three decades
    ticks = [10**power for power in range(13)]
    plot.xaxis.ticker = FixedTicker(ticks=ticks)
    plot.xaxis.major_label_overrides = {tick: si_text(tick, "B") for tick in ticks}
    plot.legend.location = "bottom_right"
    return item(plot)


def waits_figure(numbers: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the ranks' waits in each collective over time, or None.

    Coloured by who came last.
    """
    series = [wait for wait in numbers["series"] if wait["wait_ns"] > 0]
    if not series:
        return None
    plot = figure(height=300, hover=[("last", "@late"), ("others waited", "@wait"), ("collectives", "@count"), ("at", "@at ms")],
                  x_axis_label="ms since the trace began", y_axis_label="waited (ms, all ranks together)")
    labels = list(dict.fromkeys(wait["late"] for wait in series))
    span_ms = max(numbers["wall_ns"] / 1e6, 1e-6)
    for index, label in enumerate(labels):
        mine = [wait for wait in series if wait["late"] == label]
        times_ms = [wait["start_ns"] / 1e6 for wait in mine]
        source = ColumnDataSource({
            "at": times_ms, "ms": [wait["wait_ns"] / 1e6 for wait in mine], "late": [label] * len(mine),
            "wait": [time_text(wait["wait_ns"]) for wait in mine], "count": [wait["collectives"] for wait in mine]})
        colour = SERIES[index % MOST_COLOURS]
        options: dict[str, Any] = {"legend_label": f"last: {label}"} if index < MOST_COLOURS else {}
        plot.vbar(x="at", top="ms", bottom=0, width=span_ms / 400, source=source, color=colour, **options)
        plot.scatter("at", "ms", source=source, size=7, marker=MARKERS[index % len(MARKERS)], color=colour, **options)
    fit(plot, [wait["start_ns"] / 1e6 for wait in series], [wait["wait_ns"] / 1e6 for wait in series],
        [time_text(wait["wait_ns"]) for wait in series], zero=True)
    plot.add_layout(plot.legend[0], "below")
    plot.legend.orientation = "horizontal"
    return item(plot)


def rank_bars(numbers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each rank's time in collectives as bars.

    Transfer, waiting behind compute, standing still. Widths against the longest rank.
    """
    ranks = numbers["ranks"][:MOST_BARS]
    longest = max((rank["kernel_ns"] - rank["start_wait_ns"] for rank in ranks), default=0)
    out = []
    for rank in ranks:
        whole = rank["kernel_ns"] - rank["start_wait_ns"]
        if rank["wait_ns"] is None:
            pieces = [("communication", "transfer and waiting, not told apart", whole)]
        else:
            pieces = [("communication", "transfer", rank["matched_ns"] - rank["wait_ns"]),
                      ("compute", "waiting, while it computes", rank["wait_ns"] - rank["still_ns"]),
                      ("idle", "waiting, standing still", rank["still_ns"]),
                      ("other", "met nobody", max(whole - rank["matched_ns"], 0))]
        parts = [Part(category, label, ns, pct_of(ns, longest)) for category, label, ns in pieces if ns > 0]
        out.append({"label": rank["label"], "parts": parts, "ns": whole, "late": rank["late"], "hidden_pct": rank["hidden_pct"]})
    return out


def cause_bars(numbers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what each late rank did while the others waited, as bars.

    The parts add up to the windows.
    """
    out = []
    for rank in numbers["late"][:MOST_BARS]:
        total = sum(rank["causes_ns"].values())
        if total > 0 and rank["waited_ns"] > 0:
            parts = [Part(_CAUSE_CATEGORY[key], CAUSES[key], ns, 100 * ns / total)
                     for key, ns in rank["causes_ns"].items() if ns > 0]
            out.append({"label": rank["label"], "meetings": rank["meetings"], "cost_ns": rank["cost_ns"], "ns": total,
                        "parts": parts, "host": rank["host"], "kernels": rank["kernels"], "window": rank["window"]})
    return out


def matrix(numbers: Mapping[str, Any], most: int = MOST_BARS) -> dict[str, Any] | None:
    """Return who waits (rows) for whom (columns), shaded by the time stood still.

    None where it says nothing or is too large.
    """
    pairs = numbers["pairs"]
    if not pairs or not 2 <= len(pairs["labels"]) <= most:
        return None
    largest = max((max(row) for row in pairs["wait_ns"]), default=0)
    if not largest:
        return None
    rows = []
    for i, label in enumerate(pairs["labels"]):
        of = zip(pairs["wait_ns"][i], pairs["still_ns"][i], pairs["collectives"][i], strict=True)
        rows.append({"label": label, "cells": [
            {"wait_ns": wait, "still_ns": still, "count": count, "own": i == j, "css": f"{70 * wait / largest:.1f}"}
            for j, (wait, still, count) in enumerate(of)]})
    return {"labels": pairs["labels"], "rows": rows}

"""Pictures of the topic "communication": bandwidth by message size, waits over time, and bars of ranks and of causes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bokeh.models import ColumnDataSource, FixedTicker, Range1d

from profiles.analysis.core.sentences import pct_of, si_text
from profiles.analysis.trace.communication.stragglers import CAUSES
from profiles.charts.counters import time_text
from profiles.charts.trace import Part
from profiles.theme import SERIES, figure, fit, item

MARKERS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "hex", "star", "plus", "cross", "x")
MOST_BARS, MOST_COLOURS = 16, len(SERIES)
# What the late one did -> the colour of its category.
_CAUSE_CATEGORY = {"computing": "compute", "behind": "cpu", "copying": "memory", "communicating": "communication",
                   "host_late": "runtime", "queued": "annotation", "unknown": "idle"}


def bandwidth_figure(sizes: list[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return bus bandwidth over message size, both logarithmic.

    What is "at least" is hollow. None where no size is known.
    """
    known = [each for each in sizes if each["bytes"] and each["bus_bytes_s"]]
    if not known:
        return None
    tips = [("", "@operation of @size"), ("bus bandwidth", "@rate"), ("algorithm bandwidth", "@algorithm"), ("one takes", "@one"),
            ("launches", "@launches{0,0}"), ("", "@note")]
    plot = figure(height=300, x_axis_type="log", y_axis_type="log", hover=tips, x_axis_label="message size",
                  y_axis_label="bus bandwidth (GB/s)")
    operations = list(dict.fromkeys(each["operation"] for each in known))
    for index, operation in enumerate(operations):
        mine = [each for each in known if each["operation"] == operation]
        source = ColumnDataSource({
            "x": [each["bytes"] for each in mine], "y": [each["bus_bytes_s"] / 1e9 for each in mine],
            "operation": [each["operation"] for each in mine], "size": [si_text(each["bytes"], "B") for each in mine],
            "rate": [si_text(each["bus_bytes_s"], "B/s") for each in mine], "launches": [each["launches"] for each in mine],
            "algorithm": [si_text(each["algorithm_bytes_s"], "B/s") for each in mine],
            "one": [time_text(each["one_ns"]) for each in mine], "fill": [0.0 if each["at_least"] else 0.75 for each in mine],
            "note": ["at least: the kernel also waits" if each["at_least"] else "" for each in mine]})
        plot.scatter("x", "y", source=source, size=11, marker=MARKERS[index % len(MARKERS)], fill_alpha="fill", line_width=1.5,
                     color=SERIES[index % len(SERIES)], legend_label=operation)
    low, high = (pick(each["bus_bytes_s"] for each in known) / 1e9 for pick in (min, max))
    plot.y_range = Range1d(min(low / 2, high / 10), high * 2)
    small, large = (pick(each["bytes"] for each in known) for pick in (min, max))
    plot.x_range = Range1d(min(small / 2, large / 30), max(large * 2, small * 30))          # at least three decades
    ticks = [10**power for power in range(13)]
    plot.xaxis.ticker = FixedTicker(ticks=ticks)
    plot.xaxis.major_label_overrides = {each: si_text(each, "B") for each in ticks}
    plot.legend.location = "bottom_right"
    return item(plot)


def waits_figure(numbers: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the ranks' waits in each collective over time, or None.

    Coloured by who came last.
    """
    series = [each for each in numbers["series"] if each["wait_ns"] > 0]
    if not series:
        return None
    plot = figure(height=300, hover=[("last", "@late"), ("others waited", "@wait"), ("collectives", "@count"), ("at", "@at ms")],
                  x_axis_label="ms since the trace began", y_axis_label="waited (ms, all ranks together)")
    labels = list(dict.fromkeys(each["late"] for each in series))
    span_ms = max(numbers["wall_ns"] / 1e6, 1e-6)
    for index, label in enumerate(labels):
        mine = [each for each in series if each["late"] == label]
        at = [each["start_ns"] / 1e6 for each in mine]
        source = ColumnDataSource({
            "at": at, "ms": [each["wait_ns"] / 1e6 for each in mine], "late": [label] * len(mine),
            "wait": [time_text(each["wait_ns"]) for each in mine], "count": [each["collectives"] for each in mine]})
        colour = SERIES[index % MOST_COLOURS]
        options: dict[str, Any] = {"legend_label": f"last: {label}"} if index < MOST_COLOURS else {}
        plot.vbar(x="at", top="ms", bottom=0, width=span_ms / 400, source=source, color=colour, **options)
        plot.scatter("at", "ms", source=source, size=7, marker=MARKERS[index % len(MARKERS)], color=colour, **options)
    fit(plot, [each["start_ns"] / 1e6 for each in series], [each["wait_ns"] / 1e6 for each in series],
        [time_text(each["wait_ns"]) for each in series], zero=True)
    plot.add_layout(plot.legend[0], "below")
    plot.legend.orientation = "horizontal"
    return item(plot)


def rank_bars(numbers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each rank's time in collectives as bars.

    Transfer, waiting behind compute, standing still. Widths against the longest rank.
    """
    ranks = numbers["ranks"][:MOST_BARS]
    longest = max((each["kernel_ns"] - each["start_wait_ns"] for each in ranks), default=0)
    out = []
    for each in ranks:
        whole = each["kernel_ns"] - each["start_wait_ns"]
        if each["wait_ns"] is None:
            said = [("communication", "transfer and waiting, not told apart", whole)]
        else:
            said = [("communication", "transfer", each["matched_ns"] - each["wait_ns"]),
                    ("compute", "waiting, while it computes", each["wait_ns"] - each["still_ns"]),
                    ("idle", "waiting, standing still", each["still_ns"]),
                    ("other", "met nobody", max(whole - each["matched_ns"], 0))]
        parts = [Part(category, label, ns, pct_of(ns, longest)) for category, label, ns in said if ns > 0]
        out.append({"label": each["label"], "parts": parts, "ns": whole, "late": each["late"], "hidden_pct": each["hidden_pct"]})
    return out


def cause_bars(numbers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what each late rank did while the others waited, as bars.

    The parts add up to the windows.
    """
    out = []
    for each in numbers["late"][:MOST_BARS]:
        total = sum(each["causes_ns"].values())
        if total > 0 and each["waited_ns"] > 0:
            parts = [Part(_CAUSE_CATEGORY[key], CAUSES[key], ns, 100 * ns / total)
                     for key, ns in each["causes_ns"].items() if ns > 0]
            out.append({"label": each["label"], "meetings": each["meetings"], "cost_ns": each["cost_ns"], "ns": total,
                        "parts": parts, "host": each["host"], "kernels": each["kernels"], "window": each["window"]})
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

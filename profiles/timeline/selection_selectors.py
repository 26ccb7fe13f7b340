"""An area of the timeline in numbers: sums and quantiles by any columns, a histogram of durations, the slices themselves.

Each is a generator that yields how far it is (0-1) and returns its answer, so that long ones can tell and be stopped.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import pyarrow as pa

from profiles.analysis.core import intervals
from profiles.analysis.core.groups import WIDTH_PCT, Groups, Sums
from profiles.analysis.core.sentences import pct_of
from profiles.exports.files import table_of
from profiles.ingest.trace import GPU_WORK
from profiles.store.area import ARGUMENT, COLUMNS, Area, Column, Window, argument_names, column, windows
from profiles.store.timeline import Timeline
from profiles.timeline.selectors import describe_slices

LISTED = 2_000                  # rows of the table on the page
FILED = 200_000                 # rows of the table as a file
MAX_SLICES = 1_000              # of one page of slices
DEFAULT = ("name", "category")
Work = Generator[float, None, dict[str, Any]]


def groups(timeline: Timeline, area: Area, by: tuple[str, ...] = DEFAULT, limit: int = LISTED) -> Work:
    """Return, per value of the columns, how many slices and how long.

    Clipped to the area, and whole, with the quantiles of their whole durations. Raises UnknownColumn, TooManyGroups.
    """
    columns = [column(key) for key in by]
    sums = Sums(0)
    shape: list[int] = []
    slices = busy_ns = 0
    for window in windows(timeline, area, ("category", *(name for key_column in columns for name in key_column.needs))):
        rows = window.counted_rows
        codes = [key_column.codes(timeline, rows) for key_column in columns]
        if not shape:
            shape = [len(parts) for parts in codes]
            sums = Sums(sum(shape))
        sums.add([part for parts in codes for part in parts], rows["dur_ns"], rows["end"] - rows["begin"])
        slices += int(rows["slice"].size)
        busy_ns += _busy(timeline, window)
        yield window.done
    stats = sums.groups()
    everything = int(stats.clipped_ns.sum())
    return {
        "start_ns": area.start_ns, "end_ns": area.end_ns, "tracks": int(np.count_nonzero(area.mask(timeline))), "slices": slices,
        "busy_ns": busy_ns, "by": list(by), "groups": int(stats.count.size), "total_ns": everything,
        "whole_ns": int(stats.whole_ns.sum()), "truncated": stats.count.size > limit,
        "rows": [_row(timeline, columns, shape, stats, index, everything) for index in range(min(int(stats.count.size), limit))],
        "histogram": sums.histogram(), "quantiles": _quantiles(stats),
    }


def _row(timeline: Timeline, columns: list[Column], shape: list[int], made: Groups, row: int, everything: int) -> dict[str, Any]:
    parts, key, values = iter(made.keys), [], {}
    for key_column, width in zip(columns, shape, strict=True):
        code = tuple(int(next(parts)[row]) for _ in range(width))
        key.append(f"{key_column.key}:{','.join(map(str, code))}")
        values[key_column.key] = key_column.value(timeline, code)
    return {
        **values, "key": key, **_numbers(made, row),
        "share_pct": pct_of(int(made.clipped_ns[row]), everything),
    }


def _numbers(made: Groups, row: int) -> dict[str, Any]:
    return {
        "count": int(made.count[row]), "total_ns": int(made.clipped_ns[row]), "whole_ns": int(made.whole_ns[row]),
        "mean_ns": float(made.mean_ns[row]), "min_ns": int(made.min_ns[row]), "max_ns": int(made.max_ns[row]),
        "p50_ns": float(made.p50_ns[row]), "p95_ns": float(made.p95_ns[row])}


def _quantiles(made: Groups) -> str:
    return "exact" if made.exact else f"classes {WIDTH_PCT:.1f} % wide"


def _busy(timeline: Timeline, window: Window) -> int:
    """Time of the window in which at least one of the area's GPU tracks worked."""
    streams = np.array([track["kind"] == "stream" for track in timeline.tracks], np.bool_)
    work = np.isin(window.rows["category"], [int(category) for category in GPU_WORK]) & streams[window.rows["track"]]
    begin, end = window.clip_times()
    return intervals.union(begin[work & ~window.rows["instant"]], end[work & ~window.rows["instant"]]).length_ns


def histogram(timeline: Timeline, area: Area) -> Work:
    """Return the durations of the area's slices in classes of a quarter octave."""
    sums = Sums(0)
    for window in windows(timeline, area):
        rows = window.counted_rows
        sums.add([], rows["dur_ns"], rows["end"] - rows["begin"])
        yield window.done
    stats = sums.groups()
    return {"start_ns": area.start_ns, "end_ns": area.end_ns, "histogram": sums.histogram(), "count": 0,
            **(_numbers(stats, 0) if stats.count.size else {}), "quantiles": _quantiles(stats)}


def slices(timeline: Timeline, area: Area, limit: int, offset: int) -> Work:
    """Return the area's slices by start: how many there are, and some of them."""
    total, rows = 0, [np.empty(0, np.int64)]
    for window in windows(timeline, area):
        counted = window.counted_rows
        order = np.lexsort((counted["slice"], counted["start_ns"]))
        rows.append(counted["slice"][order][max(offset - total, 0):max(offset + limit - total, 0)])
        total += int(order.size)
        yield window.done
    return {"total": total, "offset": offset, "slices": describe_slices(timeline, np.concatenate(rows))}


def columns(timeline: Timeline) -> list[dict[str, Any]]:
    """Return the columns that slices of this trace can be grouped by."""
    named = argument_names(timeline.profile_id, timeline.etag)
    return [{"key": key_column.key, "title": key_column.title, "kind": key_column.kind} for key_column in COLUMNS.values()] + [
        {"key": ARGUMENT + name, "title": name, "kind": "text"} for name in named]


def table(made: dict[str, Any]) -> pa.Table:
    """Return the rows of `groups` as a table to keep."""
    numbers = ("count", "total_ns", "whole_ns", "mean_ns", "min_ns", "max_ns", "p50_ns", "p95_ns", "share_pct")
    return table_of([*made["by"], *numbers], made["rows"])

"""The marked step of slices of a stored trace, in both senses: that of the launch call, and that in which the slice began."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from profiles.ingest.trace import GPU_WORK, Category
from profiles.store.related import givers, match
from profiles.store.timeline import Timeline

Int64 = npt.NDArray[np.int64]
Rows = dict[str, npt.NDArray[Any]]
LAUNCHED_NEEDS = ("track", "start_ns", "category", "correlation")
RAN_NEEDS = ("track", "start_ns")
_WORK = [int(kind) for kind in GPU_WORK]


def step_name(timeline: Timeline, step: int) -> str | None:
    return timeline.document["steps"][step]["name"] if step >= 0 else None


def steps_launched(timeline: Timeline, rows: Rows) -> Int64:
    """Return the step in which each slice was launched, of what is no GPU work the one in which it began.

    -1: outside every step, or of GPU work whose call is not known. Steps of one name (of several ranks) are the first of them.
    """
    out = steps_ran(timeline, rows)
    work = np.flatnonzero(np.isin(rows["category"], _WORK))
    if not work.size or not timeline.document["steps"]:
        return out
    correlation = rows["correlation"][work].astype(np.int64)
    call = match(correlation, *givers(timeline, "correlation", correlation, (Category.RUNTIME,)))
    out[work] = -1
    known = call >= 0
    calls, place = np.unique(call[known], return_inverse=True)
    out[work[known]] = steps_ran(timeline, timeline.slices.take(calls, RAN_NEEDS))[place]
    return out


def steps_ran(timeline: Timeline, rows: Rows) -> Int64:
    """Return the step in which each slice began, -1 outside every step; each among those of its own rank."""
    steps = timeline.document["steps"]
    out = np.full(rows["start_ns"].size, -1, np.int64)
    groups = [str(track["group"]).partition(": ")[0] for track in timeline.tracks]      # of several ranks: "rank 1: GPU 0"
    owners = [groups[track] for track in timeline.document.get("step_tracks") or []]
    several = len(set(owners)) > 1
    first: dict[str, int] = {}
    names = np.array([first.setdefault(step["name"], number) for number, step in enumerate(steps)], np.int64)
    owner_of_track = np.array(groups)[rows["track"]] if several else None
    for owner in dict.fromkeys(owners) if several else [""]:
        mine = np.array([number for number in range(len(steps)) if not several or owners[number] == owner], np.int64)
        start, end = (np.array([steps[number][key] for number in mine.tolist()], np.int64) for key in ("start_ns", "end_ns"))
        order = np.argsort(start, kind="stable")
        at = np.searchsorted(start[order], rows["start_ns"], side="right") - 1
        inside = (at >= 0) & (owner_of_track == owner if owner_of_track is not None else True)
        if not mine.size:
            continue
        step = order[np.maximum(at, 0)]
        inside &= rows["start_ns"] < end[step]
        out[inside] = names[mine[step[inside]]]
    return out

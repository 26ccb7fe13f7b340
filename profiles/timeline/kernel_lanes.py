"""All launches of one kernel on lanes of their own, one per stream: which lanes there are, and what a tile shows of them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from profiles.analysis.core.tiles import BIN_BITS, MERGED, OVERFLOW, TileRows
from profiles.ingest.arrays import Array, Bools, Bytes, Ints, stable_order
from profiles.ingest.trace import GPU_WORK
from profiles.store.timeline import Timeline

FIRST = 1 << 20                     # track number of the first lane: behind every track of a trace
MOST_KERNELS = 200                  # with lanes of their own; the others share one per stream
MOST_LAUNCHES = 2_000_000           # some 40 bytes each are held while the lanes are looked at
MOST_SLICES = 20_000_000            # of the trace: all are read to find the launches
_CHUNK = 1 << 19
_KEPT = 4
_READ = ("track", "start_ns", "dur_ns", "name_id", "category", "instant")


class TooMany(Exception):
    """The trace has more launches than are sorted by kernel: how many, and what to do."""


@dataclass(frozen=True)
class KernelLanes:
    """Launches ordered by (lane, start). Lane i holds the rows bounds[i]:bounds[i + 1]; lanes of one kernel follow each other."""

    lane_track: Ints                # of each lane: the stream that its launches ran on
    lane_name: Ints                 # its kernel's name id, -1: all further kernels
    bounds: Ints
    start_ns: Ints
    dur_ns: Ints
    reach_ns: Ints                  # the greatest end so far, of the lane
    slice: Ints
    name: Ints
    category: Bytes


_known: OrderedDict[str, KernelLanes] = OrderedDict()
_lock = threading.Lock()


def kernel_lanes(timeline: Timeline) -> KernelLanes:
    """Return the lanes of a stored trace, kernel of most time first. Raises TooMany."""
    with _lock:
        if (hit := _known.get(timeline.etag)) is not None:
            _known.move_to_end(timeline.etag)
            return hit
    lanes = _make(timeline)
    with _lock:
        _known[timeline.etag] = lanes
        while len(_known) > _KEPT:
            _known.popitem(last=False)
    return lanes


def _make(timeline: Timeline) -> KernelLanes:
    streams = np.array([track["kind"] == "stream" for track in timeline.tracks], np.bool_)
    launches = sum(track["slices"] for track in timeline.tracks if track["kind"] == "stream")
    if launches > MOST_LAUNCHES or timeline.slices.rows > MOST_SLICES:
        raise TooMany(f"this trace has {launches:,} slices on streams, {timeline.slices.rows:,} in all; up to {MOST_LAUNCHES:,} "
                      f"of {MOST_SLICES:,} are sorted by kernel")
    rows = _launches(timeline, streams)
    names, code = np.unique(rows["name_id"], return_inverse=True)
    total = np.bincount(code, weights=rows["dur_ns"], minlength=names.size)
    place = np.empty(names.size, np.int64)
    place[stable_order(-total)] = np.arange(names.size)
    kernel = np.minimum(place[code], MOST_KERNELS) if names.size else code
    order = np.lexsort((rows["start_ns"], rows["track"], kernel))
    rows = {name: values[order] for name, values in rows.items()}
    kernel = kernel[order]
    new = np.flatnonzero((np.diff(kernel, prepend=-1) != 0) | (np.diff(rows["track"].astype(np.int64), prepend=-1) != 0))
    bounds = np.append(new, kernel.size)
    reach = rows["start_ns"] + np.maximum(rows["dur_ns"], 1)
    for a, b in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        np.maximum.accumulate(reach[a:b], out=reach[a:b])
    return KernelLanes(
        lane_track=rows["track"][new].astype(np.int64), lane_name=np.where(kernel[new] < MOST_KERNELS, rows["name_id"][new], -1),
        bounds=bounds, start_ns=rows["start_ns"], dur_ns=rows["dur_ns"], reach_ns=reach, slice=rows["row"],
        name=rows["name_id"].astype(np.int64), category=rows["category"].astype(np.uint8))


def _launches(timeline: Timeline, streams: Bools) -> dict[str, Array]:
    work = [int(kind) for kind in GPU_WORK]
    parts = []
    for first in range(0, timeline.slices.rows, _CHUNK):
        part = timeline.slices.read_uncached(first, min(first + _CHUNK, timeline.slices.rows), _READ)
        rows = np.flatnonzero(streams[part["track"]] & np.isin(part["category"], work) & ~part["instant"].astype(np.bool_))
        parts.append({**{name: values[rows] for name, values in part.items()}, "row": rows + first})
    return {name: np.concatenate([np.empty(0, np.int64), *(part[name] for part in parts)]) for name in (*_READ, "row")}


def lane_documents(lanes: KernelLanes, tracks: Sequence[Mapping[str, Any]], names: Sequence[str], labels: Mapping[str, str],
                   ) -> list[dict[str, Any]]:
    """Return the lanes as the timeline's document lists tracks.

    `of`: the stream's track; `kernel`: the full name, None for the further ones; `kernel_ns`, `kernel_launches`: of the
    kernel on all its lanes.
    """
    counts = np.diff(lanes.bounds)
    spent = np.add.reduceat(lanes.dur_ns, lanes.bounds[:-1]) if counts.size else counts
    of_kernel: dict[int, tuple[int, int]] = {}
    for name, count, ns in zip(lanes.lane_name.tolist(), counts.tolist(), spent.tolist(), strict=True):
        before = of_kernel.get(name, (0, 0))
        of_kernel[name] = before[0] + count, before[1] + ns
    further = int(np.unique(lanes.name[lanes.bounds[int(np.argmax(lanes.lane_name < 0))]:]).size) if -1 in of_kernel else 0
    out = []
    for lane, (track_id, name) in enumerate(zip(lanes.lane_track.tolist(), lanes.lane_name.tolist(), strict=True)):
        track, kernel = tracks[track_id], names[name] if name >= 0 else None
        out.append({
            "id": FIRST + lane, "kind": "stream", "name": f"{track['group']} · {track['name']}", "of": track_id, "kernel": kernel,
            "group": labels.get(kernel, kernel) if kernel else f"{further:,} further kernel{'s' if further > 1 else ''}",
            "pid": track["pid"], "tid": track["tid"], "device": track["device"], "stream": track["stream"], "unit": None,
            "depths": 1, "slices": int(counts[lane]), "samples": 0, "sort": lane,
            "busy_ns": int(spent[lane]), "rank": track.get("rank"), "aside": None,
            "kernel_launches": of_kernel[name][0], "kernel_ns": of_kernel[name][1]})
    return out


def lanes_tile(lanes: KernelLanes, level: int, index: int, wanted: Sequence[int]) -> TileRows:
    """Return what a tile shows of some lanes (ascending).

    Launches of a bin's length or more as they are, shorter ones merged by bin under the name of the longest.
    """
    begin, end = index << (2 * level + BIN_BITS), (index + 1) << (2 * level + BIN_BITS)
    parts = [_lane_tile(lanes, lane, begin, end, level) for lane in wanted]
    track = [np.full(part["start_ns"].size, FIRST + lane, np.int32) for lane, part in zip(wanted, parts, strict=True)]
    empty = {name: np.empty(0, np.int64) for name in _TILE}
    return TileRows(
        track=np.concatenate([np.empty(0, np.int32), *track]),
        columns={name: np.concatenate([part[name] for part in (empty, *parts)]) for name in _TILE},
        sample_track=np.empty(0, np.int32), time_ns=np.empty(0, np.int64), value=np.empty(0))


_TILE = ("start_ns", "dur_ns", "name_id", "count", "slice_id", "depth", "category", "flags", "fill")


def _lane_tile(lanes: KernelLanes, lane: int, begin: int, end: int, level: int) -> dict[str, Array]:
    a, b = int(lanes.bounds[lane]), int(lanes.bounds[lane + 1])
    first = a + int(np.searchsorted(lanes.reach_ns[a:b], begin, side="right"))
    last = a + int(np.searchsorted(lanes.start_ns[a:b], end))
    start, dur = lanes.start_ns[first:last], lanes.dur_ns[first:last]
    rows = np.arange(first, last)
    bins = np.where(dur < 1 << (2 * level), start >> (2 * level), -1 - rows)     # a long launch is its own bin
    heads = np.flatnonzero(np.diff(bins, prepend=bins[0] - 1)) if rows.size else rows
    entry = np.repeat(np.arange(heads.size), np.diff(np.append(heads, rows.size)))
    longest = np.lexsort((-dur, entry))[heads] if rows.size else rows
    count = np.diff(np.append(heads, rows.size))
    length = (np.maximum.reduceat(start + dur, heads) - start[heads]) if rows.size else start
    covered = np.add.reduceat(dur, heads) if rows.size else start
    before = np.where(rows[heads] > a, lanes.reach_ns[rows[heads] - 1], 0) if rows.size else start
    fill = np.where(length > 0, np.minimum(covered / np.maximum(length, 1), 1.0) * 255, 255)
    return {"start_ns": start[heads], "dur_ns": length, "name_id": lanes.name[first:last][longest], "count": count,
            "slice_id": lanes.slice[first:last][longest], "depth": np.zeros(heads.size, np.int64),
            "category": lanes.category[first:last][longest],
            "flags": np.where(count > 1, MERGED, 0) | np.where(start[heads] < before, OVERFLOW, 0), "fill": np.clip(fill, 1, 255)}

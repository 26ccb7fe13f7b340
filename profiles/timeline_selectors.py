"""What the timeline's pages and API read: the document, tiles, search, one slice with its links, a selection."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from isal import igzip

from profiles import store
from profiles.analysis import intervals
from profiles.analysis.names import short_name
from profiles.analysis.tile_bytes import pack
from profiles.models import KernelStat, Profile
from profiles.timeline_store import Timeline, timeline
from profiles.trace import GPU_WORK, KERNELS, Category

_SAME_ID = 10_000
LINKS = 100                     # of one role: a graph launch owns hundreds of kernels
SELECTION_ROWS = 500
MAX_HITS = 1000
_NULL = -(2**63)
_NULL32 = -(2**31)
_NAMES = [each.name.lower() for each in Category]


class NotReady(Exception):
    """The profile holds no timeline (yet): why."""


def timeline_open(profile: Profile) -> Timeline:
    """Raises NotReady."""
    if profile.status != Profile.Status.READY:
        raise NotReady(f"This profile is {profile.status}: its timeline exists once it is ready.")
    if profile.kind == Profile.Kind.SUMMARY:
        raise NotReady("This profile holds sums: the tool that wrote it wrote no timeline.")
    if profile.kind != Profile.Kind.TRACE:
        raise NotReady("This profile holds counters per launch and no times: it has no timeline.")
    try:
        return timeline(profile.pk)
    except FileNotFoundError as error:
        raise NotReady("The timeline's columns are missing in the object store: ingest the upload again.") from error


def document(profile: Profile) -> dict[str, Any]:
    """Tracks, levels, steps and the integrity report: what a page needs before the first tile."""
    found = timeline_open(profile).document
    return {"id": profile.pk, "name": profile.name, "start_ns": 0, "recorded": profile.recorded,
            **{key: found[key] for key in ("end_ns", "levels", "tile_bins", "base_ns", "tracks", "categories", "steps",
                                           "integrity", "slices")}}


def tile_gzip(found: Timeline, level: int, index: int, tracks: list[int]) -> bytes:
    """The tile's bytes, compressed. `tracks` ascending."""
    packed: bytes = igzip.compress(pack(tracks, found.tile(level, index, tracks)), compresslevel=1)
    return packed


def tile_exists(found: Timeline, level: int, index: int) -> bool:
    return level <= found.top and index << (2 * level + 10) <= found.document["end_ns"]


def every_track(found: Timeline) -> list[int]:
    return list(range(len(found.tracks)))


def _wanted(found: Timeline, tracks: list[int] | None) -> npt.NDArray[np.bool_]:
    mask = np.zeros(len(found.tracks), np.bool_)
    mask[every_track(found) if tracks is None else tracks] = True
    return mask


def search(found: Timeline, text: str, tracks: list[int] | None, start_ns: int | None, end_ns: int | None, limit: int,
           offset: int) -> dict[str, Any]:
    """Slices whose name contains `text` (any case), ordered by start: how many, and one page of them."""
    hits = pc.match_substring(pa.array(found.names, pa.string()), text, ignore_case=True)
    hit = hits.to_numpy(zero_copy_only=False).astype(np.bool_) if len(hits) else np.zeros(0, np.bool_)
    if not hit.any():
        return {"total": 0, "slices": []}
    every = found.slices.read(0, found.slices.rows, ("name_id", "track", "start_ns"))
    keep = hit[every["name_id"]] & _wanted(found, tracks)[every["track"]]
    if start_ns is not None or end_ns is not None:
        dur = found.slices.read(0, found.slices.rows, ("dur_ns",))["dur_ns"]
        keep &= every["start_ns"] < (end_ns if end_ns is not None else np.iinfo(np.int64).max)
        keep &= every["start_ns"] + np.maximum(dur, 1) > (start_ns or 0)
    rows = np.flatnonzero(keep)
    rows = rows[np.argsort(every["start_ns"][rows], kind="stable")]
    return {"total": int(rows.size), "slices": _described(found, rows[offset:offset + limit])}


def _described(found: Timeline, rows: npt.NDArray[np.intp]) -> list[dict[str, Any]]:
    columns = found.slices.take(rows, ("track", "depth", "start_ns", "dur_ns", "name_id", "category"))
    return [{"id": row, "track": track, "depth": depth, "start_ns": start_ns, "dur_ns": dur_ns, "name": found.names[name],
             "category": _NAMES[category]}
            for row, track, depth, start_ns, dur_ns, name, category in zip(
                rows.tolist(), *(values.tolist() for values in columns.values()), strict=True)]


def slice_detail(profile: Profile, found: Timeline, row: int) -> dict[str, Any]:
    """Everything known about one slice. `row` is within the table."""
    base = _described(found, np.array([row]))[0]
    arguments = {name: values[0] for name, values in found.arguments.read(row, row + 1, _ARGUMENTS).items()}
    track = found.tracks[base["track"]]
    correlation, external = _known(arguments["correlation"]), _known(arguments["external_id"])
    links, delay = _links(found, base, correlation, external)
    occupancy = float(arguments["occupancy_pct"])
    kernel = base["category"] in (each.name.lower() for each in KERNELS)
    return {
        **base, "track_name": track["name"], "group": track["group"], "short_name": short_name(base["name"]),
        "grid": _triple(arguments, "grid"), "block": _triple(arguments, "block"),
        "registers_per_thread": _known(arguments["registers_per_thread"]), "smem_bytes": _known(arguments["smem_bytes"]),
        "occupancy_pct": occupancy if np.isfinite(occupancy) else None,
        "occupancy_source": "estimate of the profiler (CUPTI), stated in the trace" if np.isfinite(occupancy) else None,
        "bytes": _known(arguments["bytes"]), "correlation": correlation, "external_id": external,
        "device": _known(arguments["device"]), "stream": _known(arguments["stream"]),
        "detail": _detail(found, _known(arguments["detail_id"])),
        "kernel_id": KernelStat.objects.filter(profile=profile, name=base["name"]).values_list("pk", flat=True).first()
        if kernel else None,
        "links": links, "launch_delay_ns": delay,
    }


_ARGUMENTS = ("correlation", "external_id", "device", "stream", "grid_x", "grid_y", "grid_z", "block_x", "block_y",
              "block_z", "registers_per_thread", "smem_bytes", "occupancy_pct", "bytes", "detail_id")


def _known(value: Any) -> int | None:
    """Nulls are the least number of their type in the decoded columns."""
    number = int(value)
    return None if number in (_NULL, _NULL32) else number


def _triple(arguments: dict[str, Any], name: str) -> list[int] | None:
    values = [_known(arguments[f"{name}_{axis}"]) for axis in "xyz"]
    return None if None in values else [value for value in values if value is not None]


def _detail(found: Timeline, number: int | None) -> dict[str, Any]:
    if number is None:
        return {}
    table = pq.read_table(store.local_path(store.key(found.profile_id, "details.parquet")))
    text = table["detail"].combine_chunks().slice(number, 1).to_pylist()[0]
    try:
        values = json.loads(text, strict=False)
    except ValueError:
        return {"text": str(text)}
    return values if isinstance(values, dict) else {"text": str(text)}


def _links(found: Timeline, base: dict[str, Any], correlation: int | None,
           external: int | None) -> tuple[list[dict[str, Any]], int | None]:
    """Related slices by role, and how long the GPU work waited since its launch call began."""
    category = Category[base["category"].upper()]
    rows: list[tuple[str, int]] = []
    delay: int | None = None
    if correlation is not None:
        same = _with(found, "correlation", correlation)
        if category in GPU_WORK:
            calls = _of(same, (Category.RUNTIME,))
            rows += [("launched by", row) for row in calls[:1]]
            if calls:
                delay = max(base["start_ns"] - _described(found, np.array(calls[:1]))[0]["start_ns"], 0)
        elif category == Category.RUNTIME:
            rows += [("launches", row) for row in _of(same, GPU_WORK)]
    if external is not None:
        same = _with(found, "external_id", external)
        if category in (*GPU_WORK, Category.RUNTIME):
            rows += [("operator", row) for row in _of(same, (Category.CPU_OP,))[:1]]
        elif category == Category.CPU_OP:
            rows += [("launches", row) for row in _of(same, GPU_WORK)]
    if category in (Category.CPU_OP, Category.ANNOTATION, Category.PYTHON):
        rows += _flows(found, base)
    taken = rows[:LINKS]
    described = _described(found, np.array([row for _, row in taken], np.intp))
    return [{"role": role, **each} for (role, _), each in zip(taken, described, strict=True)], delay


def _with(found: Timeline, column: str, value: int) -> list[tuple[int, int]]:
    """(category, row) of the slices that carry an id. Ids are unique in a profile, also in one of many ranks."""
    rows = found.arguments.rows_where(column, value)[:_SAME_ID]
    category = found.slices.take(rows, ("category",))["category"]
    return list(zip(category.tolist(), rows.tolist(), strict=True))


def _of(rows: list[tuple[int, int]], kinds: tuple[Category, ...]) -> list[int]:
    return [row for category, row in rows if category in kinds]


def _flows(found: Timeline, base: dict[str, Any]) -> list[tuple[str, int]]:
    """Forward ↔ backward: the other ends of flows that begin or end at this slice's start."""
    try:
        path = store.local_path(store.key(found.profile_id, "flows.parquet"))
    except FileNotFoundError:
        return []
    here = pq.read_table(path, filters=[("track", "=", base["track"]), ("time_ns", "=", base["start_ns"])])
    if not here.num_rows:
        return []
    others = pq.read_table(path, filters=[("flow", "in", here["flow"].unique().to_pylist()[:LINKS])])
    mine = {(row["flow"], row["kind"]): row["is_end"] for row in here.to_pylist()}
    out = []
    for other in others.to_pylist():
        is_end = mine.get((other["flow"], other["kind"]))
        if is_end is None or other["is_end"] == is_end:
            continue
        row = _slice_at(found, other["track"], other["time_ns"])
        if row is not None:
            forward = other["kind"] == "fwdbwd"
            role = ("backward" if other["is_end"] else "forward") if forward else ("to" if other["is_end"] else "from")
            out.append((role, row))
    return out


def _slice_at(found: Timeline, track: int, time_ns: int) -> int | None:
    """The innermost slice around a moment, one that begins there first."""
    wanted = _wanted(found, [track])
    around = found.window(time_ns, time_ns + 1, 0, wanted)
    spans = np.flatnonzero(~around["instant"])
    if not spans.size:
        return None
    begins = around["start_ns"][spans] == time_ns
    best = max(spans.tolist(), key=lambda i: (bool(around["start_ns"][i] == time_ns), int(around["depth"][i]))) \
        if not begins.any() else min(spans[begins].tolist(), key=lambda i: int(around["depth"][i]))
    return int(around["slice"][best])


def selection(found: Timeline, start_ns: int, end_ns: int, tracks: list[int] | None) -> dict[str, Any]:
    """What lies in an area: per name how many and how long (clipped to the area), and for how long a GPU worked."""
    mask = _wanted(found, tracks)
    rows = found.window(start_ns, end_ns, 0, mask)
    spans = ~rows["instant"]
    begin = np.maximum(rows["start_ns"], start_ns)
    end = np.minimum(rows["start_ns"] + rows["dur_ns"], end_ns)
    streams = np.array([track["kind"] == "stream" for track in found.tracks], np.bool_)
    gpu = spans & np.isin(rows["category"], [int(each) for each in GPU_WORK]) & streams[rows["track"]]
    listed = _by_name(found, rows["name_id"], rows["category"], np.maximum(end - begin, 0))
    return {
        "start_ns": start_ns, "end_ns": end_ns, "tracks": int(np.count_nonzero(mask)), "slices": int(rows["slice"].size),
        "busy_ns": intervals.union(begin[gpu], end[gpu]).length_ns,
        "rows": listed[:SELECTION_ROWS], "truncated": len(listed) > SELECTION_ROWS,
    }


def _by_name(found: Timeline, name_id: npt.NDArray[np.int32], category: npt.NDArray[np.uint8],
             dur: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
    if not name_id.size:
        return []
    key = name_id.astype(np.int64) << 8 | category
    order = np.argsort(key, kind="stable")
    key, dur = key[order], dur[order]
    starts = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))
    counts = np.diff(np.append(starts, key.size))
    totals, least, most = np.add.reduceat(dur, starts), np.minimum.reduceat(dur, starts), np.maximum.reduceat(dur, starts)
    everything = int(totals.sum())
    return [{
        "name": found.names[int(key[starts[i]]) >> 8], "category": _NAMES[int(key[starts[i]]) & 0xFF],
        "count": int(counts[i]), "total_ns": int(totals[i]), "mean_ns": float(totals[i] / counts[i]),
        "min_ns": int(least[i]), "max_ns": int(most[i]),
        "share_pct": 100.0 * int(totals[i]) / everything if everything else 0.0,
    } for i in np.argsort(-totals, kind="stable")[:SELECTION_ROWS + 1].tolist()]

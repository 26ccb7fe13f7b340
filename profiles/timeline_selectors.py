"""What the timeline's pages and API read: the document, tiles, search. One slice and a selection have modules of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from isal import igzip

from profiles.analysis.tile_bytes import pack
from profiles.models import Profile
from profiles.timeline_store import ALL_DEPTHS, Timeline, Unit, timeline
from profiles.trace import Category

MAX_HITS = 1000
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


def tile_gzip(found: Timeline, level: int, index: int, units: Sequence[Unit]) -> bytes:
    """The tile's bytes, compressed. `units` ascending."""
    packed: bytes = igzip.compress(pack(units, found.tile(level, index, units)), compresslevel=1)
    return packed


def tile_exists(found: Timeline, level: int, index: int) -> bool:
    return level <= found.top and index << (2 * level + 10) <= found.document["end_ns"]


def every_track(found: Timeline) -> list[int]:
    return list(range(len(found.tracks)))


def whole(tracks: list[int]) -> list[Unit]:
    """Every depth of some tracks."""
    return [(track, *ALL_DEPTHS) for track in tracks]


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
    return {"total": int(rows.size), "slices": described(found, rows[offset:offset + limit])}


def described(found: Timeline, rows: npt.NDArray[np.intp]) -> list[dict[str, Any]]:
    """What every list of slices says of each, in the given order."""
    columns = found.slices.take(rows, ("track", "depth", "start_ns", "dur_ns", "name_id", "category"))
    return [{"id": row, "track": track, "depth": depth, "start_ns": start_ns, "dur_ns": dur_ns, "name": found.names[name],
             "category": _NAMES[category]}
            for row, track, depth, start_ns, dur_ns, name, category in zip(
                rows.tolist(), *(values.tolist() for values in columns.values()), strict=True)]

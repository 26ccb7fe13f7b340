"""What the timeline's pages and API read: the document, tiles, search. One slice and a selection have modules of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from isal import igzip

from profiles.analysis.tile_bytes import pack
from profiles.models import Profile
from profiles.store.density import density
from profiles.store.search import Scan, scan
from profiles.store.terms import MODES as MODES
from profiles.store.timeline import ALL_DEPTHS, Timeline, Unit, timeline
from profiles.trace import Category

MAX_HITS = 1000
NAMES_AT_ONCE = 20_000              # of an answer; further ones are asked for by id
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
    opened = timeline_open(profile)
    found = {**opened.document, "tracks": opened.tracks}
    return {"id": profile.pk, "name": profile.name, "start_ns": 0, "recorded": profile.recorded,
            **{key: found[key] for key in ("end_ns", "levels", "tile_bins", "base_ns", "tracks", "categories", "steps",
                                           "integrity", "slices")},
            "last_ns": found.get("last_ns")}


def tile_gzip(found: Timeline, level: int, index: int, units: Sequence[Unit]) -> bytes:
    """The tile's bytes, compressed. `units` ascending."""
    packed: bytes = igzip.compress(pack(units, found.tile(level, index, units)), compresslevel=1)
    return packed


def names(found: Timeline, ids: list[int] | None) -> dict[str, Any]:
    """All names where they are few, else the first of them; or those of some ids."""
    if ids is not None:
        return {"names": {str(number): found.names[number] for number in ids if number < len(found.names)}}
    return {"names": found.names[:NAMES_AT_ONCE], "total": len(found.names)}


def density_gzip(found: Timeline) -> bytes:
    """How busy each track is along the trace, as bytes of `density_store`, compressed."""
    packed: bytes = igzip.compress(density(found).pack(), compresslevel=2)
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


def search(found: Timeline, query: dict[str, Any]) -> dict[str, Any]:
    """Slices that a query finds, ordered by start: how many so far, and one page of them. `query`: q, mode, track, start,
    end, limit, offset, around. Raises ValueError where q is no valid question."""
    wanted = _scan(found, query)
    answer: dict[str, Any] = {**_counted(wanted), "names": wanted.terms.names,
                              "slices": described(found, wanted.page(query["offset"], query["limit"]))}
    if query["around"] is not None:
        answer["before"] = wanted.before(query["around"])
    return answer


def hits(found: Timeline, query: dict[str, Any], bins: int) -> dict[str, Any]:
    """How many hits begin in each part of the trace. Raises ValueError."""
    wanted = _scan(found, query)
    return {**_counted(wanted), "bins": wanted.strip(bins)}


def _scan(found: Timeline, query: dict[str, Any]) -> Scan:
    window = None
    if query["start"] is not None or query["end"] is not None:
        window = (query["start"] or 0, query["end"] if query["end"] is not None else int(found.document["end_ns"]) + 1)
    wanted = scan(found, query["q"], query["mode"], _wanted(found, query["track"]), window)
    wanted.work()
    return wanted


def _counted(wanted: Scan) -> dict[str, Any]:
    """Rows are looked at in the order in which they are stored, so before the end no stretch of time is known whole."""
    return {"total": wanted.total, "complete": wanted.complete, "counted_to_ns": wanted.end_ns - 1 if wanted.complete else None}


def described(found: Timeline, rows: npt.NDArray[np.intp]) -> list[dict[str, Any]]:
    """What every list of slices says of each, in the given order."""
    columns = found.slices.take(rows, ("track", "depth", "start_ns", "dur_ns", "name_id", "category"))
    return [{"id": row, "track": track, "depth": depth, "start_ns": start_ns, "dur_ns": dur_ns, "name": found.names[name],
             "category": _NAMES[category]}
            for row, track, depth, start_ns, dur_ns, name, category in zip(
                rows.tolist(), *(values.tolist() for values in columns.values()), strict=True)]

"""What the timeline's pages and API read: the document, its tracks, tiles, search. Slice and selection have their own modules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

import numpy as np
from django.db.models import F
from isal import igzip

from profiles.analysis.core.tiles import TileRows, pack
from profiles.ingest.arrays import Bools, Rows
from profiles.ingest.trace import Category, Integrity
from profiles.models import Profile
from profiles.store.density import density
from profiles.store.search import MODES as MODES
from profiles.store.search import Scan, scan
from profiles.store.timeline import ALL_DEPTHS, Timeline, Unit, timeline

PROFILER, EMPTY = "profiler", "empty"       # why a track stands aside
# what libkineto writes of itself: its spans, its own trace records, buffer requests and flushes, marks without a process
_KINETO_PIDS = frozenset({"Spans", "Traces", "-1", ""})
_OVERHEAD = re.compile(r"(?:profiler|CUPTI) overhead\b")         # what Nsight Systems measured of itself, per thread


def described(tracks: Sequence[Mapping[str, Any]], ranks: Sequence[str], format_: str) -> list[dict[str, Any]]:
    """Return the tracks with `rank` (one of `ranks`, the labels that a joined job's groups begin with, or None) and `aside`.

    `aside` is "profiler" for what the profiler says of itself, "empty" for a counter that never left zero, else None.
    """
    longest_first = sorted(ranks, key=len, reverse=True)        # "1" and "10: a.json" begin alike
    return [{**track, "rank": next((rank for rank in longest_first if str(track["group"]).startswith(f"{rank}: ")), None),
             "aside": _aside(track, format_)} for track in tracks]


def _aside(track: Mapping[str, Any], format_: str) -> str | None:
    if track["kind"] == "counter":
        return EMPTY if track.get("greatest", 1) == 0 == track.get("least", 1) else None
    own = format_ == "kineto" and track["kind"] == "other" and track["pid"] in _KINETO_PIDS
    return PROFILER if own or _OVERHEAD.match(track["name"]) else None


MAX_HITS = 1000
NAMES_AT_ONCE = 20_000              # of an answer; further ones are asked for by id
_NAMES = [category.name.lower() for category in Category]


class NotReady(Exception):
    """The profile holds no timeline (yet): why."""


def timeline_open(profile: Profile) -> Timeline:
    """Open a profile's stored timeline. Raises NotReady."""
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


class TrackJson(TypedDict):
    """A track: a stream, a thread or a counter; `aside`: why it stands aside; `busy_ns`: of a stream."""

    id: int
    kind: str
    name: str
    group: str
    pid: int | str | None
    tid: int | str | None
    device: int | None
    stream: int | None
    unit: str | None
    depths: int
    slices: int
    samples: int
    sort: int
    busy_ns: NotRequired[int | None]            # not of counters that are derived
    derived: NotRequired[bool]
    least: NotRequired[float | None]            # of a counter
    greatest: NotRequired[float | None]
    rank: str | None
    aside: str | None


class TraceStepJson(TypedDict):
    name: str
    start_ns: int
    end_ns: int


class TimelineJson(TypedDict):
    """What a page needs before the first tile; times in ns since trace start."""

    id: int
    name: str
    start_ns: int
    recorded: str
    end_ns: int
    levels: int
    tile_bins: int
    base_ns: int | None
    tracks: list[TrackJson]
    categories: list[str]
    steps: list[TraceStepJson]
    integrity: Integrity
    slices: int
    last_ns: int | None
    colours: dict[str, str]
    step_tracks: list[int]


class NamesJson(TypedDict):
    """Names by id, the first of very many; `labels`: of kernels."""

    names: list[str]
    labels: dict[str, str]
    total: int


class NamesByIdJson(TypedDict):
    names: dict[str, str]
    labels: dict[str, str]


class SliceJson(TypedDict):
    id: int
    track: int
    depth: int
    start_ns: int
    dur_ns: int
    name: str
    category: str


class CountJson(TypedDict):
    """Slices that a query found so far; all of them where it is `complete`."""

    total: int
    complete: bool
    counted_to_ns: int | None


class FoundJson(CountJson):
    """A page of them; `names`: ids of names that match, null for arguments; `before`: hits that begin before `around`."""

    names: list[int] | None
    slices: list[SliceJson]
    before: NotRequired[int]


class HitsJson(CountJson):
    bins: list[int]


def document(profile: Profile) -> dict[str, Any]:
    """Return what a page needs before the first tile.

    Tracks, levels, steps and the integrity report.
    """
    opened = timeline_open(profile)
    shown = {**opened.document, "tracks": tracks(profile, opened)}
    return {"id": profile.pk, "name": profile.name, "start_ns": 0, "recorded": profile.recorded,
            **{key: shown[key] for key in ("end_ns", "levels", "tile_bins", "base_ns", "tracks", "categories", "steps",
                                           "integrity", "slices")},
            "last_ns": shown.get("last_ns"), "colours": shown.get("colours") or {},
            "step_tracks": shown.get("step_tracks") or []}


def tracks(profile: Profile, timeline: Timeline) -> list[dict[str, Any]]:
    """Return the tracks as a page hears of them: with their rank, and why those that stand aside do."""
    return described(timeline.tracks, list(profile.metadata.get("ranks") or {}), profile.format)


def tile_gzip(timeline: Timeline, level: int, index: int, units: Sequence[Unit]) -> bytes:
    """Return the tile's bytes, compressed. `units` ascending."""
    return packed_gzip(units, timeline.tile(level, index, units))


def packed_gzip(units: Sequence[Unit], rows: TileRows) -> bytes:
    """Return the bytes of a tile's rows, compressed."""
    packed: bytes = igzip.compress(pack(units, rows), compresslevel=1)
    return packed


def names(timeline: Timeline, ids: list[int] | None, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return all names where they are few, else the first of them; or those of some ids.

    `labels`, by full name, are those of the profile's kernels; of them come those of these names, by id.
    """
    wanted = range(min(NAMES_AT_ONCE, len(timeline.names))) if ids is None else [each for each in ids if each < len(timeline.names)]
    labels_by_id = {str(number): label for number in wanted if (label := labels.get(timeline.names[number]))}
    if ids is not None:
        return {"names": {str(number): timeline.names[number] for number in wanted}, "labels": labels_by_id}
    return {"names": timeline.names[:NAMES_AT_ONCE], "labels": labels_by_id, "total": len(timeline.names)}


def kernel_labels(profile: Profile) -> dict[str, str]:
    """Return full name -> label of the profile's kernels, where the two differ."""
    return dict(profile.kernels.exclude(short_name=F("name")).values_list("name", "short_name"))


def density_gzip(timeline: Timeline) -> bytes:
    """Return how busy each track is, as the compressed bytes of `store.density`."""
    packed: bytes = igzip.compress(density(timeline).pack(), compresslevel=2)
    return packed


def tile_exists(timeline: Timeline, level: int, index: int) -> bool:
    return level <= timeline.top and index << (2 * level + 10) <= timeline.document["end_ns"]


def every_track(timeline: Timeline) -> list[int]:
    return list(range(len(timeline.tracks)))


def whole(tracks: list[int]) -> list[Unit]:
    """Return every depth of some tracks."""
    return [(track, *ALL_DEPTHS) for track in tracks]


def _track_mask(timeline: Timeline, tracks: list[int] | None) -> Bools:
    mask = np.zeros(len(timeline.tracks), np.bool_)
    mask[every_track(timeline) if tracks is None else tracks] = True
    return mask


def search(timeline: Timeline, query: dict[str, Any]) -> dict[str, Any]:
    """Return the slices that a query finds, ordered by start.

    How many so far, and one page of them. `query`: q, mode, track, start, end, limit, offset, around. Raises ValueError where q is
    no valid question.
    """
    matches = _scan(timeline, query)
    answer: dict[str, Any] = {**_count_json(matches), "names": matches.terms.names,
                              "slices": describe_slices(timeline, matches.page(query["offset"], query["limit"]))}
    if query["around"] is not None:
        answer["before"] = matches.before(query["around"])
    return answer


def hits(timeline: Timeline, query: dict[str, Any], bins: int) -> dict[str, Any]:
    """Return how many hits begin in each part of the trace. Raises ValueError."""
    matches = _scan(timeline, query)
    return {**_count_json(matches), "bins": matches.strip(bins)}


def _scan(timeline: Timeline, query: dict[str, Any]) -> Scan:
    window = None
    if query["start"] is not None or query["end"] is not None:
        window = (query["start"] or 0, query["end"] if query["end"] is not None else int(timeline.document["end_ns"]) + 1)
    matches = scan(timeline, query["q"], query["mode"], _track_mask(timeline, query["track"]), window)
    matches.work()
    return matches


def _count_json(wanted: Scan) -> dict[str, Any]:
    """Rows are looked at in the order in which they are stored, so before the end no stretch of time is known whole."""
    return {"total": wanted.total, "complete": wanted.complete, "counted_to_ns": wanted.end_ns - 1 if wanted.complete else None}


def describe_slices(timeline: Timeline, rows: Rows) -> list[dict[str, Any]]:
    """Return what every list of slices says of each, in the given order."""
    columns = timeline.slices.take(rows, ("track", "depth", "start_ns", "dur_ns", "name_id", "category"))
    return [{"id": row, "track": track, "depth": depth, "start_ns": start_ns, "dur_ns": dur_ns, "name": timeline.names[name],
             "category": _NAMES[category]}
            for row, track, depth, start_ns, dur_ns, name, category in zip(
                rows.tolist(), *(values.tolist() for values in columns.values()), strict=True)]

"""A profile's timeline with the rows of queries as further tracks: /api/profiles/<id>/sql/<queries>/… answers everything that
/api/profiles/<id>/… does, and adds to the four answers that the drawing is made of."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404
from django.urls import Resolver404, resolve, reverse
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response

from profiles.analysis.core.tiles import TileRows
from profiles.exports import files
from profiles.ingest.trace import TraceError
from profiles.models import Profile, SavedQuery
from profiles.sql import tracks as sql_tracks
from profiles.sql.examples import example
from profiles.sql.process import Limits, QueryError
from profiles.sql.services import query_run
from profiles.sql.tables import CATEGORIES
from profiles.sql.tracks import FIRST_SLICE, QueryTracks, make_tracks
from profiles.store.timeline import Timeline, Unit
from profiles.timeline import selectors
from profiles.timeline.api import TileQuery, TimelineView
from workers.list_api import validated

MOST = Limits(rows=200_000, bytes=64 << 20, seconds=20.0)
MAX_QUERIES = 8
GROUP = "SQL"
_HELD = 16


def draw_queries(profile: Profile, keys: Sequence[str], person: str, end_ns: int) -> list[QueryTracks]:
    """Return the queries of an address, run (or found among the kept results).

    Raises TraceError for keys that name none.
    """
    if not 0 < len(keys) <= MAX_QUERIES:
        raise TraceError("sql", f"{len(keys)} queries are asked for", f"A timeline shows 1 to {MAX_QUERIES} of them")
    return [_draw_query(profile, key, person, end_ns) for key in keys]


_held: OrderedDict[tuple[int, str, str, int], QueryTracks] = OrderedDict()
_lock = threading.Lock()


def _draw_query(profile: Profile, key: str, person: str, end_ns: int) -> QueryTracks:
    title, sql = _query(key)
    identity = hashlib.sha256(f"{profile.pk} {profile.heartbeat} {profile.stored_bytes} {title} {sql}".encode()).hexdigest()[:16]
    place = (profile.pk, key, identity, end_ns)
    with _lock:
        if place in _held:
            _held.move_to_end(place)
            return _held[place]
    try:
        out = make_tracks(QueryTracks(title, key, identity=identity), query_run(sql, [profile], person, MOST).table, end_ns)
    except QueryError as error:
        out = QueryTracks(title, key, f"{error.where}: {error.what}", identity=identity)
        if error.kind not in ("refused", "query"):          # busy or stopped may pass: not held
            return out
    with _lock:
        _held[place] = out
        while len(_held) > _HELD:
            _held.popitem(last=False)
    return out


def _query(key: str) -> tuple[str, str]:
    if key.isdecimal() and len(key) < 19:
        saved = SavedQuery.objects.filter(pk=int(key)).first()
        if saved:
            return saved.name, saved.sql
    elif bundled := example(key):
        return bundled.title, bundled.sql
    raise TraceError("sql", f"there is no saved query {key[:40]!r}", "The SQL page lists them")


def track_documents(drawn: list[QueryTracks], first_id: int) -> list[dict[str, Any]]:
    """Return the queries' tracks as the timeline's document lists tracks.

    A query without rows is a track that says why.
    """
    out: list[dict[str, Any]] = []
    for each in drawn:
        counts = np.bincount(each.columns["track"], minlength=len(each.tracks)) if each.tracks else np.empty(0, np.int64)
        rows = [(name, int(counts[i]), int(each.columns["depth"][each.columns["track"] == i].max()) + 1, 0)
                for i, name in enumerate(each.tracks)]
        for name, slices, depths, samples in rows or [(each.title, 0, 0, len(each.columns.get("time_ns", ())))]:
            shown = f"{name} ({each.error})" if each.error else name
            out.append({"id": first_id + len(out), "kind": "other" if slices else "counter", "name": shown, "group": GROUP,
                        "pid": None, "tid": None, "device": None, "stream": None, "unit": None, "depths": depths, "slices": slices,
                        "samples": samples, "sort": -1, "busy_ns": None, "overflow": None, "query": each.key})
    return out


def names_of(drawn: list[QueryTracks]) -> list[str]:
    return [name for each in drawn for name in each.names]


def slice_detail(drawn: list[QueryTracks], slice_id: int, first_id: int) -> dict[str, Any] | None:
    """Return a row of a query as the timeline's panel shows a slice.

    The row's other columns are its arguments.
    """
    number, track = slice_id - FIRST_SLICE, first_id
    for each in drawn:
        if 0 <= number < each.rows.size and each.table is not None:
            row = each.table.slice(int(each.rows[number]), 1)
            own = int(each.columns["track"][number])
            rest = {name: files.cell(files.list_values(row.column(i))[0]) for i, name in enumerate(row.column_names)
                    if name not in ("start_ns", "dur_ns", "name", "lane", "category")}
            name = each.names[int(each.columns["name"][number])]
            return {"id": slice_id, "track": track + own, "depth": int(each.columns["depth"][number]),
                    "start_ns": int(each.columns["start_ns"][number]), "dur_ns": int(each.columns["dur_ns"][number]), "name": name,
                    "short_name": name, "category": CATEGORIES[int(each.columns["category"][number])],
                    "track_name": each.tracks[own], "group": GROUP, "detail": rest, **dict.fromkeys(_UNKNOWN),
                    "links": [], "arrows": [], "link_counts": {}}
        number, track = number - each.rows.size, track + max(len(each.tracks), 1)
    return None


_UNKNOWN = ("grid", "block", "registers_per_thread", "smem_bytes", "occupancy_pct", "occupancy_source", "bytes", "correlation",
            "external_id", "device", "stream", "kernel_id", "launch_delay_ns")


_OWN = ("tracks", "track", "lanes")         # parameters that name tracks


class SqlTimelineApi(TimelineView):
    """`queries`: numbers of saved queries or keys of examples, separated by commas."""

    permission_classes = [IsAuthenticated]          # what it hands on asks for what it needs

    @extend_schema(exclude=True)
    def get(self, request: Request, pk: int, queries: str, rest: str) -> HttpResponse | Response:
        first = rest.split("/")[0]
        if first not in ("timeline", "names", "tiles", "slices"):
            return self.hand_on(request, pk, rest, self.open_timeline(pk))
        profile, base = self.open(pk)
        keys = [key for key in queries.split(",") if key]
        queries_drawn = draw_queries(profile, keys, request.user.get_username(), base.document["end_ns"])
        if first == "tiles":
            return self.tile(request, base, queries_drawn, rest)
        if first == "timeline":
            document = selectors.document(profile)
            return Response({**document, "tracks": [*document["tracks"], *track_documents(queries_drawn, len(base.tracks))]})
        if first == "names" and not request.query_params:
            return Response({"names": [*base.names, *names_of(queries_drawn)]}, headers={"Cache-Control": "no-cache"})
        parts = rest.strip("/").split("/")
        number = int(parts[1]) if len(parts) == 2 and parts[1].isdecimal() and len(parts[1]) < 19 else 0
        if first == "slices" and number >= sql_tracks.FIRST_SLICE:
            detail = slice_detail(queries_drawn, number, len(base.tracks))
            if detail is None:
                raise NotFound("these queries have no such row")
            return Response(detail)
        return self.hand_on(request, pk, rest, base)

    def open_timeline(self, pk: int) -> Timeline | None:
        try:
            return self.open(pk)[1]
        except selectors.NotReady:
            return None

    def hand_on(self, request: Request, pk: int, rest: str, base: Timeline | None) -> HttpResponse | Response:
        """The address without the queries answers; it never hears of their tracks."""
        path = f"{reverse('api-profile', args=[pk])}{rest}"
        try:
            match = resolve(path)
        except Resolver404:
            raise NotFound("there is nothing at this address") from None
        if "queries" in match.kwargs:           # itself, and again, a thousand times
            raise NotFound("queries are named once, separated by commas")
        inner = request._request
        if base is not None and any(name in inner.GET for name in _OWN):
            inner.GET = _without(inner.GET, len(base.tracks))   # type: ignore[assignment]    # Django's own; the stub narrows it
            inner.META["QUERY_STRING"] = inner.GET.urlencode()
        inner.path = inner.path_info = path
        inner.resolver_match = match
        answer: HttpResponse | Response = match.func(inner, *match.args, **match.kwargs)
        return answer

    @extend_schema(exclude=True)
    def post(self, request: Request, pk: int, queries: str, rest: str) -> Any:
        get_object_or_404(Profile, pk=pk)
        return self.hand_on(request, pk, rest, None)

    patch = delete = put = post

    def tile(self, request: Request, base: Timeline, drawn: list[sql_tracks.QueryTracks], rest: str) -> HttpResponse:
        parts = rest.strip("/").split("/")
        if len(parts) != 3 or not all(part.isdecimal() and len(part) < 19 for part in parts[1:]):
            raise Http404
        level, index = int(parts[1]), int(parts[2])
        if not selectors.tile_exists(base, level, index):
            raise NotFound(f"Level {level} of this timeline has no tile {index}.")
        about = " ".join([base.etag, *(each.identity + each.error for each in drawn)])
        tag = f'"{hashlib.sha256(about.encode()).hexdigest()[:32]}"'
        if tag in request.headers.get("If-None-Match", ""):
            answer = HttpResponse(status=304)
        else:
            answer = HttpResponse(self.body(request, base, drawn, level, index), content_type="application/octet-stream",
                                  headers={"Content-Encoding": "gzip"})
        answer["ETag"], answer["Cache-Control"] = tag, "private, no-cache"      # a saved query may be changed
        return answer

    def body(self, request: Request, base: Timeline, drawn: list[sql_tracks.QueryTracks], level: int, index: int) -> bytes:
        own = len(base.tracks)
        count = own + len(track_documents(drawn, own))
        asked = validated(TileQuery, request.query_params.dict(), context={"tracks": count})
        units = asked["lanes"]
        if units is None:
            units = selectors.whole(list(range(count)) if asked["tracks"] is None else asked["tracks"])
        mine = [unit for unit in units if unit[0] >= own]
        theirs: list[Unit] = [unit for unit in units if unit[0] < own]
        more = sql_tracks.rows_of(drawn, level, index, mine, own, len(base.names))
        return selectors.packed_gzip(units, _join_rows(base.tile(level, index, theirs), more) if theirs else more)


def _join_rows(first: TileRows, second: TileRows) -> TileRows:
    def both(a: Any, b: Any) -> Any:
        return np.concatenate((a, b))

    return TileRows(track=both(first.track, second.track), sample_track=both(first.sample_track, second.sample_track),
                    columns={name: both(values, second.columns[name]) for name, values in first.columns.items()},
                    time_ns=both(first.time_ns, second.time_ns), value=both(first.value, second.value))


def _without(given: QueryDict, count: int) -> QueryDict:
    """Without the numbers of tracks that only the queries have."""
    kept = given.copy()
    for name in _OWN:
        if name in kept:
            kept[name] = ",".join(part for part in str(kept[name]).split(",")
                                  if not part.split(":")[0].isdecimal() or _number(part) < count)
    return kept


def _number(part: str) -> int:
    """The track of "7:0-3"; no longer number is one."""
    return int(part.split(":")[0][:12])

"""A profile's timeline with the rows of queries as further tracks: /api/profiles/<id>/sql/<queries>/… answers everything that
/api/profiles/<id>/… does, and adds to the four answers that the drawing is made of."""

from __future__ import annotations

import hashlib
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
from profiles.models import Profile
from profiles.sql import track_selectors as tracks
from profiles.sql import tracks as sql_tracks
from profiles.store.timeline import Timeline, Unit
from profiles.timeline import selectors
from profiles.timeline.api import TileQuery, TimelineView
from workers.list_api import validated

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
        queries_drawn = tracks.draw_queries(profile, keys, request.user.get_username(), base.document["end_ns"])
        if first == "tiles":
            return self.tile(request, base, queries_drawn, rest)
        if first == "timeline":
            document = selectors.document(profile)
            return Response({**document, "tracks": [*document["tracks"], *tracks.track_documents(queries_drawn, len(base.tracks))]})
        if first == "names" and not request.query_params:
            return Response({"names": [*base.names, *tracks.names_of(queries_drawn)]}, headers={"Cache-Control": "no-cache"})
        parts = rest.strip("/").split("/")
        number = int(parts[1]) if len(parts) == 2 and parts[1].isdecimal() and len(parts[1]) < 19 else 0
        if first == "slices" and number >= sql_tracks.FIRST_SLICE:
            detail = tracks.slice_detail(queries_drawn, number, len(base.tracks))
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
        count = own + len(tracks.track_documents(drawn, own))
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

"""JSON and bytes of a timeline. Every answer is a read; tiles never change and may be cached for ever."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any
from zlib import crc32

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import RefusedJson
from profiles.library.connection_services import connection_release
from profiles.models import Profile
from profiles.store.timeline import ALL_DEPTHS, Timeline, Unit
from profiles.timeline import selectors
from workers.list_api import validated

_LANE = re.compile(r"([0-9]{1,9}):([0-9]{1,5})-([0-9]{1,5})")
MOST_IDS = 2000
YEAR_NS = 366 * 86_400 * 10**9
REFUSED: dict[Any, Any] = {404: RefusedJson, 409: RefusedJson}          # no such profile, no timeline (yet)
TILE = {(200, "application/octet-stream"): OpenApiTypes.BINARY,
        304: OpenApiResponse(description="What the client holds is current."), **REFUSED}


class TimelineView(APIView):
    """A read of one profile's timeline: 404 where there is no such profile, 409 where it has no timeline (yet)."""

    def open(self, pk: int) -> tuple[Profile, Timeline]:
        profile = get_object_or_404(Profile, pk=pk)
        timeline = selectors.timeline_open(profile)
        connection_release()                    # what follows reads files, some of it for long
        return profile, timeline

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, selectors.NotReady):
            return Response({"error": str(exc), "where": "profile", "hint": "See the profile's page for its status."},
                            status=status.HTTP_409_CONFLICT)
        return super().handle_exception(exc)


@extend_schema_field(OpenApiTypes.STR)
class TracksField(serializers.Field[Any, Any, Any, Any]):
    """Track numbers "0,3,5"; each must exist. Absent means all."""

    def to_internal_value(self, data: Any) -> list[int]:
        count = self.context["tracks"]
        try:
            numbers = sorted({int(part) for part in str(data).split(",") if part.strip()})
        except ValueError:
            raise serializers.ValidationError("Give track numbers separated by commas: 0,3,5.") from None
        if any(not 0 <= number < count for number in numbers):
            raise serializers.ValidationError(f"This trace has the tracks 0 to {count - 1}.")
        return numbers

    def to_representation(self, value: Any) -> Any:
        return value


@extend_schema_field(OpenApiTypes.STR)
class LanesField(serializers.Field[Any, Any, Any, Any]):
    """Depths of tracks "0:0-7,3:8-15": track, first and last depth; none twice."""

    def to_internal_value(self, data: Any) -> list[Unit]:
        matches = [_LANE.fullmatch(part) for part in str(data).split(",") if part]
        units = sorted((int(match[1]), int(match[2]), int(match[3])) for match in matches if match)
        if len(units) != len(matches):
            raise serializers.ValidationError("Give track:first-last separated by commas: 0:0-7,3:8-15.")
        if any(track >= self.context["tracks"] or first > last or last > ALL_DEPTHS[1] for track, first, last in units):
            raise serializers.ValidationError(f"This trace has the tracks 0 to {self.context['tracks'] - 1}; depths go to "
                                              f"{ALL_DEPTHS[1]}.")
        if any(a[0] == b[0] and b[1] <= a[2] for a, b in pairwise(units)):
            raise serializers.ValidationError("A depth is asked for twice.")
        return units

    def to_representation(self, value: Any) -> Any:
        return value


class IdsField(serializers.Field[Any, Any, Any, Any]):
    """Name ids "1,5,9"."""

    def to_internal_value(self, data: Any) -> list[int]:
        parts = str(data).split(",")
        if len(parts) > MOST_IDS or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
            raise serializers.ValidationError(f"Give up to {MOST_IDS} name ids separated by commas: 1,5,9.")
        return [int(part) for part in parts]

    def to_representation(self, value: Any) -> Any:
        return value


class NamesQuery(serializers.Serializer[Any]):
    ids = extend_schema_field(OpenApiTypes.STR)(IdsField)(
        required=False, default=None, help_text="Name ids; absent: all, or the first 20,000 of very many.")


class TileQuery(serializers.Serializer[Any]):
    tracks = TracksField(required=False, default=None, help_text="Track numbers separated by commas; all if absent.")
    lanes = LanesField(required=False, default=None, help_text="Depths of tracks, 0:0-7,3:8-15, in place of tracks.")


class SearchQuery(serializers.Serializer[Any]):
    q = serializers.CharField(max_length=1000, help_text="What to look for.")
    mode = serializers.ChoiceField(selectors.MODES, required=False, default="name", help_text=(
        "name: text within the name, any case. regex: RE2 over the name. argument: `key=value`, `key=`, `bytes>1000`, or a text "
        "within the arguments."))
    track = TracksField(required=False, default=None)
    start = serializers.IntegerField(required=False, default=None, min_value=0, max_value=YEAR_NS)
    end = serializers.IntegerField(required=False, default=None, min_value=0, max_value=YEAR_NS)
    limit = serializers.IntegerField(required=False, default=selectors.MAX_HITS, min_value=0, max_value=selectors.MAX_HITS)
    offset = serializers.IntegerField(required=False, default=0, min_value=0)
    around = serializers.IntegerField(required=False, default=None, min_value=0, max_value=YEAR_NS,
                                      help_text="A time: the answer says how many hits begin before it.")
    bins = serializers.IntegerField(required=False, default=512, min_value=1, max_value=8192, help_text="Of hits/ alone.")


def parse_query(form: type[serializers.Serializer[Any]], request: Request, timeline: Timeline) -> dict[str, Any]:
    return validated(form, request.query_params.dict(), context={"tracks": len(timeline.tracks)})


class TimelineApi(TimelineView):
    @extend_schema(operation_id="profiles_timeline", summary="Tracks, levels, steps and integrity of a timeline",
                   responses={200: selectors.TimelineJson, **REFUSED})
    def get(self, request: Request, pk: int) -> Response:
        return Response(selectors.document(get_object_or_404(Profile, pk=pk)))


class NamesApi(TimelineView):
    @extend_schema(operation_id="profiles_names", summary="Names of slices by name id", parameters=[NamesQuery],
                   responses={200: selectors.NamesJson | selectors.NamesByIdJson, **REFUSED})
    def get(self, request: Request, pk: int) -> Response:
        profile, timeline = self.open(pk)
        ids = parse_query(NamesQuery, request, timeline)["ids"]
        labels = selectors.kernel_labels(profile)
        version = crc32("\n".join(sorted(labels.values())).encode("utf-8", "surrogatepass"))       # labels can be made anew
        return Response(selectors.names(timeline, ids, labels), headers={"ETag": f'"names-{timeline.etag}-{version:08x}"'})


class TileApi(TimelineView):
    @extend_schema(
        operation_id="profiles_tile", summary="One tile of the timeline, as little-endian columns", parameters=[
            OpenApiParameter("tracks", str, description="Track numbers separated by commas; all if absent."),
            OpenApiParameter("lanes", str, description="Depths of tracks, 0:0-7,3:8-15, in place of tracks.")],
        responses=TILE)
    def get(self, request: Request, pk: int, level: int, index: int) -> HttpResponse | Response:
        _, timeline = self.open(pk)
        if not selectors.tile_exists(timeline, level, index):
            raise NotFound(f"Level {level} of this timeline has no tile {index}.")
        query = parse_query(TileQuery, request, timeline)
        tracks = selectors.every_track(timeline) if query["tracks"] is None else query["tracks"]
        units = selectors.whole(tracks) if query["lanes"] is None else query["lanes"]
        return unchanging(request, timeline, lambda: selectors.tile_gzip(timeline, level, index, units))


class DensityApi(TimelineView):
    @extend_schema(operation_id="profiles_density", summary="How busy each track is along the trace, as bytes", responses=TILE)
    def get(self, request: Request, pk: int) -> HttpResponse | Response:
        _, timeline = self.open(pk)
        return unchanging(request, timeline, lambda: selectors.density_gzip(timeline))


def unchanging(request: Request, timeline: Timeline, body: Callable[[], bytes]) -> HttpResponse:
    """Compressed bytes that stay what they are for as long as the stored trace does."""
    tag = f'"{timeline.etag}"'
    answer: HttpResponse
    if tag in request.headers.get("If-None-Match", ""):
        answer = HttpResponse(status=status.HTTP_304_NOT_MODIFIED)
    else:
        began = time.perf_counter()
        answer = HttpResponse(body(), content_type="application/octet-stream", headers={"Content-Encoding": "gzip"})
        answer["Server-Timing"] = f"read;dur={(time.perf_counter() - began) * 1e3:.1f}"
    answer["ETag"] = tag
    answer["Cache-Control"] = "private, max-age=31536000, immutable"
    return answer


class SliceSearchApi(TimelineView):
    @extend_schema(operation_id="profiles_slices", summary="Search slices by name, pattern or argument", parameters=[SearchQuery],
                   responses={200: selectors.FoundJson, **REFUSED})
    def get(self, request: Request, pk: int) -> Response:
        _, timeline = self.open(pk)
        return answer_search(lambda: selectors.search(timeline, parse_query(SearchQuery, request, timeline)))


class HitsApi(TimelineView):
    @extend_schema(operation_id="profiles_hits", summary="Where in the trace a search's hits begin", parameters=[SearchQuery],
                   responses={200: selectors.HitsJson, **REFUSED})
    def get(self, request: Request, pk: int) -> Response:
        _, timeline = self.open(pk)
        query = parse_query(SearchQuery, request, timeline)
        return answer_search(lambda: selectors.hits(timeline, query, query["bins"]))


def answer_search(answer: Callable[[], dict[str, Any]]) -> Response:
    """The answer to a search, 400 where its text is no valid question."""
    try:
        return Response(answer())
    except ValueError as error:
        raise serializers.ValidationError({"q": str(error)}) from error

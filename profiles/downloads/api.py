"""A timeline, or a part of it, as a file: for Perfetto and other viewers, and as a table of slices. Streamed."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponseBase
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.views import APIView

from profiles.downloads.trace import HITS, LAUNCHES, SCHEMA, chrome_trace, gzip_chunks, hit_tables, launch_tables, slice_tables
from profiles.exports.api import FILE, FORMAT, asked_format
from profiles.exports.files import KINDS, disposition, encode
from profiles.library.streaming_api import stream
from profiles.models import Profile
from profiles.store.area import Area, whole
from profiles.store.timeline import Timeline
from profiles.timeline import selectors as timeline_selectors
from profiles.timeline.api import YEAR_NS, SearchQuery, answer_search, parse_query
from profiles.timeline.selection_api import AreaQuery, AreaView


class PartQuery(AreaQuery):
    """As an area; without start and end the whole trace."""

    start = serializers.IntegerField(required=False, default=0, min_value=0, max_value=YEAR_NS)
    end = serializers.IntegerField(required=False, default=None, min_value=0, max_value=YEAR_NS, allow_null=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        return super().validate(attrs) if attrs["end"] is not None else attrs


class ExportView(AreaView):
    def part(self, request: Request, timeline: Timeline) -> tuple[Area, str]:
        """The area and how its file is called."""
        form = PartQuery(data={key: value for key, value in request.query_params.items() if key in PartQuery().fields},
                         context={"tracks": len(timeline.tracks)})
        form.is_valid(raise_exception=True)
        fields, everything = form.validated_data, whole(timeline)
        start, end = fields["start"], everything.end_ns if fields["end"] is None else min(fields["end"], everything.end_ns)
        tracks = tuple(fields["tracks"]) if fields["tracks"] is not None else None
        return Area(start, max(start, end), tracks), "" if (start, end) == (0, everything.end_ns) else f"-{start}-{end}"


class TraceExportApi(ExportView):
    @extend_schema(
        operation_id="profiles_export_trace", summary="Chrome trace JSON of a timeline", parameters=[
            PartQuery, OpenApiParameter("plain", bool, description="Without gzip")],
        responses={(200, "application/gzip"): OpenApiTypes.BINARY, (200, "application/json"): OpenApiTypes.BINARY})
    def get(self, request: Request, pk: int) -> HttpResponseBase:
        """Perfetto and Ridgepoint read it. Slices that reach over the edge of the window are in it whole."""
        profile, timeline = self.open(pk)
        area, part = self.part(request, timeline)
        plain = request.query_params.get("plain") in ("1", "true")
        chunks = chrome_trace(profile, timeline, area)
        answer = stream(request._request, chunks if plain else gzip_chunks(chunks),
                        "application/json" if plain else "application/gzip")
        answer["Content-Disposition"] = disposition(f"{profile.name}{part}", "json" if plain else "json.gz")
        return answer


class SlicesExportApi(ExportView):
    @extend_schema(operation_id="profiles_export_slices", summary="Slices of a timeline as a table", parameters=[PartQuery, FORMAT],
                   responses=FILE)
    def get(self, request: Request, pk: int) -> HttpResponseBase:
        """Every stored column, by start."""
        profile, timeline = self.open(pk)
        area, part = self.part(request, timeline)
        kind = asked_format(request) or "csv"
        answer = stream(request._request, encode(SCHEMA, slice_tables(timeline, area), kind), KINDS[kind])
        answer["Content-Disposition"] = disposition(f"{profile.name}{part}-slices", kind)
        return answer


class HitsExportApi(AreaView):
    @extend_schema(operation_id="profiles_export_hits", summary="Hits of a search as a table", parameters=[SearchQuery, FORMAT],
                   responses=FILE)
    def get(self, request: Request, pk: int) -> HttpResponseBase:
        """Every hit, by start: the page only holds some of them."""
        profile, timeline = self.open(pk)
        query = parse_query(SearchQuery, request, timeline)
        kind = asked_format(request) or "csv"
        answer_search(lambda: timeline_selectors.hits(timeline, query,
                                                      1))         # what cannot be asked is told before the file begins
        answer = stream(request._request, encode(HITS, hit_tables(timeline, query), kind), KINDS[kind])
        answer["Content-Disposition"] = disposition(f"{profile.name}-hits", kind)
        return answer


class LaunchesExportApi(APIView):
    @extend_schema(operation_id="profiles_launches", summary="Kernel launches of a profile as a table", parameters=[FORMAT],
                   responses=FILE)
    def get(self, request: Request, pk: int) -> HttpResponseBase:
        """One row per launch: kernel, shape, duration, place among the profile's launches."""
        profile = get_object_or_404(Profile, pk=pk)
        kind = asked_format(request) or "csv"
        answer = stream(request._request, encode(LAUNCHES, launch_tables(profile.pk), kind), KINDS[kind])
        answer["Content-Disposition"] = disposition(f"{profile.name}-launches", kind)
        return answer

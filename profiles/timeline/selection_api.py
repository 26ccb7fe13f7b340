"""JSON of one slice and of areas: sums, histogram, slices. Long ones tell how far they are and stop with their client."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponseBase
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from profiles.analysis.core.groups import TooManyGroups
from profiles.exports.api import FORMAT, asked_format
from profiles.exports.files import table_response
from profiles.library.streaming_api import TooLong, answer, finish
from profiles.store.area import Area
from profiles.store.area_columns import UnknownColumn, column, condition
from profiles.store.timeline import Timeline
from profiles.timeline import flame_selectors, kernel_selectors, path_selectors, slice_selectors
from profiles.timeline import selection_selectors as selectors
from profiles.timeline.api import JSON, YEAR_NS, TimelineView, TracksField, parse_query

MAX_BY = 4
STREAM = OpenApiParameter("stream", bool, description="Lines of JSON: progress, then the result")
WHERE = OpenApiParameter("where", str, many=True, description="column:key of a row of `selection/`: only its slices")


class AreaQuery(serializers.Serializer[Any]):
    start = serializers.IntegerField(min_value=0, max_value=YEAR_NS)
    end = serializers.IntegerField(min_value=0, max_value=YEAR_NS)
    tracks = TracksField(required=False, default=None)
    least_ns = serializers.IntegerField(required=False, default=None, min_value=0, help_text="Duration: at least")
    most_ns = serializers.IntegerField(required=False, default=None, min_value=0, help_text="Duration: less than")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["end"] < attrs["start"]:
            raise serializers.ValidationError({"end": "The end lies before the start."})
        return attrs


class PageQuery(AreaQuery):
    limit = serializers.IntegerField(required=False, default=selectors.MAX_SLICES, min_value=0, max_value=selectors.MAX_SLICES)
    offset = serializers.IntegerField(required=False, default=0, min_value=0, max_value=100_000_000)


class FlameQuery(AreaQuery):
    mode = serializers.ChoiceField(flame_selectors.MODES, required=False, default="cpu",
                                   help_text="cpu: nested slices of threads; gpu: GPU time under the stack that launched it")
    merged = serializers.BooleanField(required=False, default=True, help_text="All threads as one")
    focus = serializers.IntegerField(required=False, default=None, min_value=0, help_text="Name id: its callers and callees")


class ViewQuery(serializers.Serializer[Any]):
    start = serializers.IntegerField(required=False, default=None, min_value=0, max_value=YEAR_NS)
    end = serializers.IntegerField(required=False, default=None, min_value=0, max_value=YEAR_NS)


class AreaView(TimelineView):
    """Reads of an area: 400 where the question cannot be answered, 503 where answering takes too long."""

    def area(self, request: Request, timeline: Timeline, form: type[AreaQuery] = AreaQuery) -> tuple[Area, dict[str, Any]]:
        query = parse_query(form, request, timeline)
        tracks = tuple(query["tracks"]) if query["tracks"] is not None else None
        where = tuple(condition(text) for text in request.query_params.getlist("where")[:8])
        return Area(query["start"], query["end"], tracks, where, query["least_ns"], query["most_ns"]), query

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, (UnknownColumn, TooManyGroups)):
            hint = "Group by columns that repeat: name, category, grid …"
            return Response({"error": str(exc.args[0]), "where": "by", "hint": hint}, status=status.HTTP_400_BAD_REQUEST)
        if isinstance(exc, (TooLong, flame_selectors.TooMuch)):
            return Response({"error": str(exc), "where": "area", "hint": "Choose less time or fewer tracks."},
                            status=status.HTTP_503_SERVICE_UNAVAILABLE)
        return super().handle_exception(exc)


class SliceApi(TimelineView):
    @extend_schema(operation_id="profiles_slice", summary="One slice with its arguments and links", parameters=[ViewQuery],
                   responses=JSON)
    def get(self, request: Request, pk: int, slice_id: int) -> Response:
        """Of many linked slices, those nearest to the view [start, end) are told."""
        profile, timeline = self.open(pk)
        if slice_id >= timeline.slices.rows:
            raise NotFound(f"This timeline has {timeline.slices.rows} slices.")
        query = parse_query(ViewQuery, request, timeline)
        view = (query["start"], query["end"]) if None not in (query["start"], query["end"]) else None
        return Response(slice_selectors.slice_detail(profile, timeline, slice_id, view))


class SliceKernelApi(AreaView):
    @extend_schema(operation_id="profiles_slice_kernel", summary="What a launch leads to: counters, capture, tune",
                   parameters=[STREAM], responses=JSON)
    def get(self, request: Request, pk: int, slice_id: int) -> HttpResponseBase:
        profile, timeline = self.open(pk)
        if slice_id >= timeline.slices.rows:
            raise NotFound(f"This timeline has {timeline.slices.rows} slices.")
        return answer(request, kernel_selectors.slice_kernel(profile, timeline, slice_id))


class SelectionApi(AreaView):
    @extend_schema(operation_id="profiles_selection", summary="Sums and quantiles of an area of the timeline",
                   parameters=[AreaQuery, WHERE, STREAM, FORMAT, OpenApiParameter(
                       "by", str, many=True, description="Columns; name and category if absent")],
                   responses=JSON)
    def get(self, request: Request, pk: int) -> HttpResponseBase:
        """Times are clipped to the area in `total_ns` and `share_pct`, whole in all others."""
        _, timeline = self.open(pk)
        area, _ = self.area(request, timeline)
        asked = request.query_params.getlist("by")
        parts = [part for text in asked for part in ([text] if text.startswith("arg:") else text.split(",")) if part]
        by = tuple(dict.fromkeys(parts))[:MAX_BY] or selectors.DEFAULT
        for name in by:
            column(name)
        if kind := asked_format(request):
            made = finish(selectors.groups(timeline, area, by, selectors.FILED))
            return table_response(selectors.table(made), f"profile-{pk}-selection", kind)
        return answer(request, selectors.groups(timeline, area, by))


class HistogramApi(AreaView):
    @extend_schema(operation_id="profiles_histogram", summary="Durations of the slices of an area",
                   parameters=[AreaQuery, WHERE, STREAM], responses=JSON)
    def get(self, request: Request, pk: int) -> HttpResponseBase:
        _, timeline = self.open(pk)
        return answer(request, selectors.histogram(timeline, self.area(request, timeline)[0]))


class AreaSlicesApi(AreaView):
    @extend_schema(operation_id="profiles_area_slices", summary="Slices of an area by start", parameters=[PageQuery, WHERE, STREAM],
                   responses=JSON)
    def get(self, request: Request, pk: int) -> HttpResponseBase:
        _, timeline = self.open(pk)
        area, query = self.area(request, timeline, PageQuery)
        return answer(request, selectors.slices(timeline, area, query["limit"], query["offset"]))


class AreaColumnsApi(TimelineView):
    @extend_schema(operation_id="profiles_selection_columns", summary="Columns that slices can be grouped by", responses=JSON)
    def get(self, request: Request, pk: int) -> Response:
        _, timeline = self.open(pk)
        return Response({"columns": selectors.columns(timeline)})


class FlameApi(AreaView):
    @extend_schema(operation_id="profiles_flame", summary="Flame graph of an area", parameters=[FlameQuery, WHERE, STREAM],
                   responses=JSON)
    def get(self, request: Request, pk: int) -> HttpResponseBase:
        """Nodes as columns, parents before children; labels are name ids, negative ones stand for tracks and the rest."""
        _, timeline = self.open(pk)
        area, query = self.area(request, timeline, FlameQuery)
        if query["focus"] is not None and query["focus"] >= len(timeline.names):
            raise NotFound(f"This timeline has {len(timeline.names)} names.")
        return answer(request, flame_selectors.graph(timeline, area, query["mode"], query["merged"], query["focus"]))


class PathQuery(serializers.Serializer[Any]):
    path = serializers.CharField(required=False, default="whole", max_length=40,
                                 help_text="`whole`, `whole-1` (of a further rank), or `step-0`: the answer lists them.")
    start = serializers.IntegerField(required=False, default=0, min_value=0, max_value=YEAR_NS)
    end = serializers.IntegerField(required=False, default=YEAR_NS, min_value=0, max_value=YEAR_NS)


class CriticalPathApi(TimelineView):
    @extend_schema(operation_id="profiles_critical_path", summary="Segments of a critical path in a window",
                   responses=JSON, parameters=[PathQuery])
    def get(self, request: Request, pk: int) -> Response:
        """What the run waited for, as segments on tracks: GPU work, stretches of threads, and waits between them."""
        profile, timeline = self.open(pk)
        query = parse_query(PathQuery, request, timeline)
        try:
            return Response(path_selectors.critical_path(profile, query["path"], query["start"], query["end"]))
        except LookupError as error:
            raise NotFound(str(error.args[0])) from None

"""JSON of one slice and of areas: sums, histogram, slices. Long ones tell how far they are and stop with their client."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from django.http import HttpResponseBase
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from profiles.analysis.core.groups import TooManyGroups
from profiles.base.answers import Scalar
from profiles.exports.api import FORMAT, asked_format
from profiles.exports.files import table_response
from profiles.library.streaming_api import TooLong, answer, finish
from profiles.store.area import Area, UnknownColumn, column, condition
from profiles.store.timeline import Timeline
from profiles.timeline import flame_selectors, slice_selectors
from profiles.timeline import selection_selectors as selectors
from profiles.timeline import selectors as selectors_timeline
from profiles.timeline.api import REFUSED, YEAR_NS, TimelineView, TracksField, parse_query

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


class AroundJson(selectors_timeline.SliceJson):
    """A slice around another on its thread; `detail`: what its arguments say."""

    detail: dict[str, Any]
    role: NotRequired[str]


class LinkJson(selectors_timeline.SliceJson):
    role: str


ArrowJson = TypedDict("ArrowJson", {"kind": str, "from": selectors_timeline.SliceJson, "to": selectors_timeline.SliceJson})


class SliceDetailJson(selectors_timeline.SliceJson):
    """Everything known about one slice; `stack`: what is around it, innermost first; `links`: related slices by role."""

    track_name: str
    group: str
    short_name: str
    name_key: str
    grid: list[int] | None
    block: list[int] | None
    registers_per_thread: int | None
    smem_bytes: int | None
    occupancy_pct: float | None
    occupancy_source: str | None
    bytes: int | None
    correlation: int | None
    external_id: int | None
    device: int | None
    stream: int | None
    detail: dict[str, Any]
    step_launched: str | None
    step_ran: str | None
    stack: list[AroundJson]
    kernel_id: int | None
    is_kernel: bool
    links: list[LinkJson]
    link_counts: dict[str, int]
    arrows: list[ArrowJson]
    launch_delay_ns: int | None


class SliceApi(TimelineView):
    @extend_schema(operation_id="profiles_slice", summary="One slice with its arguments and links", parameters=[ViewQuery],
                   responses={200: SliceDetailJson, **REFUSED})
    def get(self, request: Request, pk: int, slice_id: int) -> Response:
        """Of many linked slices, those nearest to the view [start, end) are told."""
        profile, timeline = self.open(pk)
        if slice_id >= timeline.slices.rows:
            raise NotFound(f"This timeline has {timeline.slices.rows} slices.")
        query = parse_query(ViewQuery, request, timeline)
        view = (query["start"], query["end"]) if None not in (query["start"], query["end"]) else None
        return Response(slice_selectors.slice_detail(profile, timeline, slice_id, view))


class CountersOfJson(TypedDict):
    """Counters of the same kernel in another profile."""

    profile: int
    profile_name: str
    build: str
    same_build: bool
    same_name: str
    url: str
    launches: int
    mean_ns: float | None
    gpu: str
    bound: str
    bound_reason: str
    recorded: str
    numbers: dict[str, float]


class TuneOfJson(TypedDict):
    """A job for the kernel's problem; `url` null: none, and why."""

    operator: str
    shape: NotRequired[dict[str, int]]
    dtype: NotRequired[str]
    source: NotRequired[str]
    why: str
    url: str | None


class SliceKernelJson(TypedDict):
    """What a launch leads to; `index`: among launches of its name, `matching`: of all that ncu's name filter finds."""

    slice: int
    name: str
    name_key: str
    kernel_id: int | None
    index: int
    matching: int
    bare_name: str
    counters: list[CountersOfJson]
    capture: str
    tune: TuneOfJson


class SliceKernelApi(AreaView):
    @extend_schema(operation_id="profiles_slice_kernel", summary="What a launch leads to: counters, capture, tune",
                   parameters=[STREAM], responses={200: SliceKernelJson, **REFUSED})
    def get(self, request: Request, pk: int, slice_id: int) -> HttpResponseBase:
        profile, timeline = self.open(pk)
        if slice_id >= timeline.slices.rows:
            raise NotFound(f"This timeline has {timeline.slices.rows} slices.")
        return answer(request, slice_selectors.slice_kernel(profile, timeline, slice_id))


class DurationClassJson(TypedDict):
    """Slices whose durations lie in a class, and their time."""

    from_ns: int
    to_ns: int
    count: int
    total_ns: int


class SumsJson(TypedDict):
    """Sums of an area by columns, most time first; each row has a value for every column of `by`."""

    start_ns: int
    end_ns: int
    tracks: int
    slices: int
    busy_ns: int
    by: list[str]
    groups: int
    total_ns: int
    whole_ns: int
    truncated: bool
    rows: list[dict[str, Scalar | list[str]]]
    histogram: list[DurationClassJson]
    quantiles: str


class SelectionApi(AreaView):
    @extend_schema(operation_id="profiles_selection", summary="Sums and quantiles of an area of the timeline",
                   parameters=[AreaQuery, WHERE, STREAM, FORMAT, OpenApiParameter(
                       "by", str, many=True, description="Columns; name and category if absent")],
                   responses={200: SumsJson, **REFUSED})
    def get(self, request: Request, pk: int) -> HttpResponseBase:
        """Times are clipped to the area in `total_ns` and `share_pct`, whole in all others."""
        _, timeline = self.open(pk)
        area, _ = self.area(request, timeline)
        texts = request.query_params.getlist("by")
        parts = [part for text in texts for part in ([text] if text.startswith("arg:") else text.split(",")) if part]
        by = tuple(dict.fromkeys(parts))[:MAX_BY] or selectors.DEFAULT
        for name in by:
            column(name)
        if kind := asked_format(request):
            groups = finish(selectors.groups(timeline, area, by, selectors.FILED))
            return table_response(selectors.table(groups), f"profile-{pk}-selection", kind)
        return answer(request, selectors.groups(timeline, area, by))


class HistogramJson(TypedDict):
    """Durations of an area's slices in classes of a quarter octave; numbers of all of them, where there are any."""

    start_ns: int
    end_ns: int
    histogram: list[DurationClassJson]
    count: int
    total_ns: NotRequired[int]
    whole_ns: NotRequired[int]
    mean_ns: NotRequired[float]
    min_ns: NotRequired[int]
    max_ns: NotRequired[int]
    p50_ns: NotRequired[float]
    p95_ns: NotRequired[float]
    quantiles: str


class HistogramApi(AreaView):
    @extend_schema(operation_id="profiles_histogram", summary="Durations of the slices of an area",
                   parameters=[AreaQuery, WHERE, STREAM], responses={200: HistogramJson, **REFUSED})
    def get(self, request: Request, pk: int) -> HttpResponseBase:
        _, timeline = self.open(pk)
        return answer(request, selectors.histogram(timeline, self.area(request, timeline)[0]))


class AreaSlicesJson(TypedDict):
    total: int
    offset: int
    slices: list[selectors_timeline.SliceJson]


class AreaSlicesApi(AreaView):
    @extend_schema(operation_id="profiles_area_slices", summary="Slices of an area by start", parameters=[PageQuery, WHERE, STREAM],
                   responses={200: AreaSlicesJson, **REFUSED})
    def get(self, request: Request, pk: int) -> HttpResponseBase:
        _, timeline = self.open(pk)
        area, query = self.area(request, timeline, PageQuery)
        return answer(request, selectors.slices(timeline, area, query["limit"], query["offset"]))


class AreaColumnJson(TypedDict):
    key: str
    title: str
    kind: str


class ColumnsJson(TypedDict):
    columns: list[AreaColumnJson]


class AreaColumnsApi(TimelineView):
    @extend_schema(operation_id="profiles_selection_columns", summary="Columns that slices can be grouped by",
                   responses={200: ColumnsJson, **REFUSED})
    def get(self, request: Request, pk: int) -> Response:
        _, timeline = self.open(pk)
        return Response({"columns": selectors.columns(timeline)})


class TreeJson(TypedDict):
    """Nodes of a flame graph as columns, parents before children; times in ns."""

    label: list[int]
    total: list[int]
    self: list[int]
    parent: list[int]
    count: list[int]
    first: list[int]
    nodes: int
    lumped: int


class HotJson(TypedDict):
    label: int
    total: int
    self: int
    count: int


class FlameJson(TypedDict):
    """A tree of nodes as columns and the names of most own time; with a focus its callers and callees in their place."""

    start_ns: int
    end_ns: int
    mode: str
    merged: bool
    total_ns: int
    tree: NotRequired[TreeJson]
    hot: NotRequired[list[HotJson]]
    focus: NotRequired[int]
    callers: NotRequired[TreeJson]
    callees: NotRequired[TreeJson]
    names: dict[str, str]
    categories: dict[str, int]


class FlameApi(AreaView):
    @extend_schema(operation_id="profiles_flame", summary="Flame graph of an area", parameters=[FlameQuery, WHERE, STREAM],
                   responses={200: FlameJson, **REFUSED})
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


class PathJson(TypedDict):
    key: str
    label: str
    start_ns: int
    end_ns: int


class CriticalPathJson(TypedDict):
    """Segments of a path: [track, depth, start, end, what, slice]; not `exact`: short ones are joined."""

    paths: list[PathJson]
    path: PathJson
    exact: bool
    segments: list[tuple[int, int, int, int, str, int | None]]


class CriticalPathApi(TimelineView):
    @extend_schema(operation_id="profiles_critical_path", summary="Segments of a critical path in a window",
                   responses={200: CriticalPathJson, **REFUSED}, parameters=[PathQuery])
    def get(self, request: Request, pk: int) -> Response:
        """What the run waited for, as segments on tracks: GPU work, stretches of threads, and waits between them."""
        profile, timeline = self.open(pk)
        query = parse_query(PathQuery, request, timeline)
        try:
            return Response(slice_selectors.critical_path(profile, query["path"], query["start"], query["end"]))
        except LookupError as error:
            raise NotFound(str(error.args[0])) from None

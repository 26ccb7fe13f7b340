"""JSON over HTTP: profiles in and out, their tables, comparisons. Each view parses, calls one service or selector, answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.parsers import FormParser, JSONParser, MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.analysis.core.kernels import KERNEL_COLUMNS
from profiles.base.answers import Paged, RefusedJson, Scalar, make_answer
from profiles.compare import progress_selectors
from profiles.compare import selectors as selectors_compare
from profiles.compare.answers import ComparisonJson
from profiles.counters import selectors as selectors_counters
from profiles.exports.api import FORMAT, asked_format
from profiles.exports.files import flat_response, rows_response
from profiles.ingest.trace import SummaryColumn, TraceError
from profiles.library import selectors
from profiles.models import Profile
from profiles.overview.serializers_api import (
    ApartSerializer,
    EditSerializer,
    NamesAnswerSerializer,
    NamesSerializer,
    ProfileDetailSerializer,
    ProfileSerializer,
    UploadSerializer,
)
from profiles.profile import selectors as selectors_profile
from profiles.upload import request_services, services, waiting_services
from profiles.upload.request_services import KeyTaken, profile_upload
from workers.list_api import MOST, PAGED, Pages, read_number, read_page, validated

ID_DIGITS = 18
MOST_COUNTED = 200              # launches of an answer: each has kilobytes of facts
OF_KERNEL = OpenApiParameter("kernel", int, description="only this one, by its id")


class ProfileListApi(APIView):
    write_permission = "profiles.add_profile"
    parser_classes = [MultiPartParser, FormParser, JSONParser]
    pagination_class = Pages

    @extend_schema(
        operation_id="profiles_list", responses=ProfileSerializer(many=True),
        parameters=[OpenApiParameter(name, str) for name in (*selectors.FILTERS, "order")]
        + [*PAGED, FORMAT])
    def get(self, request: Request) -> Response | HttpResponse:
        """Profiles, newest first. Unknown filters ask nothing."""
        kind = asked_format(request, also=True)
        filters = {name: str(value) for name, value in request.query_params.items() if (name, value) != ("format", kind)}
        profiles = selectors.profile_list(filters)
        if kind:
            rows = ProfileSerializer(profiles, many=True, context={"request": request}).data
            columns = [name for name in ProfileSerializer.Meta.fields if name not in ("progress", "links", "error", "notes")]
            return rows_response(kind, "profiles", columns, rows)
        pages = self.pagination_class()
        page = pages.paginate_queryset(profiles, request, view=self)
        return pages.get_paginated_response(ProfileSerializer(page, many=True, context={"request": request}).data)

    @extend_schema(operation_id="profiles_create", request={"multipart/form-data": UploadSerializer},
                   responses={201: ProfileDetailSerializer})
    def post(self, request: Request) -> Response:
        """Upload one or several files. 201 with the profile (one file, or several `together`) or
        {"profiles": […], "errors": […]} (several). A request that is sent again with its `Idempotency-Key`, because the answer
        was lost, finds what it made; 409: another file was uploaded with this key."""
        length = int(request.META.get("CONTENT_LENGTH") or 0)
        if length > settings.UPLOAD_MAX_BYTES + (1 << 20):
            raise TraceError("request", f"the upload has {length:,} bytes; at most {settings.UPLOAD_MAX_BYTES:,} are taken",
                             "compress the file (.gz) or record fewer steps")
        if not isinstance(request.data, Mapping):
            raise TraceError("request", "this is no form", "send multipart/form-data with one or several files in the field `file`")
        files = request.FILES.getlist("file") or list(request.FILES.values())
        names = ("name", "build", "model", "tags", "notes", "together", "written")
        fields = validated(UploadSerializer, {key: request.data[key] for key in names if key in request.data})
        values = {**fields, "tags": services.tags_parse(fields.get("tags", "")), "owner": request.user}
        key = request.headers.get("Idempotency-Key", "")
        if values.pop("together") or len(files) <= 1:
            try:
                return Response(self._detail_json(profile_upload(files, key, **values)), status=201)
            except KeyTaken as conflict:
                return Response({"error": conflict.what, "where": conflict.where, "hint": conflict.hint}, status=409)
        created, errors = [], []
        for number, file in enumerate(files):
            try:
                profile = profile_upload([file], key and f"{key}/{number}", **{**values, "name": "", "written": None})
                created.append(self._detail_json(profile))
            except TraceError as error:
                errors.append({"file": file.name, "error": error.what, "where": error.where, "hint": error.hint})
        return Response({"profiles": created, "errors": errors}, status=201 if created else 400)

    def _detail_json(self, profile: Profile) -> Any:
        return ProfileDetailSerializer(profile, context={"request": self.request}).data


class NamesApi(APIView):
    write_permission = "profiles.add_profile"

    @extend_schema(operation_id="profiles_names_check", request=NamesSerializer, responses=NamesAnswerSerializer)
    def post(self, request: Request) -> Response:
        """Whether names of files speak for the ranks of one job; nothing is stored."""
        fields = validated(NamesSerializer, request.data)
        return Response(request_services.files_asked(fields["files"]))


class ApartApi(APIView):
    write_permission = "profiles.add_profile"

    @extend_schema(operation_id="profiles_apart", request=None, responses={201: ApartSerializer})
    def post(self, request: Request, pk: int) -> Response:
        """Files that were refused as ranks of different jobs: each becomes a profile, the refused one goes. 201 with
        {"profiles": […]}."""
        profiles = request_services.profile_apart(get_object_or_404(Profile, pk=pk))
        return Response({"profiles": ProfileSerializer(profiles, many=True, context={"request": request}).data}, status=201)


class NumberApi(APIView):
    write_permission = "profiles.add_profile"

    @extend_schema(operation_id="profiles_number", request=None, responses={202: ProfileSerializer})
    def post(self, request: Request, pk: int) -> Response:
        """Files that were refused since several state one rank are read once more, with their numbers as ranks."""
        profile = request_services.profile_number_by_file(get_object_or_404(Profile, pk=pk))
        return Response(ProfileSerializer(profile, context={"request": request}).data, status=202)


class RereadApi(APIView):
    write_permission = "profiles.add_profile"

    @extend_schema(operation_id="profiles_reread", request=None, responses={202: ProfileSerializer, 409: RefusedJson})
    def post(self, request: Request, pk: int) -> Response:
        """Read the stored upload anew, by the reader of today. Number, notes and threads stay; 409 says why it stays as it is."""
        profile = get_object_or_404(Profile, pk=pk)
        if why := waiting_services.profile_reread(profile):
            return Response({"error": why, "where": profile.name, "hint": "upload the file again, or wait"}, status=409)
        profile.refresh_from_db()
        return Response(ProfileSerializer(profile, context={"request": request}).data, status=202)


class ProfileApi(APIView):
    @property
    def write_permission(self) -> str:
        return "profiles.delete_profile" if self.request.method == "DELETE" else "profiles.change_profile"

    @extend_schema(operation_id="profiles_get", responses=ProfileDetailSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """One profile with summary, integrity report and findings."""
        profile = get_object_or_404(Profile.objects.select_related("owner"), pk=pk)
        return Response(ProfileDetailSerializer(profile, context={"request": request}).data)

    @extend_schema(operation_id="profiles_edit", request=EditSerializer, responses=ProfileDetailSerializer)
    def patch(self, request: Request, pk: int) -> Response:
        """Change name, build, model, tags or notes; what is not sent stays."""
        fields = validated(EditSerializer, request.data)
        profile = services.profile_update(get_object_or_404(Profile, pk=pk), **fields)
        return Response(ProfileDetailSerializer(profile, context={"request": request}).data)

    @extend_schema(operation_id="profiles_delete", responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        """Remove the profile with its upload and everything derived from it."""
        services.profile_delete(get_object_or_404(Profile, pk=pk))
        return Response(status=204)


class KernelsJson(Paged):
    profile: int
    kernels: list[selectors_profile.KernelJson]


class KernelListApi(APIView):
    @extend_schema(operation_id="profiles_kernels", responses=KernelsJson, parameters=[OF_KERNEL, *PAGED, FORMAT])
    def get(self, request: Request, pk: int) -> Response | HttpResponse:
        """The kernel table, largest total first; `?format=csv` for a file, with all of it."""
        profile = get_object_or_404(Profile, pk=pk)
        rows = selectors_profile.kernel_rows(profile)
        if kernel := read_number(request, "kernel", 0, ID_DIGITS):
            rows = rows.filter(pk=kernel)
        if kind := asked_format(request):
            return rows_response(kind, f"profile-{pk}-kernels", KERNEL_COLUMNS, rows.values(*KERNEL_COLUMNS))
        page = read_page(request, rows)
        return page.answer({"profile": pk, "kernels": [make_answer(selectors_profile.KernelJson, row) for row in page.rows]})


class KernelShapesJson(Paged):
    profile: int
    build: str
    gpu: str
    kernel_shapes: list[selectors_profile.ShapeJson]


class KernelShapeListApi(APIView):
    @extend_schema(operation_id="profiles_kernel_shapes", responses=KernelShapesJson, parameters=[OF_KERNEL, *PAGED, FORMAT])
    def get(self, request: Request, pk: int) -> Response | HttpResponse:
        """Kernels by grid, block and the operator around the launch: count, total, p50, p95; largest total first."""
        profile = get_object_or_404(Profile, pk=pk)
        if kind := asked_format(request):
            rows = [selectors_profile.shape_json(line) for line in selectors_profile.shape_table(profile)]
            return rows_response(kind, f"profile-{pk}-kernel-shapes", selectors_profile.SHAPE_COLUMNS, rows)
        shapes = selectors_profile.shape_rows(profile)
        if kernel := read_number(request, "kernel", 0, ID_DIGITS):
            shapes = shapes.filter(kernel=kernel)
        page = read_page(request, shapes)
        lines = selectors_profile.shape_lines(profile, page.rows)
        return page.answer({"profile": pk, "build": profile.build, "gpu": profile.gpu,
                            "kernel_shapes": [selectors_profile.shape_json(line) for line in lines]})


class CountersJson(Paged):
    profile: int
    launches: list[selectors_counters.LaunchJson]


class MetricsJson(TypedDict):
    """Every raw metric of one launch."""

    profile: int
    launch: int
    metrics: list[selectors_counters.MetricJson]


class CounterListApi(APIView):
    @extend_schema(operation_id="profiles_counters", responses=CountersJson | MetricsJson,
                   parameters=[FORMAT, OF_KERNEL, *PAGED, OpenApiParameter(
        "launch", int, description="Every raw metric of this one")])
    def get(self, request: Request, pk: int) -> Response | HttpResponse:
        """Launches with hardware counters: facts, and the vendor's rule findings; as a file every fact is a column."""
        profile, kind = get_object_or_404(Profile, pk=pk), asked_format(request)
        launch = request.query_params.get("launch", "")
        if launch.isdecimal() and len(launch) < 10:
            metrics = selectors_counters.metric_rows(profile, int(launch))
            return (flat_response(kind, f"profile-{pk}-counters", metrics) if kind
                    else Response({"profile": pk, "launch": int(launch), "metrics": metrics}))
        launches = selectors_counters.counted_launches(profile, read_number(request, "kernel", 0, ID_DIGITS))
        if kind:
            return flat_response(kind, f"profile-{pk}-counters", [selectors_counters.launch_json(row) for row in launches])
        page = read_page(request, launches, MOST_COUNTED, MOST_COUNTED)
        return page.answer({"profile": pk, "launches": [selectors_counters.launch_json(row) for row in page.rows]})


class TableJson(TypedDict):
    """A table of sums as the tool wrote it, in base units."""

    title: str
    note: str
    columns: list[SummaryColumn]
    rows: list[list[Scalar]]
    row_count: int


class TablesJson(Paged):
    profile: int
    tables: list[TableJson]


class TableListApi(APIView):
    @extend_schema(operation_id="profiles_tables", responses=TablesJson, parameters=[
        OpenApiParameter("table", int, description="Only this one, by its number from 0"), *PAGED, FORMAT])
    def get(self, request: Request, pk: int) -> Response | HttpResponse:
        """Tables of sums as the tool wrote them, in base units; `?table=0&format=csv` for one as a file. `limit` and `offset` are
        of rows of each table, `count` is of the longest."""
        tables = selectors_profile.tables(get_object_or_404(Profile, pk=pk))
        number = request.query_params.get("table", "")
        if number:
            tables = tables[int(number):][:1] if number.isdecimal() and len(number) < 4 else []
            if not tables:
                raise NotFound(f"no table {number[:20]}")
        kind = asked_format(request)
        if kind and len(tables) == 1:
            columns = [column["name"] + (f" ({column['unit']})" if column["unit"] else "") for column in tables[0]["columns"]]
            rows = [dict(zip(columns, row, strict=False)) for row in tables[0]["rows"]]
            return rows_response(kind, f"profile-{pk}-table-{number or 0}", columns, rows)
        page = read_page(request, max((table["rows"] for table in tables), key=len, default=[]))
        return page.answer({"profile": pk, "tables": [
            {**table, "rows": page.cut(table["rows"]), "row_count": len(table["rows"])} for table in tables]})


class PagedComparisonJson(ComparisonJson, Paged):
    pass


class CompareApi(APIView):
    @extend_schema(operation_id="compare", responses=PagedComparisonJson, parameters=[
        OpenApiParameter("a", int), OpenApiParameter("b", int), OpenApiParameter("build_a", str),
        OpenApiParameter("build_b", str), OpenApiParameter("kind", str, enum=["trace", "counters"]),
        OpenApiParameter("per", str, enum=["total", "step"]), *PAGED, FORMAT])
    def get(self, request: Request) -> Response | HttpResponse:
        """Two profiles (`a`, `b`) or two builds (`build_a`, `build_b`) kernel by kernel; `b` is the new one. `limit` and `offset`
        are of `rows` (kernels by shape), `kernels` and `operations` alike, `count` is of the longest."""
        result = selectors_compare.comparison(request.query_params)
        if kind := asked_format(request):
            return rows_response(kind, "compare", selectors_compare.COLUMNS, result.table())
        document = result.as_json()
        lists = {name: document[name] for name in ("rows", "kernels", "operations")}
        page = read_page(request, max(lists.values(), key=len), MOST)
        return page.answer({**document, **{name: page.cut(rows) for name, rows in lists.items()}})


class ProgressApi(APIView):
    @extend_schema(operation_id="progress", responses=progress_selectors.TraceProgressJson, parameters=[
        OpenApiParameter("model", str), OpenApiParameter("gpu", str),
        OpenApiParameter("profiles", str, description="Ids of traces in this order, separated by commas, in place of a model")])
    def get(self, request: Request) -> Response:
        """Successive traces of one job, oldest first: step time, change against the one before, kernels that won or lost most."""
        return Response(progress_selectors.progress(request.query_params).as_json())

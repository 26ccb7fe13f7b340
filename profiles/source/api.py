"""What is inside a launch as JSON, its tables as files."""

from __future__ import annotations

from typing import Any, TypedDict

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.analysis.kernel.instructions import Measure
from profiles.analysis.kernel.sampling import Window
from profiles.base.answers import Scalar
from profiles.exports.api import FILE, FORMAT, JSON, asked_format
from profiles.exports.files import rows_response
from profiles.models import Profile
from profiles.source import program_selectors, sampling_selectors, selectors

TABLES = ("instructions", "lines")


class CodeFileJson(TypedDict):
    number: int
    name: str
    short: str
    text: str | None


class ReasonJson(TypedDict):
    """Why warps wait."""

    name: str
    title: str
    meaning: str
    fix: str


class InstructionsJson(TypedDict):
    """Instructions as columns; `ptx`: positions in the document's `ptx`."""

    offset: list[int]
    sass: list[str]
    ptx: list[int]
    file: list[int | None]
    line: list[int | None]


class SumCheckJson(TypedDict):
    metric: str
    total: float
    added: float
    agrees: bool


class MarkJson(TypedDict):
    """A mark of NVIDIA's guided analysis and where it stands; `file`: number of one of `files`."""

    kind: str
    rule: str
    text: str
    file: int | None
    line: int | None
    offset: int | None
    place: str


class SourceJson(TypedDict):
    """Instructions of a launch with their counters and the source lines they belong to."""

    profile: int
    launch: int
    kernel: str
    files: list[CodeFileJson]
    measures: list[Measure]
    reasons: list[ReasonJson]
    instructions: InstructionsJson
    ptx: list[str]
    values: dict[str, list[float]]
    samples: dict[str, list[float]]
    waits: dict[str, int]
    marks: list[MarkJson]
    checks: list[SumCheckJson]


class SourceTableJson(TypedDict):
    columns: list[str]
    rows: list[dict[str, Scalar]]


class SamplingCheckJson(TypedDict):
    label: str
    sampled: float
    counted: float
    off_pct: float | None


class SamplingSeriesJson(TypedDict):
    metric: str
    label: str
    unit: str
    panel: str
    time_ns: list[float]
    values: list[float]


class SamplingJson(TypedDict):
    """Periodic samples inside one launch."""

    profile: int
    launch: int
    window: Window | None
    checks: list[SamplingCheckJson]
    series: list[SamplingSeriesJson]


class SourceApi(APIView):
    @extend_schema(operation_id="profile_source", responses={**FILE, JSON: SourceJson | SourceTableJson}, parameters=[
        OpenApiParameter("table", str, enum=list(TABLES), description="this table as a file, with `format`"), FORMAT])
    def get(self, request: Request, pk: int, launch: int) -> Response | HttpResponse:
        """Instructions of one launch with their counters, the source lines they belong to, NVIDIA's marks, and the check of
        every metric's sum. As a file: every instruction with every metric, or every line."""
        inside = _inside(pk, launch)
        kind = asked_format(request)
        table = request.query_params.get("table", "")
        if table and table not in TABLES:
            raise NotFound(f"table must be one of {', '.join(TABLES)}")
        if not kind and not table:
            return Response(selectors.source_json(inside))
        columns, rows = selectors.table_rows(inside, table or TABLES[0])
        if not kind:
            return Response({"columns": columns, "rows": rows})
        return rows_response(kind, f"profile-{pk}-launch-{launch}-{table or TABLES[0]}", columns, rows)


class ProgramApi(APIView):
    @extend_schema(operation_id="profile_program", responses=program_selectors.ProgramJson)
    def get(self, request: Request, pk: int, launch: int) -> Response:
        """Live registers of each instruction of one launch, the row that it jumps to, the rows that wrote what it reads."""
        return Response(program_selectors.program_json(_inside(pk, launch)))


class SourceBesideApi(APIView):
    @extend_schema(operation_id="profile_source_beside", responses=program_selectors.BesideJson, parameters=[
        OpenApiParameter("baseline", str, required=True, description="KERNEL, or KERNEL-LAUNCH for one launch")])
    def get(self, request: Request, pk: int, launch: int) -> Response:
        """Another result's counters at the instructions and lines that both have; where there are none, why."""
        inside, chosen = _inside(pk, launch), program_selectors.baseline_launch(request.query_params)
        if chosen is None:
            raise NotFound("baseline must name a kernel of a ready profile: KERNEL or KERNEL-LAUNCH")
        return Response(program_selectors.beside_json(inside, *chosen))


def _inside(pk: int, launch: int) -> selectors.Launch:
    inside = selectors.launch_of(get_object_or_404(Profile, pk=pk, kind=Profile.Kind.COUNTERS), launch)
    if inside is None:
        raise NotFound(f"the report holds no instructions of launch {launch}")
    return inside


class SamplingApi(APIView):
    @extend_schema(operation_id="profile_sampling", responses={**FILE, JSON: SamplingJson}, parameters=[FORMAT])
    def get(self, request: Request, pk: int, launch: int) -> Response | HttpResponse:
        """Series of periodic samples inside one launch; as a file one row per sample."""
        profile = get_object_or_404(Profile, pk=pk, kind=Profile.Kind.COUNTERS)
        document: dict[str, Any] = sampling_selectors.sampling_json(profile, launch)
        if not document["series"]:
            raise NotFound(f"the report holds no samples of launch {launch}")
        if kind := asked_format(request):
            return rows_response(kind, f"profile-{pk}-launch-{launch}-samples", ["metric", "unit", "time_ns", "value"], (
                {"metric": series["metric"], "unit": series["unit"], "time_ns": time, "value": value}
                for series in document["series"] for time, value in zip(series["time_ns"], series["values"], strict=True)))
        return Response(document)

"""The summary of a profile for scripts and assistants."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import ErrorJson, Numbers
from profiles.ingest.trace import Doubt, TraceError
from profiles.models import Profile
from profiles.report.markdown import markdown
from profiles.report.selectors import summary

FORMATS = ("json", "md")


class SummaryProfileJson(TypedDict):
    id: int
    name: str
    status: str
    kind: str
    format: str
    file: str
    gpu: str
    build: str
    model: str
    tags: list[str]
    notes: str
    recorded: str
    created: str
    steps: int | None
    wall_ns: int | None
    gpu_time_ns: int | None
    busy_pct: float | None
    launches: int | None


class SummaryIntegrityJson(TypedDict):
    mark: str
    said: str
    records_read: int | None
    records_kept: int | None
    truncated_at: str | None
    plausibility: list[Doubt]


class SummaryGpuJson(TypedDict):
    """Where a GPU's wall time went: compute, exposed communication and copies, and idle add up to it."""

    index: int
    name: str
    label: str
    wall_ns: float | None
    busy_ns: float | None
    compute_ns: float | None
    communication_ns: float | None
    memory_ns: float | None
    idle_ns: float | None
    communication_overlapped_ns: float | None
    memory_overlapped_ns: float | None
    idle_causes: dict[str, int] | None


class SummaryTableJson(TypedDict):
    title: str
    rows: int
    csv: str


class SummaryAnalysisJson(TypedDict):
    name: str
    title: str
    question: str
    state: str
    applies: bool | None
    answer: str | None
    page: str
    api: str
    tables: list[SummaryTableJson]


class SummaryFindingJson(TypedDict):
    """`alike`: how many more the rule found on other GPUs or ranks."""

    severity: str
    rule: str
    source: str
    title: str
    advice: str
    worth_ns: float | None
    alike: int
    numbers: Numbers
    kernel: str | None
    actions: dict[str, str]


class SummaryKernelJson(TypedDict):
    name: str
    short_name: str
    share_pct: float | None
    launches: int
    total_ns: int | None
    mean_ns: float | None
    p50_ns: float | None
    p95_ns: float | None
    bound: str | None
    why: str | None
    occupancy_pct: float | None
    registers_per_thread: int | None
    counters: dict[str, float | None] | None
    actions: dict[str, str]


class ProfileSummaryJson(TypedDict):
    """All that is known of a profile, on one page; what only a ready one has is left out before."""

    profile: SummaryProfileJson
    units: str
    error: ErrorJson | None
    integrity: SummaryIntegrityJson
    links: dict[str, str]
    answer: NotRequired[str]
    gpus: NotRequired[list[SummaryGpuJson]]
    analyses: NotRequired[list[SummaryAnalysisJson]]
    findings: NotRequired[list[SummaryFindingJson]]
    findings_in_all: NotRequired[int]
    kernels: NotRequired[list[SummaryKernelJson]]
    kernels_in_all: NotRequired[int]


class SummaryApi(APIView):
    @extend_schema(operation_id="profile_summary", responses={
        (200, "application/json"): ProfileSummaryJson, (200, "text/markdown"): OpenApiTypes.STR},
        parameters=[OpenApiParameter("format", str, enum=list(FORMATS), description="JSON where it is absent")])
    def get(self, request: Request, pk: int) -> Response | HttpResponse:
        """One page of what is known: where the time went, what every analysis answers, findings, the largest kernels."""
        profile = get_object_or_404(Profile, pk=pk)
        kind = request.query_params.get("format") or "json"
        if kind not in FORMATS:
            raise TraceError("format", f"there is no format {kind[:40]!r}", f"ask for one of {', '.join(FORMATS)}")
        document = summary(profile, request.build_absolute_uri)
        return Response(document) if kind == "json" else HttpResponse(markdown(document),
                                                                      content_type="text/markdown; charset=utf-8")

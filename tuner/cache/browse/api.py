"""JSON over HTTP: the configurations that launches are served, why, and measuring them again."""

from __future__ import annotations

from typing import Any, TypedDict

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import Paged, Scalar
from tuner.cache import rules
from tuner.cache.entries import selectors, services
from tuner.cache.entries.bans import read_bans
from tuner.gate.suites.selectors import ProgressJson
from tuner.models import CachedConfig
from tuner.revalidation import selectors as revalidation_selectors
from tuner.revalidation import services as revalidation_services
from tuner.tuning import operators
from workers.list_api import PAGED, read_page, validated

JOBS_LIMIT, WAITING_LIMIT = 50, 200
ENVIRONMENT = ("driver", "policy", "flush", "source_hash", "compute_capability")


class ConfigsJson(Paged):
    configs: list[selectors.ConfigJson]


class ConfigListApi(APIView):
    @extend_schema(operation_id="configs_list", responses=ConfigsJson, parameters=[
        *(OpenApiParameter(name, str) for name in ("operator", "gpu", "dtype", "state", "origin", "toolkit")), *PAGED])
    def get(self, request: Request) -> Response:
        page, bans = read_page(request, selectors.config_filter(request.query_params)), read_bans()
        return page.answer({"configs": [selectors.config_json(entry, bans) for entry in page.rows]})


class StateChange(serializers.Serializer[None]):
    """What a person may do to an entry."""

    do = serializers.ChoiceField(choices=["quarantine", "lift"])
    why = serializers.CharField(max_length=200, required=False, default="", allow_blank=True)


class ConfigApi(APIView):
    write_permission = "tuner.change_cachedconfig"

    @extend_schema(operation_id="configs_get", responses=selectors.ConfigJson)
    def get(self, request: Request, pk: int) -> Response:
        return Response(selectors.config_json(get_object_or_404(selectors.config_list(), pk=pk), read_bans()))

    @extend_schema(operation_id="configs_state", request=StateChange, responses=selectors.ConfigJson)
    def post(self, request: Request, pk: int) -> Response:
        """Take an entry out of service, or let it serve again."""
        fields = validated(StateChange, request.data)
        state = rules.State.QUARANTINED if fields["do"] == "quarantine" else rules.State.UNVERIFIED
        row = services.config_set_state(get_object_or_404(CachedConfig, pk=pk), state, request.user, fields["why"])
        return Response(selectors.config_json(row, read_bans()))


class ConfigBestApi(APIView):
    """?operator=matmul&dtype=bf16&gpu=NVIDIA H200&M=4096&N=4096&K=4096[&toolkit=cuda 13.0, triton 3.6.0][&why=1]"""

    @extend_schema(operation_id="configs_best", responses=selectors.BestJson, parameters=[
        OpenApiParameter("operator", str, required=True), OpenApiParameter("gpu", str, required=True),
        OpenApiParameter("dtype", str), OpenApiParameter("toolkit", str),
        *(OpenApiParameter(name, str) for name in ENVIRONMENT),
        OpenApiParameter("verified", bool, description="serve only what a tune job here proved"),
        OpenApiParameter("recorded", bool, description="serve recordings too"),
        OpenApiParameter("why", bool, description="with every entry that was considered, and why it does not serve"),
        OpenApiParameter("M", int, description="and the operator's other dimensions by name")])
    def get(self, request: Request) -> Response:
        """The configuration that a launch gets, which rule served it, and what it may cost against one measured for it."""
        query = request.query_params
        operator = operators.find(query.get("operator", ""))
        if operator is None:
            raise ValidationError({"operator": [f"choose one of {', '.join(operators.all_operators())}"]})
        if not query.get("gpu"):
            raise ValidationError({"gpu": ["name the GPU as its driver does, for example NVIDIA H200"]})
        dtype = query.get("dtype") or operator.dtypes[0]
        shape = {dim.name: _dimension(query.get(dim.name)) for dim in operator.dims}
        problems = operator.problems(shape, dtype)
        if problems:
            raise ValidationError({name: [problem] for name, problem in problems.items()})
        environment = {name: query[name] for name in ENVIRONMENT if query.get(name)}
        return Response(selectors.config_best(operator.name, dtype, query["gpu"], shape, query.get("toolkit", ""),
                                              why=query.get("why", "") in ("1", "true"),
                                              verified=query.get("verified", "") in ("1", "true"),
                                              recorded=query.get("recorded", "") in ("1", "true"), **environment))


class RevalidateRequest(serializers.Serializer[None]):
    """Entries by id; none: those with the most at stake."""

    entries = serializers.ListField(child=serializers.IntegerField(), required=False, default=list, max_length=200)


class UnverifiedEntryJson(selectors.ConfigJson):
    again: list[dict[str, Scalar]]         # configurations that are measured beside the default


class RevalidationLineJson(TypedDict):
    id: int
    status: str
    says: str
    progress: ProgressJson
    entries: list[int]


class UnverifiedJson(Paged):
    entries: list[UnverifiedEntryJson]
    total: int
    jobs: list[RevalidationLineJson]
    expected_s: float


class RevalidateJson(TypedDict):
    """Jobs that were queued; `refused`: entry → why it cannot be measured again."""

    jobs: list[int]
    refused: dict[str, str]


class RevalidateApi(APIView):
    write_permission = "tuner.add_tunejob"

    @extend_schema(operation_id="configs_unverified", responses=UnverifiedJson, parameters=PAGED)
    def get(self, request: Request) -> Response:
        """Unverified entries that can be measured again, those with the most at stake first, and the newest jobs that do so."""
        waiting, bans = revalidation_selectors.waiting_entries(), read_bans()
        page = read_page(request, waiting, WAITING_LIMIT)
        rows = [{**selectors.config_json(row), "again": revalidation_selectors.candidate_configs(row, bans)} for row in page.rows]
        jobs = [{"id": line["job"].pk, "status": line["job"].status, "says": line["says"], "progress": line["progress"],
                 "entries": list(revalidation_selectors.entry_ids(line["job"]).values())}
                for line in revalidation_selectors.job_lines(revalidation_selectors.recent_jobs(JOBS_LIMIT))]
        return page.answer({"entries": rows, "total": page.count, "jobs": jobs,
                            "expected_s": revalidation_selectors.expected_seconds(waiting[:WAITING_LIMIT])})

    @extend_schema(operation_id="configs_revalidate", request=RevalidateRequest, responses={201: RevalidateJson})
    def post(self, request: Request) -> Response:
        """Measure them again in fresh processes, in turn with the default and their near ties."""
        fields = validated(RevalidateRequest, request.data)
        ids: list[Any] = fields["entries"]
        entries = CachedConfig.objects.select_related("job")
        rows = list(entries.filter(pk__in=ids)) if ids else revalidation_selectors.waiting_entries()[:20]
        jobs = revalidation_services.revalidate(rows, request.user)
        refused = {str(row.pk): why for row in rows if (why := revalidation_selectors.why_not(row))}
        return Response({"jobs": [job.pk for job in jobs], "refused": refused}, status=201)


class RevalidationApi(APIView):
    @extend_schema(operation_id="configs_revalidation", responses=revalidation_selectors.RevalidationJson)
    def get(self, request: Request, pk: int) -> Response:
        """One job: each side with every run's median, how it was judged, and what serves from then on."""
        return Response(revalidation_selectors.job_json(get_object_or_404(revalidation_selectors.revalidation_jobs(), pk=pk)))


def _dimension(text: str | None) -> int:
    """-1 is no dimension of any operator: the operator's own check then says what would be valid."""
    return int(text) if text and text.removeprefix("-").isdecimal() and len(text) < 12 else -1

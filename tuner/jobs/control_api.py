"""JSON over HTTP: what a person does to jobs that exist: pause, resume, extend, order the queue; groups; the quarantine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

from django.http import Http404
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import Paged
from tuner.jobs import (
    control_services,
    groups,
    quarantine,
    selectors,
)
from tuner.jobs.create_services import EFFORTS
from tuner.models import Quarantine, TuneGroup, TuneJob
from tuner.query_api import Checked
from tuner.tuning.search.strategies import DEFAULT
from workers.list_api import PAGED, read_page, validated

CHANGE = "tuner.change_tunejob"


class TunePauseApi(APIView):
    write_permission = CHANGE

    @extend_schema(operation_id="tune_pause", request=None, responses=selectors.TuneJobJson)
    def post(self, request: Request, pk: int) -> Response:
        """Frees the worker within a second; what was measured is kept."""
        return Response(selectors.job_json(control_services.tune_pause(get_object_or_404(TuneJob, pk=pk))))


class TuneResumeApi(APIView):
    write_permission = CHANGE

    @extend_schema(operation_id="tune_resume", request=None, responses=selectors.TuneJobJson)
    def post(self, request: Request, pk: int) -> Response:
        """Back into the queue, from its rows."""
        return Response(selectors.job_json(control_services.tune_resume(get_object_or_404(TuneJob, pk=pk))))


class ExtendRequest(serializers.Serializer[None]):
    trials = serializers.IntegerField(required=False, min_value=0, help_text="more trials; seconds alone also do")
    seconds = serializers.FloatField(required=False, min_value=0, help_text="more seconds of job time; left out: in proportion")


class TuneExtendApi(APIView):
    write_permission = CHANGE

    @extend_schema(operation_id="tune_extend", request=ExtendRequest, responses=selectors.TuneJobJson)
    def post(self, request: Request, pk: int) -> Response:
        """More budget. A job that has ended goes on from its rows."""
        fields = validated(ExtendRequest, request.data)
        job = control_services.tune_extend(get_object_or_404(TuneJob, pk=pk), **fields)
        return Response(selectors.job_json(job))


class MoveRequest(serializers.Serializer[None]):
    before = serializers.IntegerField(required=False, help_text="id of a waiting job")
    after = serializers.IntegerField(required=False, help_text="id of a waiting job; neither: last")


class QueueOrderJson(TypedDict):
    """Ids of waiting jobs, the next one first."""

    queue: list[int]


class TuneMoveApi(APIView):
    write_permission = CHANGE

    @extend_schema(operation_id="tune_move", request=MoveRequest, responses=QueueOrderJson)
    def post(self, request: Request, pk: int) -> Response:
        """Put a waiting job before or after another. What then stands in front of it keeps its place."""
        fields = validated(MoveRequest, request.data)
        beside = {name: get_object_or_404(TuneJob, pk=other) for name, other in fields.items()}
        return Response({"queue": control_services.queue_move(get_object_or_404(TuneJob, pk=pk), **beside)})


class QueueJson(Paged):
    queue: list[selectors.TuneJobJson]


class QueueApi(APIView):
    write_permission = CHANGE

    @extend_schema(operation_id="queue_get", responses=QueueJson, parameters=PAGED)
    def get(self, request: Request) -> Response:
        """Waiting jobs in the order in which workers take them."""
        page = read_page(request, control_services.waiting_jobs())
        return page.answer({"queue": [selectors.job_json(job) for job in page.rows]})

    @extend_schema(operation_id="queue_by_worth", request=None, responses=QueueOrderJson)
    def post(self, request: Request) -> Response:
        """Forget the order that people made: by worth again."""
        control_services.queue_reset()
        return Response({"queue": list(control_services.waiting_jobs().values_list("pk", flat=True))})


class EffortJson(TypedDict):
    """A named budget; `plateau`: trials in a row that win nothing end the search."""

    name: str
    title: str
    trials: int
    seconds: float
    plateau: int | None
    explanation: str


class EffortsJson(TypedDict):
    efforts: list[EffortJson]


class EffortsApi(APIView):
    @extend_schema(operation_id="efforts_list", responses=EffortsJson)
    def get(self, request: Request) -> Response:
        return Response({"efforts": [{"name": name, **vars(effort)} for name, effort in EFFORTS.items()]})


class GroupShape(serializers.Serializer[None]):
    operator = serializers.CharField(max_length=60)
    shape = serializers.DictField(child=serializers.IntegerField())
    dtype = serializers.CharField(max_length=16)
    space = Checked(lambda given: isinstance(given, dict), 'an object of "parameters" and "constraints"', required=False)


class GroupRequest(serializers.Serializer[None]):
    name = serializers.CharField(max_length=120)
    shapes = GroupShape(many=True)
    device = serializers.CharField(max_length=140)
    strategy = serializers.CharField(max_length=40, default=DEFAULT)
    effort = serializers.CharField(max_length=16, required=False, default="")
    budget_trials = serializers.IntegerField(required=False, help_text="of each shape")
    budget_seconds = serializers.FloatField(required=False, help_text="of each shape")
    plateau = serializers.IntegerField(required=False)
    ceiling_pct = serializers.FloatField(required=False, allow_null=True,
                                         help_text="a best that reaches so many percent of the ceiling ends the search")
    timing = serializers.CharField(max_length=8, default="cold", help_text="cold (L2 flushed), warm, or graph (of launches)")
    seed = serializers.IntegerField(default=0)


class GroupsJson(Paged):
    groups: list[groups.GroupJson]


class GroupListApi(APIView):
    write_permission = "tuner.add_tunejob"

    @extend_schema(operation_id="groups_list", responses=GroupsJson, parameters=PAGED)
    def get(self, request: Request) -> Response:
        """Newest first."""
        page = read_page(request, TuneGroup.objects.select_related("owner").prefetch_related("jobs"))
        return page.answer({"groups": [groups.group_json(group) for group in page.rows]})

    @extend_schema(operation_id="group_create", request=GroupRequest, responses={201: groups.GroupJson})
    def post(self, request: Request) -> Response:
        """Many shapes as one order; each is a job of its own and starts from what the others found."""
        fields = validated(GroupRequest, request.data)
        group = groups.group_create(owner=request.user, **fields)
        return Response(groups.group_json(group), status=201)


ACTIONS: dict[str, Callable[[TuneGroup], None]] = {
    "stop": groups.group_stop, "pause": groups.group_pause, "resume": groups.group_resume}


class GroupApi(APIView):
    @extend_schema(operation_id="group_get", responses=groups.GroupJson)
    def get(self, request: Request, pk: int) -> Response:
        return Response(groups.group_json(get_object_or_404(TuneGroup, pk=pk)))


class GroupActionApi(APIView):
    write_permission = CHANGE

    @extend_schema(operation_id="group_action", request=None, responses=groups.GroupJson)
    def post(self, request: Request, pk: int, action: str) -> Response:
        """stop, pause or resume every job of the group that has not ended."""
        if action not in ACTIONS:
            raise Http404(f"choose one of {', '.join(ACTIONS)}")
        group = get_object_or_404(TuneGroup, pk=pk)
        ACTIONS[action](group)
        return Response(groups.group_json(group))


class QuarantinesJson(Paged):
    total: int
    quarantine: list[quarantine.QuarantineJson]


class QuarantineListApi(APIView):
    @extend_schema(operation_id="quarantine_list", responses=QuarantinesJson, parameters=[
        OpenApiParameter("operator", str), OpenApiParameter("reason", str), OpenApiParameter("gpu", str), *PAGED])
    def get(self, request: Request) -> Response:
        """In force first, then what was lifted."""
        filters: dict[str, Any] = {name: request.query_params.get(name, "") for name in ("operator", "reason", "gpu")}
        page = read_page(request, quarantine.quarantine_list(filters))
        return page.answer({"total": page.count, "quarantine": [quarantine.quarantine_json(row) for row in page.rows]})


class QuarantineLiftApi(APIView):
    write_permission = CHANGE

    @extend_schema(operation_id="quarantine_lift", request=None, responses=quarantine.QuarantineJson)
    def post(self, request: Request, pk: int) -> Response:
        """Workers may run it again; where it fails again, it comes back."""
        row = quarantine.quarantine_lift(get_object_or_404(Quarantine, pk=pk), request.user)
        return Response(quarantine.quarantine_json(row))

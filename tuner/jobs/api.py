"""JSON over HTTP: tune jobs and their trials."""

from __future__ import annotations

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tuner import texts
from tuner.jobs import selectors, services
from tuner.models import TuneJob
from tuner.operators import find
from tuner.query_api import whole
from tuner.strategies import DEFAULT

JSON = OpenApiTypes.OBJECT
LIST_LIMIT = 200
TRIALS_LIMIT = 5000


class TuneRequest(serializers.Serializer):
    """What a job needs; the same checks as on the page."""

    operator = serializers.CharField(max_length=60)
    shape = serializers.DictField(child=serializers.IntegerField())
    dtype = serializers.CharField(max_length=16, required=False)
    device = serializers.CharField(
        max_length=120, help_text='"gpu", one model ("gpu:NVIDIA H200"), or "replay:" and the stem of a recorded landscape')
    strategy = serializers.CharField(max_length=40, default=DEFAULT)
    effort = serializers.CharField(max_length=16, required=False, help_text="a preset; gives the numbers that are not given")
    budget_trials = serializers.IntegerField(required=False, help_text="without an effort: 120")
    budget_seconds = serializers.FloatField(required=False, help_text="without an effort: 600")
    plateau = serializers.IntegerField(required=False, help_text="trials in a row that win nothing end the search")
    first = serializers.ListField(child=serializers.DictField(), required=False, help_text="configurations tried first")
    only = serializers.ListField(child=serializers.DictField(), required=False, help_text="measure these, search nothing")
    timing = serializers.CharField(max_length=8, default="cold", help_text="cold (L2 flushed), warm, or graph (of launches)")
    seed = serializers.IntegerField(default=0)


class TuneListApi(APIView):
    write_permission = "tuner.add_tunejob"

    @extend_schema(operation_id="tune_list", responses=JSON, parameters=[
        OpenApiParameter("limit", int), OpenApiParameter("offset", int), OpenApiParameter("status", str),
        OpenApiParameter("operator", str)])
    def get(self, request: Request) -> Response:
        """Newest first."""
        jobs = selectors.job_list()
        for name in ("status", "operator"):
            if request.query_params.get(name):
                jobs = jobs.filter(**{name: request.query_params[name]})
        limit, offset = whole(request, "limit", 50, LIST_LIMIT), whole(request, "offset", 0, 10**9)
        page = [selectors.job_json(job) for job in jobs[offset:offset + limit]]
        return Response({"total": jobs.count(), "jobs": page})

    @extend_schema(operation_id="tune_create", request=TuneRequest, responses={201: JSON})
    def post(self, request: Request) -> Response:
        asked = TuneRequest(data=request.data)
        asked.is_valid(raise_exception=True)
        given: dict[str, Any] = dict(asked.validated_data)
        if "dtype" not in given:
            operator = find(given["operator"])
            given["dtype"] = operator.dtypes[0] if operator else ""
        if not given.get("effort"):
            given = {"budget_trials": 120, "budget_seconds": 600.0, **given}
        try:
            job = services.tune_create(owner=request.user, **given)
        except services.TuneError as error:
            raise ValidationError({name: [problem] for name, problem in error.fields.items()}) from error
        return Response(selectors.job_json(job), status=201)


class TuneApi(APIView):
    @extend_schema(operation_id="tune_get", responses=JSON)
    def get(self, request: Request, pk: int) -> Response:
        job = get_object_or_404(TuneJob, pk=pk)
        return Response({**selectors.job_json(job), "failures": selectors.failures(job),
                         "triton": texts.triton_config(job.best_config)})


class TrialListApi(APIView):
    @extend_schema(operation_id="tune_trials", responses=JSON, parameters=[
        OpenApiParameter("after", int, description="only trials with a greater number"),
        OpenApiParameter("limit", int)])
    def get(self, request: Request, pk: int) -> Response:
        """In the order in which they were known. `next_after` is null when there are no more."""
        job = get_object_or_404(TuneJob, pk=pk)
        after = whole(request, "after", -1, 10**9, low=-1)
        limit = whole(request, "limit", TRIALS_LIMIT, TRIALS_LIMIT, low=1)
        rows = list(selectors.trial_list(job, after)[:limit + 1])
        trials = [selectors.trial_json(row) for row in rows[:limit]]
        return Response({"job": pk, "status": job.status, "trials": trials,
                         "next_after": trials[-1]["number"] if len(rows) > limit else None})


class TuneStopApi(APIView):
    write_permission = "tuner.change_tunejob"

    @extend_schema(operation_id="tune_stop", request=None, responses=JSON)
    def post(self, request: Request, pk: int) -> Response:
        return Response(selectors.job_json(services.tune_stop(get_object_or_404(TuneJob, pk=pk))))

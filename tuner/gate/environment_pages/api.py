"""JSON over HTTP: effects of builds and environments, re-validation after a new environment, and bisect plans."""

from __future__ import annotations

from typing import TypedDict

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tuner.gate.environments import bisect_services, observation_selectors, selectors
from tuner.models import GpuEnvironment, Suite
from tuner.revalidation import policy_services, search_services
from tuner.revalidation.policy_services import environment_forget
from workers.list_api import validated

BISECT = [OpenApiParameter("suite", str, required=True, description="its name"),
          OpenApiParameter("kernel", str, required=True, description="key of one of its kernels"),
          OpenApiParameter("gpu", str, description="model; without it that of the newest run"),
          OpenApiParameter("good", str, description="a build that is known to be fast"),
          OpenApiParameter("bad", str, description="a build that is known to be slow"),
          OpenApiParameter("at_once", int, description=f"builds to measure in a round, 1 to {bisect_services.MOST_AT_ONCE}")]


class EnvironmentsJson(policy_services.OverviewJson):
    """What was seen on GPUs, and re-validation."""

    searches: search_services.SearchesJson


class SuiteEnvironmentsJson(selectors.PictureJson, EnvironmentsJson):
    """The same with a suite's effects; `runs`: how many of each kind there are, `recorded`: which were read."""

    suite: str
    runs: dict[str, int]
    recorded: bool


class ForgottenJson(TypedDict):
    forgotten: str
    verified: int


class JobsJson(TypedDict):
    jobs: list[int]


class EnvironmentsApi(APIView):
    @extend_schema(operation_id="environments_get", responses=EnvironmentsJson | SuiteEnvironmentsJson, parameters=[
        OpenApiParameter("suite", str, description="its name; without it: what was seen on GPUs, and re-validation, alone"),
        OpenApiParameter("kernel", str), OpenApiParameter("runs", str, enum=["measured", "recorded"])])
    def get(self, request: Request) -> Response:
        """Effects of build, CUDA, Triton, driver and GPU with intervals; who made a kernel slower; compiled code beside it."""
        query = request.query_params
        answer = {**policy_services.overview_json(policy_services.overview()),
                  "searches": search_services.overview_json(search_services.overview())}
        if not query.get("suite"):
            return Response(answer)
        suite = get_object_or_404(Suite, name=query.get("suite", ""))
        runs = query.get("runs", "")
        if runs not in ("", "measured", "recorded"):
            raise ValidationError({"runs": ["measured or recorded"]})
        kernel = query.get("kernel", "")
        if kernel and not suite.kernels.filter(key=kernel).exists():
            raise ValidationError({"kernel": [f"{suite.name} has no such kernel"]})
        counts = observation_selectors.runs_by_kind(suite)
        recorded = observation_selectors.reads_recorded(counts, runs)
        picture = selectors.load_picture(suite, kernel=kernel, recorded=recorded)
        return Response({**answer, "suite": suite.name, "runs": counts, "recorded": recorded, **selectors.picture_json(picture)})


class EnvironmentApi(APIView):
    write_permission = "tuner.change_revalidationpolicy"

    @extend_schema(operation_id="environment_forget", responses={200: ForgottenJson})
    def delete(self, request: Request, pk: int) -> Response:
        """Forget that a GPU model ran with a toolkit and driver; `verified`: entries of which it alone was the doubt."""
        environment = get_object_or_404(GpuEnvironment, pk=pk)
        return Response({"forgotten": str(environment), "verified": environment_forget(environment, request.user)})


class PolicyRequest(serializers.Serializer[None]):
    by_itself = serializers.BooleanField()
    most_entries = serializers.IntegerField(required=False)
    most_seconds = serializers.FloatField(required=False)


class RevalidationPolicyApi(APIView):
    write_permission = "tuner.change_revalidationpolicy"

    @extend_schema(operation_id="environments_policy", request=PolicyRequest, responses=policy_services.OverviewJson)
    def put(self, request: Request) -> Response:
        """Whether doubtful winners are measured again by themselves, and at most how many and how long for each environment."""
        policy_services.set_policy(by=request.user, **validated(PolicyRequest, request.data))
        return Response(policy_services.overview_json(policy_services.overview()))


class SearchesRequest(serializers.Serializer[None]):
    searches = serializers.BooleanField()
    most_searches = serializers.IntegerField(required=False)
    search_seconds = serializers.FloatField(required=False)
    from_hour = serializers.IntegerField(required=False, help_text="UTC, 0 to 23")
    until_hour = serializers.IntegerField(required=False, help_text="UTC, 1 to 24; 22 to 6 goes over midnight, 0 to 24 is always")


class SearchesPolicyApi(APIView):
    write_permission = "tuner.change_revalidationpolicy"

    @extend_schema(operation_id="environments_searches", request=SearchesRequest, responses=search_services.SearchesJson)
    def put(self, request: Request) -> Response:
        """Whether the hottest configurations are searched again under a new toolkit, how many, how long and at what hours."""
        search_services.set_searches(by=request.user, **validated(SearchesRequest, request.data))
        return Response(search_services.overview_json(search_services.overview()))


class EnvironmentsRevalidateApi(APIView):
    write_permission = "tuner.add_tunejob"

    @extend_schema(operation_id="environments_revalidate", request=None, responses={201: JobsJson})
    def post(self, request: Request) -> Response:
        """Queue jobs for the hottest winners that a new environment made doubtful."""
        return Response({"jobs": [job.pk for job in policy_services.revalidate_now(request.user)]}, status=201)


class BisectRequest(serializers.Serializer[None]):
    """Without `builds`: those that the plan names."""

    suite = serializers.CharField(max_length=60)
    kernel = serializers.CharField(max_length=300)
    gpu = serializers.CharField(max_length=120, required=False, default="", allow_blank=True)
    builds = serializers.ListField(child=serializers.CharField(max_length=80), required=False, default=list, max_length=50)
    runs = serializers.IntegerField(required=False, min_value=1, max_value=200)


class BisectJobJson(TypedDict):
    job: int
    builds: list[str]


class BisectApi(APIView):
    write_permission = "tuner.add_suitejob"

    @extend_schema(operation_id="builds_bisect", responses=bisect_services.BisectJson, parameters=BISECT)
    def get(self, request: Request) -> Response:
        """Which builds to measure next to find the one that made this kernel slower."""
        query = request.query_params
        for name in ("suite", "kernel"):
            if not query.get(name):
                raise ValidationError({name: ["name it"]})
        at_once = query.get("at_once", "1")
        if not (at_once.isascii() and at_once.isdecimal() and len(at_once) < 4
                and 1 <= int(at_once) <= bisect_services.MOST_AT_ONCE):
            raise ValidationError({"at_once": [f"a whole number from 1 to {bisect_services.MOST_AT_ONCE}"]})
        suite = get_object_or_404(Suite, name=query.get("suite", ""))
        try:
            bisect = bisect_services.plan_bisect(suite, at_once=int(at_once), kernel_key=query.get("kernel", ""),
                                                 **{name: query.get(name, "") for name in ("gpu", "good", "bad")})
        except LookupError as error:
            raise NotFound(str(error)) from error
        return Response(bisect_services.bisect_json(bisect))

    @extend_schema(operation_id="builds_bisect_measure", request=BisectRequest, responses={201: BisectJobJson})
    def post(self, request: Request) -> Response:
        """Queue fresh runs of the builds that the plan names, interleaved."""
        fields = validated(BisectRequest, request.data)
        suite = get_object_or_404(Suite, name=fields["suite"])
        try:
            builds = fields["builds"] or bisect_services.plan_bisect(suite, fields["kernel"], gpu=fields["gpu"]).plan.measure
            if not builds:
                raise ValidationError({"builds": ["the plan names no build to measure"]})
            job = bisect_services.measure_bisect(suite, fields["kernel"], builds, request.user, gpu=fields["gpu"],
                                                 runs=fields.get("runs"))
        except LookupError as error:
            raise NotFound(str(error)) from error
        return Response({"job": job.pk, "builds": list(builds)}, status=201)

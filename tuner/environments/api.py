"""JSON over HTTP: effects of builds and environments, re-validation after a new environment, and bisect plans."""

from __future__ import annotations

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tuner.environments import bisect_selectors, bisect_services, observation_selectors, revalidation_selectors, selectors, services
from tuner.models import Suite
from tuner.suites.errors import SuiteError

JSON = OpenApiTypes.OBJECT
BISECT = [OpenApiParameter("suite", str, required=True, description="its name"),
          OpenApiParameter("kernel", str, required=True, description="key of one of its kernels"),
          OpenApiParameter("gpu", str, description="model; without it that of the newest run"),
          OpenApiParameter("good", str, description="a build that is known to be fast"),
          OpenApiParameter("bad", str, description="a build that is known to be slow"),
          OpenApiParameter("at_once", int, description=f"builds to measure in a round, 1 to {bisect_selectors.MOST_AT_ONCE}")]


class EnvironmentsApi(APIView):
    @extend_schema(operation_id="environments_get", responses=JSON, parameters=[
        OpenApiParameter("suite", str, description="its name; without it: what was seen on GPUs, and re-validation, alone"),
        OpenApiParameter("kernel", str), OpenApiParameter("runs", str, enum=["measured", "recorded"])])
    def get(self, request: Request) -> Response:
        """Effects of build, CUDA, Triton, driver and GPU with intervals; who made a kernel slower; compiled code beside it."""
        query = request.query_params
        told = revalidation_selectors.overview_json(revalidation_selectors.overview())
        if not query.get("suite"):
            return Response(told)
        suite = get_object_or_404(Suite, name=query.get("suite", ""))
        runs = query.get("runs", "")
        if runs not in ("", "measured", "recorded"):
            raise ValidationError({"runs": ["measured or recorded"]})
        kernel = query.get("kernel", "")
        if kernel and not suite.kernels.filter(key=kernel).exists():
            raise ValidationError({"kernel": [f"{suite.name} has no such kernel"]})
        counts = observation_selectors.kinds(suite)
        recorded = runs == "recorded" or (not runs and not counts["measured"] and bool(counts["recorded"]))
        found = selectors.picture(suite, kernel=kernel, recorded=recorded)
        return Response({**told, "suite": suite.name, "runs": counts, "recorded": recorded, **selectors.picture_json(found)})


class PolicyRequest(serializers.Serializer):
    by_itself = serializers.BooleanField()
    most_entries = serializers.IntegerField(required=False)
    most_seconds = serializers.FloatField(required=False)


class RevalidationPolicyApi(APIView):
    write_permission = "tuner.change_revalidationpolicy"

    @extend_schema(operation_id="environments_policy", request=PolicyRequest, responses=JSON)
    def put(self, request: Request) -> Response:
        """Whether doubtful winners are measured again by themselves, and at most how many and how long for each environment."""
        asked = PolicyRequest(data=request.data)
        asked.is_valid(raise_exception=True)
        try:
            services.policy_set(by=request.user, **asked.validated_data)
        except services.PolicyRefused as error:
            raise ValidationError({name: [problem] for name, problem in error.fields.items()}) from error
        return Response(revalidation_selectors.overview_json(revalidation_selectors.overview()))


class EnvironmentsRevalidateApi(APIView):
    write_permission = "tuner.add_tunejob"

    @extend_schema(operation_id="environments_revalidate", request=None, responses={201: JSON})
    def post(self, request: Request) -> Response:
        """Queue jobs for the hottest winners that a new environment made doubtful."""
        return Response({"jobs": [job.pk for job in services.revalidate_now(request.user)]}, status=201)


class BisectRequest(serializers.Serializer):
    """Without `builds`: those that the plan names."""

    suite = serializers.CharField(max_length=60)
    kernel = serializers.CharField(max_length=300)
    gpu = serializers.CharField(max_length=120, required=False, default="", allow_blank=True)
    builds = serializers.ListField(child=serializers.CharField(max_length=80), required=False, default=list, max_length=50)
    runs = serializers.IntegerField(required=False, min_value=1, max_value=200)


class BisectApi(APIView):
    write_permission = "tuner.add_suitejob"

    @extend_schema(operation_id="builds_bisect", responses=JSON, parameters=BISECT)
    def get(self, request: Request) -> Response:
        """Which builds to measure next to find the one that made this kernel slower."""
        query = request.query_params
        for name in ("suite", "kernel"):
            if not query.get(name):
                raise ValidationError({name: ["name it"]})
        at_once = query.get("at_once", "1")
        if not (at_once.isascii() and at_once.isdecimal() and len(at_once) < 4
                and 1 <= int(at_once) <= bisect_selectors.MOST_AT_ONCE):
            raise ValidationError({"at_once": [f"a whole number from 1 to {bisect_selectors.MOST_AT_ONCE}"]})
        suite = get_object_or_404(Suite, name=query.get("suite", ""))
        try:
            found = bisect_selectors.bisect(suite, query.get("kernel", ""), gpu=query.get("gpu", ""), good=query.get("good", ""),
                                            bad=query.get("bad", ""), at_once=int(at_once))
        except LookupError as error:
            raise NotFound(str(error)) from error
        return Response(bisect_selectors.bisect_json(found))

    @extend_schema(operation_id="builds_bisect_measure", request=BisectRequest, responses={201: JSON})
    def post(self, request: Request) -> Response:
        """Queue fresh runs of the builds that the plan names, interleaved."""
        asked = BisectRequest(data=request.data)
        asked.is_valid(raise_exception=True)
        wanted: dict[str, Any] = asked.validated_data
        suite = get_object_or_404(Suite, name=wanted["suite"])
        try:
            builds = wanted["builds"] or bisect_selectors.plan(suite, wanted["kernel"], gpu=wanted["gpu"]).measure
            if not builds:
                raise ValidationError({"builds": ["the plan names no build to measure"]})
            job = bisect_services.bisect_measure(suite, wanted["kernel"], builds, request.user, gpu=wanted["gpu"],
                                                 runs=wanted.get("runs"))
        except LookupError as error:
            raise NotFound(str(error)) from error
        except SuiteError as error:
            raise ValidationError({name or "suite": [problem] for name, problem in error.fields.items()}) from error
        return Response({"job": job.pk, "builds": list(builds)}, status=201)

"""JSON over HTTP: hardware counters and timelines of a suite's kernels in two builds, there or asked for."""

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

from tuner.suites import counter_selectors, counter_services, selectors, services
from tuner.suites.api import refused, suite_of
from tuner.suites.body_api import SmallJsonParser
from tuner.trial import storable

JSON = OpenApiTypes.OBJECT


class Names(serializers.ListField):
    child = serializers.CharField(max_length=300)


class CountersRequest(serializers.Serializer):
    kernels = Names(allow_empty=False, max_length=counter_services.MOST_KERNELS, help_text="keys of the suite's kernels")
    builds = Names(allow_empty=False, max_length=counter_services.MOST_BUILDS, help_text="names; each has runs of these kernels")


class SuiteCountersApi(APIView):
    write_permission = "tuner.add_suitejob"
    parser_classes = [SmallJsonParser]

    @extend_schema(operation_id="suite_counters", responses=JSON, parameters=[
        OpenApiParameter("kernel", str, required=True, description="key"),
        OpenApiParameter("baseline", str, required=True), OpenApiParameter("build", str, required=True)])
    def get(self, request: Request, name: str) -> Response:
        """Both builds beside each other, why the newer one takes another time, the captures, or why there are none."""
        suite = suite_of(name)
        asked = {field: request.query_params.get(field, "") for field in ("kernel", "baseline", "build")}
        wrong = {field: ["name one"] for field, value in asked.items() if not value or not storable(value)}
        if wrong:
            raise ValidationError(wrong)
        kernel = get_object_or_404(suite.kernels.select_related("suite"), key=asked["kernel"])
        return Response(counter_selectors.counters_json(
            counter_selectors.counters_of(kernel, asked["baseline"], asked["build"])))

    @extend_schema(operation_id="suite_counters_capture", request=CountersRequest, responses={201: JSON})
    def post(self, request: Request, name: str) -> Response:
        """Queue a capture of these kernels for each build: everything ncu can count, and a timeline."""
        asked = CountersRequest(data=request.data)
        asked.is_valid(raise_exception=True)
        given: dict[str, Any] = asked.validated_data
        try:
            job = counter_services.counters_ask(suite_of(name), given["kernels"], given["builds"], owner=request.user)
        except services.SuiteError as error:
            raise refused(error) from error
        return Response(selectors.job_json(job), status=201)

"""JSON over HTTP: fresh runs, stored or measured by CI; hardware counters of a suite's kernels in two builds."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import Paged
from tuner.gate.suite_pages.api import (
    LIST_LIMIT,
    WHERE,
    BoundedJsonParser,
    GzipParser,
    JsonLinesParser,
    RawParser,
    SmallJsonParser,
    find_suite,
)
from tuner.gate.suites import counters, selectors
from tuner.gate.suites.upload_services import StoredRuns
from tuner.gate.verdicts import services as gate_services
from tuner.models import Suite
from tuner.query_api import Checked, is_text
from tuner.tuning.trial import storable
from workers.list_api import PAGED, read_page, validated


def named_suite(name: Any) -> Suite:
    """Of a request's field: a name that nobody has is the request's mistake."""
    suite = selectors.suite_list().filter(name=name).first() if isinstance(name, str) and storable(name) else None
    if suite is None:
        names = ", ".join(Suite.objects.values_list("name", flat=True)[:20])
        raise ValidationError({"suite": [f"no suite of this name; there are {names or 'none yet'}"]})
    return suite


class RunsRequest(serializers.Serializer[None]):
    """Runs that CI measured itself, and what it says of all of them."""

    suite = serializers.JSONField(default="", allow_null=True)      # type: ignore[arg-type]    # the stub takes objects alone
    build = Checked(lambda value: isinstance(value, str), "a git sha or a name", default="")
    gpu = Checked(is_text, "text", required=False)
    toolkit = Checked(is_text, "text", required=False)
    driver = Checked(is_text, "text", required=False)
    recorded = Checked(is_text, "text", required=False)
    shard = Checked(is_text, "i/n: one of n jobs that measure parts of the build", required=False)
    attempt = Checked(is_text, "the pipeline's job and try: in another one the same names are other processes", required=False)
    environment = Checked(lambda value: isinstance(value, dict), "a table: cuda, triton, driver …", required=False)
    runs = Checked(lambda value: isinstance(value, list | bytes), "a list of runs in the format of timing_runs.jsonl")

    def to_internal_value(self, data: Any) -> Any:
        if unknown := {name: ["unknown; see /api/docs/"] for name in data if name not in self.fields}:
            raise ValidationError(unknown)
        return super().to_internal_value(data)


class RunsJson(Paged):
    total: int
    runs: list[selectors.RunJson]


class RunsApi(APIView):
    write_permission = "tuner.add_kernelrun"
    parser_classes = [BoundedJsonParser, JsonLinesParser, GzipParser, RawParser]

    @extend_schema(operation_id="runs_list", responses=RunsJson, parameters=[
        OpenApiParameter("suite", str, required=True), OpenApiParameter("kernel", str), OpenApiParameter("build", str), *WHERE,
        OpenApiParameter("samples", bool, description="with every sample"), *PAGED])
    def get(self, request: Request) -> Response:
        """Fresh runs of a suite, newest first."""
        query = request.query_params
        rows = selectors.runs_filter(find_suite(query.get("suite", "")), query)
        with_samples = query.get("samples", "") in ("1", "true")
        page = read_page(request, rows if with_samples else rows.defer("us"), LIST_LIMIT)
        return page.answer({"total": page.count, "runs": [selectors.run_json(row, with_samples) for row in page.rows]})

    @extend_schema(operation_id="runs_store", request=RunsRequest, responses={201: StoredRuns})
    def post(self, request: Request) -> Response:
        """Runs that CI measured itself: {"suite", "build", "gpu", "toolkit"?, "driver"?, "environment"?, "recorded"?, "shard"?,
        "attempt"?, "runs"}.

        Or the lines alone as the body (application/x-ndjson, application/gzip), with the rest in the query.
        """
        if not isinstance(request.data, dict | bytes):
            raise ValidationError({"runs": ['a JSON object with suite, build, gpu and "runs", or JSON lines']})
        body = request.data if isinstance(request.data, dict) else {**request.query_params.dict(), "runs": request.data}
        given = validated(RunsRequest, body)
        stored = gate_services.upload_runs(named_suite(given.pop("suite")), records=given.pop("runs"), owner=request.user, **given)
        return Response(asdict(stored), status=201)


class Names(serializers.ListField):
    child = serializers.CharField(max_length=300)


class CountersRequest(serializers.Serializer[None]):
    kernels = Names(allow_empty=False, max_length=counters.MOST_KERNELS, help_text="keys of the suite's kernels")
    builds = Names(allow_empty=False, max_length=counters.MOST_BUILDS, help_text="names; each has runs of these kernels")


class SuiteCountersApi(APIView):
    write_permission = "tuner.add_suitejob"
    parser_classes = [SmallJsonParser]

    @extend_schema(operation_id="suite_counters", responses=counters.SuiteCountersJson, parameters=[
        OpenApiParameter("kernel", str, required=True, description="key"),
        OpenApiParameter("baseline", str, required=True), OpenApiParameter("build", str, required=True)])
    def get(self, request: Request, name: str) -> Response:
        """Both builds beside each other, why the newer one takes another time, the captures, or why there are none."""
        suite = find_suite(name)
        query = {field: request.query_params.get(field, "") for field in ("kernel", "baseline", "build")}
        wrong = {field: ["name one"] for field, value in query.items() if not value or not storable(value)}
        if wrong:
            raise ValidationError(wrong)
        kernel = get_object_or_404(suite.kernels.select_related("suite"), key=query["kernel"])
        return Response(counters.counters_json(
            counters.kernel_counters(kernel, query["baseline"], query["build"])))

    @extend_schema(operation_id="suite_counters_capture", request=CountersRequest, responses={201: selectors.SuiteJobJson})
    def post(self, request: Request, name: str) -> Response:
        """Queue a capture of these kernels for each build: everything ncu can count, and a timeline."""
        fields = validated(CountersRequest, request.data)
        job = counters.request_counters(find_suite(name), **fields, owner=request.user)
        return Response(selectors.job_json(job), status=201)

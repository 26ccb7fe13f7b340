"""JSON over HTTP: suites, and the orders to measure them. Bodies (JSON, TOML, lines of runs) are read up to a limit."""

from __future__ import annotations

import io
from typing import Any

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.parsers import BaseParser, JSONParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import Paged
from profiles.base.refused import Refused
from tuner.gate.builds.selectors import ENVIRONMENT
from tuner.gate.stats.plan import Plan
from tuner.gate.suite_pages import calibration_selectors, page_selectors
from tuner.gate.suites import job_services, records, selectors, suite_services
from tuner.gate.suites.definition import DefinitionJson, definition_document, read_definition
from tuner.gate.suites.formats import definition_toml, read_toml
from tuner.gate.verdicts import services as gate_services
from tuner.models import Suite, SuiteJob
from tuner.query_api import Checked
from workers.list_api import PAGED, read_page, validated


class RawParser(BaseParser):
    """The body as bytes, up to a limit: whoever takes it checks what it is."""

    media_type = "application/octet-stream"
    most = records.MAX_BYTES

    def parse(      # type: ignore[override]    # DRF takes what a parser makes, the stub knows forms alone
            self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> bytes:
        data = bytes(stream.read(self.most + 1))
        if len(data) > self.most:
            raise ValidationError({"runs": [f"more than {self.most >> 20} MiB; send them in parts"]})
        return data


class JsonLinesParser(RawParser):
    media_type = "application/x-ndjson"


class GzipParser(RawParser):
    media_type = "application/gzip"


class TomlParser(RawParser):
    media_type = "application/toml"
    most = 2**20


class BoundedJsonParser(JSONParser):
    """JSON up to a limit: a document is held whole while it is checked."""

    most = records.MAX_BYTES

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        data = stream.read(self.most + 1)
        if len(data) > self.most:
            raise ValidationError({"body": [f"more than {self.most >> 20} MiB"]})
        return super().parse(io.BytesIO(data), media_type, parser_context)


class SmallJsonParser(BoundedJsonParser):
    most = 2**20


JSON = OpenApiTypes.OBJECT
LIST_LIMIT = 200
WHERE = [OpenApiParameter(name, str) for name in ENVIRONMENT]


def find_suite(name: str) -> Suite:
    """By name, or by number."""
    by_number = name.isdecimal() and len(name) < 18 and not Suite.objects.filter(name=name).exists()
    return get_object_or_404(selectors.suite_list(), **{"pk": int(name)} if by_number else {"name": name})


class SuiteLineJson(selectors.SuiteJson):
    kernel_count: int
    newest_run: str | None
    job: int | None                     # under way


class SuitesJson(Paged):
    suites: list[SuiteLineJson]


class PutSuiteJson(selectors.SuiteJson):
    """A suite that was made or changed; `kernels`: key → added, changed, removed or switched off."""

    made: bool
    changed_fields: list[str]
    says: str
    kernels: dict[str, str]
    plan: Plan


class SuiteListApi(APIView):
    write_permission = "tuner.add_suite"
    parser_classes = [SmallJsonParser]

    @extend_schema(operation_id="suites_list", responses=SuitesJson, parameters=PAGED)
    def get(self, request: Request) -> Response:
        """Every suite, what it watches, and what is under way."""
        page = read_page(request, page_selectors.suites_counted())
        return page.answer({"suites": [{**selectors.suite_json(row["suite"]), "kernel_count": row["suite"].kernel_count,
                                        "newest_run": row["suite"].newest_run, "job": row["job"].pk if row["job"] else None}
                                       for row in page_selectors.suite_rows(page.rows)]})

    @extend_schema(operation_id="suite_create", request=JSON, responses={201: PutSuiteJson})
    def post(self, request: Request) -> Response:
        """A new suite: the fields of its file as JSON (docs/suites.md)."""
        return Response(_put_suite(request, request.data, new=True), status=201)


class SwitchRequest(serializers.Serializer[None]):
    enabled = Checked(lambda value: isinstance(value, bool), "true or false")


class WholeSuiteJson(selectors.SuiteJson):
    """A suite with its kernels in `environment`; `definition`: what its file would say."""

    environments: list[dict[str, str]]
    environment: dict[str, str] | None
    plan: Plan
    definition: DefinitionJson
    kernels: list[page_selectors.KernelLineJson]
    jobs: list[selectors.SuiteJobJson]


class SuiteApi(APIView):
    write_permission = "tuner.change_suite"
    parser_classes = [SmallJsonParser, TomlParser]

    @extend_schema(operation_id="suite_get", responses=WholeSuiteJson, parameters=WHERE)
    def get(self, request: Request, name: str) -> Response:
        """One suite: definition, plan, kernels with their newest runs in one environment, jobs."""
        suite = find_suite(name)
        environments, environment = page_selectors.chosen_environment(suite, request.query_params)
        return Response({**selectors.suite_json(suite), "environments": environments, "environment": environment,
                         "plan": page_selectors.plan_json(suite), "definition": definition_document(selectors.definition_of(suite)),
                         "kernels": [page_selectors.line_json(line) for line in page_selectors.kernel_lines(
                             suite.kernels.filter(enabled=True), environment)],
                         "jobs": selectors.jobs_json(selectors.jobs_of(suite)[:20])})

    @extend_schema(operation_id="suite_put", request=JSON, responses=PutSuiteJson)
    def put(self, request: Request, name: str) -> Response:
        """Make or bring in line, from JSON or from the file itself (Content-Type: application/toml). Twice changes nothing."""
        return Response(_put_suite(request, request.data, name=name))

    @extend_schema(operation_id="suite_patch", request=SwitchRequest, responses=selectors.SuiteJson)
    def patch(self, request: Request, name: str) -> Response:
        """{"enabled": false} switches a suite off: it is not measured, its runs stay."""
        suite = find_suite(name)
        suite_services.suite_switch(suite, **validated(SwitchRequest, request.data if isinstance(request.data, dict) else {}))
        return Response(selectors.suite_json(suite))

    @extend_schema(operation_id="suite_delete", responses={204: None})
    def delete(self, request: Request, name: str) -> Response:
        """With its runs and gates. For owners."""
        if not request.user.has_perm("tuner.delete_suite"):
            self.permission_denied(request)
        suite_services.suite_delete(find_suite(name))
        return Response(status=204)


def _put_suite(request: Request, document: Any, name: str = "", new: bool = False) -> PutSuiteJson:
    text = document.decode("utf-8", "replace") if isinstance(document, bytes) else ""
    if isinstance(document, dict):
        document = {**({"name": name} if name else {}), **document}
    definition = read_toml(document) if isinstance(document, bytes) else read_definition(document)
    if name and definition.name != name:
        raise Refused({"name": f"the address says {name}, the definition {definition.name}"})
    changed = suite_services.suite_put(definition, owner=request.user, text=text, new=new)
    return {**selectors.suite_json(changed.suite), "made": changed.created, "changed_fields": changed.fields, "says": changed.says,
            "kernels": changed.kernels, "plan": page_selectors.plan_json(changed.suite)}


class SuitePlanApi(APIView):
    @extend_schema(operation_id="suite_plan", responses=Plan, parameters=[
        OpenApiParameter("kernels", int, required=True), OpenApiParameter("runs", int, required=True),
        OpenApiParameter("baseline_runs", int, required=True), OpenApiParameter("alpha", float)])
    def get(self, request: Request) -> Response:
        """Would so many fresh runs be enough for a suite of so many kernels? Nothing is run for it."""
        return Response(page_selectors.plan_answer(**validated(PlanRequest, request.query_params)))


class PlanRequest(serializers.Serializer[None]):
    kernels = serializers.IntegerField(min_value=1, max_value=100_000)
    runs = serializers.IntegerField(min_value=1, max_value=200)
    baseline_runs = serializers.IntegerField(min_value=1, max_value=200)
    alpha = serializers.FloatField(min_value=1e-9, max_value=0.5, required=False)


class SuiteFileApi(APIView):
    @extend_schema(operation_id="suite_file", responses={(200, "application/toml"): OpenApiTypes.STR})
    def get(self, request: Request, name: str) -> HttpResponse:
        """The suite as the file that a team keeps in its repository."""
        text = definition_toml(selectors.definition_of(find_suite(name)))
        return HttpResponse(text, content_type="application/toml; charset=utf-8")


class WholeCalibrationJson(calibration_selectors.CalibrationJson):
    environment: dict[str, str] | None
    plan: Plan


class SuiteCalibrationApi(APIView):
    @extend_schema(operation_id="suite_calibration", responses=WholeCalibrationJson, parameters=WHERE)
    def get(self, request: Request, name: str) -> Response:
        """Identical runs against each other: share of false alarms, smallest slowdown that is seen, kernel by kernel."""
        suite = find_suite(name)
        _, environment = page_selectors.chosen_environment(suite, request.query_params)
        calibration = calibration_selectors.calibrate_suite(suite, environment)
        return Response({**calibration_selectors.calibration_json(calibration), "environment": environment,
                         "plan": page_selectors.plan_json(suite)})


class JobRequest(serializers.Serializer[None]):
    """Fresh runs of one or more builds, in turn."""

    builds = serializers.ListField(child=serializers.JSONField(), help_text='names, or {"build": name, "configs": {kernel: {…}}}')
    runs = serializers.IntegerField(required=False, help_text="of each build; left out: the suite's")
    kernels = serializers.ListField(child=serializers.CharField(max_length=300), required=False, help_text="keys; left out: all")
    device = serializers.CharField(max_length=120, required=False, allow_blank=True, help_text="left out: the suite's")


class SuiteJobsJson(Paged):
    jobs: list[selectors.SuiteJobJson]


class MeasureJson(selectors.SuiteJobJson):
    plan: Plan


class SuiteJobListApi(APIView):
    write_permission = "tuner.add_suitejob"
    parser_classes = [SmallJsonParser]

    @extend_schema(operation_id="suite_jobs", responses=SuiteJobsJson, parameters=PAGED)
    def get(self, request: Request, name: str) -> Response:
        """Newest first."""
        page = read_page(request, selectors.jobs_of(find_suite(name)), LIST_LIMIT)
        return page.answer({"jobs": selectors.jobs_json(page.rows)})

    @extend_schema(operation_id="suite_measure", request=JobRequest, responses={201: MeasureJson})
    def post(self, request: Request, name: str) -> Response:
        """Queue fresh runs."""
        suite = find_suite(name)
        fields = validated(JobRequest, request.data)
        if not all(isinstance(build, str | dict) for build in fields["builds"]):
            raise ValidationError({"builds": ["names of builds"]})
        job = job_services.job_create(suite, owner=request.user, **fields)
        return Response({**selectors.job_json(job), "plan": page_selectors.plan_json(suite)}, status=201)


class SuiteJobApi(APIView):
    @extend_schema(operation_id="suite_job", responses=selectors.SuiteJobJson)
    def get(self, request: Request, pk: int) -> Response:
        return Response(selectors.job_json(get_object_or_404(SuiteJob, pk=pk)))


class SuiteJobStopApi(APIView):
    write_permission = "tuner.change_suitejob"

    @extend_schema(operation_id="suite_job_stop", request=None, responses=selectors.SuiteJobJson)
    def post(self, request: Request, pk: int) -> Response:
        """What was measured stays."""
        gate_services.stop_job(get_object_or_404(SuiteJob, pk=pk))
        return Response(selectors.job_json(get_object_or_404(SuiteJob, pk=pk)))

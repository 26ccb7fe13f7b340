"""JSON over HTTP: suites, the orders to measure them, and runs that CI measured itself."""

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

from tuner.models import Suite, SuiteJob
from tuner.suites import calibration_selectors, control_services, page_selectors, run_selectors, selectors, services
from tuner.suites.definition import DefinitionError, read
from tuner.suites.toml import as_toml, file_read
from tuner.trial import storable

JSON = OpenApiTypes.OBJECT
LIST_LIMIT = 200
RUNS_LIMIT = 1000
WHERE = [OpenApiParameter(name, str) for name in ("gpu", "toolkit", "driver", "recorded")]


class RawParser(BaseParser):
    """The body as bytes, up to a limit: whoever takes it checks what it is."""

    media_type = "application/octet-stream"
    most = control_services.MAX_BYTES

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> bytes:
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

    most = control_services.MAX_BYTES

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        data = stream.read(self.most + 1)
        if len(data) > self.most:
            raise ValidationError({"body": [f"more than {self.most >> 20} MiB"]})
        return super().parse(io.BytesIO(data), media_type, parser_context)


class SmallJsonParser(BoundedJsonParser):
    most = 2**20


def refused(error: services.SuiteError | DefinitionError) -> ValidationError:
    return ValidationError({name or "suite": [problem] for name, problem in error.fields.items()})


def suite_of(name: str) -> Suite:
    """By name, or by number."""
    by_number = {"pk": int(name)} if name.isdecimal() and len(name) < 18 and not Suite.objects.filter(name=name).exists() else None
    return get_object_or_404(selectors.suite_list(), **(by_number or {"name": name}))


def suite_named(name: Any) -> Suite:
    """Of a request's field: a name that nobody has is the request's mistake."""
    suite = selectors.suite_list().filter(name=name).first() if isinstance(name, str) and storable(name) else None
    if suite is None:
        known = ", ".join(Suite.objects.values_list("name", flat=True)[:20])
        raise ValidationError({"suite": [f"no suite of this name; there are {known or 'none yet'}"]})
    return suite


class SuiteListApi(APIView):
    write_permission = "tuner.add_suite"
    parser_classes = [SmallJsonParser]

    @extend_schema(operation_id="suites_list", responses=JSON)
    def get(self, request: Request) -> Response:
        """Every suite, what it watches, and what is under way."""
        return Response({"suites": [{**selectors.suite_json(row["suite"]), "kernel_count": row["suite"].kernel_count,
                                     "newest_run": row["suite"].newest_run, "job": row["job"].pk if row["job"] else None}
                                    for row in page_selectors.rows()]})

    @extend_schema(operation_id="suite_create", request=JSON, responses={201: JSON})
    def post(self, request: Request) -> Response:
        """A new suite: the fields of its file as JSON (docs/suites.md)."""
        return Response(_put(request, request.data, new=True), status=201)


class SuiteApi(APIView):
    write_permission = "tuner.change_suite"
    parser_classes = [SmallJsonParser, TomlParser]

    @extend_schema(operation_id="suite_get", responses=JSON, parameters=WHERE)
    def get(self, request: Request, name: str) -> Response:
        """One suite: definition, plan, kernels with their newest runs in one environment, jobs."""
        suite = suite_of(name)
        known, environment = page_selectors.chosen_environment(suite, request.query_params)
        return Response({**selectors.suite_json(suite), "environments": known, "environment": environment,
                         "plan": page_selectors.plan_json(suite), "definition": selectors.definition_json(suite),
                         "kernels": [page_selectors.line_json(line) for line in page_selectors.kernel_lines(suite, environment)],
                         "jobs": selectors.jobs_json(suite, 20)})

    @extend_schema(operation_id="suite_put", request=JSON, responses=JSON)
    def put(self, request: Request, name: str) -> Response:
        """Make or bring in line, from JSON or from the file itself (Content-Type: application/toml). Twice changes nothing."""
        return Response(_put(request, request.data, name=name))

    @extend_schema(operation_id="suite_patch", request=JSON, responses=JSON)
    def patch(self, request: Request, name: str) -> Response:
        """{"enabled": false} switches a suite off: it is not measured, its runs stay."""
        suite, enabled = suite_of(name), request.data.get("enabled") if isinstance(request.data, dict) else None
        if not isinstance(enabled, bool):
            raise ValidationError({"enabled": ["true or false"]})
        services.suite_switch(suite, enabled)
        return Response(selectors.suite_json(suite))

    @extend_schema(operation_id="suite_delete", responses={204: None})
    def delete(self, request: Request, name: str) -> Response:
        """With its runs and gates. For owners."""
        if not request.user.has_perm("tuner.delete_suite"):
            self.permission_denied(request)
        try:
            services.suite_delete(suite_of(name))
        except services.SuiteError as error:
            raise refused(error) from error
        return Response(status=204)


def _put(request: Request, document: Any, name: str = "", new: bool = False) -> dict[str, Any]:
    try:
        text = document.decode("utf-8", "replace") if isinstance(document, bytes) else ""
        if isinstance(document, dict):
            document = {**({"name": name} if name else {}), **document}
        definition = file_read(document) if isinstance(document, bytes) else read(document)
        if name and definition.name != name:
            raise ValidationError({"name": [f"the address says {name}, the definition {definition.name}"]})
        changed = services.suite_put(definition, owner=request.user, text=text, new=new)
    except (DefinitionError, services.SuiteError) as error:
        raise refused(error) from error
    return {**selectors.suite_json(changed.suite), "made": changed.created, "changed_fields": changed.fields, "says": changed.says,
            "kernels": changed.kernels, "plan": page_selectors.plan_json(changed.suite)}


class SuitePlanApi(APIView):
    @extend_schema(operation_id="suite_plan", responses=JSON, parameters=[
        OpenApiParameter("kernels", int, required=True), OpenApiParameter("runs", int, required=True),
        OpenApiParameter("baseline_runs", int, required=True), OpenApiParameter("alpha", float)])
    def get(self, request: Request) -> Response:
        """Would so many fresh runs be enough for a suite of so many kernels? Nothing is run for it."""
        asked = PlanRequest(data=request.query_params)
        asked.is_valid(raise_exception=True)
        return Response(page_selectors.plan_asked(**asked.validated_data))


class PlanRequest(serializers.Serializer):
    kernels = serializers.IntegerField(min_value=1, max_value=100_000)
    runs = serializers.IntegerField(min_value=1, max_value=200)
    baseline_runs = serializers.IntegerField(min_value=1, max_value=200)
    alpha = serializers.FloatField(min_value=1e-9, max_value=0.5, required=False)


class SuiteFileApi(APIView):
    @extend_schema(operation_id="suite_file", responses={(200, "application/toml"): OpenApiTypes.STR})
    def get(self, request: Request, name: str) -> HttpResponse:
        """The suite as the file that a team keeps in its repository."""
        return HttpResponse(as_toml(services.definition_of(suite_of(name))), content_type="application/toml; charset=utf-8")


class SuiteCalibrationApi(APIView):
    @extend_schema(operation_id="suite_calibration", responses=JSON, parameters=WHERE)
    def get(self, request: Request, name: str) -> Response:
        """Identical runs against each other: share of false alarms, smallest slowdown that is seen, kernel by kernel."""
        suite = suite_of(name)
        _, environment = page_selectors.chosen_environment(suite, request.query_params)
        found = calibration_selectors.calibration(suite, environment)
        return Response({**calibration_selectors.calibration_json(found), "environment": environment,
                         "plan": page_selectors.plan_json(suite)})


class JobRequest(serializers.Serializer):
    """Fresh runs of one or more builds, in turn."""

    builds = serializers.ListField(child=serializers.JSONField(), help_text='names, or {"build": name, "configs": {kernel: {…}}}')
    runs = serializers.IntegerField(required=False, help_text="of each build; left out: the suite's")
    kernels = serializers.ListField(child=serializers.CharField(max_length=300), required=False, help_text="keys; left out: all")
    device = serializers.CharField(max_length=120, required=False, allow_blank=True, help_text="left out: the suite's")


class SuiteJobListApi(APIView):
    write_permission = "tuner.add_suitejob"
    parser_classes = [SmallJsonParser]

    @extend_schema(operation_id="suite_jobs", responses=JSON)
    def get(self, request: Request, name: str) -> Response:
        """Newest first."""
        return Response({"jobs": selectors.jobs_json(suite_of(name), LIST_LIMIT)})

    @extend_schema(operation_id="suite_measure", request=JobRequest, responses={201: JSON})
    def post(self, request: Request, name: str) -> Response:
        """Queue fresh runs."""
        suite = suite_of(name)
        asked = JobRequest(data=request.data)
        asked.is_valid(raise_exception=True)
        given: dict[str, Any] = dict(asked.validated_data)
        if not all(isinstance(each, str | dict) for each in given["builds"]):
            raise ValidationError({"builds": ["names of builds"]})
        try:
            job = services.job_create(suite, owner=request.user, **given)
        except services.SuiteError as error:
            raise refused(error) from error
        return Response({**selectors.job_json(job), "plan": page_selectors.plan_json(suite)}, status=201)


class SuiteJobApi(APIView):
    @extend_schema(operation_id="suite_job", responses=JSON)
    def get(self, request: Request, pk: int) -> Response:
        return Response(selectors.job_json(get_object_or_404(SuiteJob, pk=pk)))


class SuiteJobStopApi(APIView):
    write_permission = "tuner.change_suitejob"

    @extend_schema(operation_id="suite_job_stop", request=None, responses=JSON)
    def post(self, request: Request, pk: int) -> Response:
        """What was measured stays."""
        control_services.job_end(get_object_or_404(SuiteJob, pk=pk))
        return Response(selectors.job_json(get_object_or_404(SuiteJob, pk=pk)))


class RunsApi(APIView):
    write_permission = "tuner.add_kernelrun"
    parser_classes = [BoundedJsonParser, JsonLinesParser, GzipParser, RawParser]

    @extend_schema(operation_id="runs_list", responses=JSON, parameters=[
        OpenApiParameter("suite", str, required=True), OpenApiParameter("kernel", str), OpenApiParameter("build", str), *WHERE,
        OpenApiParameter("samples", bool, description="with every sample"), OpenApiParameter("limit", int)])
    def get(self, request: Request) -> Response:
        """Fresh runs of a suite, newest first."""
        asked = request.query_params
        rows = run_selectors.runs_filter(suite_of(asked.get("suite", "")), asked)
        asked_limit = asked.get("limit", "")
        limit = min(int(asked_limit), RUNS_LIMIT) if asked_limit.isdecimal() and len(asked_limit) < 9 else LIST_LIMIT
        with_samples = asked.get("samples", "") in ("1", "true")
        rows = rows if with_samples else rows.defer("us")
        return Response({"total": rows.count(), "runs": [run_selectors.run_json(row, with_samples) for row in rows[:limit]]})

    @extend_schema(operation_id="runs_store", request=JSON, responses={201: JSON})
    def post(self, request: Request) -> Response:
        """Runs that CI measured itself: {"suite", "build", "gpu", "toolkit"?, "driver"?, "environment"?, "recorded"?, "runs"}.

        Or the lines alone as the body (application/x-ndjson, application/gzip), with the rest in the query.
        """
        whole = isinstance(request.data, dict)
        if not whole and not isinstance(request.data, bytes):
            raise ValidationError({"runs": ['a JSON object with suite, build, gpu and "runs", or JSON lines']})
        said = dict(request.data) if whole else dict(request.query_params.items())
        records = said.pop("runs", None) if whole else request.data
        if not isinstance(records, list | bytes):
            raise ValidationError({"runs": ["a list of runs in the format of timing_runs.jsonl"]})
        suite, build = suite_named(said.pop("suite", "")), said.pop("build", "")
        if not isinstance(build, str):
            raise ValidationError({"build": ["a git sha or a name"]})
        try:
            stored = control_services.runs_upload(suite, build, records, owner=request.user, **_said(said))
        except services.SuiteError as error:
            raise refused(error) from error
        return Response({"stored": stored.stored, "known": stored.known, "rejected": stored.rejected, "kernels": stored.kernels,
                         "runs": stored.runs, "why": stored.why}, status=201)


def _said(given: dict[str, Any]) -> dict[str, Any]:
    """What the request says of all its runs."""
    problems = {name: ["unknown; see /api/docs/"] for name in given
                if name not in ("gpu", "toolkit", "driver", "recorded", "environment")}
    problems |= {name: ["text"] for name in ("gpu", "toolkit", "driver", "recorded")
                 if not isinstance(given.get(name, ""), str) or not storable(given.get(name, ""))}
    if not isinstance(given.get("environment", {}), dict):
        problems["environment"] = ["a table: cuda, triton, driver …"]
    if problems:
        raise ValidationError(problems)
    return given

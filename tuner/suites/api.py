"""JSON over HTTP: suites, and the orders to measure them."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tuner.models import Suite, SuiteJob
from tuner.suites import calibration_selectors, control_services, page_selectors, selectors, services
from tuner.suites.body_api import SmallJsonParser, TomlParser
from tuner.suites.definition import DefinitionError, read
from tuner.suites.toml import as_toml, file_read

JSON = OpenApiTypes.OBJECT
LIST_LIMIT = 200
WHERE = [OpenApiParameter(name, str) for name in ("gpu", "toolkit", "driver", "recorded")]


def refused(error: services.SuiteError | DefinitionError) -> ValidationError:
    return ValidationError({name or "suite": [problem] for name, problem in error.fields.items()})


def suite_of(name: str) -> Suite:
    """By name, or by number."""
    by_number = {"pk": int(name)} if name.isdecimal() and len(name) < 18 and not Suite.objects.filter(name=name).exists() else None
    return get_object_or_404(selectors.suite_list(), **(by_number or {"name": name}))


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
                         "kernels": [page_selectors.line_json(line) for line in page_selectors.kernel_lines(
                             suite.kernels.filter(enabled=True), environment)],
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

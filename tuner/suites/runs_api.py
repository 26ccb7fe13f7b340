"""JSON over HTTP: fresh runs, those that are stored and those that CI measured itself."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tuner.models import Suite
from tuner.suites import control_services, run_selectors, selectors, services
from tuner.suites.api import JSON, LIST_LIMIT, WHERE, refused, suite_of
from tuner.suites.body_api import BoundedJsonParser, GzipParser, JsonLinesParser, RawParser
from tuner.trial import storable

RUNS_LIMIT = 1000


def suite_named(name: Any) -> Suite:
    """Of a request's field: a name that nobody has is the request's mistake."""
    suite = selectors.suite_list().filter(name=name).first() if isinstance(name, str) and storable(name) else None
    if suite is None:
        known = ", ".join(Suite.objects.values_list("name", flat=True)[:20])
        raise ValidationError({"suite": [f"no suite of this name; there are {known or 'none yet'}"]})
    return suite


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

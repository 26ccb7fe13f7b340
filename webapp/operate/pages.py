"""What tells how the server is: the status page and its API, for who is signed in (paths and addresses are told to nobody);
`/metrics`: Prometheus' text, for loopback or whoever has the metrics token.
"""

from __future__ import annotations

from typing import TypedDict

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.crypto import constant_time_compare
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from webapp.accounts import is_local
from webapp.operate import checks, observed
from workers.metrics.prometheus import exposition
from workers.scope import EVERYTHING, within


@never_cache
@require_safe
def status(request: HttpRequest) -> HttpResponse:
    """Show what of the server works, and what to do where something does not."""
    results = checks.run(checks.RUNNING)
    return render(request, "status.html", {
        "checks": results, "worst": checks.worst(results), "trouble": [check for check in results if check.state != checks.OK]})


class StatusJson(TypedDict):
    """What was checked; `state`: the worst of the checks'."""

    state: str
    checks: list[checks.Check]


class StatusApi(APIView):
    """Database, migrations, Valkey, disks, workers by queue, queues and clocks: each with a state and what to do."""

    @extend_schema(operation_id="status", responses=StatusJson)
    def get(self, request: Request) -> Response:
        results = checks.run(checks.RUNNING)
        return Response({"state": checks.worst(results), "checks": [check.as_json() for check in results]})


@login_not_required
@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Answer a scraper: from this machine without a token, else with `Authorization: Bearer <RIDGEPOINT_METRICS_TOKEN>`."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    scheme, _, token = headers.get("authorization", "").partition(" ")
    expected = settings.METRICS_TOKEN
    is_known = bool(expected) and scheme.lower() == "bearer" and constant_time_compare(token.strip(), expected)
    if not is_known and not is_local(request.META.get("REMOTE_ADDR", ""), headers):
        return HttpResponse("a metrics token is needed: Authorization: Bearer …\n", "text/plain; charset=utf-8", 401,
                            headers={"WWW-Authenticate": 'Bearer realm="metrics"'})
    with within(EVERYTHING):        # a scraper has no project
        body, content_type = exposition(headers.get("accept", ""), also=[observed.REGISTRY])
    return HttpResponse(body, content_type)

"""The status page and its API: for who is signed in; paths and addresses are told to nobody."""

from __future__ import annotations

from typing import TypedDict

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from webapp.operate import checks


@never_cache
@require_safe
def status(request: HttpRequest) -> HttpResponse:
    """Show what of the server works, and what to do where something does not."""
    found = checks.run(checks.RUNNING)
    return render(request, "status.html", {
        "checks": found, "worst": checks.worst(found), "trouble": [check for check in found if check.state != checks.OK]})


class StatusJson(TypedDict):
    """What was checked; `state`: the worst of the checks'."""

    state: str
    checks: list[checks.Check]


class StatusApi(APIView):
    """Database, migrations, Valkey, disks, workers by queue, queues and clocks: each with a state and what to do."""

    @extend_schema(operation_id="status", responses=StatusJson)
    def get(self, request: Request) -> Response:
        found = checks.run(checks.RUNNING)
        return Response({"state": checks.worst(found), "checks": [check.as_json() for check in found]})

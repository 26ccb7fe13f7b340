"""JSON over HTTP: ask whether a build made a suite slower, follow the answer, stop it, ask for more runs."""

from __future__ import annotations

import threading
import time
from typing import Any

from django.db import connection
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tuner.gates import selectors, services
from tuner.models import Gate
from tuner.query_api import whole

JSON = OpenApiTypes.OBJECT
LIST_LIMIT = 200
LONGEST_WAIT_S, LOOK_EVERY_S = 60.0, 0.5
MOST_WAITING = 16                   # requests that wait at once; further ones are answered at once
_turns = threading.BoundedSemaphore(MOST_WAITING)


def refused(error: services.GateRefused) -> Response:
    """In the shape that errors have everywhere, with the refusal's own status."""
    return Response({"error": str(error), "where": ", ".join(error.fields), "hint": "correct these fields",
                     "fields": {name: [problem] for name, problem in error.fields.items()}}, status=error.status)


class Text(serializers.CharField):
    """A text, and nothing that could be taken for one."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            raise ValidationError("a text")
        return super().to_internal_value(data)


class GateRequest(serializers.Serializer):
    suite = Text(max_length=60)
    build = Text(max_length=80, help_text="a commit's sha, or a name")
    environment = serializers.JSONField(required=False, help_text="gpu, toolkit (or cuda and triton), driver, device; "
                                                                  "of runs that come along, where they were taken")
    against = Text(max_length=80, required=False, allow_blank=True, help_text="a build to compare with; without it: the baseline")
    parent = Text(max_length=80, required=False, allow_blank=True)
    branch = Text(max_length=120, required=False, allow_blank=True)
    title = Text(required=False, allow_blank=True, help_text="first line of the commit message")
    author = Text(required=False, allow_blank=True)
    url = Text(max_length=500, required=False, allow_blank=True, help_text="of the pull request or commit; http(s)")
    at = serializers.DateTimeField(required=False, help_text="when the build was committed")
    configs = serializers.JSONField(required=False, help_text="kernel key → configuration that this build is measured with")
    runs = serializers.JSONField(required=False, help_text="how many fresh runs to measure (a number), or the runs themselves "
                                                           "(a list of objects in the format of runs files)")

    def validate_configs(self, value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValidationError("an object: kernel key → configuration")
        return value

    def validate_runs(self, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | list):
            raise ValidationError("a whole number, or a list of runs")
        return value


class GateListApi(APIView):
    write_permission = "tuner.add_gate"

    @extend_schema(operation_id="gates_list", responses=JSON, parameters=[
        OpenApiParameter("limit", int), OpenApiParameter("offset", int),
        *(OpenApiParameter(name, str) for name in selectors.FILTERS)])
    def get(self, request: Request) -> Response:
        """Newest first."""
        filters = {name: request.query_params.get(name, "") for name in selectors.FILTERS}
        rows = selectors.gate_list(filters)
        limit, offset = whole(request, "limit", 50, LIST_LIMIT), whole(request, "offset", 0, 10**9)
        return Response({"total": rows.count(), "verdicts": selectors.verdict_counts(filters),
                         "gates": [selectors.gate_short(gate, base(request)) for gate in rows[offset:offset + limit]]})

    @extend_schema(operation_id="gates_create", request=GateRequest, responses={201: JSON}, parameters=[
        OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER,
                         description="of your making: the same request, sent again, answers with the gate it made")])
    def post(self, request: Request) -> Response:
        """Queues the runs, or decides at once from runs that came along. Poll the gate, or ask with ?wait=30."""
        asked = GateRequest(data=request.data)
        asked.is_valid(raise_exception=True)
        given: dict[str, Any] = dict(asked.validated_data)
        runs = given.pop("runs", None)
        try:
            gate = services.gate_create(given.pop("suite"), given.pop("build"), owner=request.user, **given,
                                        request_key=request.headers.get("Idempotency-Key", ""),
                                        runs=runs if isinstance(runs, int) else None,
                                        records=runs if isinstance(runs, list) else None)
        except services.GateRefused as error:
            return refused(error)
        return Response(selectors.gate_document(gate, base=base(request)), status=201)


class GateApi(APIView):
    @extend_schema(operation_id="gates_get", responses=JSON, parameters=[
        OpenApiParameter("wait", float, description="seconds, at most 60: answer when the gate has ended, or after so long")])
    def get(self, request: Request, pk: int) -> Response:
        """Status, verdict, exit code, every kernel with its interval and reason, links to the evidence."""
        get_object_or_404(Gate, pk=pk)
        ended(pk, seconds(request, "wait", LONGEST_WAIT_S))
        gate = get_object_or_404(selectors.gate_list(), pk=pk)
        return Response(selectors.gate_document(gate, base=base(request)))


class GateStopApi(APIView):
    write_permission = "tuner.change_gate"

    @extend_schema(operation_id="gates_stop", request=None, responses=JSON)
    def post(self, request: Request, pk: int) -> Response:
        """Ends the measuring; what was measured stays. A gate that has ended stays as it is."""
        gate = get_object_or_404(selectors.gate_list(), pk=pk)
        services.gate_stop(gate)
        return Response(selectors.gate_document(gate, base=base(request)))


class AgainRequest(serializers.Serializer):
    runs = serializers.IntegerField(required=False, help_text="fresh runs of each build; left out: as many as can decide")
    kernels = serializers.ListField(child=Text(max_length=300), required=False, allow_empty=False, max_length=1000,
                                    help_text="keys; left out: those that are slower, ambiguous or without data")


class GateAgainApi(APIView):
    write_permission = "tuner.change_gate"

    @extend_schema(operation_id="gates_again", request=AgainRequest, responses=JSON)
    def post(self, request: Request, pk: int) -> Response:
        """Measures more fresh runs, in turn with the baseline's build, and judges again."""
        gate = get_object_or_404(selectors.gate_list(), pk=pk)
        asked = AgainRequest(data=request.data)
        asked.is_valid(raise_exception=True)
        try:
            gate = services.gate_again(gate, owner=request.user, **asked.validated_data)
        except services.GateRefused as error:
            return refused(error)
        return Response(selectors.gate_document(gate, base=base(request)))


def ended(pk: int, wait_s: float) -> bool:
    """Whether the gate has ended, looked at for up to so many seconds. No database connection is held while it waits."""
    if wait_s <= 0 or not _turns.acquire(blocking=False):
        return False
    try:
        until = time.monotonic() + wait_s
        while Gate.objects.filter(pk=pk, status__in=selectors.GOING).exists():
            left = until - time.monotonic()
            if left <= 0:
                return False
            if not connection.in_atomic_block:
                connection.close()
            time.sleep(min(LOOK_EVERY_S, left))
        return True
    finally:
        _turns.release()


def base(request: Request) -> str:
    """Scheme and host of the request, for links that leave this page."""
    return str(request.build_absolute_uri("/"))[:-1]


def seconds(request: Request, name: str, high: float) -> float:
    text = request.query_params.get(name)
    if text is None:
        return 0.0
    try:
        given = float(text)
    except ValueError as error:
        raise ValidationError({name: ["must be a number of seconds"]}) from error
    return min(high, given) if given > 0 else 0.0

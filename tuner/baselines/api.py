"""JSON over HTTP: the baselines of a suite with their runs, and what people said of them."""

from __future__ import annotations

from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tuner.baselines import table_selectors as table
from tuner.baselines.selectors import Expected
from tuner.gates import accept_services
from tuner.gates.api import Text, refused
from tuner.gates.refusal_services import GateRefused
from tuner.models import Suite

JSON = OpenApiTypes.OBJECT
WHERE = ("gpu", "toolkit", "driver", "recorded")
MOST_RAW = 50                   # kernels whose samples one answer holds: as many as 10⁵ each


class BaselineRequest(serializers.Serializer):
    action = serializers.ChoiceField(choices=["pin", "roll", "intended"])
    build = Text(max_length=80, required=False, allow_blank=True, help_text="for pin and intended")
    kernel = Text(max_length=300, required=False, allow_blank=True, help_text="its key; left out: every kernel of the suite")
    gpu = Text(max_length=120, required=False, allow_blank=True, help_text="its model; left out: every GPU")
    note = Text(max_length=2000, required=False, allow_blank=True, help_text="why; needed for intended")


class BaselinesApi(APIView):
    write_permission = "tuner.add_baselinechange"

    @extend_schema(operation_id="baselines_get", responses=JSON, parameters=[
        *(OpenApiParameter(name, str) for name in WHERE),
        OpenApiParameter("kernel", str, description="its key; else all"),
        OpenApiParameter("samples", bool, description=f"1: every run with its samples in µs, of {MOST_RAW} kernels at most")])
    def get(self, request: Request, pk: int) -> Response:
        """Of one environment (that of the newest run, where none is named): what the next build is compared with."""
        suite = get_object_or_404(Suite, pk=pk)
        env, every = table.environment_chosen(suite, {name: value for name in WHERE if (value := request.query_params.get(name))})
        raw, key = request.query_params.get("samples") in ("1", "true"), request.query_params.get("kernel", "")
        kernels = [kernel for kernel in suite.kernels.filter(enabled=True) if key in ("", kernel.key)]
        if key and not kernels:
            raise ValidationError({"kernel": ["no enabled kernel of the suite has this key"]})
        if raw and len(kernels) > MOST_RAW:
            raise ValidationError({"samples": [f"of {MOST_RAW} kernels at most, and the suite has {len(kernels):,}: "
                                               "name one with ?kernel="]})
        lines = table.lines_of(kernels, env, samples=raw) if env else []
        held = [Expected(line.baseline.builds, len(line.baseline.runs), line.baseline.mode) for line in lines]
        return Response({
            "suite": suite.name, "says": table.answer(suite, env, held, lines), "environment": env.where() if env else None,
            "environments": [{**each["env"].where(), "runs": each["runs"], "builds": each["builds"]} for each in every],
            "baseline_runs": suite.baseline_runs, "kernels": [table.line_json(line, raw) for line in lines],
            "changes": [table.change_json(change) for change in table.changes(suite)]})

    @extend_schema(operation_id="baselines_change", request=BaselineRequest, responses={201: JSON})
    def post(self, request: Request, pk: int) -> Response:
        """Pin a build, roll on, or say that a change was intended."""
        suite = get_object_or_404(Suite, pk=pk)
        asked = BaselineRequest(data=request.data)
        asked.is_valid(raise_exception=True)
        try:
            change = accept_services.baseline_said(suite, dict(asked.validated_data), request.user)
        except GateRefused as error:
            return refused(error)
        return Response(table.change_json(change), status=201)

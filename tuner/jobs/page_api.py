"""JSON of what the tuner's pages work out: worth of a search, what a job's trials tell, two jobs compared."""

from __future__ import annotations

from dataclasses import asdict

from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tuner.jobs import compare_selectors, new_selectors, page_selectors, worth_selectors
from tuner.models import TuneJob
from tuner.operators import all_operators, find

JSON = OpenApiTypes.OBJECT


class TuneWorthApi(APIView):
    """?operator=matmul&dtype=bf16&M=4096&N=4096&K=4096[&device=gpu:NVIDIA H200]"""

    @extend_schema(operation_id="tune_worth", responses=JSON, parameters=[
        OpenApiParameter("operator", str, required=True), OpenApiParameter("dtype", str), OpenApiParameter("device", str),
        OpenApiParameter("M", int, description="and the operator's other dimensions by name")])
    def get(self, request: Request) -> Response:
        """GPU time that profiles saw in a problem × the gain that is expected of tuning it; `seconds` null: unknown, and why."""
        query = request.query_params
        operator = find(query.get("operator", ""))
        if operator is None:
            raise ValidationError({"operator": [f"choose one of {', '.join(all_operators())}"]})
        dtype = query.get("dtype") or operator.dtypes[0]
        shape = {dim.name: _dimension(query.get(dim.name)) for dim in operator.dims}
        problems = operator.problems(shape, dtype)
        if problems:
            raise ValidationError({name: [problem] for name, problem in problems.items()})
        found = worth_selectors.worth(operator.name, dtype, shape, new_selectors.gpu_of(query.get("device", "")))
        return Response({"seconds": found.seconds, "fleet_s": found.fleet.ns / 1e9, "launches": found.fleet.launches,
                         "profiles": found.fleet.profiles, "gain": found.gain.share if found.gain else None, "why": found.why})


class TuneInsightApi(APIView):
    @extend_schema(operation_id="tune_insight", responses=JSON)
    def get(self, request: Request, pk: int) -> Response:
        """What each parameter does, where the time went and what was saved. Raced trials count with the time they had."""
        job = get_object_or_404(TuneJob, pk=pk)
        trials = page_selectors.trials_of(job)
        told = page_selectors.insight.insight(trials)
        saved = asdict(page_selectors.saved(job, trials))
        return Response({"job": pk, "status": job.status, "text": page_selectors.effects_text(told), **asdict(told), "time": saved,
                         "clocks": page_selectors.clocks(trials)})


class TuneCompareApi(APIView):
    @extend_schema(operation_id="tune_compare", responses=JSON, parameters=[
        OpenApiParameter("a", int, required=True), OpenApiParameter("b", int, required=True)])
    def get(self, request: Request) -> Response:
        """Two jobs: how soon each was how good, what both measured, winners, failures, differences."""
        jobs = [get_object_or_404(TuneJob, pk=max(0, _dimension(request.query_params.get(name)))) for name in ("a", "b")]
        return Response(compare_selectors.as_json(compare_selectors.two(jobs[0], jobs[1])))


def _dimension(text: str | None) -> int:
    """-1 is no dimension of any operator: the operator's own check then says what would be valid."""
    return int(text) if text and text.isdecimal() and len(text) < 12 else -1

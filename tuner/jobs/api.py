"""JSON over HTTP: tune jobs and their trials."""

from __future__ import annotations

from dataclasses import asdict
from typing import TypedDict

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import Choice, Paged, plain
from tuner import texts
from tuner.ceilings.selectors import Ceilings, job_grid
from tuner.jobs import comparison, control_services, create_services, new_services, page_selectors, selectors, worth_selectors
from tuner.jobs.insight import Effect, explain_trials
from tuner.models import TuneJob
from tuner.query_api import Checked, read_whole
from tuner.tuning.operators import all_operators, find
from tuner.tuning.search.strategies import DEFAULT
from workers.list_api import PAGED, read_page, validated

LIST_LIMIT = 200
TRIALS_LIMIT = 5000


class TuneRequest(serializers.Serializer[None]):
    """What a job needs; the same checks as on the page."""

    operator = serializers.CharField(max_length=60)
    shape = serializers.DictField(child=serializers.IntegerField())
    dtype = serializers.CharField(max_length=16, required=False)
    device = serializers.CharField(
        max_length=120, help_text='"gpu", one model ("gpu:NVIDIA H200"), or "replay:" and the stem of a recorded landscape')
    strategy = serializers.CharField(max_length=40, default=DEFAULT)
    effort = serializers.CharField(max_length=16, required=False, help_text="a preset; gives the numbers that are not given")
    budget_trials = serializers.IntegerField(required=False, help_text="without an effort: 120")
    budget_seconds = serializers.FloatField(required=False, help_text="without an effort: 600")
    plateau = serializers.IntegerField(required=False, help_text="trials in a row that win nothing end the search")
    ceiling_pct = serializers.FloatField(required=False, allow_null=True,
                                         help_text="a best that reaches so many percent of the ceiling ends the search")
    first = serializers.ListField(child=serializers.DictField(), required=False, help_text="configurations tried first")
    only = serializers.ListField(child=serializers.DictField(), required=False, help_text="measure these, search nothing")
    timing = serializers.CharField(max_length=8, default="cold", help_text="cold (L2 flushed), warm, or graph (of launches)")
    seed = serializers.IntegerField(default=0)
    space = Checked(lambda given: isinstance(given, dict), 'an object of "parameters" and "constraints"', required=False,
                    help_text='{"parameters": {"BM": [64, 128]}, "constraints": ["BM * BN <= 8192"]}: where it differs')


class TuneJobsJson(Paged):
    total: int
    jobs: list[selectors.TuneJobJson]


class TuneListApi(APIView):
    write_permission = "tuner.add_tunejob"

    @extend_schema(operation_id="tune_list", responses=TuneJobsJson, parameters=[
        *PAGED, OpenApiParameter("status", str), OpenApiParameter("operator", str)])
    def get(self, request: Request) -> Response:
        """Newest first."""
        jobs = selectors.job_list()
        for name in ("status", "operator"):
            if request.query_params.get(name):
                jobs = jobs.filter(**{name: request.query_params[name]})
        page, ceilings = read_page(request, jobs, 50, LIST_LIMIT), Ceilings()
        return page.answer({"total": page.count, "jobs": [selectors.job_json(job, ceilings) for job in page.rows]})

    @extend_schema(operation_id="tune_create", request=TuneRequest, responses={201: selectors.TuneJobJson})
    def post(self, request: Request) -> Response:
        fields = validated(TuneRequest, request.data)
        if "dtype" not in fields:
            operator = find(fields["operator"])
            fields["dtype"] = operator.dtypes[0] if operator else ""
        if not fields.get("effort"):
            fields = {"budget_trials": 120, "budget_seconds": 600.0, **fields}
        job = create_services.tune_create(owner=request.user, **fields)
        return Response(selectors.job_json(job), status=201)


class TuneApi(APIView):
    @extend_schema(operation_id="tune_get", responses=selectors.WholeTuneJobJson)
    def get(self, request: Request, pk: int) -> Response:
        job = get_object_or_404(TuneJob, pk=pk)
        return Response({**selectors.job_json(job), "grid": job_grid(job), "failures": selectors.failures_by_reason(job),
                         "triton": texts.paste_text(job.operator, job.best_config)})


class TrialsJson(TypedDict):
    job: int
    status: str
    trials: list[selectors.TrialJson]
    next_after: int | None


class TrialListApi(APIView):
    @extend_schema(operation_id="tune_trials", responses=TrialsJson, parameters=[
        OpenApiParameter("after", int, description="only trials with a greater number"),
        OpenApiParameter("limit", int)])
    def get(self, request: Request, pk: int) -> Response:
        """In the order in which they were known. `next_after` is null when there are no more."""
        job = get_object_or_404(TuneJob, pk=pk)
        after = read_whole(request, "after", -1, 10**9, low=-1)
        limit = read_whole(request, "limit", TRIALS_LIMIT, TRIALS_LIMIT, low=1)
        rows = list(selectors.trial_list(job, after)[:limit + 1])
        trials = [selectors.trial_json(row) for row in rows[:limit]]
        return Response({"job": pk, "status": job.status, "trials": trials,
                         "next_after": trials[-1]["number"] if len(rows) > limit else None})


class TuneStopApi(APIView):
    write_permission = "tuner.change_tunejob"

    @extend_schema(operation_id="tune_stop", request=None, responses=selectors.TuneJobJson)
    def post(self, request: Request, pk: int) -> Response:
        return Response(selectors.job_json(control_services.tune_stop(get_object_or_404(TuneJob, pk=pk))))


class WorthJson(TypedDict):
    """`gain`: share of the time that tuning is expected to win; null: nothing like it was tuned."""

    seconds: float | None
    fleet_s: float
    launches: int
    profiles: int
    gain: float | None
    why: str


class TuneWorthApi(APIView):
    """?operator=matmul&dtype=bf16&M=4096&N=4096&K=4096[&device=gpu:NVIDIA H200]"""

    @extend_schema(operation_id="tune_worth", responses=WorthJson, parameters=[
        OpenApiParameter("operator", str, required=True), OpenApiParameter("dtype", str), OpenApiParameter("device", str),
        OpenApiParameter("M", int, description="and the operator's other dimensions by name")])
    def get(self, request: Request) -> Response:
        """GPU time that profiles saw in a problem × the gain that is expected of tuning it; `seconds` null: unknown, and why."""
        query = request.query_params
        operator = find(query.get("operator", ""))
        if operator is None:
            raise ValidationError({"operator": [f"choose one of {', '.join(all_operators())}"]})
        dtype = query.get("dtype") or operator.dtypes[0]
        shape = {dim.name: _parse_dimension(query.get(dim.name)) for dim in operator.dims}
        problems = operator.problems(shape, dtype)
        if problems:
            raise ValidationError({name: [problem] for name, problem in problems.items()})
        worth = worth_selectors.search_worth(operator.name, dtype, shape, new_services.gpu_of_device(query.get("device", "")))
        return Response({"seconds": worth.seconds, "fleet_s": worth.fleet.ns / 1e9, "launches": worth.fleet.launches,
                         "profiles": worth.fleet.profiles, "gain": worth.gain.share if worth.gain else None, "why": worth.why})


class InsightJson(TypedDict):
    """`explained`: share of the differences in log time that parameters explain one by one."""

    job: int
    status: str
    text: str
    effects: list[Effect]
    measured: int
    rejected: int
    explained: float | None
    time: page_selectors.Savings
    clocks: page_selectors.ClockRangeJson | None


class TuneInsightApi(APIView):
    @extend_schema(operation_id="tune_insight", responses=InsightJson)
    def get(self, request: Request, pk: int) -> Response:
        """What each parameter does, where the time went and what was saved. Raced trials count with the time they had."""
        job = get_object_or_404(TuneJob, pk=pk)
        trials = selectors.lean_trials(job)
        told = explain_trials(trials)
        saved = asdict(page_selectors.job_savings(job, trials))
        return Response({"job": pk, "status": job.status, "text": page_selectors.effects_text(told), **asdict(told), "time": saved,
                         "clocks": page_selectors.clock_range(trials)})


class ChoicesJson(TypedDict):
    choices: list[Choice]


class TuneChoicesApi(APIView):
    @extend_schema(operation_id="tune_choices", responses=ChoicesJson, parameters=[
        OpenApiParameter("q", str, description="words of operator, shape, type, strategy, GPU or state, or a job's number"),
        OpenApiParameter("beside", int, description="a job: those of its problem come first")])
    def get(self, request: Request) -> Response:
        """At most 30 jobs that have every word."""
        query = request.query_params
        return Response({"choices": plain(comparison.job_choices(query.get("q", ""), query.get("beside", "")))})


class TuneCompareApi(APIView):
    @extend_schema(operation_id="tune_compare", responses=comparison.ComparisonJson, parameters=[
        OpenApiParameter("a", int, required=True), OpenApiParameter("b", int, required=True)])
    def get(self, request: Request) -> Response:
        """Two jobs: how soon each was how good, what both measured, winners, failures, differences."""
        jobs = [get_object_or_404(TuneJob, pk=max(0, _parse_dimension(request.query_params.get(name)))) for name in ("a", "b")]
        return Response(comparison.comparison_json(comparison.compare_jobs(jobs[0], jobs[1])))


def _parse_dimension(text: str | None) -> int:
    """-1 is no dimension of any operator: the operator's own check then says what would be valid."""
    return int(text) if text and text.isdecimal() and len(text) < 12 else -1

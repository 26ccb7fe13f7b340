"""Builds over HTTP: the list, one build beside another, the series of kernels over builds, and regressions."""

from __future__ import annotations

from typing import Any, TypedDict

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import Paged, make_answer, plain
from profiles.base.refused import Refused
from tuner.gate.builds import selectors as regression_selectors
from tuner.gate.builds import services
from tuner.gate.builds.answers import MOST_NOTE_CHARS
from tuner.gate.builds.selectors import ENVIRONMENT
from tuner.gate.history import page_selectors, selectors
from tuner.gate.history.series_selectors import Series, Step, load_series
from tuner.gate.regressions import services as regression_services
from tuner.gate.stats.results import SuiteVerdictJson, suite_json
from tuner.models import Build, Regression
from workers.list_api import PAGED, read_page, validated

LIST_LIMIT = 200
SERIES = 100            # kernels of an answer: each may have hundreds of builds


class BuildSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(help_text="A commit's sha, or a name.")
    parent = serializers.CharField(      # type: ignore[assignment]    # declared fields leave the class
        required=False, allow_blank=True, help_text="Name of the build before it.")
    branch = serializers.CharField(required=False, allow_blank=True, help_text="main, master, trunk and none are one line.")
    title = serializers.CharField(required=False, allow_blank=True)
    author = serializers.CharField(required=False, allow_blank=True)
    url = serializers.CharField(required=False, allow_blank=True, help_text="Of the commit or pull request.")
    at = serializers.DateTimeField(required=False, help_text="When it was committed: 2026-11-21T18:30:00+00:00", error_messages={
        "invalid": "a date and time, as 2026-11-21T18:30:00+00:00", "overflow": services.NO_COMMIT_TIME})


class BuildsJson(Paged):
    offset: int
    results: list[selectors.BuildRowJson]


class BuildListApi(APIView):
    write_permission = "tuner.change_build"

    @extend_schema(operation_id="builds", responses=BuildsJson, parameters=[
        OpenApiParameter("q", str, description="part of the name or title"), OpenApiParameter("branch", str), *PAGED])
    def get(self, request: Request) -> Response:
        """Builds, newest first, also those that only profiles name."""
        names = selectors.build_names(request.query_params.get("q", "")[:80], request.query_params.get("branch", "")[:120])
        page = read_page(request, names, LIST_LIMIT)
        return page.answer({"offset": page.offset,
                            "results": [selectors.row_json(row) for row in selectors.build_rows(list(page.rows))]})

    @extend_schema(operation_id="builds_seen", request=BuildSerializer, responses={201: selectors.BuildJson})
    def post(self, request: Request) -> Response:
        """Say what is known of a build: made when it is new, added to when it is not."""
        fields = validated(BuildSerializer, request.data)
        try:
            build = services.ensure_build(fields.pop("name"), **fields)
        except Refused as refused:
            raise refused.renamed({"build": "name"}) from refused
        return Response(selectors.build_json(build), status=201)


class ComparedJson(TypedDict):
    """A build's kernels against another build's, in one environment; `judged`: a suite's verdict as `stats.results` has it."""

    on: str
    against: str | None
    judged: SuiteVerdictJson | None


class BuildGateJson(TypedDict):
    id: int
    suite: str
    status: str
    verdict: str


class WholeBuildJson(selectors.BuildJson):
    """A build with its gates, profiles and regressions, by what they have to do with it."""

    answer: str
    sides: list[str]
    compared: ComparedJson | None
    gates: list[BuildGateJson]
    regressions: dict[str, list[regression_selectors.RegressionJson]]
    profiles: list[int]


class BuildApi(APIView):
    @extend_schema(operation_id="build", responses=WholeBuildJson, parameters=[
        OpenApiParameter("on", str, description="suite and environment, as `sides` names them"), OpenApiParameter("suite", str),
        OpenApiParameter("against", str, description="another build; else the one before")])
    def get(self, request: Request, name: str) -> Response:
        """One build: its kernels against another build's, from the runs that are stored; gates, regressions, profiles."""
        build = selectors.find_build(name)
        if build is None:
            raise NotFound(f"no build {name[:80]}")
        comparison = selectors.compare_build(build, request.query_params)
        rows = selectors.build_regressions(build)
        return Response({
            **selectors.build_json(build), "answer": selectors.comparison_sentence(build, comparison),
            "sides": [side.text for side in selectors.measured_sides(build)],
            "compared": {"on": comparison.side.text, "against": comparison.label or None,
                         "judged": suite_json(comparison.judged) if comparison.judged else None} if comparison else None,
            "gates": [{"id": gate.pk, "suite": gate.suite.name, "status": gate.status, "verdict": gate.verdict}
                      for gate in selectors.build_gates(build)],
            "regressions": {name: [regression_selectors.regression_json(row) for row in group] for name, group in rows.items()},
            "profiles": [profile.pk for profile in selectors.build_profiles(build)]})


class PointJson(TypedDict):
    """Run medians of a build."""

    build: str
    at: str
    us: list[float]
    median_us: float
    interval: list[float] | None


class SeriesJson(TypedDict):
    """A kernel over builds, oldest first, and its changes."""

    kernel: str
    family: str
    computed: bool
    builds: list[PointJson]
    changes: list[Step]


class SeriesListJson(Paged):
    suite: str
    on: str
    branch: str
    environment: dict[str, str]
    series: list[SeriesJson]


class NoSeriesJson(Paged):
    suite: None
    series: list[SeriesJson]
    says: str


class SeriesApi(APIView):
    @extend_schema(operation_id="builds_series", responses=SeriesListJson | NoSeriesJson, parameters=[
        OpenApiParameter("suite", str), OpenApiParameter("kernel", str, description="its key; else all"),
        *(OpenApiParameter(name, str) for name in ("on", "gpu", "toolkit", "driver", "branch")), *PAGED])
    def get(self, request: Request) -> Response:
        """Run medians of each kernel over builds in one environment, oldest build first, with the changes that were found.

        Kernels come in pages; of each the newest 400 builds.
        """
        choice = page_selectors.read_choice(request.query_params)
        if choice is None:
            return Response({"suite": None, "series": [], "says": "no suite has a run yet", "count": 0, "next_offset": None})
        if choice.missed:
            raise NotFound(choice.missed)
        kernels = choice.suite.kernels.values_list("key", flat=True)
        page = read_page(request, kernels.filter(key=choice.kernel) if choice.kernel else kernels, SERIES, SERIES)
        series = load_series(choice.suite, choice.where, choice.branch, page.rows)
        return page.answer({"suite": choice.suite.name, "on": choice.where["text"], "branch": choice.branch,
                            "environment": {name: choice.where[name] for name in ENVIRONMENT},
                            "series": [series_json(curve) for curve in series]})


def series_json(series: Series) -> SeriesJson:
    """Return the JSON of one series: its builds, oldest first, and its changes."""
    return {"kernel": series.kernel.key, "family": series.kernel.family, "computed": series.computed,
            "builds": [make_answer(PointJson, point, build=point.build.name, at=point.build.at) for point in series.points],
            "changes": [plain(step) for step in series.steps]}


class RegressionsJson(Paged):
    offset: int
    results: list[regression_selectors.RegressionJson]


class RegressionListApi(APIView):
    @extend_schema(operation_id="regressions", responses=RegressionsJson, parameters=[
        OpenApiParameter(name, str) for name in regression_selectors.FILTERS] + PAGED)
    def get(self, request: Request) -> Response:
        """What got slower, not answered first. state: one of a regression's, or watched (open and acknowledged)."""
        filters = {name: request.query_params.get(name, "")[:200] for name in regression_selectors.FILTERS}
        page = read_page(request, regression_selectors.regression_list(filters), LIST_LIMIT)
        return page.answer({"offset": page.offset, "results": [regression_selectors.regression_json(row) for row in page.rows]})


class StateSerializer(serializers.Serializer[Any]):
    state = serializers.ChoiceField(choices=Regression.State.choices)
    note = serializers.CharField(required=False, allow_blank=True, max_length=MOST_NOTE_CHARS)
    fixed_in = serializers.CharField(required=False, help_text="Name of the build that fixed it.", max_length=80)


class ToldByJson(TypedDict):
    """A kernel of a gate that found it."""

    gate: int
    kernel: str
    build: str
    ratio_p50: float | None
    ci: list[float] | None
    reason: str


class WholeRegressionJson(regression_selectors.RegressionJson):
    told_by: list[ToldByJson]


class RegressionApi(APIView):
    write_permission = "tuner.change_regression"

    @extend_schema(operation_id="regression", responses=WholeRegressionJson)
    def get(self, request: Request, pk: int) -> Response:
        row = get_object_or_404(regression_selectors.regressions(), pk=pk)
        return Response({**regression_selectors.regression_json(row), "told_by": [
            {"gate": entry.gate_id, "kernel": entry.kernel.key, "build": entry.gate.build.name, "ratio_p50": entry.ratio_p50,
             "ci": [entry.low, entry.high] if entry.low is not None else None, "reason": entry.reason}
            for entry in regression_selectors.regression_kernels(row)]})

    @extend_schema(operation_id="regression_change", request=StateSerializer, responses=WholeRegressionJson)
    def post(self, request: Request, pk: int) -> Response:
        """Acknowledge it, say that it is meant (baselines begin anew), fixed, or the environment's doing."""
        fields = validated(StateSerializer, request.data)
        row = get_object_or_404(Regression, pk=pk)
        build = None
        if name := fields.pop("fixed_in", ""):
            build = Build.objects.filter(name=name).first()
            if build is None:
                raise ValidationError({"fixed_in": ["the name of a build that is known"]})
        regression_services.change_regression(row, **fields, by=request.user, fixed_in=build)
        return self.get(request, pk)

"""JSON over HTTP: create a gate, follow, stop or repeat it, fetch its report; baselines; the client for pipelines."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, TypedDict

from django.db import connection
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import Paged
from tuner.gate.baselines import table_selectors as table
from tuner.gate.baselines.selectors import Expected
from tuner.gate.builds.selectors import ENVIRONMENT
from tuner.gate.regressions.services import change_baseline
from tuner.gate.reports import REPORTS, github, words
from tuner.gate.suites.records import MOST_ATTEMPT
from tuner.gate.verdicts import decide_services, selectors, services
from tuner.models import Gate, Suite
from workers.list_api import PAGED, read_page, validated

LIST_LIMIT = 200
LONGEST_WAIT_S, LOOK_EVERY_S = 60.0, 0.5
MOST_WAITING = 4                    # requests that wait at once, each in a slot of the web's 16; further ones are answered at once
_waiting_slots = threading.BoundedSemaphore(MOST_WAITING)


class Text(serializers.CharField):
    """A text, and nothing that could be taken for one."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            raise ValidationError("a text")
        return super().to_internal_value(data)


class GateRequest(serializers.Serializer[None]):
    suite = Text(max_length=60)
    build = Text(max_length=80, help_text="a commit's sha, or a name")
    environment = serializers.JSONField(required=False, help_text="gpu, toolkit (or cuda and triton), driver, device; "
                                                                  "of runs that come along, where they were taken")
    against = Text(max_length=80, required=False, allow_blank=True, help_text="a build to compare with; without it: the baseline")
    parent = Text(max_length=80, required=False, allow_blank=True)     # type: ignore[assignment]    # declared fields leave the class
    ancestors = serializers.ListField(child=Text(max_length=80), required=False, max_length=100,
                                      help_text="first parents of the build by name, nearest first")
    branch = Text(max_length=120, required=False, allow_blank=True)
    title = Text(required=False, allow_blank=True, help_text="first line of the commit message")
    author = Text(required=False, allow_blank=True)
    url = Text(max_length=500, required=False, allow_blank=True, help_text="of the pull request or commit; http(s)")
    at = serializers.DateTimeField(required=False, help_text="when the build was committed")
    allow_gone = serializers.BooleanField(required=False, help_text="kernels that the baseline has and the build has not are meant")
    shard = Text(max_length=20, required=False, allow_blank=True, help_text="of runs that come along: i/n, one of n jobs with "
                                                                           "parts of the build; the gate waits for all of them")
    attempt = Text(max_length=MOST_ATTEMPT, required=False, allow_blank=True,
                   help_text="of runs that come along: the pipeline's job and try; in another one equal names are other processes")
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


class GatesJson(Paged):
    total: int
    verdicts: dict[str, int]            # verdict → gates that ended so
    gates: list[selectors.GateLineJson]


class GateListApi(APIView):
    write_permission = "tuner.add_gate"

    @extend_schema(operation_id="gates_list", responses=GatesJson, parameters=[
        *PAGED, *(OpenApiParameter(name, str) for name in selectors.FILTERS)])
    def get(self, request: Request) -> Response:
        """Newest first."""
        filters = {name: request.query_params.get(name, "") for name in selectors.FILTERS}
        page = read_page(request, selectors.gate_list(filters), 50, LIST_LIMIT)
        return page.answer({"total": page.count, "verdicts": selectors.verdict_counts(filters),
                            "gates": [selectors.gate_short(gate, base_url(request)) for gate in page.rows]})

    @extend_schema(operation_id="gates_create", request=GateRequest, responses={201: words.GateDocument}, parameters=[
        OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER,
                         description="of your making: the same request, sent again, answers with the gate it made")])
    def post(self, request: Request) -> Response:
        """Queues the runs, or decides at once from runs that came along. Poll the gate, or ask with ?wait=30."""
        fields = validated(GateRequest, request.data)
        runs = fields.pop("runs", None)
        gate = services.create_gate(fields.pop("suite"), fields.pop("build"), owner=request.user, **fields,
                                    request_key=request.headers.get("Idempotency-Key", ""),
                                    runs=runs if isinstance(runs, int) else None,
                                    records=runs if isinstance(runs, list) else None)
        return Response(selectors.gate_document(gate, base=base_url(request)), status=201)


class GateApi(APIView):
    @extend_schema(operation_id="gates_get", responses=words.GateDocument, parameters=[
        OpenApiParameter("wait", float, description="seconds, at most 60: answer when the gate has ended, or after so long")])
    def get(self, request: Request, pk: int) -> Response:
        """Status, verdict, exit code, every kernel with its interval and reason, links to the evidence."""
        get_object_or_404(Gate, pk=pk)
        wait_for_end(pk, seconds_to_wait(request, "wait", LONGEST_WAIT_S))
        gate = get_object_or_404(selectors.gate_list(), pk=pk)
        return Response(selectors.gate_document(gate, base=base_url(request)))


class GateStopApi(APIView):
    write_permission = "tuner.change_gate"

    @extend_schema(operation_id="gates_stop", request=None, responses=words.GateDocument)
    def post(self, request: Request, pk: int) -> Response:
        """Ends the measuring; what was measured stays. A gate that has ended stays as it is."""
        gate = get_object_or_404(selectors.gate_list(), pk=pk)
        services.stop_gate(gate)
        return Response(selectors.gate_document(gate, base=base_url(request)))


class AgainRequest(serializers.Serializer[None]):
    runs = serializers.IntegerField(required=False, help_text="fresh runs of each build; left out: as many as can decide")
    kernels = serializers.ListField(child=Text(max_length=300), required=False, allow_empty=False, max_length=1000,
                                    help_text="keys; left out: those that are slower, ambiguous or without data")


class GateAgainApi(APIView):
    write_permission = "tuner.change_gate"

    @extend_schema(operation_id="gates_again", request=AgainRequest, responses=words.GateDocument)
    def post(self, request: Request, pk: int) -> Response:
        """Measures more fresh runs, in turn with the baseline's build, and judges again."""
        gate = get_object_or_404(selectors.gate_list(), pk=pk)
        gate = services.measure_gate_again(gate, owner=request.user, **validated(AgainRequest, request.data))
        return Response(selectors.gate_document(gate, base=base_url(request)))


class GateGoneApi(APIView):
    write_permission = "tuner.change_gate"

    @extend_schema(operation_id="gates_accept_gone", request=None, responses=words.GateDocument)
    def post(self, request: Request, pk: int) -> Response:
        """Accepts that kernels which the baseline has and this build has not are gone, and judges again."""
        gate = decide_services.accept_gone(get_object_or_404(selectors.gate_list(), pk=pk), by=request.user)
        return Response(selectors.gate_document(gate, base=base_url(request)))


def wait_for_end(pk: int, wait_s: float) -> bool:
    """Whether the gate has ended, looked at for up to so many seconds. No database connection is held while it waits."""
    if wait_s <= 0 or not _waiting_slots.acquire(blocking=False):
        return False
    try:
        until = time.monotonic() + wait_s
        while Gate.objects.filter(pk=pk, status__in=Gate.UNDER_WAY).exists():
            left = until - time.monotonic()
            if left <= 0:
                return False
            if not connection.in_atomic_block:
                connection.close()
            time.sleep(min(LOOK_EVERY_S, left))
        return True
    finally:
        _waiting_slots.release()


def base_url(request: Request) -> str:
    """Scheme and host of the request, for links that leave this page."""
    return str(request.build_absolute_uri("/"))[:-1]


def seconds_to_wait(request: Request, name: str, high: float) -> float:
    """Return the seconds of `?name=`, 0 without it, at most `high`. ValidationError where it is no number."""
    text = request.query_params.get(name)
    if text is None:
        return 0.0
    try:
        seconds = float(text)
    except ValueError as error:
        raise ValidationError({name: ["must be a number of seconds"]}) from error
    return min(high, seconds) if seconds > 0 else 0.0


CLIENT = "ridgepoint_gate.py"
CLIENT_FILE = Path(__file__).resolve().parents[1] / "client.py"
HANDED_OUT = {CLIENT: CLIENT_FILE, "ridgepoint_pytest.py": CLIENT_FILE.with_name("pytest_plugin.py")}


class GateReportApi(APIView):
    @extend_schema(operation_id="gates_report", responses=OpenApiTypes.BINARY, parameters=[
        OpenApiParameter("format", str, required=True, enum=list(REPORTS)),
        OpenApiParameter("head_sha", str, description="github: the commit, where the build is not called by its full sha"),
        OpenApiParameter("undecided", str, enum=list(github.UNDECIDED), description="github: conclusion of AMBIGUOUS"),
        OpenApiParameter("path", str, description="github: the file that annotations stand beside")])
    def get(self, request: Request, pk: int) -> HttpResponse:
        """Markdown for a pull request, JUnit XML, JSON, or the body of a GitHub check run."""
        gate = get_object_or_404(selectors.gate_list(), pk=pk)
        kind = request.query_params.get("format", "")
        if kind not in REPORTS:
            raise ValidationError({"format": [f"one of {', '.join(REPORTS)}"]})
        report = REPORTS[kind]
        document = selectors.gate_document(gate, base=request.build_absolute_uri("/")[:-1])
        if kind == "junit" and document["exit_code"] is None:
            return Response({"error": "this gate is not decided yet: its test cases have no result", "where": "format",
                             "hint": f"ask when it has ended: {document['links']['api']}?wait=30", "fields": {}}, status=409)
        content = words.as_text(_check_run(request, document)).encode() if kind == "github" else report.make(document)
        return HttpResponse(content, content_type=report.media, headers={
            "Content-Disposition": f'attachment; filename="gate-{gate.pk}.{report.ending}"', "Cache-Control": "private, no-cache"})


def _check_run(request: Request, found: words.GateDocument) -> dict[str, object]:
    """A payload that GitHub would take."""
    query = request.query_params
    head_sha, undecided, path = query.get("head_sha", ""), query.get("undecided", "neutral"), query.get("path", ".github")
    wrong = {}
    if undecided not in github.UNDECIDED:
        wrong["undecided"] = [f"one of {', '.join(github.UNDECIDED)}"]
    if not 0 < len(path) <= 300 or not path.isprintable():
        wrong["path"] = ["a file's path in the repository, at most 300 characters"]
    if not words.SHA.fullmatch((head_sha or str(found["build"])).lower()):
        wrong["head_sha"] = ["the commit's whole sha (40 hexadecimal digits): the build is not called by it"]
    if wrong:
        raise ValidationError(wrong)
    return github.check_run(found, head_sha=head_sha, undecided=undecided, path=path)


class GateClientApi(APIView):
    @extend_schema(operation_id="gates_client", responses=OpenApiTypes.BINARY)
    def get(self, request: Request, name: str) -> HttpResponse:
        """ridgepoint_gate.py, the one-file client for pipelines: standard library, Python 3.8 or later. ridgepoint_pytest.py, the
        plugin that measures a test's kernels: pytest, and torch on a GPU."""
        if name not in HANDED_OUT:
            raise Http404
        return HttpResponse(HANDED_OUT[name].read_bytes(), content_type="text/x-python; charset=utf-8",
                            headers={"Content-Disposition": f'attachment; filename="{name}"'})


MOST_RAW = 50                   # kernels whose samples one answer holds: as many as 10⁵ each


class BaselineRequest(serializers.Serializer[None]):
    action = serializers.ChoiceField(choices=["pin", "roll", "intended", "gone"])
    build = Text(max_length=80, required=False, allow_blank=True, help_text="for pin, intended and gone")
    kernel = Text(max_length=300, required=False, allow_blank=True, help_text="its key; left out: every kernel of the suite")
    gpu = Text(max_length=120, required=False, allow_blank=True, help_text="its model; left out: every GPU")
    note = Text(max_length=2000, required=False, allow_blank=True, help_text="why; needed for intended")


class MeasuredWhereJson(TypedDict):
    """An environment, and how many runs of kernels and builds it has."""

    gpu: str
    toolkit: str
    driver: str
    recorded: str
    runs: int
    builds: int


class BaselinesJson(TypedDict):
    """What the next build is compared with in `environment`, and the environments that there are."""

    suite: str
    says: str
    environment: dict[str, str] | None
    environments: list[MeasuredWhereJson]
    baseline_runs: int
    kernels: list[table.BaselineJson]
    changes: list[table.BaselineChangeJson]


class BaselinesApi(APIView):
    write_permission = "tuner.add_baselinechange"

    @extend_schema(operation_id="baselines_get", responses=BaselinesJson, parameters=[
        *(OpenApiParameter(name, str) for name in ENVIRONMENT),
        OpenApiParameter("kernel", str, description="its key; else all"),
        OpenApiParameter("samples", bool, description=f"1: every run with its samples in µs, of {MOST_RAW} kernels at most")])
    def get(self, request: Request, pk: int) -> Response:
        """Of one environment (that of the newest run, where none is named): what the next build is compared with."""
        suite = get_object_or_404(Suite, pk=pk)
        query = {name: value for name in ENVIRONMENT if (value := request.query_params.get(name))}
        env, every = table.choose_environment(suite, query)
        raw, key = request.query_params.get("samples") in ("1", "true"), request.query_params.get("kernel", "")
        kernels = [kernel for kernel in suite.kernels.filter(enabled=True) if key in ("", kernel.key)]
        if key and not kernels:
            raise ValidationError({"kernel": ["no enabled kernel of the suite has this key"]})
        if raw and len(kernels) > MOST_RAW:
            raise ValidationError({"samples": [f"of {MOST_RAW} kernels at most, and the suite has {len(kernels):,}: "
                                               "name one with ?kernel="]})
        lines = table.baseline_lines(kernels, env, samples=raw) if env else []
        baselines = [Expected(line.baseline.builds, len(line.baseline.runs), line.baseline.mode) for line in lines]
        return Response({
            "suite": suite.name, "says": table.summary_sentence(suite, env, baselines, lines),
            "environment": env.where() if env else None,
            "environments": [{**place["env"].where(), "runs": place["runs"], "builds": place["builds"]} for place in every],
            "baseline_runs": suite.baseline_runs, "kernels": [table.line_json(line, raw) for line in lines],
            "changes": [table.change_json(change) for change in table.recent_changes(suite)]})

    @extend_schema(operation_id="baselines_change", request=BaselineRequest, responses={201: table.BaselineChangeJson})
    def post(self, request: Request, pk: int) -> Response:
        """Pin a build, roll on, or say that a change was intended."""
        suite = get_object_or_404(Suite, pk=pk)
        change = change_baseline(suite, validated(BaselineRequest, request.data), request.user)
        return Response(table.change_json(change), status=201)

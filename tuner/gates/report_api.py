"""A gate's answer as a file, and the client that asks for it from a pipeline."""

from __future__ import annotations

from pathlib import Path

from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tuner.gates import selectors
from tuner.gates.reports import REPORTS, document, github

CLIENT = "ridgepoint_gate.py"
CLIENT_FILE = Path(__file__).resolve().parent.parent / "gate_client.py"


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
        found = selectors.gate_document(gate, base=request.build_absolute_uri("/")[:-1])
        if kind == "junit" and found["exit_code"] is None:
            return Response({"error": "this gate is not decided yet: its test cases have no result", "where": "format",
                             "hint": f"ask when it has ended: {found['links']['api']}?wait=30", "fields": {}}, status=409)
        made = document.as_text(_check_run(request, found)).encode() if kind == "github" else report.make(found)
        return HttpResponse(made, content_type=report.media, headers={
            "Content-Disposition": f'attachment; filename="gate-{gate.pk}.{report.ending}"', "Cache-Control": "private, no-cache"})


def _check_run(request: Request, found: document.GateDocument) -> dict[str, object]:
    """A payload that GitHub would take."""
    query = request.query_params
    head_sha, undecided, path = query.get("head_sha", ""), query.get("undecided", "neutral"), query.get("path", ".github")
    wrong = {}
    if undecided not in github.UNDECIDED:
        wrong["undecided"] = [f"one of {', '.join(github.UNDECIDED)}"]
    if not 0 < len(path) <= 300 or not path.isprintable():
        wrong["path"] = ["a file's path in the repository, at most 300 characters"]
    if not document.SHA.fullmatch((head_sha or str(found["build"])).lower()):
        wrong["head_sha"] = ["the commit's whole sha (40 hexadecimal digits): the build is not called by it"]
    if wrong:
        raise ValidationError(wrong)
    return github.payload(found, head_sha=head_sha, undecided=undecided, path=path)


class GateClientApi(APIView):
    @extend_schema(operation_id="gates_client", responses=OpenApiTypes.BINARY)
    def get(self, request: Request, name: str) -> HttpResponse:
        """The one-file client for pipelines: standard library, Python 3.8 or later."""
        if name != CLIENT:
            raise Http404
        return HttpResponse(CLIENT_FILE.read_bytes(), content_type="text/x-python; charset=utf-8",
                            headers={"Content-Disposition": f'attachment; filename="{CLIENT}"'})

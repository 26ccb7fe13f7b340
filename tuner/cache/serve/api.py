"""JSON over HTTP for the client library: snapshots, what was served of them, and the client's own file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

from django.http import Http404, HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import Paged
from tuner.cache.serve import selectors, services
from tuner.cache.serve.reports_api import ListenedReport, ServedReport, SnapshotQuery
from tuner.query_api import validated
from tuner.texts import paste_text
from workers.list_api import PAGED, read_page

FILES = {"ridgepoint_client.py": "client.py", "ridgepoint_listener.py": "listener.py",      # as a job calls them -> ours
         "ridgepoint_shared.py": "shared.py"}
FOLDER = Path(__file__).resolve().parents[1]


class SnapshotJson(TypedDict):
    """Everything that launches on one GPU are served; the client library reads `entries` and `operators`."""

    version: int
    id: str
    verified: bool
    gpu: str
    compute_capability: str
    toolkit: str
    why: dict[str, str]                         # rule → what it says
    operators: dict[str, dict[str, Any]]
    entries: list[dict[str, Any]]
    held: list[dict[str, Any]]                  # entries that do not serve, and why


class RevokedJson(TypedDict):
    """Entries in quarantine, in place of a snapshot."""

    revoked: list[int]


class SnapshotApi(APIView):
    @extend_schema(operation_id="configs_snapshot", responses=SnapshotJson | RevokedJson, parameters=[SnapshotQuery])
    def get(self, request: Request) -> HttpResponse:
        """Everything that launches on one GPU are served, the rules applied. Answers 304 to the ETag of the same snapshot."""
        asked = validated(SnapshotQuery, request.query_params)
        if asked["revoked"]:
            told = asked["toolkit"] if "toolkit" in request.query_params else None
            return Response({"revoked": services.list_revoked(asked["id"], told)}, headers={"Cache-Control": "private, no-cache"})
        name = asked["id"] or services.take_snapshot(asked["verified"])
        etag = f'"{name}"'
        if request.headers.get("If-None-Match") == etag:
            return HttpResponse(status=304, headers={"ETag": etag})
        document = services.snapshot_view(name, asked["gpu"], asked["compute_capability"], asked["toolkit"], asked["sms"],
                                          recorded=asked["recorded"])
        if document is None:
            raise NotFound("no such snapshot; leave out id for the newest")
        if asked["verified"] and not document.get("verified"):
            raise NotFound("that snapshot holds what is not verified too; leave out id for the newest that does not")
        return Response(document, headers={"ETag": etag, "Cache-Control": "private, no-cache"})


class ServedRowJson(TypedDict):
    """What launches of one bucket were served; `asked`: how often it was only asked for."""

    operator: str
    dtype: str
    shape_bucket: str
    gpu: str
    rule: str
    launches: int
    asked: int
    entry: int | None
    measured_shape: dict[str, int] | None
    state: str | None
    recorded: str
    triton: str | None
    last: str


class ServedListJson(Paged):
    shares: list[selectors.ShareJson]
    served: list[ServedRowJson]


class LaunchesJson(TypedDict):
    launches: int
    asked: int


class ListenedJson(TypedDict):
    entries: list[int]


class ServedApi(APIView):
    write_permission = "tuner.add_servedcount"

    @extend_schema(operation_id="configs_served", responses=ServedListJson,
                   parameters=[OpenApiParameter("days", int, description="of the past, today included; 7 unless told"), *PAGED])
    def get(self, request: Request) -> Response:
        """What launches were served, most first; `asked`: how often it was only asked for, which is in no share."""
        days = request.query_params.get("days", "")
        rows = selectors.launches_since(min(365, max(1, int(days))) if days.isdecimal() and len(days) < 9 else selectors.DAYS)
        page = read_page(request, rows)
        return page.answer({"shares": selectors.rule_shares(rows), "served": [
            {**{name: row[name] for name in ("operator", "dtype", "shape_bucket", "gpu", "rule", "launches", "asked")},
             "entry": row["entry"] or None, "measured_shape": row["cached"].shape if row["cached"] else None,
             "state": row["cached"].state if row["cached"] else None, "recorded": row["cached"].recorded if row["cached"] else "",
             "triton": paste_text(row["cached"].operator, row["cached"].config) if row["cached"] else None,
             "last": row["last"].isoformat()} for row in page.rows]})

    @extend_schema(operation_id="configs_served_report", request=ServedReport, responses=LaunchesJson)
    def post(self, request: Request) -> Response:
        """A client tells what it served since it last told."""
        given = validated(ServedReport, request.data)
        return Response(services.record_launches(reporter=request.user, rows=given.pop("served"), **given))


class ListenedApi(APIView):
    write_permission = "tuner.add_cachedconfig"

    @extend_schema(operation_id="configs_listened", request=ListenedReport, responses=ListenedJson)
    def post(self, request: Request) -> Response:
        """What Triton's autotuner found in a job: entries of their own kind, never above a tune job's."""
        entries = services.record_findings(**validated(ListenedReport, request.data))
        return Response({"entries": [entry.pk for entry in entries]})


class ClientFileApi(APIView):
    @extend_schema(operation_id="configs_client", responses=OpenApiTypes.BINARY)
    def get(self, request: Request, name: str) -> HttpResponse:
        """The client library: one file of the standard library, to put beside a job's own code."""
        if name not in FILES:
            raise Http404
        return HttpResponse((FOLDER / FILES[name]).read_bytes(), content_type="text/x-python; charset=utf-8",
                            headers={"Content-Disposition": f'attachment; filename="{name}"'})

"""The page of a project's storage, and the same over the API."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict, cast

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.refused import Refused
from profiles.models import Keeping
from profiles.retention.services import used_bytes
from webapp.audit import services as audit
from webapp.retention import services
from workers.list_api import validated
from workers.retention.run import KINDS, ask, look, settings_of
from workers.scope import current

CHANGE = "profiles.change_keeping"
GB = 10**9


@require_safe
@never_cache
def storage(request: HttpRequest) -> HttpResponse:
    """Show what the project stores, its limits, and what a run would delete."""
    return _page(request)


@require_POST
@never_cache
def storage_change(request: HttpRequest) -> HttpResponse:
    """Save limits, or let a run begin: do=save|run."""
    if not request.user.has_perm(CHANGE):
        raise PermissionDenied("owners of a project decide what is kept")
    keeping, fields = settings_of(current().project), request.POST
    if fields.get("do") == "run":
        if ask(keeping):
            audit.record("asked for", "retention", str(keeping), keeping.pk, project=keeping.project_id)
        return redirect("storage")
    quota = fields.get("quota", "").strip()
    try:
        bytes_asked = str(round(float(quota) * GB)) if quota else ""
    except (ValueError, OverflowError):
        bytes_asked = quota
    try:
        services.decide(keeping, {name: fields.get(name, "").strip() for name in KINDS}, bytes_asked)
    except Refused as refused:
        return _page(request, problem=refused.fields, status=400)
    return redirect("storage")


class CleaningJson(TypedDict):
    """What a run takes away of a kind that is kept for `days`: of `old` rows those that go, and why others are `kept`."""

    days: int
    old: int
    go: int
    kept: dict[str, int]
    bytes: int | None


class CleanedJson(CleaningJson):
    """What a run took away; while it goes on `gone` is less than what goes."""

    gone: NotRequired[int]


class KindJson(TypedDict):
    """What is stored of a kind, how long it is kept (null: for ever), what a run now would do, and what the last one did."""

    name: str
    title: str
    rows: int
    bytes: int | None
    days: int | None
    would: CleaningJson | None
    did: CleanedJson | None


class StorageJson(TypedDict):
    used_bytes: int
    quota_bytes: int | None
    state: str
    ran: str | None
    kinds: list[KindJson]


def rows(keeping: Keeping) -> list[KindJson]:
    """Return one line a kind: how many rows and bytes there are, the limit, what a run now would do, what the last one did."""
    would, lines = look(keeping.days), list[KindJson]()
    for name, kind in KINDS.items():
        all_rows = kind.rows()
        lines.append({
            "name": name, "title": kind.title, "rows": all_rows.count(), "bytes": kind.size(all_rows) if kind.size else None,
            "days": keeping.days.get(name), "would": cast(CleaningJson | None, would.get(name)),
            "did": keeping.report.get(name)})
    return lines


def _page(request: HttpRequest, *, problem: dict[str, str] | None = None, status: int = 200) -> HttpResponse:
    keeping = settings_of(current().project)
    used = used_bytes()
    share = 100.0 * used / keeping.quota_bytes if keeping.quota_bytes else None
    return render(request, "retention/storage.html", {
        "keeping": keeping, "rows": rows(keeping), "used": used, "share": share, "problem": problem or {},
        "may": request.user.has_perm(CHANGE),
        "quota_gb": keeping.quota_bytes / GB if keeping.quota_bytes else None}, status=status)


class StorageSerializer(serializers.Serializer[Any]):
    days = serializers.DictField(child=serializers.IntegerField(allow_null=True), required=False,
                                 help_text=f"kind → days; kinds: {', '.join(KINDS)}; a kind that is left out is kept for ever")
    quota_bytes = serializers.IntegerField(required=False, allow_null=True)


class StorageApi(APIView):
    write_permission = CHANGE

    @extend_schema(operation_id="storage_get", responses=StorageJson)
    def get(self, request: Request) -> Response:
        """What the project stores, its limits, and what a run now would delete and keep."""
        return Response(self._json())

    @extend_schema(operation_id="storage_set", request=StorageSerializer, responses=StorageJson)
    def put(self, request: Request) -> Response:
        """Set the limits."""
        fields = validated(StorageSerializer, request.data)
        services.decide(settings_of(current().project), fields.get("days", {}),
                        fields.get("quota_bytes"))
        return Response(self._json())

    @extend_schema(operation_id="storage_run", request=None, responses={202: StorageJson})
    def post(self, request: Request) -> Response:
        """Let a run begin; ask again for what it did."""
        keeping = settings_of(current().project)
        if ask(keeping):
            audit.record("asked for", "retention", str(keeping), keeping.pk, project=keeping.project_id)
        return Response(self._json(), status=202)

    def _json(self) -> StorageJson:
        keeping = settings_of(current().project)
        return {"used_bytes": used_bytes(), "quota_bytes": keeping.quota_bytes, "state": keeping.state or "rest",
                "ran": keeping.ran.isoformat() if keeping.ran else None, "kinds": rows(keeping)}

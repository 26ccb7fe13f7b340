"""The audit log as a page and over the API: searched, a page at a time."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.request import Request

from profiles.base.answers import Scalar
from webapp.models import AuditEntry
from workers.list_api import PAGED, Pages, Typed

NEEDS = "webapp.view_auditentry"
PAGE = 100
FILTERS = ("q", "action", "kind", "person")


def entries(asked: Any) -> QuerySet[AuditEntry]:
    """Return the lines that the current project's owners may read, filtered, the newest first."""
    rows = AuditEntry.objects.select_related("project")
    if word := asked.get("q", "").strip():
        rows = rows.filter(Q(target__icontains=word) | Q(actor_name__icontains=word) | Q(changes__icontains=word))
    chosen = {"action": "action", "kind": "kind", "person": "actor_name"}
    return rows.filter(**{column: asked[name] for name, column in chosen.items() if asked.get(name)})


@require_safe
def audit(request: HttpRequest) -> HttpResponse:
    """Show the log."""
    if not request.user.has_perm(NEEDS):
        raise PermissionDenied("owners read the audit log")
    page = Paginator(entries(request.GET), PAGE).get_page(request.GET.get("page"))
    log_rows = AuditEntry.objects.order_by()
    return render(request, "audit/list.html", {
        "page": page, "asked": {name: request.GET.get(name, "") for name in FILTERS},
        "actions": sorted(log_rows.values_list("action", flat=True).distinct()),
        "kinds": sorted(log_rows.values_list("kind", flat=True).distinct())})


class AuditSerializer(serializers.ModelSerializer[AuditEntry]):
    """One line."""

    project = serializers.CharField(source="project.slug")
    changes = Typed(dict[str, list[Scalar | dict[str, Scalar]]], help_text="column: what it was, what it is")

    class Meta:
        model = AuditEntry
        fields = ["id", "at", "actor_name", "token", "address", "action", "kind", "target", "target_id", "changes", "project"]


class AuditPages(Pages):
    default_limit = PAGE


class AuditApi(ListAPIView[AuditEntry]):
    """The audit log, for owners."""

    serializer_class = AuditSerializer
    pagination_class = AuditPages

    def check_permissions(self, request: Request) -> None:
        super().check_permissions(request)
        if not request.user.has_perm(NEEDS):
            self.permission_denied(request, "owners read the audit log")

    def get_queryset(self) -> QuerySet[AuditEntry]:
        return entries(self.request.query_params)

    @extend_schema(parameters=[*(OpenApiParameter(name) for name in FILTERS), *PAGED])
    def get(self, request: Request, *args: Any, **options: Any) -> Any:
        """Return lines, the newest first."""
        return super().get(request, *args, **options)

"""API of the frame: jobs in progress, and objects by name as lines: a title, what tells it from others, its address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

from django.urls import reverse
from django.utils.http import urlencode
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from webapp import finder, overview
from webapp.finder import HitGroup
from webapp.templatetags.numbers import shape

PER_GROUP = 5


def _joined(*parts: object) -> str:
    return " · ".join(str(part) for part in parts if part)


def _kernel(hit: dict[str, Any]) -> tuple[str, str, str]:
    kernel = hit["kernel"]
    address = reverse("family", args=[kernel.family_id]) if kernel.family_id else reverse(
        "kernel", args=[kernel.profile_id, kernel.pk])
    return hit["short_name"], f"{hit['profiles']} profile{'s' if hit['profiles'] != 1 else ''}", address


def _build(hit: dict[str, Any]) -> tuple[str, str, str]:
    profiles = f"{reverse('profile-list')}?{urlencode({'build': hit['build']})}"
    return hit["build"], hit["title"], reverse("build", args=[hit["build"]]) if hit["page"] else profiles


LINES: dict[str, Callable[[Any], tuple[str, str, str]]] = {
    "profiles": lambda row: (row.name, _joined(row.build, row.gpu), reverse("profile", args=[row.pk])),
    "kernels": _kernel,
    "builds": _build,
    "suites": lambda row: (row.name, row.title, reverse("suite", args=[row.pk])),
    "gates": lambda row: (f"#{row.pk} {row.build.name} in {row.suite.name}", _joined(row.verdict or row.status, row.gpu),
                          reverse("gate", args=[row.pk])),
    "tune jobs": lambda row: (f"#{row.pk} {row.operator} {row.dtype} {shape(row.shape)}", row.status,
                              reverse("tune", args=[row.pk])),
    "candidates": lambda row: (f"#{row.pk} candidate of {row.operator} {row.dtype} {shape(row.shape)}", row.verdict or row.status,
                               reverse("candidate", args=[row.pk])),
    "captures": lambda row: (f"#{row.pk} {row.tool} of {row.target.name}", row.status, reverse("capture", args=[row.pk])),
    "configurations": lambda row: (f"{row.operator} {row.dtype} {row.shape_bucket}", row.gpu, reverse("cache", args=[row.pk])),
    "agents": lambda row: (row.name, row.host, f"{reverse('fleet-agents')}?{urlencode({'q': row.name})}"),
}


class HitJson(TypedDict):
    title: str
    detail: str
    url: str


class HitGroupJson(TypedDict):
    """Objects of one kind whose names hold every word; `more`: there are others."""

    kind: str
    hits: list[HitJson]
    more: bool


def _lines(group: HitGroup) -> list[HitJson]:
    return [{"title": title, "detail": detail, "url": url} for title, detail, url in map(LINES[group.kind], group.hits)]


def find_lines(query: str) -> list[HitGroupJson]:
    """Return groups of at most five lines, in the order of the search page; none for an empty query."""
    return [{"kind": group.kind, "hits": _lines(group), "more": group.more} for group in finder.find(query, PER_GROUP)]


MOST_CHARACTERS = 200


class ActiveJobJson(TypedDict):
    kind: str
    title: str
    url: str
    waiting: bool


class ActivityJson(TypedDict):
    count: int
    jobs: list[ActiveJobJson]


class SearchJson(TypedDict):
    groups: list[HitGroupJson]


class ActivityApi(APIView):
    """Jobs that wait or run, running first, at most 20."""

    @extend_schema(operation_id="activity", responses=ActivityJson)
    def get(self, request: Request) -> Response:
        jobs = [{"kind": job.kind, "title": job.title, "url": job.url, "waiting": job.waiting}
                for job in overview.in_progress()]
        return Response({"count": len(jobs), "jobs": jobs})


class SearchApi(APIView):
    """Objects whose names hold every word of `q`: groups of at most five lines with title, detail and address."""

    @extend_schema(operation_id="search", parameters=[OpenApiParameter("q", str, description="words, at most 200 characters")],
                   responses=SearchJson)
    def get(self, request: Request) -> Response:
        return Response({"groups": find_lines(request.query_params.get("q", "").strip()[:MOST_CHARACTERS])})

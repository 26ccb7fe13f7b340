"""API of the frame: jobs in progress, and objects by name."""

from __future__ import annotations

from typing import TypedDict

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from webapp import overview
from webapp.frame.hits import HitGroupJson, find_lines

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
        jobs = [{"kind": each.kind, "title": each.title, "url": each.url, "waiting": each.waiting}
                for each in overview.in_progress()]
        return Response({"count": len(jobs), "jobs": jobs})


class SearchApi(APIView):
    """Objects whose names hold every word of `q`: groups of at most five lines with title, detail and address."""

    @extend_schema(operation_id="search", parameters=[OpenApiParameter("q", str, description="words, at most 200 characters")],
                   responses=SearchJson)
    def get(self, request: Request) -> Response:
        return Response({"groups": find_lines(request.query_params.get("q", "").strip()[:MOST_CHARACTERS])})

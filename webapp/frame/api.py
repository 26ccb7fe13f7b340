"""API of the frame: jobs in progress, and objects by name."""

from __future__ import annotations

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from webapp import overview
from webapp.frame.hits import find_lines

MOST_CHARACTERS = 200


class ActivityApi(APIView):
    """Jobs that wait or run, running first, at most 20."""

    @extend_schema(operation_id="activity", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request) -> Response:
        jobs = [{"kind": each.kind, "title": each.title, "url": each.url, "waiting": each.waiting}
                for each in overview.in_progress()]
        return Response({"count": len(jobs), "jobs": jobs})


class SearchApi(APIView):
    """Objects whose names hold every word of `q`: groups of at most five lines with title, detail and address."""

    @extend_schema(operation_id="search", parameters=[OpenApiParameter("q", str, description="words, at most 200 characters")],
                   responses=OpenApiTypes.OBJECT)
    def get(self, request: Request) -> Response:
        return Response({"groups": find_lines(request.query_params.get("q", "").strip()[:MOST_CHARACTERS])})

"""JSON over HTTP: the leaderboard of search methods."""

from __future__ import annotations

from typing import Any, TypedDict

from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tuner.scores import selectors


class LeaderboardJson(TypedDict):
    """What bench/tuner.py wrote: methods with their mean score, and a row per method and recorded space."""

    date: str
    repeats: str
    python: str
    packages: dict[str, str]
    methods: list[dict[str, Any]]
    rows: list[dict[str, Any]]
    again: dict[str, Any]


class LeaderboardApi(APIView):
    @extend_schema(operation_id="leaderboard", responses=LeaderboardJson)
    def get(self, request: Request) -> Response:
        """Methods with their mean score, and a row per method and recorded space."""
        document = selectors.leaderboard()
        if document is None:
            raise NotFound("nobody ran make bench-tuner for this version")
        return Response(document)

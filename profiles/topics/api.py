"""The topics' documents as JSON, their tables as files."""

from __future__ import annotations

from typing import Any, TypedDict

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.exports.api import FORMAT, asked_format
from profiles.exports.files import table_of_cells, table_response
from profiles.ingest.trace import SummaryTable
from profiles.models import Profile
from profiles.topics import services
from profiles.topics.documents import DOCUMENT
from profiles.topics.table import TOPICS, Topic, topic_of


def _topic(pk: int, name: str) -> tuple[Profile, Topic]:
    topic = topic_of(name)
    if topic is None:
        raise NotFound(f"no analysis is called {name}; there are {', '.join(entry.name for entry in TOPICS)}")
    return get_object_or_404(Profile, pk=pk, status=Profile.Status.READY, kind=Profile.Kind.TRACE), topic


class TopicWaitsJson(TypedDict):
    topic: str
    state: str


class TopicApi(APIView):
    @extend_schema(operation_id="profile_analysis", responses={200: DOCUMENT | SummaryTable, 202: TopicWaitsJson},
                   parameters=[OpenApiParameter("table", int, description="this table as a file, with `format`"), FORMAT])
    def get(self, request: Request, pk: int, name: str) -> Response | HttpResponse:
        """What one analysis of the whole trace found: answer, numbers, tables, findings. 202 while a worker makes it."""
        profile, topic = _topic(pk, name)
        kind = asked_format(request)
        try:
            document: dict[str, Any] | None = services.document_of(profile, topic)
        except FileNotFoundError:
            raise NotFound("this profile has no stored trace") from None
        if document is None:
            return Response({"topic": topic.name, "state": "a worker makes it"}, status=202)
        number = request.query_params.get("table", "")
        if not kind and not number:
            return Response(document)
        if not number.isdecimal() or len(number) > 9 or int(number) >= len(document["tables"]):
            raise NotFound(f"table must be one of 0 to {len(document['tables']) - 1}")
        table = document["tables"][int(number)]
        if not kind:
            return Response(table)
        columns = [(column["name"], "text" if column["text"] else "number") for column in table["columns"]]
        return table_response(table_of_cells(columns, table["rows"]), f"{profile.name}-{topic.name}-{number}", kind)

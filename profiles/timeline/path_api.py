"""The critical path as the timeline draws it."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from profiles.timeline import path_selectors
from profiles.timeline.api import JSON, YEAR_NS, TimelineView, parsed


class PathQuery(serializers.Serializer[Any]):
    path = serializers.CharField(required=False, default="whole", max_length=40,
                                 help_text="`whole`, `whole-1` (of a further rank), or `step-0`: the answer lists them.")
    start = serializers.IntegerField(required=False, default=0, min_value=0, max_value=YEAR_NS)
    end = serializers.IntegerField(required=False, default=YEAR_NS, min_value=0, max_value=YEAR_NS)


class CriticalPathApi(TimelineView):
    @extend_schema(operation_id="profiles_critical_path", summary="Segments of a critical path in a window",
                   responses=JSON, parameters=[PathQuery])
    def get(self, request: Request, pk: int) -> Response:
        """What the run waited for, as segments on tracks: GPU work, stretches of threads, and waits between them."""
        profile, found = self.open(pk)
        query = parsed(PathQuery, request, found)
        try:
            return Response(path_selectors.critical_path(profile, query["path"], query["start"], query["end"]))
        except LookupError as error:
            raise NotFound(str(error.args[0])) from None

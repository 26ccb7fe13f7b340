"""JSON of what a form can put side by side."""

from __future__ import annotations

from typing import TypedDict

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import Choice, plain
from profiles.compare import choice_selectors
from profiles.models import Profile


class CompareChoicesJson(TypedDict):
    choices: list[Choice]


class CompareChoicesApi(APIView):
    @extend_schema(operation_id="compare_choices", responses=CompareChoicesJson, parameters=[
        OpenApiParameter("of", str, enum=["profiles", "builds"]), OpenApiParameter("kind", str, enum=["trace", "counters"]),
        OpenApiParameter("q", str, description="words of name, build, model or GPU"),
        OpenApiParameter("beside", str, description="what stands on the other side: those most like it come first")])
    def get(self, request: Request) -> Response:
        """At most 30 profiles, or builds, that have every word."""
        query = request.query_params
        find, beside, kind = query.get("q", ""), query.get("beside", ""), query.get("kind", "")
        if query.get("of") == "builds":
            choices = choice_selectors.build_choices(find, beside)
        else:
            choices = choice_selectors.profile_choices(find, beside, kind if kind in Profile.Kind.values else "")
        return Response({"choices": plain(choices)})

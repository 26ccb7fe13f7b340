"""Rooflines over HTTP: ceilings and points, of one profile or of several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import Paged
from profiles.exports.api import FORMAT, asked_format
from profiles.exports.files import flat_response
from profiles.models import Profile
from profiles.rooflines.selectors import RooflineJson, requested_profiles, roofline_json
from workers.list_api import PAGED, read_page

PARAMETERS = [FORMAT, OpenApiParameter("per", str, enum=["kernel", "launch"]), OpenApiParameter("profiles", str),
              OpenApiParameter("before", int), OpenApiParameter("after", int), *PAGED]


class PagedRooflineJson(RooflineJson, Paged):
    """`points` in pages."""


class RooflineApi(APIView):
    @extend_schema(operation_id="profiles_roofline", responses=PagedRooflineJson, parameters=PARAMETERS)
    def get(self, request: Request, pk: int) -> Response | HttpResponse:
        """Ceilings and one named point per kernel, with its bound, levels and losses, in pages; as a file all points.

        `pairs` are places among all points.
        """
        profile = get_object_or_404(Profile, pk=pk)
        document = roofline_json(requested_profiles(request.query_params, profile), request.query_params) | {"profile": pk}
        if kind := asked_format(request):
            return flat_response(kind, f"profile-{pk}-roofline", document["points"])
        return paged(request, document)


class RooflinesApi(APIView):
    @extend_schema(operation_id="rooflines", responses=PagedRooflineJson, parameters=PARAMETERS)
    def get(self, request: Request) -> Response | HttpResponse:
        """The same of several profiles: `?profiles=1,2&before=1&after=2`."""
        document = roofline_json(requested_profiles(request.query_params), request.query_params)
        if kind := asked_format(request):
            return flat_response(kind, "roofline", document["points"])
        return paged(request, document)


def paged(request: Request, document: Mapping[str, Any]) -> Response:
    """Answer with a page of the points."""
    page = read_page(request, document["points"])
    return page.answer({**document, "points": page.rows})

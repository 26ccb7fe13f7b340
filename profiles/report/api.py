"""The summary of a profile for scripts and assistants."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.ingest.trace import TraceError
from profiles.models import Profile
from profiles.report.markdown import markdown
from profiles.report.selectors import summary

FORMATS = ("json", "md")


class SummaryApi(APIView):
    @extend_schema(operation_id="profile_summary", responses={
        (200, "application/json"): OpenApiTypes.OBJECT, (200, "text/markdown"): OpenApiTypes.STR},
        parameters=[OpenApiParameter("format", str, enum=list(FORMATS), description="JSON where it is absent")])
    def get(self, request: Request, pk: int) -> Response | HttpResponse:
        """One page of what is known: where the time went, what every analysis answers, findings, the largest kernels."""
        profile = get_object_or_404(Profile, pk=pk)
        kind = request.query_params.get("format") or "json"
        if kind not in FORMATS:
            raise TraceError("format", f"there is no format {kind[:40]!r}", f"ask for one of {', '.join(FORMATS)}")
        document = summary(profile, request.build_absolute_uri)
        return Response(document) if kind == "json" else HttpResponse(markdown(document),
                                                                      content_type="text/markdown; charset=utf-8")

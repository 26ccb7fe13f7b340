"""JSON of what lies over a kernel's page: results to choose from, and every number beside the baseline's."""

from __future__ import annotations

from typing import TypedDict

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import Choice, plain
from profiles.kernel import selectors
from profiles.models import KernelStat


class KernelBaselinesJson(TypedDict):
    baselines: list[selectors.KernelBaselineJson]
    choices: list[Choice]


class BaselineListApi(APIView):
    @extend_schema(operation_id="kernel_baselines", responses=KernelBaselinesJson, parameters=[
        OpenApiParameter("q", str, description="words of kernel, profile, build or GPU")])
    def get(self, request: Request, pk: int, kernel_pk: int) -> Response:
        """Results that may be the baseline of this kernel, the same kernel first."""
        kernel, find = KernelStat.find_or_404(pk, kernel_pk), request.query_params.get("q", "")[:200]
        return Response({"baselines": selectors.candidates(kernel, find),
                         "choices": plain(selectors.baseline_choices(kernel, find))})


class OverlayApi(APIView):
    @extend_schema(operation_id="kernel_overlay", responses=selectors.OverlayJson, parameters=[
        OpenApiParameter("baseline", str, required=True, description="KERNEL, or KERNEL-LAUNCH for one launch"),
        OpenApiParameter("launch", int, description="of this kernel; else all together")])
    def get(self, request: Request, pk: int, kernel_pk: int) -> Response:
        """Every number of the kernel's page beside the baseline's, with the difference in percent of the baseline."""
        document = selectors.overlay_json(KernelStat.find_or_404(pk, kernel_pk), request.query_params)
        if document is None:
            raise NotFound("baseline must name a kernel of a ready profile: KERNEL or KERNEL-LAUNCH")
        return Response(document)

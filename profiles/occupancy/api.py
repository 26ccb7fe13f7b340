"""The occupancy calculator as JSON."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.analysis.core.gpus import LIMITS
from profiles.analysis.kernel.occupancy import FIELDS
from profiles.occupancy import selectors

PARAMETERS = [
    OpenApiParameter("cc", str, enum=list(LIMITS), description="compute capability"),
    OpenApiParameter("kernel", int, description="fill in from this kernel of a profile"),
    OpenApiParameter("launch", int, description="of its launches this one; else the longest"),
    *(OpenApiParameter(name, int, description=f"{label}, {low:,} to {high:,}") for name, (label, low, high) in FIELDS.items()),
]


class OccupancyApi(APIView):
    @extend_schema(operation_id="occupancy", parameters=PARAMETERS,
                   responses={200: selectors.OccupancyJson, 400: selectors.OccupancyJson})
    def get(self, request: Request) -> Response:
        """Blocks and warps that fit on an SM, what limits them, the curves, and what more blocks would take."""
        document = selectors.page_json(request.query_params)
        return Response(document, status=400 if document["errors"] else 200)

"""The fleet's grade over HTTP."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.fleet.browse.needed_selectors import FleetNeededJson, fleet_needed
from profiles.fleet.selectors import FILTERS


class FleetNeededApi(APIView):
    @extend_schema(operation_id="fleet_needed", responses=FleetNeededJson,
                   parameters=[OpenApiParameter(name, str) for name in ("from", "to", *FILTERS)])
    def get(self, request: Request) -> Response:
        """What the fleet's kernels took and need at least, as far as captures show their shapes; needed_pct is of known_ns."""
        return Response(fleet_needed({name: str(value) for name, value in request.query_params.items()}).as_json())

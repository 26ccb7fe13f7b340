"""JSON over HTTP: batches of agents in, the fleet's list out."""

from __future__ import annotations

from typing import cast

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.fleet import gpu_selectors, selectors, services
from workers.agent.wire import MOST_BYTES, BatchRefused

JSON = OpenApiTypes.OBJECT
MOST_ROWS = 1000
ASKED = [OpenApiParameter(name, str) for name in ("from", "to", "group", *selectors.FILTERS)]


class BatchParser(BaseParser):
    """The body as it came, no longer than a batch may be."""

    media_type = "application/vnd.ridgepoint.fleet"

    def parse(self, stream, media_type=None, parser_context=None):      # type: ignore[no-untyped-def]
        return stream.read(MOST_BYTES + 1)


class FleetBatchApi(APIView):
    write_permission = "profiles.add_fleetbatch"
    parser_classes = [BatchParser]

    @extend_schema(operation_id="fleet_batch", request={BatchParser.media_type: OpenApiTypes.BINARY}, responses=JSON)
    def post(self, request: Request) -> Response:
        """A batch of an agent. 200 is a receipt: it is stored, and counts once however often it comes. 429: later."""
        try:
            return Response(services.batch_accept(cast(bytes, request.data)))
        except BatchRefused as refused:
            raise ValidationError({"batch": [str(refused)]}) from refused
        except services.FleetBusy as busy:
            return Response({"detail": str(busy)}, status=429, headers={"Retry-After": str(busy.retry_s)})


class FleetTopApi(APIView):
    @extend_schema(operation_id="fleet_top", parameters=[*ASKED, OpenApiParameter("limit", int)], responses=JSON)
    def get(self, request: Request) -> Response:
        """The kernels (signatures, builds, jobs, GPUs) with most time of the fleet."""
        asked = {name: str(value) for name, value in request.query_params.items()}
        limit = asked.pop("limit", "20")
        try:
            return Response(selectors.top(asked, min(MOST_ROWS, int(limit)) if limit.isdecimal() else 20).as_json())
        except selectors.QuestionRefused as refused:
            raise ValidationError({"question": [str(refused)]}) from refused


class FleetGpusApi(APIView):
    @extend_schema(operation_id="fleet_gpus", parameters=ASKED, responses=JSON)
    def get(self, request: Request) -> Response:
        """Every GPU beside the others of its model at the same kernels: SLOWER, OK or UNKNOWN, since when, and the limit."""
        try:
            return Response(gpu_selectors.slow_gpus({name: str(value) for name, value in request.query_params.items()}).as_json())
        except selectors.QuestionRefused as refused:
            raise ValidationError({"question": [str(refused)]}) from refused

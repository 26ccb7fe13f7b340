"""JSON over HTTP: batches of agents in, the fleet's list out."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, TypedDict

from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import Paged
from profiles.fleet import capture_services, selectors, services
from profiles.fleet.agent_services import AgentConflict
from profiles.fleet.browse import capture_selectors
from profiles.fleet.browse.needed_selectors import FleetNeededJson, fleet_needed
from profiles.fleet.slow import gpu_selectors
from profiles.models import FleetCapture
from workers.agent.wire import MOST_BYTES, BatchRefused
from workers.list_api import PAGED, read_page, validated

MOST_ROWS = 1000
MOST_CAPTURES = 200
ASKED = [OpenApiParameter(name, str) for name in ("from", "to", "group", *selectors.FILTERS)]


class BatchParser(BaseParser):
    """The body as it came, no longer than a batch may be."""

    media_type = "application/vnd.ridgepoint.fleet"

    def parse(self, stream, media_type=None, parser_context=None):      # type: ignore[no-untyped-def]
        return stream.read(MOST_BYTES + 1)


class FleetBatchApi(APIView):
    write_permission = "profiles.add_fleetbatch"
    parser_classes = [BatchParser]

    @extend_schema(operation_id="fleet_batch", request={BatchParser.media_type: OpenApiTypes.BINARY},
                   responses=services.ReceiptJson)
    def post(self, request: Request) -> Response:
        """A batch of an agent. 200 is a receipt: it is stored, and counts once however often it comes. 409: the agent's name is
        another token's, or the sequence was acknowledged with another content. 429: later."""
        try:
            body = request.data         # without a body no parser is asked
            return Response(services.batch_receive(body if isinstance(body, bytes) else b"", request.auth))
        except AgentConflict as conflict:
            return conflict_answer(conflict)
        except services.MinutesRefused as refused:
            raise ValidationError({"minutes": [str(refused)]}) from refused
        except BatchRefused as refused:
            raise ValidationError({"batch": [str(refused)]}) from refused
        except services.FleetBusy as busy:
            return Response({"detail": str(busy)}, status=429, headers={"Retry-After": str(busy.retry_s)})


def conflict_answer(conflict: AgentConflict) -> Response:
    return Response({"error": conflict.what, "where": conflict.where, "hint": conflict.hint}, status=409)


class FleetTopApi(APIView):
    @extend_schema(operation_id="fleet_top", parameters=[*ASKED, OpenApiParameter("limit", int)], responses=selectors.TopJson)
    def get(self, request: Request) -> Response:
        """The kernels (signatures, builds, jobs, GPUs) with most time of the fleet."""
        query = {name: str(value) for name, value in request.query_params.items()}
        limit = query.pop("limit", "20")
        return Response(selectors.top(query, min(MOST_ROWS, int(limit)) if limit.isdecimal() else 20).as_json())


class PagedGpusJson(gpu_selectors.SlowGpusJson, Paged):
    pass


class FleetGpusApi(APIView):
    @extend_schema(operation_id="fleet_gpus", parameters=[*ASKED, *PAGED], responses=PagedGpusJson)
    def get(self, request: Request) -> Response:
        """Every GPU beside the others of its model at the same kernels: SLOWER, OK or UNKNOWN, since when, and the limit."""
        gpus = gpu_selectors.slow_gpus({name: str(value) for name, value in request.query_params.items()
                                        if name not in ("limit", "offset")})
        page = read_page(request, gpus.rows, MOST_ROWS)
        return page.answer({**gpus.as_json(), "rows": [asdict(row) for row in page.rows]})


class OrderSerializer(serializers.Serializer[Any]):
    """Processes by `process` (as GET lists them), or by `pid`, or of a `job` (and `host`, `ranks`): the first `most` of them."""

    process = serializers.ListField(child=serializers.CharField(max_length=60), required=False, max_length=100)
    job = serializers.CharField(max_length=200, required=False)
    host = serializers.CharField(max_length=200, required=False)
    pid = serializers.IntegerField(min_value=1, max_value=2**31 - 1, required=False)
    ranks = serializers.CharField(max_length=100, required=False, help_text="as 0,2-5; these, whatever `most` says")
    most = serializers.IntegerField(min_value=1, max_value=capture_services.MOST_PROCESSES, default=1)
    steps = serializers.IntegerField(min_value=1, max_value=capture_services.MOST_STEPS, required=False)
    milliseconds = serializers.IntegerField(min_value=10, max_value=capture_services.MOST_MS, required=False)
    shapes = serializers.BooleanField(required=False, default=True)
    stacks = serializers.BooleanField(required=False, default=False)
    why = serializers.CharField(max_length=300, required=False, default="")


class FleetCapturesJson(Paged):
    processes: list[capture_selectors.ProcessJson]
    process_count: int
    captures: list[capture_selectors.FleetCaptureJson]


class OrderedJson(TypedDict):
    captures: list[capture_selectors.FleetCaptureJson]


class FleetCapturesApi(APIView):
    write_permission = "profiles.add_fleetcapture"

    @extend_schema(operation_id="fleet_captures", parameters=[OpenApiParameter("job", str), OpenApiParameter("host", str),
                                                               *PAGED], responses=FleetCapturesJson)
    def get(self, request: Request) -> Response:
        """Processes that can be captured, and orders with what became of them, the last first: `limit`, `offset` and `count` are
        of these. Of processes the first 1,000."""
        filters = {name: request.query_params.get(name, "") for name in ("job", "host")}
        living = capture_services.processes(filters["job"], filters["host"], launchers=True)
        page = read_page(request, capture_selectors.captures(filters), MOST_CAPTURES)
        return page.answer({"processes": [capture_selectors.process_json(process) for process in living[:MOST_ROWS]],
                            "process_count": len(living),
                            "captures": [capture_selectors.line_of(row).as_json() for row in page.rows]})

    @extend_schema(operation_id="fleet_capture_order", request=OrderSerializer, responses={201: OrderedJson})
    def post(self, request: Request) -> Response:
        """Order deep captures: steps of the job's optimizer, or milliseconds; several processes begin at one moment."""
        payload = validated(OrderSerializer, request.data)
        keys = payload.get("process") or capture_services.chosen(
            payload.get("job", ""), payload.get("host", ""), payload.get("pid", 0), payload.get("ranks", ""), payload["most"])
        rows = capture_services.order(keys, payload.get("steps"), payload.get("milliseconds"), request.user, payload["why"],
                                      shapes=payload["shapes"], stacks=payload["stacks"])
        return Response({"captures": [capture_selectors.line_of(row).as_json() for row in rows]}, status=201)


class FleetCaptureApi(APIView):
    @extend_schema(operation_id="fleet_capture", responses=capture_selectors.FleetCaptureJson)
    def get(self, request: Request, pk: int) -> Response:
        """What became of an order; `profile` once its trace was uploaded."""
        return Response(capture_selectors.line_of(_order(pk)).as_json())


class FleetCaptureStopApi(APIView):
    write_permission = "profiles.add_fleetcapture"

    @extend_schema(operation_id="fleet_capture_stop", request=None, responses=capture_selectors.FleetCaptureJson)
    def post(self, request: Request, pk: int) -> Response:
        """End an order, with those that were ordered together with it."""
        capture_services.stop(capture_services.with_others(_order(pk)))
        return Response(capture_selectors.line_of(_order(pk)).as_json())


def _order(pk: int) -> FleetCapture:
    return get_object_or_404(FleetCapture.objects.select_related("agent", "profile"), pk=pk)


class FleetNeededApi(APIView):
    @extend_schema(operation_id="fleet_needed", responses=FleetNeededJson,
                   parameters=[OpenApiParameter(name, str) for name in ("from", "to", *selectors.FILTERS)])
    def get(self, request: Request) -> Response:
        """What the fleet's kernels took and need at least, as far as captures show their shapes; needed_pct is of known_ns."""
        return Response(fleet_needed({name: str(value) for name, value in request.query_params.items()}).as_json())

"""JSON over HTTP for agents whose processes ask for captures, or that fetch traces of serving engines: orders between their
batches, and files."""

from __future__ import annotations

from typing import Any, TypedDict

from django.conf import settings
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.fleet import capture_services, services
from profiles.fleet.agent_services import AgentConflict
from profiles.fleet.api import conflict_answer
from profiles.ingest.trace import TraceError
from profiles.models import FleetCapture
from profiles.running import fetch_services, join_services
from profiles.running.models import EngineFetch
from profiles.upload.services import tags_parse, upload_check
from workers.list_api import validated

JSON = OpenApiTypes.OBJECT
MOST_STATE = 200_000


class OrdersSerializer(serializers.Serializer[Any]):
    """What an agent tells of itself (`workers.agent.deep.asking`)."""

    agent = serializers.CharField(max_length=200)
    host = serializers.CharField(max_length=200, required=False, allow_blank=True, default="")
    machine = serializers.CharField(max_length=64, required=False, allow_blank=True, default="")
    run = serializers.IntegerField(min_value=0, max_value=2**62, required=False, default=0)
    asking = serializers.ListField(child=serializers.JSONField(), max_length=1024)
    captures = serializers.ListField(child=serializers.JSONField(), max_length=1024, required=False, default=list)
    folders = serializers.ListField(child=serializers.CharField(max_length=400), max_length=16, required=False,
                                    help_text="that traces of serving engines may be fetched from")
    fetches = serializers.ListField(child=serializers.JSONField(), max_length=64, required=False, default=list)


class OrdersJson(TypedDict):
    """What an agent shall do (`workers.agent.deep.asking` reads it), and after how many seconds to ask again."""

    orders: list[capture_services.OrderJson]
    again_s: float


class FetchedJson(TypedDict):
    fetch: int
    number: int


class TraceTakenJson(TypedDict):
    """`id`: the profile; null where the trace is joined with those of other ranks once they came."""

    id: int | None
    capture: int


class FleetOrdersApi(APIView):
    write_permission = "profiles.add_fleetbatch"

    @extend_schema(operation_id="fleet_orders", request=OrdersSerializer, responses=OrdersJson)
    def post(self, request: Request) -> Response:
        """Captures that an agent shall make, traces that it shall fetch, and after how many seconds to ask again."""
        if int(request.META.get("CONTENT_LENGTH") or 0) > MOST_STATE:
            raise ValidationError({"asking": [f"at most {MOST_STATE:,} bytes"]})
        report = validated(OrdersSerializer, request.data)
        if not all(services.is_shallow(report[name]) for name in ("asking", "captures", "fetches")):
            raise ValidationError({"asking": ["too many levels"]})
        try:
            answer = capture_services.orders_for(report["agent"], report["host"], report, request.auth)
        except AgentConflict as conflict:
            return conflict_answer(conflict)
        return Response({**answer, "orders": [*answer["orders"], *fetch_services.orders_for(report["agent"], report)]})


class TraceSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=300, required=False, allow_blank=True, default="")
    build = serializers.CharField(max_length=200, required=False, allow_blank=True, default="")
    model = serializers.CharField(max_length=200, required=False, allow_blank=True, default="")
    tags = serializers.CharField(max_length=4000, required=False, allow_blank=True, default="")
    notes = serializers.CharField(max_length=20_000, required=False, allow_blank=True, default="")


def _check_size(request: Request) -> None:
    if int(request.META.get("CONTENT_LENGTH") or 0) > settings.UPLOAD_MAX_BYTES + (1 << 20):
        raise TraceError("request", f"at most {settings.UPLOAD_MAX_BYTES:,} bytes are taken", "record fewer steps")


class FleetFetchApi(APIView):
    write_permission = "profiles.add_fleetcapture"
    parser_classes = [MultiPartParser]

    @extend_schema(operation_id="fleet_fetch_file", request={"multipart/form-data": OpenApiTypes.OBJECT},
                   responses={201: FetchedJson})
    def post(self, request: Request, pk: int, number: int) -> Response:
        """A file that was ordered of an agent: a trace that a serving engine of its host wrote."""
        fetch = get_object_or_404(EngineFetch.objects.select_related("capture"), pk=pk)
        _check_size(request)
        fetch_services.check_upload(fetch, number)              # before the file is read
        fetch_services.take_file(pk, number, upload_check(request.FILES.get("file")))
        return Response({"fetch": pk, "number": number}, status=201)


class FleetTraceApi(APIView):
    write_permission = "profiles.add_fleetcapture"
    parser_classes = [MultiPartParser]

    @extend_schema(operation_id="fleet_capture_trace", request={"multipart/form-data": OpenApiTypes.OBJECT},
                   responses={201: TraceTakenJson})
    def post(self, request: Request, pk: int) -> Response:
        """The trace of an order. `id`: its profile; null where it is joined with those of other ranks once they came."""
        row = get_object_or_404(FleetCapture, pk=pk)
        _check_size(request)
        fields = validated(TraceSerializer, request.data)
        profile = join_services.take_trace(
            row.pk, upload_check(request.FILES.get("file")), name=fields["name"], build=fields["build"], model=fields["model"],
            notes=fields["notes"], tags=tags_parse(fields["tags"]))
        return Response({"id": profile.pk if profile else None, "capture": row.pk}, status=201)

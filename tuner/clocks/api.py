"""JSON over HTTP: what workers may do with the clocks of GPUs."""

from __future__ import annotations

from typing import TypedDict

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tuner.clocks import selectors, services
from tuner.clocks.wish import DEFAULT_GRAPHICS, ClockWish
from workers.list_api import validated


class WishRequest(serializers.Serializer[None]):
    graphics = serializers.CharField(max_length=40, required=False, default=DEFAULT_GRAPHICS,
                                     help_text="MHz, as 1410, or a share of the highest graphics clock, as 75%")
    memory_mhz = serializers.IntegerField(required=False, allow_null=True, default=None, help_text="left out: left alone")
    persistence = serializers.BooleanField(required=False, default=True, help_text="persistence mode on meanwhile")
    required = serializers.BooleanField(       # type: ignore[assignment]    # declared fields leave the class
        required=False, default=False, help_text="a job fails where the driver refuses")


class ClocksJson(TypedDict):
    gpus: list[selectors.ClockJson]


class ClockListApi(APIView):
    @extend_schema(operation_id="gpu_clocks", responses=ClocksJson)
    def get(self, request: Request) -> Response:
        """Every GPU of workers and rules: whether its clocks may be held, at what, who holds them now, how it last went."""
        return Response({"gpus": selectors.clock_list()})


class ClockApi(APIView):
    write_permission = "tuner.change_gpuclockrule"

    @extend_schema(operation_id="gpu_clocks_allow", request=WishRequest, responses=selectors.ClockJson)
    def put(self, request: Request, uuid: str) -> Response:
        """Let workers hold the clocks of a GPU while tune jobs and suites run on it. Owners only."""
        services.rule_set(uuid[:80], ClockWish.read(**validated(WishRequest, request.data)), by=request.user)
        return Response(next(card for card in selectors.clock_list() if card["uuid"] == uuid[:80]))

    @extend_schema(operation_id="gpu_clocks_forbid", responses={204: None})
    def delete(self, request: Request, uuid: str) -> Response:
        """Leave the clocks of a GPU alone from the next job on."""
        services.rule_remove(uuid[:80])
        return Response(status=204)

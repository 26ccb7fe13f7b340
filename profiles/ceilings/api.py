"""Measured ceilings over HTTP: list them, ask for a measurement, follow or stop one."""

from __future__ import annotations

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import Paged
from profiles.base.refused import Refused
from profiles.ceilings import selectors, services
from profiles.models import CeilingRun
from workers.list_api import PAGED, read_page


class CeilingRunsJson(Paged):
    """`ability`: whether one could be made now."""

    results: list[selectors.CeilingRunJson]
    ability: selectors.MeasureAbilityJson


class CeilingListApi(APIView):
    write_permission = "profiles.add_capture"

    @extend_schema(operation_id="ceilings_list", responses=CeilingRunsJson, parameters=PAGED,
                   description="Measurements, newest first, and whether one could be made now.")
    def get(self, request: Request) -> Response:
        page = read_page(request, selectors.runs(), 200)
        return page.answer({"results": [selectors.run_json(run) for run in page.rows], "ability": selectors.ability()})

    @extend_schema(operation_id="ceilings_measure", request=None, responses={201: selectors.CeilingRunJson},
                   description="Queues a measurement on a gpu worker: about one minute.")
    def post(self, request: Request) -> Response:
        try:
            run = services.ceilings_measure(owner=request.user)
        except Refused as refused:
            body = {"error": str(refused), "where": "workers", "hint": "see /api/workers/", "fields": {}}
            return Response(body, status=409)
        return Response(selectors.run_json(run), status=201)


class CeilingApi(APIView):
    @extend_schema(operation_id="ceilings_get", responses=selectors.CeilingRunJson,
                   description="One measurement with everything it found so far.")
    def get(self, request: Request, pk: int) -> Response:
        return Response(selectors.run_json(get_object_or_404(CeilingRun, pk=pk)))


class CeilingStopApi(APIView):
    write_permission = "profiles.add_capture"

    @extend_schema(operation_id="ceilings_stop", request=None, responses=selectors.CeilingRunJson)
    def post(self, request: Request, pk: int) -> Response:
        services.ceilings_stop(get_object_or_404(CeilingRun, pk=pk))
        return Response(selectors.run_json(get_object_or_404(CeilingRun, pk=pk)))

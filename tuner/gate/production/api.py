"""JSON over HTTP: kernels that production found slower."""

from __future__ import annotations

from typing import TypedDict

from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import Paged
from tuner.gate.production import selectors, services
from tuner.models import ProductionRegression
from workers.list_api import PAGED, read_page

LIST_LIMIT = 200


class ProductionListJson(selectors.LookedJson, Paged):
    offset: int
    rows: list[selectors.ProductionJson]


class ProductionPointJson(TypedDict):
    """A day of a series: medians of its blocks."""

    day: str
    build: str
    us: list[float]
    launches: int
    total_ns: int
    gpus: int


class WholeProductionJson(selectors.ProductionJson):
    points: list[ProductionPointJson]


class ProductionListApi(APIView):
    @extend_schema(operation_id="fleet_regressions", responses=ProductionListJson, parameters=[
        *(OpenApiParameter(name, str) for name in selectors.FILTERS), *PAGED])
    def get(self, request: Request) -> Response:
        """Kernels that became slower in production, open ones first, by the GPU time that they cost a day."""
        filters = {name: request.query_params.get(name, "")[:200] for name in selectors.FILTERS}
        page = read_page(request, selectors.production_list(filters), LIST_LIMIT)
        return page.answer({**selectors.production_document(), "offset": page.offset,
                            "rows": [selectors.production_json(row) for row in page.rows]})


class ProductionApi(APIView):
    write_permission = "tuner.change_regression"

    @extend_schema(operation_id="fleet_regression", responses=WholeProductionJson)
    def get(self, request: Request, pk: int) -> Response:
        """One of them, with the days of its series."""
        row = get_object_or_404(ProductionRegression.objects.select_related("guarded_by__suite"), pk=pk)
        return Response({**selectors.production_json(row), "points": [
            {"day": each.day.isoformat(), "build": each.build, "us": each.us, "launches": each.launches, "total_ns": each.total_ns,
             "gpus": each.gpus} for each in selectors.series_points(row)]})

    @extend_schema(operation_id="fleet_regression_change", request=OpenApiTypes.OBJECT, responses=WholeProductionJson)
    def post(self, request: Request, pk: int) -> Response:
        """{"state": open | acknowledged | intended | fixed, "note"}: what a person says of it."""
        row = get_object_or_404(ProductionRegression, pk=pk)
        body = request.data if isinstance(request.data, dict) else {}
        state, note = (body.get(name, "") for name in ("state", "note"))
        if not isinstance(state, str) or not isinstance(note, str):
            raise ValidationError({"state": ["texts: state and note"]})
        services.change_production(row, state, note, request.user)
        return self.get(request, pk)

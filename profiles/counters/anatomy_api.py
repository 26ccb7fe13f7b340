"""One launch of a kernel, taken apart, as JSON; its tables as files."""

from __future__ import annotations

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.counters import selectors as selectors
from profiles.exports.api import FORMAT, asked_format
from profiles.exports.files import table_of_cells, table_response
from profiles.models import KernelStat


class AnatomyApi(APIView):
    @extend_schema(operation_id="kernel_anatomy", responses=selectors.AnatomyJson, parameters=[
        OpenApiParameter("launch", int, description="index of the launch; else the longest"),
        OpenApiParameter("table", str, description="this table as a file, with `format`: speed, links, shared-memory, l1-cache, "
                         "l2-cache, device-memory, pipes, opcodes, details"), FORMAT])
    def get(self, request: Request, pk: int, kernel_pk: int) -> Response | HttpResponse:
        """Speed of light by part, memory chart and tables, pipes, instruction mix, schedulers, the details page's sections."""
        kernel = KernelStat.find_or_404(pk, kernel_pk)
        kind, table_name = asked_format(request), request.query_params.get("table", "")
        document = selectors.anatomy_json(kernel, request.query_params)
        if document is None:
            raise NotFound("no such launch was measured" if "launch" in request.query_params else
                           "no launch of this kernel was measured: it takes a report of Nsight Compute")
        if not kind and not table_name:
            return Response(document)
        tables = selectors.tables_of(document)
        if table_name not in tables:
            raise NotFound(f"table must be one of {', '.join(tables)}")
        columns, rows = tables[table_name]
        return table_response(table_of_cells(columns, rows), f"{kernel.short_name[:80]}-{table_name}", kind or "csv")

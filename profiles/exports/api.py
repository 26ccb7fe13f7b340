"""Tables as files: `?format=csv|json|parquet|arrow` of the lists of the API, and of any table that a page holds."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.views import APIView

from profiles.exports.files import KINDS, decode_rows, table_of_cells, table_response
from profiles.ingest.trace import TraceError
from workers.list_api import validated

FORMAT = OpenApiParameter("format", str, enum=list(KINDS), description="The whole table as a file (also `as`)")
MAX_BYTES = 16 << 20
MAX_COLUMNS, MAX_ROWS = 500, 500_000
FILE = {(200, content_type.split(";")[0]): OpenApiTypes.BINARY for content_type in KINDS.values()}
JSON = (200, "application/json")            # of an answer that may also be a file: its type is said after FILE's, which has it too


def asked_format(request: Request, also: bool = False) -> str:
    """The kind of file that `?format=` (or `?as=`) asks for, "" for none. Raises TraceError for unknown ones.

    `also`: `format` may also be something else there (the list of profiles is filtered by it).
    """
    kinds = [request.query_params.get(name, "") for name in ("as", "format")]
    kind = next((kind for kind in kinds if kind in KINDS), "" if also else kinds[0] or kinds[1])
    if kind and kind not in KINDS:
        raise TraceError("format", f"there is no format {kind[:40]!r}", f"ask for one of {', '.join(KINDS)}")
    return kind


class CellsSerializer(serializers.Serializer[Any]):
    """A table as a page holds it: rows of plain values in the order of the columns."""

    name = serializers.CharField(max_length=200, required=False, default="table", allow_blank=True)
    columns = serializers.ListField(child=serializers.DictField(), min_length=1, max_length=MAX_COLUMNS,
                                    help_text='{"name", "type": "number" or "text"} each')
    rows = serializers.ListField(max_length=MAX_ROWS, child=serializers.ListField(max_length=MAX_COLUMNS))


class LongJson(BaseParser):
    """JSON up to MAX_BYTES, which the view has looked at: Django's own bound of what is read into memory is made for forms."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        try:
            return decode_rows(stream.read())
        except ValueError as error:
            raise ParseError(f"JSON parse error - {error}") from None


class TableApi(APIView):
    write_permission = "profiles.view_profile"      # nothing is written: the table comes back as a file
    parser_classes = [LongJson]

    @extend_schema(operation_id="tables_convert", summary="A table of a page as a file", request=CellsSerializer,
                   parameters=[FORMAT], responses={**FILE, 400: OpenApiResponse(description="What is wrong, as JSON")})
    def post(self, request: Request) -> HttpResponse:
        """The rows that were sent, as CSV, JSON, Parquet or Arrow."""
        if int(request.META.get("CONTENT_LENGTH") or 0) > MAX_BYTES:
            raise TraceError("request", f"the table has more than {MAX_BYTES >> 20} MB", "filter it, or take the API's own address")
        kind = asked_format(request) or "csv"
        payload = validated(CellsSerializer, request.data)
        named = [(str(column.get("name", ""))[:200] or f"column {i + 1}", str(column.get("type", "")))
                 for i, column in enumerate(payload["columns"])]
        return table_response(table_of_cells(named, payload["rows"]), payload["name"] or "table", kind)

"""Queries over HTTP: run, stop, chart, take away as a file; the tables' documentation; queries that the team keeps."""

from __future__ import annotations

from typing import Any, TypedDict

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import Scalar, plain
from profiles.exports import files
from profiles.exports.files import table_response
from profiles.ingest.trace import TraceError
from profiles.models import SavedQuery
from profiles.sql import charts as sql_charts
from profiles.sql import query_selectors, query_services
from profiles.sql import services as sql_services
from profiles.sql.examples import EXAMPLES, Example
from profiles.sql.process import QueryError
from profiles.sql.tables import TABLES, Table
from workers.list_api import validated

_STATUS = {"busy": 429}


class ChartSerializer(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(query_services.CHARTS)
    x = serializers.CharField(max_length=200)
    y = serializers.CharField(max_length=200, required=False, allow_blank=True)


class RunSerializer(serializers.Serializer[Any]):
    query = serializers.CharField(max_length=10 * sql_services.SQL_CHARS, trim_whitespace=False)
    profiles = serializers.ListField(child=serializers.IntegerField(min_value=1, max_value=2**62), required=False, max_length=500,
                                     help_text="Ids. Together with build or tag: those of them.")
    build = serializers.CharField(required=False, allow_blank=True, max_length=80)
    tag = serializers.CharField(required=False, allow_blank=True, max_length=60)
    rows = serializers.IntegerField(required=False, min_value=1, max_value=sql_services.MOST.rows)
    seconds = serializers.FloatField(required=False, min_value=0.1, max_value=sql_services.MOST.seconds)
    format = serializers.ChoiceField(("json", "csv", "parquet", "arrow"), required=False, default="json",
                                     help_text="json: columns and rows; the others: a file with up to a million rows.")
    chart = ChartSerializer(required=False, allow_null=True, help_text="A figure of two columns in place of the rows.")
    run = serializers.RegexField(r"^[A-Za-z0-9-]{1,64}$", required=False, help_text="Names this run, so that it can be stopped.")
    fresh = serializers.BooleanField(required=False, default=False, help_text="Run it even if its rows are still kept.")


class StopSerializer(serializers.Serializer[Any]):
    run = serializers.RegexField(r"^[A-Za-z0-9-]{1,64}$")


class QuerySerializer(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=120)
    sql = serializers.CharField(max_length=sql_services.SQL_CHARS, trim_whitespace=False)
    description = serializers.CharField(max_length=4000, required=False, allow_blank=True)
    chart = serializers.DictField(child=serializers.CharField(max_length=200, allow_blank=True), required=False)


class SqlView(APIView):
    """Errors of a query say where in it: {"error", "where", "hint", "position", "kind"}."""

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, QueryError):
            return Response({"error": exc.what, "where": exc.where, "hint": exc.hint, "position": exc.position, "kind": exc.kind},
                            status=_STATUS.get(exc.kind, 400))
        return super().handle_exception(exc)


class QueriedProfileJson(TypedDict):
    id: int
    name: str


class QueryLimitsJson(TypedDict):
    rows: int
    bytes: int
    seconds: float


class ResultColumnJson(TypedDict):
    """A column of a result: its Arrow type, and what that is to a page ("number", "text" …)."""

    name: str
    type: str
    kind: str


class QueryResultJson(TypedDict):
    """Rows of a query; `kept`: they were there from a run before."""

    columns: list[ResultColumnJson]
    rows: list[list[Scalar]]
    row_count: int
    truncated: bool
    seconds: float
    kept: bool
    limits: QueryLimitsJson
    profiles: list[QueriedProfileJson]


class QueryChartJson(TypedDict):
    """A figure for Bokeh, and what it leaves out."""

    chart: dict[str, Any]
    note: str


class SqlStopJson(TypedDict):
    stopping: str


class SqlTablesJson(TypedDict):
    tables: list[Table]
    examples: list[Example]


class QueriesJson(TypedDict):
    queries: list[query_selectors.QueryJson]


class SqlApi(SqlView):
    permission_classes = [IsAuthenticated]          # it only reads: viewers and read-only tokens may

    @extend_schema(operation_id="sql_run", request=RunSerializer, responses=QueryResultJson | QueryChartJson,
                   summary="Run one SELECT over the tables of some profiles")
    def post(self, request: Request) -> HttpResponse | Response:
        fields = validated(RunSerializer, request.data)
        profiles = sql_services.choose_profiles(fields.get("profiles") or (), fields.get("build", ""), fields.get("tag", ""))
        limits = sql_services.limits_of(fields.get("rows"), fields.get("seconds"), whole=fields["format"] != "json")
        result = sql_services.query_run(fields["query"], profiles, request.user.get_username(), limits, run=fields.get("run", ""),
                                       fresh=fields["fresh"])
        if fields["format"] != "json":
            return table_response(result.table, "query", fields["format"])
        if fields.get("chart"):
            return Response(_chart(result, fields["chart"]))
        return Response(_answer(result) | {"profiles": [{"id": profile.pk, "name": profile.name} for profile in profiles]})


def _answer(result: sql_services.Result) -> dict[str, Any]:
    return {"columns": files.columns(result.table), "rows": files.rows(result.table), "row_count": result.table.num_rows,
            "truncated": result.truncated, "seconds": round(result.seconds, 3), "kept": result.kept,
            "limits": {"rows": result.limits.rows, "bytes": result.limits.bytes, "seconds": result.limits.seconds}}


def _chart(result: sql_services.Result, asked: dict[str, str]) -> dict[str, Any]:
    def series(name: str) -> sql_charts.Series:
        position = result.table.schema.get_field_index(name)
        if position < 0:
            raise TraceError("chart", f"the result has no single column {name}", "Choose one of its columns")
        numbers = files.numbers(result.table, name)
        texts = ["" if value is None else str(files.cell(value))
                 for value in files.list_values(result.table.column(position))]
        return sql_charts.Series(name, None if numbers is None else
                                 [float("nan") if value is None else value for value in numbers.to_pylist()], texts)

    if not result.table.num_rows:
        raise TraceError("chart", "the result has no rows", "Draw another query")
    item, note = sql_charts.chart(asked["kind"], series(asked["x"]), series(asked["y"]) if asked.get("y") else None)
    return {"chart": item, "note": note}


class SqlStopApi(SqlView):
    permission_classes = [IsAuthenticated]

    @extend_schema(operation_id="sql_stop", request=StopSerializer, responses=SqlStopJson, summary="Stop your own run of that name")
    def post(self, request: Request) -> Response:
        form = validated(StopSerializer, request.data)
        sql_services.query_stop(request.user.get_username(), form["run"])
        return Response({"stopping": form["run"]})


class SqlTablesApi(SqlView):
    @extend_schema(operation_id="sql_tables", responses=SqlTablesJson,
                   summary="The tables that a query sees, and queries to begin with")
    def get(self, request: Request) -> Response:
        return Response({"tables": plain(TABLES), "examples": plain(EXAMPLES)})


class QueryListApi(SqlView):
    write_permission = "profiles.add_savedquery"

    @extend_schema(operation_id="queries", responses=QueriesJson, summary="Queries that the team keeps")
    def get(self, request: Request) -> Response:
        return Response({"queries": query_selectors.query_list(request.user)})

    @extend_schema(operation_id="queries_create", request=QuerySerializer, responses={201: query_selectors.QueryJson},
                   summary="Keep a query for the team")
    def post(self, request: Request) -> Response:
        form = validated(QuerySerializer, request.data)
        query = query_services.query_save(owner=request.user, **form)
        return Response(query_selectors.query_json(query, request.user), status=201)


class QueryApi(SqlView):
    write_permission = {"PATCH": "profiles.change_savedquery", "DELETE": "profiles.delete_savedquery"}

    @extend_schema(operation_id="query", responses=query_selectors.QueryJson)
    def get(self, request: Request, pk: int) -> Response:
        return Response(query_selectors.query_json(get_object_or_404(SavedQuery, pk=pk), request.user))

    @extend_schema(operation_id="query_edit", request=QuerySerializer(partial=True), responses=query_selectors.QueryJson)
    def patch(self, request: Request, pk: int) -> Response:
        form = validated(QuerySerializer, request.data, partial=True)
        query = query_services.query_update(get_object_or_404(SavedQuery, pk=pk), by=request.user, **form)
        return Response(query_selectors.query_json(query, request.user))

    @extend_schema(operation_id="query_delete", responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        query_services.query_delete(get_object_or_404(SavedQuery, pk=pk), by=request.user)
        return Response(status=204)

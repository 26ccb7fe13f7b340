"""JSON over HTTP: serving engines, captures of them, and schedules."""

from __future__ import annotations

from typing import Any, TypedDict

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import Paged
from profiles.running import engine_services, schedule_services, selectors
from profiles.running.fetch_services import hosts
from profiles.running.models import CaptureSchedule, EngineCapture, EngineServer
from workers.list_api import PAGED, read_page, validated

MOST_ROWS = 200


class ServerSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=80)
    kind = serializers.ChoiceField(choices=EngineServer.Kind.values)
    address = serializers.CharField(max_length=500)
    token = serializers.CharField(max_length=300, required=False, allow_blank=True, default="", help_text="never shown again")
    results = serializers.ChoiceField(choices=EngineServer.Results.values, required=False, default="folder")
    folder = serializers.CharField(max_length=400)
    host = serializers.CharField(max_length=200, required=False, allow_blank=True, default="",
                                 help_text="results=agent: whose agent fetches the traces")
    enabled = serializers.BooleanField(required=False, default=True)


class EngineCaptureSerializer(serializers.Serializer[Any]):
    until = serializers.ChoiceField(choices=EngineCapture.Until.values, required=False, default="seconds")
    seconds = serializers.FloatField(required=False)
    threshold_ms = serializers.FloatField(required=False)
    latency = serializers.ChoiceField(choices=["e2e", "ttft"], required=False)
    build = serializers.CharField(max_length=80, required=False, allow_blank=True)
    options = serializers.DictField(required=False, default=dict, help_text="parameters of the engine's own /start_profile")


class ScheduleSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=120)
    when = serializers.ChoiceField(choices=CaptureSchedule.When.values)
    minute = serializers.IntegerField(min_value=0, max_value=1439, required=False, default=120, help_text="of the day, UTC")
    requests = serializers.IntegerField(min_value=0, required=False, default=0)
    server = serializers.PrimaryKeyRelatedField(queryset=EngineServer.objects, required=False, allow_null=True, default=None)
    job = serializers.CharField(max_length=200, required=False, allow_blank=True, default="")
    host = serializers.CharField(max_length=200, required=False, allow_blank=True, default="")
    ranks = serializers.CharField(max_length=100, required=False, allow_blank=True, default="")
    most = serializers.IntegerField(min_value=1, max_value=16, required=False, default=1)
    options = serializers.DictField(required=False, default=dict, help_text=(
        "of processes: steps or milliseconds, shapes, stacks; of a server, as of a capture: until, seconds, threshold_ms, latency, "
        "options"))
    per_day = serializers.IntegerField(min_value=1, max_value=100, required=False, default=1)
    per_job_day = serializers.IntegerField(min_value=1, max_value=100, required=False, default=4)
    enabled = serializers.BooleanField(required=False, default=True)


class ServersJson(TypedDict):
    servers: list[selectors.EngineServerJson]
    hosts: list[selectors.HostJson]


class EngineCapturesJson(Paged):
    captures: list[selectors.EngineCaptureJson]


class SchedulesJson(TypedDict):
    schedules: list[selectors.ScheduleJson]


class ServersApi(APIView):
    write_permission = "profiles.add_engineserver"

    @extend_schema(operation_id="engine_servers", responses=ServersJson)
    def get(self, request: Request) -> Response:
        """Serving engines that may be captured, without their tokens; and hosts whose agents fetch traces, with their folders."""
        return Response({"servers": [selectors.server_json(row) for row in EngineServer.objects.all()],
                         "hosts": [selectors.host_json(host) for host in hosts()]})

    @extend_schema(operation_id="engine_server_create", request=ServerSerializer, responses={201: selectors.EngineServerJson})
    def post(self, request: Request) -> Response:
        """Name a server; it is asked for its version."""
        fields = validated(ServerSerializer, request.data)
        row = engine_services.server_save(author=request.user, **fields)
        return Response(selectors.server_json(engine_services.ask_version(row)), status=201)


class ServerApi(APIView):
    write_permission = {"PATCH": "profiles.change_engineserver", "DELETE": "profiles.delete_engineserver"}

    @extend_schema(operation_id="engine_server", responses=selectors.EngineServerJson)
    def get(self, request: Request, pk: int) -> Response:
        return Response(selectors.server_json(get_object_or_404(EngineServer, pk=pk)))

    @extend_schema(operation_id="engine_server_change", request=ServerSerializer, responses=selectors.EngineServerJson)
    def patch(self, request: Request, pk: int) -> Response:
        """Change some of its fields; without `token` it keeps its own. It is asked for its version."""
        row = get_object_or_404(EngineServer, pk=pk)
        fields = validated(ServerSerializer, request.data, partial=True)
        current = {name: getattr(row, name) for name in ("name", "kind", "address", "results", "folder", "host", "enabled")}
        changed = {name: value for name, value in fields.items() if name in request.data}
        engine_services.server_save(row, **{**current, **changed})
        return Response(selectors.server_json(engine_services.ask_version(row)))

    @extend_schema(operation_id="engine_server_delete", responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        """Delete it with its captures; their profiles stay."""
        get_object_or_404(EngineServer, pk=pk).delete()
        return Response(status=204)


class ServerCapturesApi(APIView):
    write_permission = "profiles.add_enginecapture"

    @extend_schema(operation_id="engine_captures", responses=EngineCapturesJson, parameters=PAGED)
    def get(self, request: Request, pk: int) -> Response:
        """Its captures, newest first."""
        page = read_page(request, selectors.engine_captures(get_object_or_404(EngineServer, pk=pk)), MOST_ROWS)
        return page.answer({"captures": [selectors.engine_json(row) for row in page.rows]})

    @extend_schema(operation_id="engine_capture_create", request=EngineCaptureSerializer,
                   responses={201: selectors.EngineCaptureJson})
    def post(self, request: Request, pk: int) -> Response:
        """Capture it: a time, steps, or until the first slow request."""
        fields = validated(EngineCaptureSerializer, request.data)
        row = engine_services.capture_create(get_object_or_404(EngineServer, pk=pk), fields, request.user)
        return Response(selectors.engine_json(row), status=201)


class EngineCaptureApi(APIView):
    @extend_schema(operation_id="engine_capture", responses=selectors.EngineCaptureJson)
    def get(self, request: Request, pk: int) -> Response:
        return Response(selectors.engine_json(get_object_or_404(selectors.engine_captures(), pk=pk)))


class EngineCaptureStopApi(APIView):
    write_permission = "profiles.change_enginecapture"

    @extend_schema(operation_id="engine_capture_stop", request=None, responses=selectors.EngineCaptureJson)
    def post(self, request: Request, pk: int) -> Response:
        """Stop it; the engine is told within a second."""
        engine_services.capture_stop(get_object_or_404(EngineCapture, pk=pk))
        return Response(selectors.engine_json(get_object_or_404(selectors.engine_captures(), pk=pk)))


class SchedulesApi(APIView):
    write_permission = "profiles.add_captureschedule"

    @extend_schema(operation_id="capture_schedules", responses=SchedulesJson)
    def get(self, request: Request) -> Response:
        """Captures by a schedule: when, of what, budgets and the last result."""
        return Response({"schedules": [selectors.schedule_json(line) for line in selectors.schedule_lines()]})

    @extend_schema(operation_id="capture_schedule_create", request=ScheduleSerializer, responses={201: selectors.ScheduleJson})
    def post(self, request: Request) -> Response:
        fields = validated(ScheduleSerializer, request.data)
        row = schedule_services.schedule_save(author=request.user, **fields)
        return Response(_schedule_json(row), status=201)


class ScheduleApi(APIView):
    write_permission = {"PATCH": "profiles.change_captureschedule", "DELETE": "profiles.delete_captureschedule"}

    @extend_schema(operation_id="capture_schedule", responses=selectors.ScheduleJson)
    def get(self, request: Request, pk: int) -> Response:
        return Response(_schedule_json(get_object_or_404(CaptureSchedule, pk=pk)))

    @extend_schema(operation_id="capture_schedule_change", request=ScheduleSerializer, responses=selectors.ScheduleJson)
    def patch(self, request: Request, pk: int) -> Response:
        """Change some of its fields; `enabled` pauses and resumes it."""
        row = get_object_or_404(CaptureSchedule, pk=pk)
        fields = validated(ScheduleSerializer, request.data, partial=True)
        changed = {name: value for name, value in fields.items() if name in request.data}
        schedule_services.schedule_save(row, **{**schedule_services.schedule_fields(row), **changed})
        return Response(_schedule_json(row))

    @extend_schema(operation_id="capture_schedule_delete", responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        """Delete it; what it captured stays."""
        schedule_services.schedule_change(get_object_or_404(CaptureSchedule, pk=pk), "delete")
        return Response(status=204)


def _schedule_json(row: CaptureSchedule) -> selectors.ScheduleJson:
    return selectors.schedule_json(selectors.schedule_line(row))

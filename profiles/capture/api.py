"""Captures over HTTP: ask for one, follow it, stop it, delete it; what may be captured, by what."""

from __future__ import annotations

from typing import Any, TypedDict

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, extend_schema, inline_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import Paged
from profiles.base.refused import Refused
from profiles.capture import command, cost_selectors, selectors, services
from profiles.capture import command as capture_command
from profiles.capture.tools import CAPTURE_TOOLS
from profiles.capture.tools.tool import Paths
from profiles.models import Capture, CaptureTarget, Profile
from workers.list_api import PAGED, read_page, validated


class CaptureSerializer(serializers.Serializer[None]):
    __doc__ = "What to capture. `options`: fields of " + " or ".join(
        f"{tool.options.__name__} ({', '.join(tool.options.READ)})" for tool in CAPTURE_TOOLS.values()) + "."

    target = serializers.IntegerField()
    tool = serializers.ChoiceField(choices=list(CAPTURE_TOOLS))
    options = serializers.DictField(required=False, default=dict)
    build = serializers.CharField(required=False, default="", allow_blank=True, max_length=80)
    model = serializers.CharField(required=False, default="", allow_blank=True, max_length=120)
    tags = serializers.ListField(
        child=serializers.CharField(max_length=60), required=False, default=list, max_length=50)
    baseline = serializers.PrimaryKeyRelatedField(queryset=Profile.objects, required=False, allow_null=True, default=None)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse what no field takes: a name that is misspelt would be a capture of something else."""
        unknown = f"unknown; there are {', '.join(self.fields)}"
        if wrong := {str(name)[:80]: [unknown] for name in self.initial_data if name not in self.fields}:
            raise serializers.ValidationError(wrong)
        return attrs


class TargetSerializer(serializers.Serializer[None]):
    name = serializers.CharField(max_length=120)
    argv = serializers.ListField(child=serializers.CharField(max_length=1000, trim_whitespace=False), max_length=200)
    description = serializers.CharField(required=False, default="", allow_blank=True, max_length=2000)
    cwd = serializers.CharField(required=False, default="", allow_blank=True, max_length=1000)
    env = serializers.DictField(child=serializers.CharField(allow_blank=True), required=False, default=dict)
    enabled = serializers.BooleanField(required=False, default=True)


def refusal_response(error: Refused) -> Response:
    """409 when nobody could run it now, 400 for a request that is wrong."""
    fields = {name: [text] for name, text in error.fields.items() if name}
    whole = error.fields.get("")
    hint = "correct these fields" if fields else "captures need a live gpu worker: see /api/workers/"
    body = {"error": whole or str(error), "where": ", ".join(fields) or "workers", "hint": hint, "fields": fields}
    return Response(body, status=400 if fields else 409)


def conflict_response(error: Refused) -> Response:
    return Response({"error": str(error), "where": "capture", "hint": "read the capture for its state"}, status=409)


class CapturesJson(Paged):
    """`ability`: tool → who can use it now."""

    results: list[selectors.CaptureJson]
    ability: dict[str, selectors.AbilityJson]


class CaptureListApi(APIView):
    write_permission = "profiles.add_capture"

    @extend_schema(operation_id="captures_list", responses=CapturesJson, description="Newest first, without their logs.",
                   parameters=[OpenApiParameter("status", str), OpenApiParameter("tool", str), OpenApiParameter("target", int),
        *PAGED])
    def get(self, request: Request) -> Response:
        page = read_page(request, selectors.captures(request.query_params.dict()), 100)
        return page.answer({"results": [selectors.capture_json(row) for row in page.rows],
                            "ability": {tool: able.as_json() for tool, able in selectors.ability().items()}})

    @extend_schema(operation_id="captures_create", request=CaptureSerializer, responses={201: selectors.CaptureJson})
    def post(self, request: Request) -> Response:
        payload = validated(CaptureSerializer, request.data)
        try:
            capture = services.capture_create(
                owner=request.user, target=CaptureTarget.objects.filter(pk=payload.pop("target")).first(), **payload)
        except Refused as error:
            return refusal_response(error)
        return Response(selectors.capture_json(capture, log=True), status=201)


class CapturePreviewApi(APIView):
    """What would run, or what is wrong, and the state of the queue; nothing is queued."""

    write_permission = "profiles.add_capture"

    @extend_schema(operation_id="captures_preview", request=CaptureSerializer, responses=inline_serializer("CapturePreview", {
        "command": serializers.CharField(), "argv": serializers.ListField(child=serializers.CharField()),
        "environ": serializers.DictField(child=serializers.CharField()),
        "slowdown": serializers.CharField(), "fields": serializers.DictField(child=serializers.CharField()),
        "able": serializers.BooleanField(), "own": serializers.CharField(), "common": serializers.CharField(),
        "queue": serializers.CharField(), "metrics": serializers.ListField(child=serializers.CharField())}))
    def post(self, request: Request) -> Response:
        payload = validated(CaptureSerializer, request.data)
        target = CaptureTarget.objects.filter(pk=payload["target"]).first()
        fields, able = services.capture_problems(target=target, tool=payload["tool"], options=payload["options"])
        able = able or selectors.ability()[payload["tool"]]
        answer: dict[str, Any] = {"command": "", "argv": [], "fields": fields, "environ": {}, "slowdown": "",
                                  "able": able.able, "own": able.own, "common": able.common, "queue": selectors.queue_text(able),
                                  "metrics": []}
        if not fields and target is not None:
            tool, paths = CAPTURE_TOOLS[payload["tool"]], Paths(installed=able.installed)
            options = tool.options.parse(payload["options"])
            answer |= {"command": selectors.preview(options, target.argv, able.installed),
                       "argv": capture_command.build_command(options, target.argv, paths),
                       "environ": dict(tool.environ(options, paths)), "slowdown": cost_selectors.expected(options, target),
                       "metrics": [match.as_json() for match in command.matches(options, able.gpu)]}
        return Response(answer)


class WholeCaptureJson(selectors.CaptureJson):
    cost: cost_selectors.CostJson


class CaptureApi(APIView):
    write_permission = "profiles.delete_capture"

    @extend_schema(operation_id="captures_get", responses=WholeCaptureJson,
                   description="The capture with the tail of its log and its files.")
    def get(self, request: Request, pk: int) -> Response:
        capture = get_object_or_404(Capture.objects.select_related("target", "owner", "profile", "baseline"), pk=pk)
        document = selectors.capture_json(capture, log=True, owner=request.user.has_perm(selectors.OWNER))
        return Response({**document, "cost": cost_selectors.cost(capture).as_json()})

    @extend_schema(operation_id="captures_delete", responses={204: None},
                   description="Deletes an ended capture with its log and the files that were kept; profiles that it made stay.")
    def delete(self, request: Request, pk: int) -> Response:
        try:
            services.capture_delete(get_object_or_404(Capture, pk=pk))
        except Refused as refused:
            return conflict_response(refused)
        return Response(status=204)


class CaptureStopApi(APIView):
    write_permission = "profiles.add_capture"

    @extend_schema(operation_id="captures_stop", request=None, responses=selectors.CaptureJson,
                   description="Ends a queued or running capture within a second. A tool that can finish its report first is told "
                               "to (`stopping`): a second stop ends it at once.")
    def post(self, request: Request, pk: int) -> Response:
        services.capture_stop(get_object_or_404(Capture, pk=pk))
        capture = get_object_or_404(Capture.objects.select_related("target", "owner"), pk=pk)
        return Response(selectors.capture_json(capture))


class CaptureDumpApi(APIView):
    write_permission = "profiles.add_capture"

    @extend_schema(operation_id="captures_dump", request=None, responses={202: selectors.CaptureJson},
                   description="Asks a running capture of torch.profiler that records memory history for a snapshot now. The "
                               "program goes on; the snapshot becomes a profile, named among `files`. At most `dumps.most` of one.")
    def post(self, request: Request, pk: int) -> Response:
        capture = get_object_or_404(Capture.objects.select_related("target", "owner"), pk=pk)
        try:
            services.capture_dump(capture)
        except Refused as refused:
            return conflict_response(refused)
        return Response(selectors.capture_json(capture), status=202)


class CaptureTargetsJson(TypedDict):
    results: list[selectors.CaptureTargetJson]


class CaptureTargetListApi(APIView):
    write_permission = "profiles.add_capturetarget"

    @extend_schema(operation_id="captures_targets", responses=CaptureTargetsJson,
                   description="What may be captured. Environments are shown to owners only.")
    def get(self, request: Request) -> Response:
        owner = request.user.has_perm("profiles.change_capturetarget")
        targets = selectors.targets(enabled_only=not owner)
        return Response({"results": [selectors.target_json(target, env=owner) for target in targets]})

    @extend_schema(operation_id="captures_targets_create", request=TargetSerializer, responses={201: selectors.CaptureTargetJson})
    def post(self, request: Request) -> Response:
        payload = validated(TargetSerializer, request.data)
        try:
            target = services.target_save(**payload)
        except Refused as error:
            return refusal_response(error)
        return Response(selectors.target_json(target, env=True), status=201)



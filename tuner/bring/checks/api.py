"""JSON over HTTP: check a kernel file, follow or stop that, count an edited space."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.parsers import JSONParser, MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from profiles.base.answers import Scalar
from profiles.base.refused import Refused
from tuner.bring.checks import selectors, services, sources
from tuner.models import KernelCheck
from tuner.query_api import Checked

MAY_CHECK = "tuner.add_kernelcheck"


class CheckRequest(serializers.Serializer[None]):
    """A file: its text, a part `upload` of a form, or where it lies: `source`, `commit` and `path`."""

    text = serializers.CharField(required=False, allow_blank=True, trim_whitespace=False, max_length=services.MAX_TEXT_BYTES)
    upload = serializers.FileField(required=False)
    file = serializers.CharField(required=False, allow_blank=True, max_length=80, help_text="its name: add.py, add.cu")
    # DRF takes fields out of the class: its own attribute of this name stays
    source = serializers.CharField(required=False, allow_blank=True, max_length=300, help_text=(    # type: ignore[assignment]
        "in place of a text: a repository (https://host/team/kernels) with `commit`, or a package (NAME==VERSION)"))
    commit = serializers.CharField(required=False, allow_blank=True, max_length=80, help_text="a whole commit, a branch or a tag")
    path = serializers.CharField(required=False, allow_blank=True, max_length=240,
                                 help_text="of the file in there; without it the files that hold kernels are listed")
    shape = Checked(lambda given: isinstance(given, str | dict), '"M=4096 N=4096", or an object of numbers', required=False)
    dtype = serializers.CharField(required=False, allow_blank=True, max_length=8)
    call = serializers.CharField(required=False, allow_blank=True, max_length=2000,
                                 help_text='one call of a function of the file: "softmax(randn(8192, 4096))"')
    siblings = Checked(lambda given: isinstance(given, dict), "an object: path → text", required=False,
                       help_text="files that come with it, as it imports them: path below a root → text")
    folder = serializers.CharField(required=False, allow_blank=True, max_length=240,
                                   help_text="where the file itself lies below that root")


class CheckLineJson(TypedDict):
    id: int
    file: str
    status: str
    created: str


class ChecksJson(TypedDict):
    """`ability`: whether a living worker compiles what is pasted."""

    results: list[CheckLineJson]
    ability: selectors.CheckAbilityJson


class CheckListApi(APIView):
    write_permission = MAY_CHECK
    parser_classes = [JSONParser, MultiPartParser]

    @extend_schema(operation_id="kernel_checks", responses=ChecksJson)
    def get(self, request: Request) -> Response:
        """The project's checks, newest first, and whether a living worker compiles what is pasted."""
        rows = [{"id": check.pk, "file": check.file, "status": check.status, "created": check.created.isoformat()}
                for check in selectors.check_list()]
        return Response({"results": rows, "ability": selectors.ability()})

    @extend_schema(operation_id="kernel_check", request={"application/json": CheckRequest, "multipart/form-data": CheckRequest},
                   responses={201: selectors.KernelCheckJson})
    def post(self, request: Request) -> Response:
        """Check a kernel file: what its text says at once, samples compiled by a worker. Owners only: importing it runs it."""
        serializer = CheckRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        fields: dict[str, Any] = serializer.validated_data
        text, name = fields.get("text", ""), fields.get("file", "")
        if upload := fields.get("upload"):
            if upload.size > services.MAX_TEXT_BYTES:
                raise ValidationError({"upload": [f"{upload.size:,} bytes; at most {services.MAX_TEXT_BYTES:,}"]})
            text, name = upload.read().decode(errors="replace"), name or upload.name
        about = {name: fields.get(name, "") for name in ("shape", "dtype", "call")}
        if fields.get("source"):
            named = sources.read_source(fields["source"], fields.get("commit", ""), fields.get("path", ""))
            return Response(selectors.check_json(sources.check_create(named, owner=request.user, **about)), status=201)
        check = services.check_create(text, file=name, siblings=fields.get("siblings"), folder=fields.get("folder", ""),
                                      owner=request.user, **about)
        return Response(selectors.check_json(check), status=201)


class CheckApi(APIView):
    @extend_schema(operation_id="kernel_check_get", responses=selectors.KernelCheckJson)
    def get(self, request: Request, pk: int) -> Response:
        """One check: what is understood so far, and the adapters that `operators init` would write."""
        return Response(selectors.check_json(get_object_or_404(KernelCheck, pk=pk)))


class CheckStopApi(APIView):
    write_permission = MAY_CHECK

    @extend_schema(operation_id="kernel_check_stop", request=None, responses=selectors.KernelCheckJson)
    def post(self, request: Request, pk: int) -> Response:
        """Stop compiling; what the text says stays."""
        services.check_stop(get_object_or_404(KernelCheck, pk=pk))
        return Response(selectors.check_json(get_object_or_404(KernelCheck, pk=pk)))


class SpaceRequest(serializers.Serializer[None]):
    """A space: values as a list, or as a text like "64, 128"; constraints are expressions over the parameters."""

    params = Checked(lambda given: isinstance(given, dict) and all(isinstance(choices, str | list) for choices in given.values()),
                     "an object: parameter → values")
    constraints = Checked(lambda given: isinstance(given, list) and all(isinstance(rule, str) for rule in given),
                          "a list of expressions", required=False)
    check = serializers.IntegerField(required=False, help_text="a check, whose adapter is given with this space")
    kernel = serializers.CharField(required=False, allow_blank=True, max_length=200, help_text="of that check")


class LeftOutJson(TypedDict):
    """How many configurations a constraint leaves out."""

    reason: str
    expression: str
    left_out: int


class CountedSpaceJson(TypedDict):
    """How many configurations of a space can run; `fields`: name → what is wrong, then nothing is counted."""

    fields: dict[str, str]
    size: int | None
    valid: int | None
    default: NotRequired[dict[str, Scalar]]
    default_breaks: NotRequired[str]
    constraints: NotRequired[list[LeftOutJson]]
    adapter: str | None


class SpaceApi(APIView):
    write_permission = MAY_CHECK

    @extend_schema(operation_id="kernel_space", request=SpaceRequest, responses=CountedSpaceJson)
    def post(self, request: Request) -> Response:
        """How many configurations of a space can run, and how many each constraint leaves out; `fields`: name → what is wrong.

        Nothing is stored.
        """
        serializer = SpaceRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        fields = serializer.validated_data
        check = get_object_or_404(KernelCheck, pk=fields["check"]) if "check" in fields else None
        try:
            counted = services.count_space(fields["params"], fields.get("constraints", []), check=check,
                                           kernel=fields.get("kernel", ""))
        except Refused as refused:         # as often as not a form that is being filled in
            return Response({"fields": refused.fields, "size": None, "valid": None, "adapter": None})
        return Response({"fields": {}, **counted})

"""JSON over HTTP: the source of a suite's code, archives of builds, and tries to fetch them."""

from __future__ import annotations

from typing import Any, TypedDict

from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.parsers import BaseParser, JSONParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tuner.gate.code import selectors, services
from tuner.models import CodeFetch, Suite, SuiteCode
from tuner.tuning.trial import storable
from workers.list_api import validated


class BytesParser(BaseParser):
    """The body as bytes, up to a limit."""

    media_type = "*/*"

    def parse(      # type: ignore[override]    # DRF takes what a parser makes, the stub knows forms alone
            self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> bytes:
        return bytes(stream.read(services.MOST_ARCHIVE_BYTES + 1))


class CodeRequest(serializers.Serializer[None]):
    """Where workers load a build's code from."""

    kind = serializers.ChoiceField(choices=SuiteCode.Kind.values)
    address = serializers.CharField(max_length=300, required=False, allow_blank=True, default="", help_text="git: https:// or ssh://")
    folder = serializers.CharField(max_length=200, required=False, allow_blank=True, default="",
                                   help_text="inside, first on the path of the suite's processes")


class BuildRequest(serializers.Serializer[None]):
    build = serializers.CharField(max_length=80, help_text="a whole commit, a branch or a tag; of archives the build's name")


def _suite(name: str) -> Suite:
    return get_object_or_404(Suite, name=name if storable(name) else "")


class SuiteCodeApi(APIView):
    write_permission = services.MAY_ALLOW
    parser_classes = [JSONParser]

    @extend_schema(operation_id="suite_code", responses=selectors.CodeJson)
    def get(self, request: Request, name: str) -> Response:
        """The source that an owner allowed (`kind` null: builds are what the workers have), its archives, the newest tries."""
        return Response(selectors.code_json(_suite(name)))

    @extend_schema(operation_id="suite_code_allow", request=CodeRequest, responses=selectors.CodeJson)
    def put(self, request: Request, name: str) -> Response:
        """Allow a source, in place of another. Owners only: workers run what is in it."""
        suite = _suite(name)
        services.code_allow(suite, **validated(CodeRequest, request.data), by=request.user)
        return Response(selectors.code_json(suite))

    @extend_schema(operation_id="suite_code_forbid", responses={204: None})
    def delete(self, request: Request, name: str) -> Response:
        """Take the source away."""
        services.code_forbid(_suite(name), by=request.user)
        return Response(status=204)


class SuiteCodeTryApi(APIView):
    write_permission = services.MAY_ALLOW
    parser_classes = [JSONParser]

    @extend_schema(operation_id="suite_code_try", request=BuildRequest, responses={201: selectors.FetchJson})
    def post(self, request: Request, name: str) -> Response:
        """Let a worker fetch the code of a build; nothing is measured. Ask GET for what became of it."""
        fetch: CodeFetch = services.fetch_try(_suite(name), validated(BuildRequest, request.data)["build"], by=request.user)
        return Response(selectors.fetch_json(fetch), status=201)


class SuiteCodeStopApi(APIView):
    write_permission = services.MAY_ALLOW

    @extend_schema(operation_id="suite_code_try_stop", request=None, responses=selectors.FetchJson)
    def post(self, request: Request, name: str, pk: int) -> Response:
        """Stop a try; one that had ended already stays as it is."""
        fetch = get_object_or_404(CodeFetch.objects.select_related("code"), pk=pk, code__suite=_suite(name))
        services.fetch_stop(fetch, by=request.user)
        fetch.refresh_from_db()
        return Response(selectors.fetch_json(fetch))


class NewArchiveJson(TypedDict):
    build: str
    sha256: str
    size_bytes: int


class SuiteCodeArchiveApi(APIView):
    write_permission = services.MAY_ALLOW
    parser_classes = [BytesParser]

    @extend_schema(operation_id="suite_code_archive", request=OpenApiTypes.BINARY, responses={201: NewArchiveJson}, parameters=[
        OpenApiParameter("build", str, required=True)])
    def post(self, request: Request, name: str) -> Response:
        """The archive of a build, .tar.gz or .zip, as the body."""
        if not isinstance(request.data, bytes):
            raise ValidationError({"file": ["the bytes of a .tar.gz or .zip file as the body"]})
        suite = _suite(name)
        build = request.query_params.get("build", "")
        archive = services.archive_put(suite, build[:200] if storable(build) else "", request.data, by=request.user)
        return Response({"build": archive.build, "sha256": archive.sha256, "size_bytes": archive.size_bytes}, status=201)

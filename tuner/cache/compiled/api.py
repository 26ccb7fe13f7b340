"""JSON over HTTP: what Triton compiled and Helion chose on one host, for the project's other hosts."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import Any, TypedDict

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tuner.cache.compiled import services
from tuner.query_api import read_whole
from workers.list_api import validated

MOST_NAMES, MOST_LISTED = 64, 200
KEY, NAME = re.compile(r"[A-Za-z0-9_=-]{8,100}"), re.compile(r"[A-Za-z0-9_.+=-]{1,160}")


class CompiledPut(serializers.Serializer[None]):
    """A file: its name within the key, its bytes in base64, and their SHA-256."""

    name = serializers.CharField(max_length=160)
    content = serializers.CharField(trim_whitespace=False, allow_blank=True,
                                    max_length=max(tool.most_bytes for tool in services.TOOLS.values()) * 4 // 3 + 8)
    sha256 = serializers.RegexField(r"\A[0-9a-f]{64}\Z")

    def validate_name(self, value: str) -> str:
        if not NAME.fullmatch(value) or value in (".", ".."):
            raise serializers.ValidationError("letters, digits and . _ + = - only")
        return value

    def validate(self, data: dict[str, Any]) -> dict[str, Any]:
        try:
            content = base64.b64decode(data["content"], validate=True)
        except (binascii.Error, ValueError) as error:
            raise serializers.ValidationError({"content": "is no base64"}) from error
        if hashlib.sha256(content).hexdigest() != data["sha256"]:
            raise serializers.ValidationError({"sha256": "the bytes that came have another one: send them again"})
        return {**data, "content": content}


class PackedJson(TypedDict):
    content: str            # in base64
    sha256: str


class FileJson(PackedJson):
    key: str
    name: str


class FilesJson(TypedDict):
    files: list[FileJson]


class FilesOfKeyJson(TypedDict):
    files: dict[str, PackedJson]


class KeptJson(TypedDict):
    kept: bool


class CompiledListApi(APIView):
    @extend_schema(operation_id="compiled_list", responses=FilesJson, parameters=[OpenApiParameter("most", int)])
    def get(self, request: Request, tool: str) -> Response:
        """The newest files of a tool with small ones (helion)."""
        if not _known(tool).replaces:
            raise NotFound("this tool's files are asked for by key")
        files = services.newest_files(tool, read_whole(request, "most", 20, MOST_LISTED, 1))
        return Response({"files": [{"key": key, "name": name, **_packed(data)} for key, name, data in files]})


class CompiledApi(APIView):
    write_permission = "tuner.add_compiledfile"

    @extend_schema(operation_id="compiled_get", responses=FilesOfKeyJson, parameters=[
        OpenApiParameter("name", str, many=True, required=True, description="files of this key; what is not here is left out")])
    def get(self, request: Request, tool: str, key: str) -> Response:
        """Files of a key, in base64 with their SHA-256."""
        _known(tool)
        names = request.query_params.getlist("name")
        if not 0 < len(names) <= MOST_NAMES:
            raise ValidationError({"name": [f"name 1 to {MOST_NAMES} files"]})
        files = services.get_files(tool, key, [name for name in names if NAME.fullmatch(name)])
        return Response({"files": {name: _packed(data) for name, data in files.items()}})

    @extend_schema(operation_id="compiled_put", request=CompiledPut, responses=KeptJson)
    def post(self, request: Request, tool: str, key: str) -> Response:
        """Keep a file for other hosts. Of Triton's the first of a name stays; Helion's later choice replaces the earlier."""
        _known(tool)
        if not KEY.fullmatch(key):
            raise ValidationError({"key": ["8 to 100 letters, digits and _ = -"]})
        fields = validated(CompiledPut, request.data)
        is_stored = services.put_file(owner=request.user, tool=tool, key=key, name=fields["name"], data=fields["content"])
        return Response({"kept": is_stored})


def _known(tool: str) -> services.Tool:
    if tool not in services.TOOLS:
        raise NotFound(f"no such tool; there are {', '.join(services.TOOLS)}")
    return services.TOOLS[tool]


def _packed(data: bytes) -> PackedJson:
    return {"content": base64.b64encode(data).decode(), "sha256": hashlib.sha256(data).hexdigest()}

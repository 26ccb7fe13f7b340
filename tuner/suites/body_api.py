"""Bodies of requests about suites: JSON, TOML and lines of runs, each read up to a limit."""

from __future__ import annotations

import io
from typing import Any

from rest_framework.exceptions import ValidationError
from rest_framework.parsers import BaseParser, JSONParser

from tuner.suites import control_services


class RawParser(BaseParser):
    """The body as bytes, up to a limit: whoever takes it checks what it is."""

    media_type = "application/octet-stream"
    most = control_services.MAX_BYTES

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> bytes:
        data = bytes(stream.read(self.most + 1))
        if len(data) > self.most:
            raise ValidationError({"runs": [f"more than {self.most >> 20} MiB; send them in parts"]})
        return data


class JsonLinesParser(RawParser):
    media_type = "application/x-ndjson"


class GzipParser(RawParser):
    media_type = "application/gzip"


class TomlParser(RawParser):
    media_type = "application/toml"
    most = 2**20


class BoundedJsonParser(JSONParser):
    """JSON up to a limit: a document is held whole while it is checked."""

    most = control_services.MAX_BYTES

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        data = stream.read(self.most + 1)
        if len(data) > self.most:
            raise ValidationError({"body": [f"more than {self.most >> 20} MiB"]})
        return super().parse(io.BytesIO(data), media_type, parser_context)


class SmallJsonParser(BoundedJsonParser):
    most = 2**20

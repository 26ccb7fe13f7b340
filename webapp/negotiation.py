"""Which form an answer of the API takes."""

from __future__ import annotations

from typing import Any

from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import JSONRenderer


class _AsciiJson(JSONRenderer):
    ensure_ascii = True


class AnyTextJson(JSONRenderer):
    """JSON of any text: half a surrogate pair, which a refusal quotes as it was sent, has no UTF-8 and is written as \\ud800."""

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        try:
            return super().render(data, accepted_media_type, renderer_context)
        except UnicodeEncodeError:
            return _AsciiJson().render(data, accepted_media_type, renderer_context)


class FormatOrFile(DefaultContentNegotiation):
    """`?format=` chooses a renderer where one has that name (the schema's YAML or JSON); else it is the view's own word: a
    table as a file, or a filter."""

    def filter_renderers(self, renderers: Any, format: str) -> Any:
        return [renderer for renderer in renderers if renderer.format == format] or renderers

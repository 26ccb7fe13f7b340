"""Which form an answer of the API takes."""

from __future__ import annotations

from typing import Any

from rest_framework.negotiation import DefaultContentNegotiation


class FormatOrFile(DefaultContentNegotiation):
    """`?format=` chooses a renderer where one has that name (the schema's YAML or JSON); else it is the view's own word: a
    table as a file, or a filter."""

    def filter_renderers(self, renderers: Any, format: str) -> Any:
        return [renderer for renderer in renderers if renderer.format == format] or renderers

"""Pages of the API's lists: `?limit=&offset=` asks, `next_offset` in the answer and a `Link` header read on; bodies, checked.

Whatever grows with uploads, jobs, people or GPUs is listed in pages; a table as a file (`?format=`) is whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.pagination import LimitOffsetPagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import JSONField, Serializer
from rest_framework.utils.urls import replace_query_param


class Typed(JSONField):
    """A column of JSON in a serializer's answer, described by the type `kind` (`webapp/answer_schema.py`)."""

    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__(read_only=True, **options)
        self.kind = kind


USUAL, MOST = 500, 1000             # rows of an answer, where nothing is asked, and where much is
PAGED = [OpenApiParameter("limit", int, description="rows of this answer"),
         OpenApiParameter("offset", int, description="rows to pass over: `next_offset` of the answer before")]


@dataclass(frozen=True)
class Page:
    """A part of a list that was asked for."""

    request: Request
    rows: Sequence[Any]
    count: int                  # of the whole list
    offset: int
    limit: int

    def cut(self, rows: Sequence[Any]) -> Sequence[Any]:
        """Return the same part of another, shorter list of the same answer."""
        return rows[self.offset:self.offset + self.limit]

    @property
    def next_offset(self) -> int | None:
        """Return where the next page begins; None after the last, and of a page without rows, which leads nowhere."""
        end = self.offset + len(self.rows)
        return end if self.rows and end < self.count else None

    def answer(self, document: Mapping[str, Any]) -> Response:
        """Return `document` with `count` and `next_offset`."""
        return Response({**document, "count": self.count, "next_offset": self.next_offset}, headers=self._headers())

    def answer_rows(self, rows: Any) -> Response:
        """Return a bare array, which only its header leads on from."""
        return Response(rows, headers=self._headers())

    def _headers(self) -> dict[str, str]:
        return link_header(self.request, self.next_offset)


def read_page(request: Request, rows: QuerySet[Any] | Sequence[Any], usual: int = USUAL, most: int = MOST) -> Page:
    """Return the page of `rows` that the address asks for. Raises ValidationError where it names no number."""
    limit, offset = min(most, read_number(request, "limit", usual)), read_number(request, "offset", 0)
    if isinstance(rows, QuerySet) and not rows.ordered:
        rows = rows.order_by("pk")          # without an order a row could be on two pages and another on none
    count = rows.count() if isinstance(rows, QuerySet) else len(rows)
    return Page(request, list(rows[offset:offset + limit]), count, offset, limit)


def read_number(request: Request, name: str, default: int, digits: int = 9) -> int:
    """Return `?name=`, `default` where it is absent or empty. Raises ValidationError where it is none, or has more digits."""
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) <= digits):
        raise ValidationError({name: ["a whole number from 0 on"]})
    return int(text)


def link_header(request: Request, next_offset: int | None) -> dict[str, str]:
    """Return the header `Link` of RFC 8288 that names the next page."""
    if next_offset is None:
        return {}
    return {"Link": f'<{replace_query_param(request.build_absolute_uri(), "offset", next_offset)}>; rel="next"'}


class Pages(LimitOffsetPagination):
    """Pages with the addresses of their neighbours: `count`, `next`, `previous`, `next_offset`, `results`."""

    default_limit, max_limit = 100, MOST

    def get_paginated_response(self, data: Any) -> Response:
        answer = super().get_paginated_response(data)
        address = self.get_next_link()
        end = (self.offset or 0) + (self.limit or 0)
        answer.data["next_offset"] = end if address else None
        if address:
            answer["Link"] = f'<{address}>; rel="next"'
        return answer

    def get_paginated_response_schema(self, schema: Any) -> dict[str, Any]:
        said: dict[str, Any] = super().get_paginated_response_schema(schema)
        said["properties"]["next_offset"] = {"type": ["integer", "null"]}
        said["required"].append("next_offset")
        return said


def validated(serializer: type[Serializer[Any]], data: Any, **more: Any) -> dict[str, Any]:
    """Return the fields that a body or an address names, checked. ValidationError names each wrong one."""
    instance = serializer(data=data, **more)
    instance.is_valid(raise_exception=True)
    return dict(instance.validated_data)

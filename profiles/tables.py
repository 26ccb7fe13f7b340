"""A table of JSON rows as a file to keep: the same rows that the page shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.http import HttpResponse

from profiles import exports


def table_response(kind: str, name: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> HttpResponse:
    """`kind` of `exports.KINDS`; `name` without ending."""
    return exports.table_response(exports.table_of(columns, rows), name, kind)

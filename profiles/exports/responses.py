"""A table of JSON rows as a file to keep: the same rows that the page shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.http import HttpResponse

from profiles.exports import files as exports


def rows_response(kind: str, name: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> HttpResponse:
    """Return a table of JSON rows as a file.

    `kind` of `exports.KINDS`; `name` without ending.
    """
    return exports.table_response(exports.table_of(columns, rows), name, kind)


def flat_response(kind: str, name: str, rows: Iterable[Mapping[str, Any]]) -> HttpResponse:
    """Return rows as a file whose objects become columns of their own.

    {"sol": {"sm_pct": 3}} is "sol.sm_pct".
    """
    flat = [_flat(row) for row in rows]
    columns = list(dict.fromkeys(column for row in flat for column in row))
    return rows_response(kind, name, columns or ["empty"], flat)


def _flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping) and value and len(prefix) < 200:
            out |= _flat(value, f"{prefix}{key}.")
        else:
            out[f"{prefix}{key}"] = value
    return out

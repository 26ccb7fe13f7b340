"""A table as a file to keep: CSV or JSON of the same rows that the page shows."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.http import HttpResponse

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def table_response(kind: str, name: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> HttpResponse:
    """`kind` "csv" or "json"; `name` without ending."""
    if kind == "json":
        body = json.dumps([{column: row.get(column) for column in columns} for row in rows], ensure_ascii=False, indent=1)
        response = HttpResponse(body, content_type="application/json")
    else:
        response = HttpResponse(_csv(columns, rows), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}.{kind}"'
    return response


def _csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    out = io.StringIO()
    write = csv.writer(out)
    write.writerow(columns)
    for row in rows:
        write.writerow([_cell(row.get(column)) for column in columns])
    return out.getvalue()


def _cell(value: Any) -> Any:
    """Names come from uploaded files: a spreadsheet must not take one for a formula."""
    if isinstance(value, list):
        value = " ".join(str(each) for each in value)
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value

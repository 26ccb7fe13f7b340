"""What may be done to saved queries: keep, change, delete."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied

from profiles.ingest.trace import TraceError
from profiles.models import SavedQuery
from profiles.rows import text as clean
from profiles.sql.services import SQL_CHARS

MAX_QUERIES = 2000
CHARTS = ("bar", "line", "scatter", "histogram")


def query_save(*, owner: Any, name: str, sql: str, description: str = "", chart: dict[str, str] | None = None) -> SavedQuery:
    """Keep a query for the team. It need not run: what it lacks may be in another profile. Raises TraceError."""
    if SavedQuery.objects.count() >= MAX_QUERIES:
        raise TraceError("queries", f"there are {MAX_QUERIES:,} saved queries, which is the most", "Delete some first")
    return SavedQuery.objects.create(owner=owner, **_fields(name=name, sql=sql, description=description, chart=chart or {}))


def query_update(query: SavedQuery, *, by: Any, **changes: Any) -> SavedQuery:
    """Change an own query, or with the right to moderate anybody's. Raises PermissionDenied, TraceError."""
    _check(query, by)
    fields = {name: getattr(query, name) for name in ("name", "sql", "description", "chart")}
    for name, value in _fields(**{**fields, **changes}).items():
        setattr(query, name, value)
    query.save()
    return query


def query_delete(query: SavedQuery, *, by: Any) -> None:
    _check(query, by)
    query.delete()


def _fields(*, name: str, sql: str, description: str, chart: dict[str, str]) -> dict[str, Any]:
    fields = {"name": clean(name.strip(), 120), "sql": clean(sql.strip()), "description": clean(description.strip(), 4000)}
    for field in ("name", "sql"):
        if not fields[field]:
            raise TraceError(field, f"the query has no {field}", "Give one")
    if len(fields["sql"]) > SQL_CHARS:
        raise TraceError("sql", f"the query has {len(fields['sql']):,} characters; {SQL_CHARS:,} are allowed", "Shorten it")
    axes = {key: clean(str(chart[key]), 200) for key in ("kind", "x", "y") if chart.get(key)}
    return {**fields, "chart": axes if axes.get("kind") in CHARTS else {}}


def _check(query: SavedQuery, by: Any) -> None:
    if query.owner_id != by.pk and not by.has_perm("profiles.moderate_savedquery"):
        raise PermissionDenied("this is another person's query: its owner and the product's owners may change it; save it under "
                               "another name")

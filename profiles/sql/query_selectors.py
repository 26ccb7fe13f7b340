"""What pages and API read of saved queries."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict

from profiles.models import SavedQuery
from workers.scope import account_name


class QueryJson(TypedDict):
    """A saved query; `mine`: this person may change it."""

    id: int
    name: str
    description: str
    sql: str
    chart: dict[str, str]
    owner: str | None
    created: datetime
    changed: datetime
    mine: bool


def query_json(query: SavedQuery, user: Any) -> QueryJson:
    """Return a saved query as JSON.

    `mine`: this person may change it.
    """
    return {"id": query.pk, "name": query.name, "description": query.description, "sql": query.sql, "chart": query.chart,
            "owner": account_name(query.owner), "created": query.created, "changed": query.changed,
            "mine": may_change(query, user)}


def may_change(query: SavedQuery, user: Any) -> bool:
    own = query.owner_id == user.pk and user.has_perm("profiles.change_savedquery")
    return bool(own or user.has_perm("profiles.moderate_savedquery"))


def query_list(user: Any) -> list[QueryJson]:
    """Return the saved queries by name."""
    return [query_json(query, user) for query in SavedQuery.objects.select_related("owner")]

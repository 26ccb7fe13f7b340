"""What pages and API read of saved queries."""

from __future__ import annotations

from typing import Any

from profiles.models import SavedQuery
from workers.scope import account_name


def query_json(query: SavedQuery, user: Any) -> dict[str, Any]:
    """Return a saved query as JSON.

    `mine`: this person may change it.
    """
    return {"id": query.pk, "name": query.name, "description": query.description, "sql": query.sql, "chart": query.chart,
            "owner": account_name(query.owner), "created": query.created, "changed": query.changed,
            "mine": may_change(query, user)}


def may_change(query: SavedQuery, user: Any) -> bool:
    own = query.owner_id == user.pk and user.has_perm("profiles.change_savedquery")
    return bool(own or user.has_perm("profiles.moderate_savedquery"))


def query_list(user: Any) -> list[dict[str, Any]]:
    """Return the saved queries by name."""
    return [query_json(query, user) for query in SavedQuery.objects.select_related("owner")]

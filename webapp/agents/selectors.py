"""Read the log of calls, and the budgets beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet

from webapp.agents.models import AgentBudget, AgentCall
from webapp.agents.services import budget_of, spent_today
from webapp.models import ApiToken

MOST_TOKENS = 200


def calls(asked: Mapping[str, str], person: Any = None) -> QuerySet[AgentCall]:
    """Return calls of the project, newest first, filtered by token's name, tool and outcome; only `person`'s where one is named."""
    rows = AgentCall.objects.all() if person is None else AgentCall.objects.filter(person=person)
    chosen = {"token": "token_name", "tool": "tool", "outcome": "outcome"}
    return rows.filter(**{column: asked[name].replace("\0", "") for name, column in chosen.items() if asked.get(name)})


def choices(rows: QuerySet[AgentCall]) -> dict[str, list[str]]:
    """Return what there is to filter by."""
    return {name: sorted(rows.order_by().values_list(column, flat=True).distinct()[:MOST_TOKENS])
            for name, column in (("tokens", "token_name"), ("tools", "tool"))}


def token_lines(project: int, person: Any = None) -> list[dict[str, Any]]:
    """Return the project's tokens that may write, each with its budget and what it took today; `own`: the budget is its own."""
    tokens = ApiToken.objects.filter(project=project, scope=ApiToken.Scope.WRITE).select_related("user")
    tokens = tokens if person is None else tokens.filter(user=person)
    own = set(AgentBudget.objects.exclude(token=None).values_list("token", flat=True))
    return [{"token": token, "budget": budget_of(token), "spent": spent_today(token), "own": token.pk in own}
            for token in tokens.order_by("name", "created")[:MOST_TOKENS]]


def project_budget(project: int) -> AgentBudget:
    """Return what tokens without a budget of their own may begin."""
    return AgentBudget.objects.filter(project=project, token=None).first() or AgentBudget(project_id=project)

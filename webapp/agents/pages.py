"""The page of what programs did: how to connect, budgets, calls."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from profiles.base.refused import Refused
from webapp.agents import services
from webapp.agents.door import PATH
from webapp.agents.models import AgentBudget, AgentCall
from webapp.agents.services import budget_of, spent_today
from webapp.models import ApiToken
from workers.scope import current

MOST_TOKENS = 200


def calls(query: Mapping[str, str], person: Any = None) -> QuerySet[AgentCall]:
    """Return calls of the project, newest first, filtered by token's name, tool and outcome; only `person`'s where one is named."""
    rows = AgentCall.objects.all() if person is None else AgentCall.objects.filter(person=person)
    chosen = {"token": "token_name", "tool": "tool", "outcome": "outcome"}
    return rows.filter(**{column: query[name].replace("\0", "") for name, column in chosen.items() if query.get(name)})


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


SEES_ALL, CHANGES = "webapp.view_agentcall", "webapp.change_agentbudget"
PAGE = 100
FILTERS = ("token", "tool", "outcome")


@require_safe
@never_cache
def agents(request: HttpRequest) -> HttpResponse:
    """Show how to connect, budgets and calls: owners see those of the project, others their own."""
    return _page(request)


@require_POST
@never_cache
def budget(request: HttpRequest) -> HttpResponse:
    """Set what a token may begin in a day: token (empty: every other one), writes_per_day, gpu_s_per_day."""
    if not request.user.has_perm(CHANGES):
        raise PermissionDenied("owners of a project decide what programs may begin")
    fields, project = request.POST, current().project
    token = get_object_or_404(ApiToken, pk=fields["token"], project=project) if fields.get("token") else None
    try:
        services.budget_set(project, token, fields.get("writes_per_day", ""), fields.get("gpu_s_per_day", ""))
    except Refused as refused:
        return _page(request, problem=str(refused), status=400)
    return redirect("agents")


def _page(request: HttpRequest, *, problem: str = "", status: int = 200) -> HttpResponse:
    person = None if request.user.has_perm(SEES_ALL) else request.user
    project = current().project
    filters = {name: request.GET.get(name, "") for name in FILTERS}
    every = calls({}, person)
    root: str = getattr(request, "root", "")
    address = f"{request.scheme}://{request.get_host()}{root}{PATH}"
    page = Paginator(calls(filters, person), PAGE).get_page(request.GET.get("page"))
    return render(request, "agents/list.html", {
        "page": page, "asked": filters, **choices(every), "outcomes": AgentCall.Outcome.values,
        "lines": token_lines(project, person), "whole": project_budget(project),
        "may": request.user.has_perm(CHANGES), "problem": problem, "address": address, "all": person is None,
        "over_http": _example(address), "over_stdio": _stdio_example(address.removesuffix(PATH))}, status=status)


def _example(address: str) -> str:
    entry: dict[str, Any] = {"type": "http", "url": address, "headers": {"Authorization": "Bearer rp_…"}}
    return json.dumps({"mcpServers": {"ridgepoint": entry}}, indent=2, ensure_ascii=False)


def _stdio_example(address: str) -> str:
    entry = {"command": "python", "args": ["manage.py", "mcp"], "env": {"RIDGEPOINT_URL": address, "RIDGEPOINT_TOKEN": "rp_…"}}
    return json.dumps({"mcpServers": {"ridgepoint": entry}}, indent=2, ensure_ascii=False)

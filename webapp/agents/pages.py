"""The page of what programs did: how to connect, budgets, calls."""

from __future__ import annotations

import json
from typing import Any

from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from profiles.base.refused import Refused
from webapp.agents import selectors, services
from webapp.agents.door import PATH
from webapp.agents.models import AgentCall
from webapp.models import ApiToken
from workers.scope import current

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
    given, project = request.POST, current().project
    token = get_object_or_404(ApiToken, pk=given["token"], project=project) if given.get("token") else None
    try:
        services.budget_set(project, token, given.get("writes_per_day", ""), given.get("gpu_s_per_day", ""))
    except Refused as refused:
        return _page(request, problem=str(refused), status=400)
    return redirect("agents")


def _page(request: HttpRequest, *, problem: str = "", status: int = 200) -> HttpResponse:
    person = None if request.user.has_perm(SEES_ALL) else request.user
    project = current().project
    asked = {name: request.GET.get(name, "") for name in FILTERS}
    every = selectors.calls({}, person)
    root: str = getattr(request, "root", "")
    address = f"{request.scheme}://{request.get_host()}{root}{PATH}"
    page = Paginator(selectors.calls(asked, person), PAGE).get_page(request.GET.get("page"))
    return render(request, "agents/list.html", {
        "page": page, "asked": asked, **selectors.choices(every), "outcomes": AgentCall.Outcome.values,
        "lines": selectors.token_lines(project, person), "whole": selectors.project_budget(project),
        "may": request.user.has_perm(CHANGES), "problem": problem, "address": address, "all": person is None,
        "over_http": _example(address), "over_stdio": _stdio_example(address.removesuffix(PATH))}, status=status)


def _example(address: str) -> str:
    entry: dict[str, Any] = {"type": "http", "url": address, "headers": {"Authorization": "Bearer rp_…"}}
    return json.dumps({"mcpServers": {"ridgepoint": entry}}, indent=2, ensure_ascii=False)


def _stdio_example(address: str) -> str:
    entry = {"command": "python", "args": ["manage.py", "mcp"], "env": {"RIDGEPOINT_URL": address, "RIDGEPOINT_TOKEN": "rp_…"}}
    return json.dumps({"mcpServers": {"ridgepoint": entry}}, indent=2, ensure_ascii=False)

"""Finding things by their names, and what is left of the day."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from webapp.agents import caller
from webapp.agents.tools.arguments import pick


async def search(
        q: Annotated[str, Field(min_length=1, max_length=200, description="words that a name must hold")]) -> dict[str, Any]:
    """Find profiles, kernels, jobs, builds, suites, captures and threads by name: at most five of each kind, with their pages."""
    answer = await caller.get("/api/search/", q=q)
    return {"groups": [{"kind": group["kind"], "more": group["more"],
                        "hits": [pick(hit, "title", "detail", "url") for hit in group["hits"]]} for group in answer["groups"]]}


async def get_budget() -> dict[str, Any]:
    """Show who this token is, its project and scope, and what of its day (UTC) is left: jobs and captures to start, GPU-seconds."""
    me = await caller.get("/api/agents/me/")
    return {"person": me["person"]["name"], "token": pick(me["token"], "name", "scope"),
            "project": pick(me["project"], "slug", "name"), **me["budget"]}

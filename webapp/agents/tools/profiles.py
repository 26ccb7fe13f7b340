"""Profiles: what was recorded."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from webapp.agents import caller
from webapp.agents.tools.arguments import Limit, Offset, Words, pick

FIELDS = ("id", "name", "status", "kind", "format", "gpu", "build", "model", "tags", "recorded", "created", "steps", "launches",
          "wall_ns", "gpu_time_ns", "busy_pct", "needed_pct",
          "top_kernel", "integrity_mark", "error")


async def list_profiles(
        q: Words = "", gpu: Annotated[str, Field(max_length=120, description="GPU model; empty: all")] = "",
        build: Annotated[str, Field(max_length=80, description="name of a build; empty: all")] = "",
        kind: Annotated[Literal["", "trace", "counters", "summary"], Field(
            description="trace: launches in time; counters: hardware counters of launches; summary: sums; empty: all")] = "",
        limit: Limit = 20, offset: Offset = 0) -> dict[str, Any]:
    """List the profiles of the project, newest first.

    wall_ns and gpu_time_ns are nanoseconds; busy_pct is the share of the wall time with work on the GPU, null where the file
    has no timeline; needed_pct the share of the steps' time that the work needs at least, null where that is not known.
    integrity_mark is ok, warn or bad, and why: what of the file is not kept, or cannot be.
    Only profiles of status "ready" can be looked into.
    """
    found = await caller.get("/api/profiles/", q=q, gpu=gpu, build=build, kind=kind, limit=limit, offset=offset)
    return {"total": found["count"], "profiles": [pick(row, *FIELDS) for row in found["results"]]}

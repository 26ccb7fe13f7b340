"""Profiles: what was recorded."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from webapp.agents import caller
from webapp.agents.tools.arguments import Limit, Offset, Profile, Words, pick, top

FIELDS = ("id", "name", "status", "kind", "format", "gpu", "build", "model", "tags", "recorded", "created", "steps", "launches",
          "wall_ns", "gpu_time_ns", "busy_pct", "needed_pct",
          "top_kernel", "integrity_mark", "error")

KIND = ("kind", "title", "text", "change", "not_worth", "gain_step_least_ns", "gain_step_most_ns", "certain", "launches")
SLOW = ("short_name", "operator", "sizes", "launches", "takes_ns", "least_ns", "lost_ns", "of_ceiling_pct", "choice", "tune")
PLACE = ("name", "within", "launches", "takes_ns", "least_ns", "unknown_ns", "own_takes_ns", "own_least_ns")
PART = ("part", "launches", "takes_ns", "least_ns", "unknown_ns")


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


async def get_step(profile: Profile, limit: Limit = 10) -> dict[str, Any]:
    """Show what a step of a profile takes, what its work needs at least, and what it does besides, with the gain of each change.

    parts of a GPU add up to wall_ns over its steps. avoidable names work that need not be, most GPU time first: change is the
    line of code, gain_step_least_ns to gain_step_most_ns what it wins a step. slow_kernels are needed and slower than their
    ceiling: tune holds operator, dtype and sizes for start_tune_job, empty where none fits, choice what else to try. ranges
    (modules or ranges) and layer_parts say where the least time lies; has_least false: the trace does not tell it. state is
    "made" once a worker has analysed the trace.
    """
    found = await caller.get(f"/api/profiles/{profile}/analysis/needed/")
    if "numbers" not in found:
        return {"state": found["state"]}
    numbers = found["numbers"] if found["applies"] else {}
    return {
        "state": "made", "answer": found["answer"], **pick(numbers, "needed_pct", "has_least", "range_kind", "layers"),
        "gpus": top(numbers.get("gpus", []), limit, "gpu", "label", "wall_ns", "steps", "tail_ns", "parts", "needed_pct"),
        "avoidable": top(numbers.get("kinds", []), limit, *KIND), "slow_kernels": top(numbers.get("slow", []), limit, *SLOW),
        "ranges": top(sorted(numbers.get("ranges", []), key=lambda row: -row["takes_ns"]), limit, *PLACE),
        "layer_parts": top(numbers.get("layer_parts", []), limit, *PART)}

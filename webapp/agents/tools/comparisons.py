"""Two profiles side by side: what a change did to the step, in the words and numbers of the compare page."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from profiles.analysis.compare.operations import Work
from profiles.compare.answers import ComparedKernelJson, OperationJson, StepChangeJson, StepPartJson
from webapp.agents import caller
from webapp.agents.tools.arguments import MOST_ID, Limit, fields_of, pick, top

STEP = fields_of(
    StepChangeJson, "answer", "old_ns", "new_ns", "delta_ns", "change_pct", "old_range_ns", "new_range_ns", "old_steps",
    "new_steps", "old_tail_ns", "new_tail_ns", "parts", "foretold", "foretold_least_ns", "foretold_most_ns", "outcome")
CAUSE = fields_of(StepPartJson, "name", "title", "old_ns", "new_ns", "delta_ns")
OPERATION = fields_of(OperationJson, "kind", "what", "verdict", "says", "old", "new", "delta_ns", "change_pct")
KERNEL = fields_of(
    ComparedKernelJson, "kernel", "verdict", "says", "old_total_ns", "new_total_ns", "old_launches", "new_launches",
    "change_pct")
_SIDE = fields_of(Work, "launches", "ns", "flop", "bytes")
Id = Annotated[int, Field(ge=1, le=MOST_ID)]


async def compare_profiles(
        old: Annotated[Id, Field(description="id of the profile before the change, as list_profiles gives it")],
        new: Annotated[Id, Field(description="id of the profile after it")],
        per: Annotated[Literal["", "total", "step", "run"], Field(
            description="divide the times of operations and kernels; empty: by steps where their numbers differ")] = "",
        limit: Limit = 10) -> dict[str, Any]:
    """Compare two profiles: the step first, then causes, then operations matched by what they compute, then kernels.

    step is null where a side marks no steps or is not analysed yet; parts of it add up to old_ns and new_ns, and the part
    "needed" is the least time of the work. foretold lists the kinds of avoidable work that went or came with the ns that their
    removal was to win, outcome says whether the step shrank by as much. causes and operations are largest change first; a
    kernel that a launch gives another amount of work is "other_work", not slower.
    """
    found = await caller.get("/api/compare/", a=old, b=new, per=per)
    step = found["step"]
    return {
        "old": pick(found["a"], "label", "build", "gpus", "steps"), "new": pick(found["b"], "label", "build", "gpus", "steps"),
        "answer": found["answer"],
        **pick(found, "comparable", "notes", "per", "old_total_ns", "new_total_ns", "delta_ns", "kernel_verdicts"),
        "step": step and pick(step, *STEP), "causes": top(step["causes"], limit, *CAUSE) if step else [],
        "operations": [{**pick(row, *OPERATION), **{side: row[side] and pick(row[side], *_SIDE) for side in ("old", "new")}}
                       for row in found["operations"][:limit]],
        "kernels": top(found["kernels"], limit, *KERNEL)}

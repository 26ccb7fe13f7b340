"""Candidates: kernels that a program wrote for an operator, judged on a GPU beside the operator's own, reviewed by a person."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from tuner.candidates.selectors import CandidateJson
from webapp.agents import caller
from webapp.agents.tools.arguments import MOST_ID, Dtype, Limit, Offset, Operator, Shape, cut, fields_of, pick
from webapp.agents.tools.problems import operator_path

MOST_TEXT = 256 << 10
LINE = fields_of(
    CandidateJson, "id", "operator", "dtype", "shape", "config", "note", "parent", "series", "status", "step", "verdict",
    "reason", "standing", "gpu", "median_us", "against", "ratio", "low", "high", "by", "token", "created", "finished")
ANSWER = ("loaded", "own", "compiled", "not_compiled", "checks", "repeats", "streams", "again", "replaced", "failed", "rows",
          "against", "counters", "dropped", "source_differs", "best")
Candidate = Annotated[int, Field(ge=1, le=MOST_ID, description="id of a candidate, as submit_candidate gives it")]


async def get_kernel_source(operator: Operator) -> dict[str, Any]:
    """Show the files that an operator's kernels are written in, whole: what a candidate replaces, or a diff is against. allowed
    says whether an owner lets candidates of it run in this project, permit how many a day and for how many GPU-seconds each."""
    answer = await caller.get(f"/api/candidates/source/{operator_path(operator)}/")
    return {"operator": answer["operator"], "allowed": answer["allowed"], "permit": answer["permit"],
            "files": [{"path": file["path"], "hash": file["hash"], "text": file["text"]} for file in answer["files"]]}


async def submit_candidate(
        operator: Operator,
        text: Annotated[str, Field(min_length=1, max_length=MOST_TEXT, description=(
            "a whole Python file that defines launch(inputs, out, config), or @triton.jit kernels with names of the operator's, or "
            "the operator's own file changed; or a unified diff against a file of get_kernel_source, each line where it says"))],
        shape: Annotated[Shape | None, Field(
            description="sizes in elements by the operator's dimension names; else the parent's, else its first preset")] = None,
        dtype: Dtype = "",
        config: Annotated[dict[str, int | float | str | bool] | None, Field(
            max_length=16, description="parameters of the launch; without them the operator's default configuration")] = None,
        note: Annotated[str, Field(max_length=4000, description="what you tried and why: a person reads it beside the code")] = "",
        parent: Annotated[int | None, Field(ge=1, le=MOST_ID, description="the candidate that this one goes on from")] = None,
        gpu: Annotated[str, Field(max_length=120, description="GPU model to measure on; empty: any")] = "",
        ) -> dict[str, Any]:
    """Submit a kernel that you wrote for an operator. A GPU worker runs it behind walls, checks it against the operator's own
    reference on fresh inputs, and times it in turn with the default, the best configuration known and the library. Only where an
    owner allows candidates of the operator. Takes one start of the token's day and the permit's seconds of its GPU-seconds. Answers
    at once: ask get_candidate. The verdict stands as measured, not reviewed, until a person accepts it."""
    source = await caller.get(f"/api/candidates/source/{operator_path(operator)}/")
    payload = {name: value for name, value in (
        ("operator", operator), ("text", text), ("shape", shape), ("dtype", dtype), ("config", config), ("note", note),
        ("parent", parent), ("gpu", gpu)) if value}
    seconds = float(source["permit"]["seconds"]) if source["permit"] else 0.0
    await caller.spend("submit_candidate", {**payload, "text": f"{len(text)} characters"}, seconds)
    answer = await caller.post("/api/candidates/", payload)
    caller.led_to("candidate", answer["id"])
    return {"candidate": answer["id"], **pick(answer, "status", "waits", "series", "seconds"),
            "next": f"get_candidate with candidate {answer['id']} tells its verdict"}


async def get_candidate(
        candidate: Candidate, text: Annotated[bool, Field(description="also answer its file, whole")] = False) -> dict[str, Any]:
    """Show a candidate: what it waits for, its verdict with the reason, each check, times in µs with their intervals (rows; ratio
    is candidate ÷ that one, below 1 is faster), what was compiled, counters or why there are none, and its review."""
    answer = await caller.get(f"/api/candidates/{candidate}/", text=1 if text else "")
    fields = {**pick(answer, *LINE, "error", "waits", "review", "review_note", "reviewed_by", "was_diff"),
              **pick(answer["answer"], *ANSWER), "attempts": answer["attempts"][:100]}
    return {**fields, "text": answer["text"]} if text else fields


async def list_candidates(
        operator: Annotated[str, Field(max_length=60, description="name of an operator; empty: all")] = "",
        verdict: Annotated[Literal["", "FASTER", "SAME", "SLOWER", "AMBIGUOUS", "WRONG", "FAILED"], Field(
            description="what was said of it; empty: all")] = "",
        series: Annotated[int, Field(ge=0, le=MOST_ID, description="attempts of one series, by the id of its first; 0: all")] = 0,
        limit: Limit = 20, offset: Offset = 0) -> dict[str, Any]:
    """List past attempts, newest first: what was tried (note), its verdict and reason, its median in µs, its ratio to the best
    configuration known with the interval, and whether a person accepted it. Look here before you write the next one."""
    answer = await caller.get("/api/candidates/", operator=operator, verdict=verdict, series=series or "", limit=limit,
                              offset=offset)
    return {"total": answer["total"], "candidates": [cut(pick(row, *LINE)) for row in answer["candidates"]]}


async def cancel_candidate(candidate: Candidate) -> dict[str, Any]:
    """Cancel a candidate that waits or runs: it ends within a second, without a verdict."""
    return pick(await caller.post(f"/api/candidates/{candidate}/cancel/"), "id", "status", "verdict")

"""Operators, one operator at one shape, type and GPU, what launches are served, and what got slower.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from tuner.gate.builds.selectors import RegressionJson
from webapp.agents import caller
from webapp.agents.tools.arguments import Dtype, Gpu, Limit, Offset, Operator, Shape, Words, cut, fields_of, pick, top

AnyGpu = Annotated[str, Field(max_length=120, description="GPU model as its driver names it; empty: none in particular")]


async def list_operators() -> dict[str, Any]:
    """List the operators that can be tuned: dimensions with their bounds (elements), types, preset shapes, what to compare by."""
    found = await caller.get("/api/operators/")
    return {"operators": [pick(row, "name", "title", "package", "dtypes", "dims", "presets", "unit") for row in found["operators"]]}


async def get_operator(
        operator: Operator, shape: Annotated[Shape | None, Field(
            description="sizes in elements by the operator's dimension names; without them its first preset")] = None,
        dtype: Dtype = "", gpu: AnyGpu = "") -> dict[str, Any]:
    """Show an operator's search space at a shape: each parameter with its values, how many configurations are valid and why the
    others are not, the default configuration, FLOP and least bytes of one launch. Without a shape, its first preset."""
    return dict(cut(await caller.get(f"/api/operators/{operator_path(operator)}/", shape, dtype=dtype, gpu=gpu)))


async def get_problem(operator: Operator, shape: Shape, gpu: Gpu, dtype: Dtype = "") -> dict[str, Any]:
    """Show what is known of an operator at one shape and type on one GPU: profiled, tuned, served, guarded, regressions.

    tuned.done holds the newest search (best_ms, default_ms, library_ms are milliseconds of one launch) and tuned.active one that
    runs; device says where a search would run, why_not what it would wait for.
    """
    return dict(cut(await caller.get("/api/problem/", shape, operator=operator, dtype=dtype, gpu=gpu)))


def operator_path(operator: str) -> str:
    """Return the name as a part of an address: a name with anything but letters, digits, _ and - is none."""
    return operator if all(mark.isalnum() or mark in "_-:." for mark in operator) and operator.isascii() else "-"


REGRESSION = fields_of(
    RegressionJson, "id", "suite", "family", "kernels", "build", "good", "state", "kind", "found_by", "why", "ratio", "ci",
    "environment", "note", "created")


async def get_served_config(
        operator: Operator, shape: Shape, gpu: Gpu, dtype: Dtype = "",
        toolkit: Annotated[str, Field(max_length=120, description='for example "cuda 13.0, triton 3.6.0"; empty: any')] = "",
        recorded: Annotated[bool, Field(description="serve recordings too")] = False, limit: Limit = 10) -> dict[str, Any]:
    """Show the configuration that a launch of an operator at a shape gets now on a GPU, which rule serves it and why, and the
    entries that were considered. expected_loss is what it may cost beside one measured for the shape (0.05: 5 %), null: unknown."""
    answer = await caller.get("/api/configs/best/", shape, operator=operator, dtype=dtype, gpu=gpu, toolkit=toolkit, why=1,
                              recorded=int(recorded))
    return {**{name: cut(value) for name, value in answer.items() if name != "considered"},
            "considered": cut(answer.get("considered", [])[:limit])}


async def list_regressions(
        state: Annotated[Literal["", "watched", "open", "acknowledged", "intended", "fixed", "environment"], Field(
            description="watched: open and acknowledged; empty: all")] = "watched",
        suite: Annotated[str, Field(max_length=60, description="name of a suite; empty: all")] = "",
        q: Words = "", limit: Limit = 20, offset: Offset = 0) -> dict[str, Any]:
    """List kernels that got slower between builds, those without an answer first. ratio is new time ÷ old time, ci its interval of
    confidence, null where one run alone tells; good is the last build without it."""
    answer = await caller.get("/api/regressions/", state=state, suite=suite, q=q, offset=offset)
    return {"total": answer["count"], "regressions": top(answer["results"], limit, *REGRESSION)}

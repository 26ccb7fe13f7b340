"""Operators, and one operator at one shape, type and GPU."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from webapp.agents import caller
from webapp.agents.tools.arguments import Dtype, Gpu, Operator, Shape, cut, pick

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

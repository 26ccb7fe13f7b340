"""Kernel files that a program wrote: what Ridgepoint understands, what compiles, and the adapter that makes an operator of one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from webapp.agents import caller, spending
from webapp.agents.tools.arguments import MOST_ID, cut, pick

MOST_TEXT = 256 << 10
FOUND = ("name", "kind", "line", "arguments", "parameters", "size", "valid", "pruned", "default", "assumed", "problems", "compiled")
Check = Annotated[int, Field(ge=1, le=MOST_ID, description="id of a check, as check_kernel gives it")]


async def check_kernel(
        text: Annotated[str, Field(min_length=1, max_length=MOST_TEXT, description=(
            "the whole file: Python with Triton kernels, CUDA C++, or a Kernel Tuner script"))],
        file: Annotated[str, Field(max_length=80, description="its name: add.py, add.cu; empty: told from the text")] = "",
        shape: Annotated[dict[str, Annotated[int, Field(ge=1, le=2**31 - 1)]] | None, Field(
            max_length=12, description="values of dimensions and macros, for example {N: 4096}")] = None,
        dtype: Annotated[Literal["", "bf16", "fp16", "fp32", "fp8"], Field(description="type of the tensors")] = "",
        ) -> dict[str, Any]:
    """Check a kernel file: arguments, parameters and the size of its space from its text, samples compiled for sm_80, sm_90 and
    sm_100 by a worker behind walls, what is missing to tune it. Nothing is launched. Owners only. Takes one start of the token's
    day. Ask get_kernel_check for the rest."""
    asked = {"text": text, "file": file, "shape": shape or {}, "dtype": dtype}
    await spending.spend("check_kernel", {**asked, "text": f"{len(text)} characters"})
    made = await caller.post("/api/operators/check/", asked)
    spending.led_to("check", made["id"])
    return {"check": made["id"], **_told(made), "next": f"get_kernel_check with check {made['id']} tells what compiled"}


async def get_kernel_check(check: Check) -> dict[str, Any]:
    """Show a check: registers per thread, spilled words, bytes of shared memory and occupancy (percent) of each sample, problems
    with what to do, and the adapter that a team's package would hold, its text whole."""
    found = await caller.get(f"/api/operators/check/{check}/")
    return {**_told(found), "adapters": [pick(each, "kernel", "file", "why", "to_do", "valid", "size") | {"text": each.get("text")}
                                         for each in found["adapters"]]}


def _told(check: dict[str, Any]) -> dict[str, Any]:
    result = check["result"] or {}
    return {**pick(check, "file", "status", "compiled", "samples", "error"),
            "kernels": [pick(each, *FOUND) for each in cut(result.get("operators", []))]}

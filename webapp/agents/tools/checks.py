"""Kernel files that a program wrote: what Ridgepoint understands, what compiles, and the adapter that makes an operator of one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from webapp.agents import caller
from webapp.agents.tools.arguments import MOST_ID, cut, pick
from webapp.agents.tools.jobs import require_worker

MOST_TEXT = 256 << 10
FOUND = ("name", "kind", "line", "arguments", "parameters", "size", "valid", "pruned", "default", "assumed", "recorded", "notes",
         "problems", "compiled")
Check = Annotated[int, Field(ge=1, le=MOST_ID, description="id of a check, as check_kernel gives it")]


async def check_kernel(
        text: Annotated[str, Field(max_length=MOST_TEXT, description=(
            "the whole file: Python with Triton kernels, CUDA C++, or a Kernel Tuner script; empty: see `source`"))] = "",
        file: Annotated[str, Field(max_length=80, description="its name: add.py, add.cu; empty: told from the text")] = "",
        shape: Annotated[dict[str, Annotated[int, Field(ge=1, le=2**31 - 1)]] | None, Field(
            max_length=12, description="values of dimensions and macros, for example {N: 4096}")] = None,
        dtype: Annotated[Literal["", "bf16", "fp16", "fp32", "fp8"], Field(description="type of the tensors")] = "",
        call: Annotated[str, Field(max_length=2000, description=(
            'one call of a function of the file, made on tensors without memory: "softmax(randn(8192, 4096))". Then grid, blocks, '
            "flags, strides and the adapter follow from what it launches, and tune_kernel can tune it"))] = "",
        siblings: Annotated[dict[Annotated[str, Field(max_length=240)], Annotated[str, Field(max_length=1 << 20)]] | None, Field(
            max_length=200, description="files that it imports: path below a root, to text")] = None,
        folder: Annotated[str, Field(max_length=240, description="where the file itself lies below that root")] = "",
        source: Annotated[str, Field(max_length=300, description=(
            "in place of a text: a repository (https://host/team/kernels) with `commit`, or a package (NAME==VERSION)"))] = "",
        commit: Annotated[str, Field(max_length=80, description="of a repository: whole, a branch or a tag")] = "",
        path: Annotated[str, Field(max_length=240, description="of the file in there; empty: list those that hold kernels")] = "",
        ) -> dict[str, Any]:
    """Check a kernel file: arguments, parameters and the size of its space from its text, samples compiled for sm_80, sm_90 and
    sm_100 by a worker behind walls, with a call what each kernel is given; what is missing to tune it; calls that the file shows.
    Nothing is launched. Owners only. Takes one start of the token's day. Ask get_kernel_check for the rest."""
    payload = {"text": text, "file": file, "shape": shape or {}, "dtype": dtype, "call": call, "siblings": siblings or {},
               "folder": folder, "source": source, "commit": commit, "path": path}
    await caller.spend("check_kernel", {**payload, "text": f"{len(text)} characters", "siblings": sorted(siblings or {})})
    answer = await caller.post("/api/operators/check/", payload)
    caller.led_to("check", answer["id"])
    return {"check": answer["id"], **_told(answer), "next": f"get_kernel_check with check {answer['id']} tells what compiled"}


async def get_kernel_check(check: Check) -> dict[str, Any]:
    """Show a check: registers per thread, spilled words, bytes of shared memory and occupancy (percent) of each sample, problems
    with what to do, and the adapter that a team's package would hold, its text whole."""
    answer = await caller.get(f"/api/operators/check/{check}/")
    return {**_told(answer), "adapters": [
        pick(adapter, "kernel", "file", "why", "to_do", "valid", "size")
        | {"text": adapter.get("text"), "references": list(adapter.get("references") or {})} for adapter in answer["adapters"]]}


async def tune_kernel(
        check: Check,
        kernel: Annotated[str, Field(max_length=120, description="of the check; empty where it holds one that can be tuned")] = "",
        reference: Annotated[str, Field(max_length=120, description=(
            "a function of the file that computes the same in torch, one of `references` of get_kernel_check; empty: the default "
            "configuration's own result, which is not independent"))] = "",
        params: Annotated[dict[Annotated[str, Field(max_length=40)], list[int | float | str | bool]] | None, Field(
            max_length=16, description="parameter: its values, all of them; null: the space of the check")] = None,
        constraints: Annotated[list[Annotated[str, Field(min_length=1, max_length=500)]] | None, Field(
            max_length=16, description='with params: what must hold, "BM * BN <= 8192"')] = None,
        budget_trials: Annotated[int, Field(ge=1, le=5000, description="configurations to try at most")] = 100,
        budget_seconds: Annotated[float, Field(ge=1, le=86_400, description="seconds of the job at most")] = 180.0,
        ) -> dict[str, Any]:
    """Tune a kernel of a checked file whose call was recorded, at the call's shape: its source travels with the job and runs on a
    GPU behind walls. Owners only. Takes one start of the token's day and budget_seconds of its GPU-seconds. Ask get_job."""
    payload: dict[str, Any] = {"kernel": kernel, "reference": reference, "budget_trials": budget_trials,
                               "budget_seconds": budget_seconds}
    payload |= {name: value for name, value in (("params", params), ("constraints", constraints)) if value}
    await require_worker("gpu")
    await caller.spend("tune_kernel", {"check": check, **payload}, budget_seconds)
    answer = await caller.post(f"/api/operators/check/{check}/tune/", payload)
    caller.led_to("tune", answer["job"]["id"])
    return {"job": answer["job"]["id"], **pick(answer, "operator", "independent", "files"),
            "next": f"get_job with job {answer['job']['id']} tells its progress"}


def _told(check: dict[str, Any]) -> dict[str, Any]:
    result = check["result"] or {}
    return {**pick(check, "file", "source", "call", "proposals", "status", "compiled", "samples", "error"),
            "kernels": [pick(operator, *FOUND) for operator in cut(result.get("operators", []))]}

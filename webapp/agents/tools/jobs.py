"""Tune jobs: searches of configurations, measured on a GPU or replayed from a recording."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from tuner.jobs.selectors import TrialJson, TuneJobJson, WholeTuneJobJson
from webapp.agents import caller
from webapp.agents.tools.arguments import Dtype, Job, Limit, Offset, Operator, Shape, cut, fields_of, pick, top

LINE = fields_of(
    TuneJobJson, "id", "operator", "shape", "dtype", "device", "status", "gpu", "recorded", "best_ms", "default_ms",
    "library_ms", "elapsed_s", "trials", "rejected", "outcome", "keep_library", "owner", "created", "finished")
WHOLE = fields_of(
    WholeTuneJobJson, *LINE, "space", "strategy", "seed", "timing", "budget_trials", "budget_seconds", "plateau", "ceiling_pct",
    "ceiling", "best_config", "triton", "rate", "valid_size", "pruned", "failures", "ended_by", "error", "environment",
    "started")
TRIAL = fields_of(
    TrialJson, "number", "outcome", "reason", "message", "config", "median_ms", "min_ms", "p90_ms", "n", "at_s", "facts")
DEFAULT_TRIALS, DEFAULT_SECONDS = 100, 180.0


Values = Annotated[list[int | float | str | bool], Field(min_length=1, max_length=64)]


async def list_jobs(
        operator: Annotated[str, Field(max_length=60, description="name of an operator; empty: all")] = "",
        status: Annotated[Literal["", "queued", "running", "paused", "done", "stopped", "failed"], Field(
            description="state of the job; empty: all")] = "",
        limit: Limit = 20, offset: Offset = 0) -> dict[str, Any]:
    """List tune jobs, newest first: best, default and library time of one launch in milliseconds, null while unknown."""
    answer = await caller.get("/api/tune/", operator=operator, status=status, limit=limit, offset=offset)
    return {"total": answer["total"], "jobs": [pick(row, *LINE) for row in answer["jobs"]]}


async def get_job(
        job: Job, trials: Annotated[int, Field(ge=0, le=200, description="trials to answer, 0 to 200")] = 10,
        after: Annotated[int, Field(ge=-1, le=10**9, description="only trials with a greater number; -1: from the first")] = -1,
        ) -> dict[str, Any]:
    """Show a tune job: progress, best, default and library time (milliseconds of one launch), its best configuration, failures by
    reason, and trials in the order in which they were known. keep_library: the vendor's library is faster, and by how much;
    ceiling: the least time that the GPU allows (ms), and the share (0 to 1) that the best reached.

    next_after reads on in the trials, null when there are no more.
    """
    answer = await caller.get(f"/api/tune/{job}/")
    page: dict[str, Any] = {"trials": [], "next_after": None}
    if trials:
        page = await caller.get(f"/api/tune/{job}/trials/", limit=trials, after=after)
    return {**pick(answer, *WHOLE), "finalists": cut(answer["finalists"]), "stop_requested": answer["stop_requested"],
            "attempts": top(page["trials"], trials, *TRIAL), "next_after": page["next_after"]}


async def start_tune_job(
        operator: Operator, shape: Shape, dtype: Dtype = "",
        gpu: Annotated[str, Field(max_length=110, description="GPU model to measure on, or of a recording; empty: any")] = "",
        device: Annotated[str, Field(
            max_length=120, description='"gpu", "gpu:<model>" or "replay:<recording>"; empty: as get_problem says')] = "",
        budget_trials: Annotated[int, Field(ge=1, le=5000, description="configurations to try at most")] = DEFAULT_TRIALS,
        budget_seconds: Annotated[float, Field(ge=1, le=86_400, description="seconds of the job at most")] = DEFAULT_SECONDS,
        ceiling_pct: Annotated[float | None, Field(
            ge=1, le=100, description="end when the best reaches so many percent of what the GPU can do; null: never")] = None,
        strategy: Annotated[str, Field(max_length=40, description="search method; empty: the default")] = "",
        first: Annotated[list[dict[str, int | float | str | bool]] | None, Field(
            max_length=50, description="configurations to try before the search, each parameters by name")] = None,
        values: Annotated[dict[Annotated[str, Field(max_length=40)], Values] | None, Field(
            max_length=16, description="parameter: the values to search of it, in place of the operator's own")] = None,
        constraints: Annotated[list[Annotated[str, Field(min_length=1, max_length=500)]] | None, Field(
            max_length=16, description='arithmetic over parameters and dimensions that must hold: "BM * BN <= 8192"')] = None,
        ) -> dict[str, Any]:
    """Start a search of the best configuration of an operator at a shape. Takes one start of the token's day and, on a GPU,
    budget_seconds of its GPU-seconds; what the job did not use is given back when it ends. Refused, and nothing taken, while no
    worker has the GPU. Answers at once: ask get_job."""
    if not device:
        device = (await caller.get("/api/problem/", shape, operator=operator, dtype=dtype, gpu=gpu))["device"]["value"]
    payload: dict[str, Any] = {"operator": operator, "shape": shape, "device": device, "budget_trials": budget_trials,
                               "budget_seconds": budget_seconds}
    payload |= {name: value for name, value in (("dtype", dtype), ("strategy", strategy), ("first", first),
                                                     ("ceiling_pct", ceiling_pct)) if value}
    if values or constraints:
        payload["space"] = {"parameters": values or {}, "constraints": constraints or []}
    if not device.startswith("replay:"):
        await require_worker(device)
    await caller.spend("start_tune_job", payload, 0.0 if device.startswith("replay:") else budget_seconds)
    answer = await caller.post("/api/tune/", payload)
    caller.led_to("tune", answer["id"])
    return {"job": answer["id"], **pick(answer, "status", "device", "budget_trials", "budget_seconds"),
            "next": f"get_job with job {answer['id']} tells its progress"}


async def require_worker(device: str) -> None:
    """Raise ToolError for a GPU that no worker has now: the job would wait without end, and hold the day's GPU-seconds."""
    workers = (await caller.get("/api/workers/"))["workers"]
    models = {gpu["name"] for worker in workers if "gpu" in worker.get("queues", []) for gpu in worker.get("gpus") or []}
    model = device.partition(":")[2]
    if models and (not model or model in models):
        return
    there = f"workers have {', '.join(sorted(models))}" if models else "none has a GPU"
    raise ToolError(f"no worker serves {device!r} now ({there}): nothing was started and nothing taken of the day. Start one on "
                    'that machine (manage.py worker gpu), or search a recording (device "replay:<recording>")')


async def stop_job(job: Job) -> dict[str, Any]:
    """Stop a tune job: it keeps what it measured, and its best so far becomes its result."""
    return pick(await caller.post(f"/api/tune/{job}/stop/"), "id", "status", "stop_requested")

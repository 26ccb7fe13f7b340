"""Profiles: what was recorded, two side by side, and captures, which are programs run under a profiler on a worker.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from profiles.analysis.compare.operations import Work
from profiles.capture.selectors import CaptureJson
from profiles.compare.answers import ComparedKernelJson, OperationJson, StepChangeJson, StepPartJson
from webapp.agents import caller
from webapp.agents.tools.arguments import MOST_ID, Capture, Limit, Offset, Profile, Words, cut, fields_of, pick, top

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
    answer = await caller.get("/api/profiles/", q=q, gpu=gpu, build=build, kind=kind, limit=limit, offset=offset)
    return {"total": answer["count"], "profiles": [pick(row, *FIELDS) for row in answer["results"]]}


async def get_step(profile: Profile, limit: Limit = 10) -> dict[str, Any]:
    """Show what a step of a profile takes, what its work needs at least, and what it does besides, with the gain of each change.

    parts of a GPU add up to wall_ns over its steps. avoidable names work that need not be, most GPU time first: change is the
    line of code, gain_step_least_ns to gain_step_most_ns what it wins a step. slow_kernels are needed and slower than their
    ceiling: tune holds operator, dtype and sizes for start_tune_job, empty where none fits, choice what else to try. ranges
    (modules or ranges) and layer_parts say where the least time lies; has_least false: the trace does not tell it. state is
    "made" once a worker has analysed the trace.
    """
    answer = await caller.get(f"/api/profiles/{profile}/analysis/needed/")
    if "numbers" not in answer:
        return {"state": answer["state"]}
    numbers = answer["numbers"] if answer["applies"] else {}
    return {
        "state": "made", "answer": answer["answer"], **pick(numbers, "needed_pct", "has_least", "range_kind", "layers"),
        "gpus": top(numbers.get("gpus", []), limit, "gpu", "label", "wall_ns", "steps", "tail_ns", "parts", "needed_pct"),
        "avoidable": top(numbers.get("kinds", []), limit, *KIND), "slow_kernels": top(numbers.get("slow", []), limit, *SLOW),
        "ranges": top(sorted(numbers.get("ranges", []), key=lambda row: -row["takes_ns"]), limit, *PLACE),
        "layer_parts": top(numbers.get("layer_parts", []), limit, *PART)}


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
    answer = await caller.get("/api/compare/", a=old, b=new, per=per)
    step = answer["step"]
    return {
        "old": pick(answer["a"], "label", "build", "gpus", "steps"), "new": pick(answer["b"], "label", "build", "gpus", "steps"),
        "answer": answer["answer"],
        **pick(answer, "comparable", "notes", "per", "old_total_ns", "new_total_ns", "delta_ns", "kernel_verdicts"),
        "step": step and pick(step, *STEP), "causes": top(step["causes"], limit, *CAUSE) if step else [],
        "operations": [{**pick(row, *OPERATION), **{side: row[side] and pick(row[side], *_SIDE) for side in ("old", "new")}}
                       for row in answer["operations"][:limit]],
        "kernels": top(answer["kernels"], limit, *KERNEL)}


LINE = fields_of(
    CaptureJson, "id", "target_name", "tool", "options", "command", "build", "model", "status", "error", "profile", "worker",
    "created", "started", "finished", "stopping")
LOG_CHARS = 4000
DEFAULT_LIMIT_S = 120


async def list_capture_targets() -> dict[str, Any]:
    """List the programs that may be captured (owners define them), and which capture tools a worker can run now, or why not."""
    targets = (await caller.get("/api/captures/targets/"))["results"]
    able = (await caller.get("/api/captures/", limit=1))["ability"]
    return {"targets": [pick(row, "id", "name", "description", "argv", "enabled") for row in targets[:100]],
            "tools": {name: pick(tool, "able", "why", "gpu") for name, tool in able.items()}}


async def start_capture(
        target: Annotated[int, Field(ge=1, description="id of a target, as list_capture_targets gives it")],
        tool: Annotated[Literal["ncu", "torch", "nsys", "proton", "cutlass"], Field(
            description="ncu: hardware counters of launches; torch, nsys: a timeline; proton: Triton's; cutlass: its profiler")],
        options: Annotated[dict[str, Any] | None, Field(
            max_length=40, description="options of the tool by name, as actions.capture.fields of get_kernel gives them")] = None,
        time_limit_s: Annotated[int, Field(ge=1, le=86_400, description="seconds after which it is ended")] = DEFAULT_LIMIT_S,
        build: Annotated[str, Field(max_length=80, description="name of the build that runs; empty: none")] = "",
        model: Annotated[str, Field(max_length=120, description="name of the model that runs; empty: none")] = "",
        ) -> dict[str, Any]:
    """Run a target under a profiler on a GPU worker; the result becomes a profile. Takes one start of the token's day and
    time_limit_s of its GPU-seconds. Answers at once: ask get_capture. Only targets that an owner defined can run."""
    settings = {**(options or {}), "time_limit_s": time_limit_s}
    beside = {name: settings.pop(name) for name in ("tool", "profile", "build", "model", "baseline") if name in settings}
    payload = {"target": target, "tool": tool, "options": settings, "build": build or str(beside.get("build") or ""),
               "model": model or str(beside.get("model") or "")}
    if isinstance(beside.get("baseline"), int):
        payload["baseline"] = beside["baseline"]
    await caller.spend("start_capture", payload, float(time_limit_s))
    made = await caller.post("/api/captures/", payload)
    caller.led_to("capture", made["id"])
    return {"capture": made["id"], **pick(made, "status", "tool", "command"), "next": f"get_capture with capture {made['id']}"}


async def get_capture(capture: Capture) -> dict[str, Any]:
    """Show a capture: its state, why it failed, the end of its log (4,000 characters), and the profile that it became."""
    answer = await caller.get(f"/api/captures/{capture}/")
    return {**pick(answer, *LINE), "profile_status": answer["profile_status"], "log": (answer["log"] or "")[-LOG_CHARS:],
            "files": [cut(file) for file in answer["files"][:50]]}


async def stop_capture(capture: Capture) -> dict[str, Any]:
    """Stop a queued or running capture. A tool that can finish its report does so first (stopping); a second stop ends it."""
    return pick(await caller.post(f"/api/captures/{capture}/stop/"), "id", "status", "stopping")

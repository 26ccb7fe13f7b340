"""Captures: programs run under a profiler on a worker."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from profiles.capture.selectors import CaptureJson
from webapp.agents import caller
from webapp.agents.tools.arguments import Capture, cut, fields_of, pick

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
            "tools": {name: pick(each, "able", "why", "gpu") for name, each in able.items()}}


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
    given = {**(options or {}), "time_limit_s": time_limit_s}
    beside = {name: given.pop(name) for name in ("tool", "profile", "build", "model", "baseline") if name in given}
    asked = {"target": target, "tool": tool, "options": given, "build": build or str(beside.get("build") or ""),
             "model": model or str(beside.get("model") or "")}
    if isinstance(beside.get("baseline"), int):
        asked["baseline"] = beside["baseline"]
    await caller.spend("start_capture", asked, float(time_limit_s))
    made = await caller.post("/api/captures/", asked)
    caller.led_to("capture", made["id"])
    return {"capture": made["id"], **pick(made, "status", "tool", "command"), "next": f"get_capture with capture {made['id']}"}


async def get_capture(capture: Capture) -> dict[str, Any]:
    """Show a capture: its state, why it failed, the end of its log (4,000 characters), and the profile that it became."""
    found = await caller.get(f"/api/captures/{capture}/")
    return {**pick(found, *LINE), "profile_status": found["profile_status"], "log": (found["log"] or "")[-LOG_CHARS:],
            "files": [cut(each) for each in found["files"][:50]]}


async def stop_capture(capture: Capture) -> dict[str, Any]:
    """Stop a queued or running capture. A tool that can finish its report does so first (stopping); a second stop ends it."""
    return pick(await caller.post(f"/api/captures/{capture}/stop/"), "id", "status", "stopping")

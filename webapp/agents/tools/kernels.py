"""Kernels: where the time goes, and why one takes as long as it does."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import parse_qsl, urlsplit

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from profiles.analysis.kernel.advising.advice import Advice
from profiles.families.json_selectors import FamilyLineJson
from profiles.profile.selectors import KernelJson, ShapeJson
from profiles.rooflines.selectors import RooflinePointJson
from webapp.agents import caller
from webapp.agents.tools.arguments import MOST_ID, Kernel, Limit, Profile, cut, fields_of, pick, top

ROW = fields_of(
    KernelJson, "id", "short_name", "category", "launches", "total_ns", "mean_ns", "p50_ns", "p95_ns", "share_pct", "bound",
    "bound_reason", "registers_per_thread", "smem_bytes", "occupancy_pct")
FAMILY = fields_of(
    FamilyLineJson, "family", "name", "op", "dtype", "category", "total_ns", "share_pct", "launches", "profiles", "gpus",
    "known_ns", "expected_ns", "expected_low_ns", "expected_high_ns", "basis_text", "roof_pct", "why")
POINT = fields_of(
    RooflinePointJson, "time_ns", "flop", "dram_bytes", "intensity", "flop_s", "dram_bytes_s", "precision", "side", "roof",
    "roof_pct", "ridge", "recoverable_ns")
ADVICE = fields_of(
    Advice, "cause", "title", "evidence", "fix", "confidence", "gain_ns", "gain_pct", "gain_source", "kind", "no_gain",
    "said_by")
LINE = ("place", "text", "share_pct", "reason_title", "reason_pct", "samples", "executed", "excess_sectors", "excess_wavefronts")
SHAPE = fields_of(ShapeJson, "grid", "block", "operator", "dims", "dtype", "launches", "total_ns", "p50_ns", "p95_ns")
MOST_ADVICE, MOST_SHAPES, MOST_STALLS = 8, 10, 5


async def list_worst_kernels(
        profile: Annotated[int | None, Field(ge=1, le=MOST_ID, description="id of a profile; without it all together")] = None,
        fleet: Annotated[bool, Field(description="sums of production instead; takes a role in the installation")] = False,
        gpu: Annotated[str, Field(max_length=120, description="GPU model; empty: all (not for one profile)")] = "",
        limit: Limit = 10) -> dict[str, Any]:
    """Rank kernels, worst first: those of one profile by their time, or families over all profiles by what there is to win.

    Of all profiles, expected_ns is the time that a better kernel is expected to save, null where nothing tells, and basis_text
    says what the number rests on; tune holds operator, dtype and sizes of a search that would help, get_family where to look.
    With fleet, the kernels with most GPU time in production.
    """
    if fleet:
        answer = await caller.get("/api/fleet/top/", gpu_model=gpu, limit=limit)
        return {"of": "fleet", **pick(answer, "from", "to", "total_ns", "estimate_ns", "complete", "simulated", "gaps"),
                "kernels": cut(answer["rows"][:limit])}
    if profile is None:
        answer = await caller.get("/api/kernels/", gpu=gpu, limit=limit)
        return {"of": "all profiles", "total_ns": answer["total_ns"], "count": answer["count"],
                "kernels": [{**pick(row, *FAMILY), "tune": _form_fields(row["actions"]["tune"])}
                            for row in answer["families"][:limit]]}
    answer = await caller.get(f"/api/profiles/{profile}/kernels/", limit=limit)
    return {"of": f"profile {profile}", "count": answer["count"], "kernels": [pick(row, *ROW) for row in answer["kernels"]]}


async def get_family(
        family: Annotated[int, Field(ge=1, le=MOST_ID, description="id of a family, as list_worst_kernels gives it")],
        limit: Limit = 10) -> dict[str, Any]:
    """Show a kernel family: what it costs and why, the profiles that have it with the ids that get_kernel takes, its shapes."""
    answer = await caller.get(f"/api/kernels/{family}/")
    return {**pick(answer, "family", "name", "op", "dtype", "answer"), "worth": pick(answer["worth"] or {}, *FAMILY[5:]),
            "profiles": top(answer["profiles"], limit, "profile", "kernel", "name", "build", "gpu", "kind", "launches", "total_ns"),
            "shapes": top(answer["shapes"], limit, "gpu", "grid", "block", "build", "launches", "total_ns", "p50_ns", "p95_ns"),
            "advice": top(answer["advice"], MOST_ADVICE, *ADVICE)}


def _form_fields(address: str) -> dict[str, Any] | None:
    """Return what a form's address fills in; None without one."""
    fields = dict(parse_qsl(urlsplit(address or "").query))
    return {name: int(value) if value.isdecimal() else value for name, value in fields.items()} or None


async def get_kernel(profile: Profile, kernel: Kernel) -> dict[str, Any]:
    """Show one kernel of a profile with its evidence: time, share, bound, place under the roofline, limits, advice, next steps.

    counters and roofline are null without hardware counters, and why says how to get them. gain_ns is what a piece of advice is
    expected to save of the kernel's total_ns, null where no number can be given (no_gain says why). actions.tune.fields are
    arguments for start_tune_job, actions.capture.fields options for start_capture, empty where `said` tells what is missing.
    """
    about = await caller.get(f"/api/profiles/{profile}/")
    row = await _row(profile, kernel)
    base = f"/api/profiles/{profile}/kernels/{kernel}"
    advice, actions = await caller.get(f"{base}/advice/"), await caller.get(f"{base}/actions/")
    counted = about["kind"] == "counters"
    launch = await longest_launch(profile, kernel) if counted else None
    point = await _point(profile, kernel) if counted else None
    shapes = await caller.get(f"/api/profiles/{profile}/kernel-shapes/", kernel=kernel, limit=MOST_SHAPES)
    return {
        "profile": pick(about, "id", "name", "kind", "gpu", "build", "model", "recorded"),
        "kernel": {**pick(row, *ROW, "min_ns", "max_ns"), "name": cut(row["name"])},
        "shapes": [pick(shape, *SHAPE) for shape in shapes["kernel_shapes"]],
        "headroom": advice["headroom"], "advice": top(advice["advice"], MOST_ADVICE, *ADVICE),
        "roofline": point and pick(point, *POINT), "bounded": point and cut(point["bounded"]),
        "counters": launch and _counters(launch), "actions": {name: cut(actions[name]) for name in ("tune", "capture")},
        "why": "" if counted else "this profile has no hardware counters: capture them with start_capture and the fields of "
                                  "actions.capture"}


async def get_source(profile: Profile, kernel: Kernel, limit: Limit = 15) -> dict[str, Any]:
    """Show the hot source lines and instructions of a kernel's longest launch, where the profile has them.

    share_pct is the share of the launch's stall samples; reason is what warps waited for there most. Only reports of Nsight
    Compute with the section SourceCounters have this; else lines is empty and why says so.
    """
    about = await caller.get(f"/api/profiles/{profile}/")
    await _row(profile, kernel)
    launch = await longest_launch(profile, kernel) if about["kind"] == "counters" else None
    inside = f"/api/profiles/{profile}/source/{launch['index']}/" if launch else ""
    lines = await caller.find(inside, table="lines") if inside else None
    if launch is None or lines is None:
        return {"lines": [], "instructions": [], "why": "the profile holds no instructions of this kernel: capture it with ncu, "
                                                        "whose set “full” or “source” records them"}
    code = await caller.get(inside, table="instructions")
    samples = "smsp__pcsamp_sample_count"
    hot = sorted((row for row in code["rows"] if row.get(samples)), key=lambda each: -each[samples])
    return {"launch": launch["index"], "duration_ns": launch["duration_ns"],
            "lines": top(sorted(lines["rows"], key=lambda each: -(each["samples"] or 0)), limit, *LINE),
            "instructions": [{"sass": row["sass"], "line": row["line"], "samples": row[samples]} for row in hot[:limit]],
            "why": "" if lines["rows"] else "the report names no source lines: compile with -lineinfo; Triton does so by itself"}


async def longest_launch(profile: int, kernel: int) -> dict[str, Any] | None:
    """Return the kernel's launch with counters that took longest; None where no launch has any."""
    longest: dict[str, Any] | None = None
    offset: int | None = 0
    while offset is not None:
        answer = await caller.get(f"/api/profiles/{profile}/counters/", kernel=kernel, offset=offset)
        longest = max([longest, *answer["launches"]], key=lambda each: -1 if each is None else each["duration_ns"] or 0)
        offset = answer["next_offset"]
    return longest


async def _row(profile: int, kernel: int) -> dict[str, Any]:
    rows: list[dict[str, Any]] = (await caller.get(f"/api/profiles/{profile}/kernels/", kernel=kernel))["kernels"]
    if not rows:
        raise ToolError(f"profile {profile} has no kernel {kernel}: list_worst_kernels names those that it has")
    return rows[0]


async def _point(profile: int, kernel: int) -> dict[str, Any] | None:
    points = (await caller.get(f"/api/profiles/{profile}/roofline/", per="kernel"))["points"]
    return next((point for point in points if point["kernel_id"] == kernel), None)


def _counters(launch: dict[str, Any]) -> dict[str, Any]:
    facts = launch["facts"]
    return {"launch": launch["index"], **pick(launch, "duration_ns", "grid", "block", "incomplete"),
            **pick(facts, "sol", "occupancy", "scheduler", "caches", "launch", "tensor_instructions", "sm_clock_hz",
                   "dram_clock_hz"),
            "stalls": top(facts.get("stalls") or [], MOST_STALLS, "reason", "cycles", "share_pct")}

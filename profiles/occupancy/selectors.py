"""What the occupancy calculator is asked: from the address, or filled in from a kernel with counters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

from profiles.analysis.core import gpus
from profiles.analysis.core.gpus import Limits
from profiles.analysis.kernel import occupancy
from profiles.analysis.kernel.occupancy import FIELDS, Question
from profiles.base.answers import make_answer
from profiles.models import KernelStat, LaunchCounters

# GPUs of each compute capability that the table of models does not name. Source: https://developer.nvidia.com/cuda-gpus
ALSO = {"8.7": "Jetson Orin", "8.8": "", "10.3": "B300", "11.0": "Jetson Thor", "12.1": "GB10"}


@dataclass(frozen=True)
class CalculatorInput:
    """A question and what was wrong with it: wrong values stand at the kernel's or the default value."""

    question: Question
    typed: dict[str, str] = field(default_factory=dict)       # as it came, for the form
    errors: dict[str, str] = field(default_factory=dict)      # parameter -> what would be valid
    kernel: KernelStat | None = None
    launch: LaunchCounters | None = None


def read_question(params: Mapping[str, str]) -> CalculatorInput:
    """Return the question of an address and what is wrong with it.

    `?kernel=ID&launch=INDEX` fills in; `?cc=9.0&threads=256&registers=64&smem_bytes=49152…` decides.
    """
    errors: dict[str, str] = {}
    kernel, launch = _kernel(params, errors)
    question = question_of(launch, kernel)
    capability = params.get("cc", "").strip()
    if capability in gpus.LIMITS:
        question = replace(question, compute_capability=capability)
    elif capability:
        errors["cc"] = f"one of {', '.join(gpus.LIMITS)}"
    changes: dict[str, int | None] = {}
    for name, (label, low, high) in FIELDS.items():
        value = params.get(name)
        if value is None:
            continue
        text = value.strip().replace(",", "")
        if not text and name in ("smem_config_bytes", "blocks", "sm_count"):
            changes[name] = None
        elif text.isascii() and text.isdecimal() and len(text) < 12 and low <= int(text) <= high:
            changes[name] = int(text) or (None if name == "smem_config_bytes" else 0)
        else:
            errors[name] = f"{label}: a whole number from {low:,} to {high:,}"
    question = replace(question, **changes)                    # type: ignore[arg-type]
    typed = {name: params[name][:20] for name in errors if name in params}
    return CalculatorInput(question, typed, errors, kernel, launch)


def _kernel(params: Mapping[str, str], errors: dict[str, str]) -> tuple[KernelStat | None, LaunchCounters | None]:
    text, index = params.get("kernel", "").strip(), params.get("launch", "").strip()
    if not text:
        return None, None
    whole = text.isascii() and text.isdecimal() and len(text) < 18
    kernel = KernelStat.objects.select_related("profile").filter(pk=int(text)).first() if whole else None
    if kernel is None:
        errors["kernel"] = "the id of a kernel of a profile"
        return None, None
    launches = kernel.counter_launches.filter(incomplete="")
    if index.isascii() and index.isdecimal() and len(index) < 9:
        launches = launches.filter(index=int(index))
    return kernel, launches.order_by("-duration_ns").first()


def question_of(launch: LaunchCounters | None, kernel: KernelStat | None) -> Question:
    """Return a launch's own parameters.

    Of a kernel without counters what its row holds.
    """
    question = Question()
    if launch is None:
        if kernel is None:
            return question
        model = gpus.lookup(kernel.profile.gpu)
        specs = {"compute_capability": model.compute_capability if model else None, "sm_count": model.sm_count if model else None,
                 "registers": kernel.registers_per_thread, "smem_bytes": kernel.smem_bytes}
        return replace(question, **{name: value for name, value in specs.items() if value is not None})     # type: ignore[arg-type]
    facts = launch.facts
    stated: Mapping[str, Any] = facts.get("launch", {})
    parts = [part for name in ("static", "dynamic") if isinstance(part := stated.get(f"smem_{name}_bytes"), int | float)]
    sides = facts.get("block")
    values: dict[str, Any] = {
        "threads": stated.get("block_size") or (math.prod(sides) if sides else None),
        "registers": stated.get("registers_per_thread"), "barriers": stated.get("barriers"),
        "smem_bytes": sum(parts) if parts else None,
        "smem_config_bytes": stated.get("smem_config_bytes"), "blocks": stated.get("grid_size"), "sm_count": stated.get("sm_count"),
    }
    within = {name: int(value) for name, value in values.items()
              if isinstance(value, int | float) and FIELDS[name][1] <= value <= FIELDS[name][2]}
    capability = facts.get("compute_capability")
    question = replace(question, **within)     # type: ignore[arg-type]    # its fields of FIELDS are all whole numbers
    if capability in gpus.LIMITS:
        question = replace(question, compute_capability=capability)
    free = replace(question, smem_config_bytes=None)
    # the driver makes the split as large as a launch needs: it is worth a word only where it took blocks away
    return question if occupancy.occupancy_of(question).blocks_per_sm < occupancy.occupancy_of(free).blocks_per_sm else free


def architectures() -> list[tuple[str, str]]:
    """Return the choices of the form: ("9.0", "9.0 · H100, H200, GH200")."""
    choices = []
    for capability in gpus.LIMITS:
        models = [gpu.name.removeprefix("GeForce ") for gpu in gpus.GPUS if gpu.compute_capability == capability]
        short = dict.fromkeys(name if name.startswith("RTX") else name.split(" ")[0].split("-")[0] for name in models)
        names = ", ".join(short) or ALSO[capability]
        choices.append((capability, f"{capability} · {names}" if names else capability))
    return choices


def page(params: Mapping[str, str]) -> dict[str, Any]:
    """Return everything the calculator's page shows, or its API answers."""
    form = read_question(params)
    answer = occupancy.answer(form.question)
    achieved = form.launch.facts.get("occupancy", {}).get("achieved_pct") if form.launch else None
    split = form.launch.facts.get("launch", {}).get("smem_config_bytes") if form.launch else None
    return {"asked": form, "question": form.question, "answer": answer, "achieved_pct": achieved,
            "split_bytes": split if isinstance(split, int | float) and form.question.smem_config_bytes is None else None,
            "limits": form.question.gpu, "as_launched": form.question == question_of(form.launch, form.kernel)}


class OccupancyJson(TypedDict):
    """Blocks and warps that fit on an SM, what limits them, the curves, and what more blocks would take (`ladder`)."""

    question: occupancy.Question
    errors: dict[str, str]
    sentence: str
    step: str
    occupancy: occupancy.Occupancy
    achieved_pct: float | None
    waves: occupancy.Waves | None
    ladder: list[occupancy.Rung]
    curves: list[occupancy.Curve]
    limits_of_an_sm: Limits


def page_json(params: Mapping[str, str]) -> OccupancyJson:
    shown = page(params)
    answer: occupancy.Answer = shown["answer"]
    return make_answer(OccupancyJson, answer, errors=shown["asked"].errors, achieved_pct=shown["achieved_pct"],
                       limits_of_an_sm=shown["limits"])

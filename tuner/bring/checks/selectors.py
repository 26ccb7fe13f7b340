"""Pasted kernel files for pages and programs, and who could check one now."""

from __future__ import annotations

from typing import Any, TypedDict

from django.db.models import QuerySet

from profiles.base.answers import make_answer
from tuner.models import KernelCheck
from workers import jobs

QUEUES = ("compile", "gpu")         # whose workers have Triton and NVRTC; the first costs no GPU
HOW = "start one where torch and Triton are installed: manage.py worker compile"


def check_list() -> QuerySet[KernelCheck]:
    """Return the project's, newest first, without their texts."""
    return KernelCheck.objects.defer("text", "result", "adapters").select_related("owner")


def living_queues() -> list[str]:
    """Return the queues, of those that can check, that a living worker serves."""
    served = {queue for worker in jobs.workers() for queue in worker["queues"]}
    return [queue for queue in QUEUES if queue in served]


class CheckAbilityJson(TypedDict):
    able: bool
    why: str


def ability() -> CheckAbilityJson:
    """Return {"able", "why"}: whether a living worker compiles what is pasted, and what to do where none does."""
    workers = [worker for worker in jobs.workers() if set(QUEUES) & set(worker["queues"])]
    if not workers:
        return {"able": False, "why": f"No compile or gpu worker is running: {HOW}. Until then you see what the text tells."}
    if all("missing" in worker["tools"].get("triton", {"missing": ""}) for worker in workers):
        return {"able": True, "why": "No compile or gpu worker has Triton: Python files are read and not compiled. "
                                     "On its host: pip install torch triton."}
    return {"able": True, "why": ""}


class StepJson(TypedDict):
    """What is done before samples are compiled, since when, for how many seconds at most."""

    what: str
    since: str
    most_s: float


class KernelCheckJson(TypedDict):
    """A check of a kernel file; `proposals`: calls that would do, `compiled` of `samples`; `adapters`: written for its kernels."""

    id: int
    file: str
    source: dict[str, Any] | None
    shape: dict[str, int]
    dtype: str
    call: str
    proposals: list[Any]
    status: str
    compiled: int
    samples: int
    step: StepJson | None
    result: dict[str, Any]
    adapters: list[dict[str, Any]]
    error: dict[str, Any] | None
    worker: str
    by: str | None
    created: str
    finished: str | None


def check_json(check: KernelCheck) -> KernelCheckJson:
    """Return everything about a check but the file's text."""
    return make_answer(KernelCheckJson, check, call=check.result.get("call", ""), proposals=check.result.get("proposals", []),
                       step=step_of(check),
                       by=check.owner.get_username() if check.owner else None)


def step_of(check: KernelCheck) -> StepJson | None:
    """Return what a running check does before samples are compiled; None where it does nothing of that kind."""
    step: StepJson | None = check.result.get("step")
    return step if check.status == KernelCheck.Status.RUNNING and not check.samples else None


def adapter_of(check: KernelCheck, kernel: str) -> dict[str, Any] | None:
    """Return the adapter of one kernel that can be edited; None where there is none."""
    return next((each for each in check.adapters if each["kernel"] == kernel and each.get("space")), None)

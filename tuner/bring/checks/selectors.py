"""Pasted kernel files for pages and programs, and who could check one now."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

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


def ability() -> dict[str, Any]:
    """Return {"able", "why"}: whether a living worker compiles what is pasted, and what to do where none does."""
    workers = [worker for worker in jobs.workers() if set(QUEUES) & set(worker["queues"])]
    if not workers:
        return {"able": False, "why": f"No compile or gpu worker is running: {HOW}. Until then you see what the text tells."}
    if all("missing" in worker["tools"].get("triton", {"missing": ""}) for worker in workers):
        return {"able": True, "why": "No compile or gpu worker has Triton: Python files are read and not compiled. "
                                     "On its host: pip install torch triton."}
    return {"able": True, "why": ""}


def check_json(check: KernelCheck) -> dict[str, Any]:
    """Return everything about a check but the file's text."""
    return {"id": check.pk, "file": check.file, "source": check.source,
            "shape": check.shape, "dtype": check.dtype, "call": check.result.get("call", ""),
            "proposals": check.result.get("proposals", []), "status": check.status,
            "compiled": check.compiled, "samples": check.samples, "result": check.result, "adapters": check.adapters,
            "error": check.error, "worker": check.worker, "by": check.owner.get_username() if check.owner else None,
            "created": check.created.isoformat(), "finished": check.finished.isoformat() if check.finished else None}


def adapter_of(check: KernelCheck, kernel: str) -> dict[str, Any] | None:
    """Return the adapter of one kernel that can be edited; None where there is none."""
    return next((each for each in check.adapters if each["kernel"] == kernel and each.get("space")), None)

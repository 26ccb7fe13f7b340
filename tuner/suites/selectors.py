"""Reads of suites and their jobs: what lists, pages and the API show."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, QuerySet
from django.utils import timezone

from tuner.models import KernelRun, Suite, SuiteJob

Status = SuiteJob.Status
LIVE = (Status.QUEUED, Status.RUNNING)


def suite_list() -> QuerySet[Suite]:
    return Suite.objects.select_related("owner", "target")


def jobs_of(suite: Suite) -> QuerySet[SuiteJob]:
    return suite.jobs.select_related("owner", "gate")


def job_progress(job: SuiteJob, kernels: int | None = None) -> dict[str, Any]:
    """Kernel runs done of those wanted, and the seconds that the rest will take at the pace so far (None: not known)."""
    if kernels is None:
        kernels = len(job.kernels) if job.kernels is not None else job.suite.kernels.filter(enabled=True).count()
    counted = KernelRun.objects.filter(job=job).aggregate(done=Count("pk"), processes=Count("run", distinct=True))
    wanted = max(len(job.builds) * job.runs * kernels, counted["done"])
    left_s = None
    if job.status == Status.RUNNING and job.started and counted["done"] and wanted:
        spent = (timezone.now() - job.started).total_seconds()
        left_s = spent * (wanted - counted["done"]) / counted["done"]
    return {"done": counted["done"], "wanted": wanted, "left_s": left_s, "processes": counted["processes"],
            "says": f"{counted['done']:,} of {wanted:,} kernel runs" if wanted else "no kernel run yet"}


def job_json(job: SuiteJob) -> dict[str, Any]:
    names = [each["build"] for each in job.builds]
    return {"id": job.pk, "suite": job.suite_id, "gate": job.gate_id, "reason": job.reason, "status": job.status, "builds": names,
            "kernels": job.kernels, "runs": job.runs, "device": job.device, "error": job.error, "environment": job.environment,
            "recorded": job.recorded, "worker": job.worker, "progress": job_progress(job),
            **{name: value.isoformat() if (value := getattr(job, name)) else None for name in ("created", "started", "finished")}}

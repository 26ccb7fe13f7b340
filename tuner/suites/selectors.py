"""Reads of suites and their jobs: what lists, pages and the API show."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, QuerySet
from django.utils import timezone

from tuner.models import KernelRun, Suite, SuiteJob
from tuner.suites.definition import Definition, KernelDefinition, as_document, kernel_key
from tuner.texts import config_in_order, in_order

Status = SuiteJob.Status
LIVE = (Status.QUEUED, Status.RUNNING)
FIELDS = ("title", "kind", "device", "build_path", "runs", "baseline_runs", "every_hours", "enabled", "rule", "metrics", "policy")
KERNEL_FIELDS = ("op", "shape", "dtype", "config_from", "config", "enabled", "rule", "metrics")


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


def suite_json(suite: Suite) -> dict[str, Any]:
    names = ("name", "title", "kind", "device", "build_path", "runs", "baseline_runs", "rule", "metrics", "policy", "every_hours",
             "enabled")
    return {"id": suite.pk, **{name: getattr(suite, name) for name in names}, "target": suite.target.name if suite.target else None,
            "owner": suite.owner.get_username() if suite.owner else None, "from_file": bool(suite.definition),
            **{name: value.isoformat() if (value := getattr(suite, name)) else None for name in ("due", "created", "changed")}}


def definition_json(suite: Suite) -> dict[str, Any]:
    """What PUT takes."""
    return as_document(definition_of(suite))


def definition_of(suite: Suite) -> Definition:
    """The suite as a definition: what its file would say."""
    kernels = []
    for kernel in suite.kernels.all() if suite.kind == Suite.Kind.OPERATORS else ():
        if not kernel.declared:
            continue
        base = kernel_key(kernel.op, kernel.shape, kernel.dtype)
        kernels.append(KernelDefinition(
            key=kernel.key, tag=kernel.key.removeprefix(base).strip(),
            **{**{name: getattr(kernel, name) for name in KERNEL_FIELDS}, "shape": in_order(kernel.op, kernel.shape),
               "config": config_in_order(kernel.config) if kernel.config else None}))
    return Definition(name=suite.name, target=suite.target.name if suite.target else "", kernels=kernels,
                      **{name: getattr(suite, name) for name in FIELDS})

"""Reads of suites and their jobs: what lists, pages and the API show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from tuner.models import KernelRun, Suite, SuiteCapture, SuiteJob, SuiteKernel
from tuner.suites.definition import Definition, KernelDefinition, as_document, kernel_key
from tuner.texts import config_in_order, in_order

Status = SuiteJob.Status
LIVE = (Status.QUEUED, Status.RUNNING)
COUNTERS = "counters"                        # reason of a job that is for counters and timelines alone
FIELDS = ("title", "kind", "device", "build_path", "runs", "baseline_runs", "every_hours", "enabled", "rule", "metrics", "policy",
          "capture_slower")
KERNEL_FIELDS = ("op", "shape", "dtype", "config_from", "config", "enabled", "rule", "metrics")


def suite_list() -> QuerySet[Suite]:
    return Suite.objects.select_related("owner", "target")


def jobs_of(suite: Suite) -> QuerySet[SuiteJob]:
    return suite.jobs.select_related("owner", "gate")


def job_progress(job: SuiteJob) -> dict[str, Any]:
    return jobs_progress([job])[job.pk]


def jobs_progress(found: Sequence[SuiteJob]) -> dict[int, dict[str, Any]]:
    """Kernel runs done of those wanted, and the seconds that the rest will take at the pace so far (None: not known); by job."""
    runs = KernelRun.objects.filter(job__in=[job.pk for job in found]).order_by().values("job")
    counted = {row["job"]: row for row in runs.annotate(done=Count("pk"), processes=Count("run", distinct=True))}
    enabled = dict(SuiteKernel.objects.filter(suite__in={job.suite_id for job in found}, enabled=True).order_by().values("suite")
                   .annotate(kernels=Count("pk")).values_list("suite", "kernels"))
    nothing = {"done": 0, "processes": 0}
    captured = _captured([job for job in found if job.reason == COUNTERS])
    return {job.pk: captured.get(job.pk) or _progress(job, counted.get(job.pk, nothing), enabled.get(job.suite_id, 0))
            for job in found}


def _captured(found: Sequence[SuiteJob]) -> dict[int, dict[str, Any]]:
    """The same of jobs that are for counters alone: captures that have ended, of each build one or two."""
    if not found:
        return {}
    ended = ~Q(capture__status__in=["queued", "running"])
    rows = SuiteCapture.objects.filter(job__in=[job.pk for job in found]).order_by().values("job")
    done = {row["job"]: row["done"] for row in rows.annotate(done=Count("pk", filter=ended))}
    told = {}
    for job in found:
        ready = done.get(job.pk, 0)
        wanted = max(len(job.builds) * (1 if job.suite.kind == Suite.Kind.TARGET else 2), ready)
        told[job.pk] = {"done": ready, "wanted": wanted, "left_s": None, "processes": ready,
                        "says": f"{ready} of {wanted} captures"}
    return told


def _progress(job: SuiteJob, counted: Mapping[str, int], enabled: int) -> dict[str, Any]:
    wanted = max(wanted_runs(job, enabled), counted["done"])
    left_s = None
    if job.status == Status.RUNNING and job.started and counted["done"] and wanted:
        spent = (timezone.now() - job.started).total_seconds()
        left_s = spent * (wanted - counted["done"]) / counted["done"]
    return {"done": counted["done"], "wanted": wanted, "left_s": left_s, "processes": counted["processes"],
            "says": f"{counted['done']:,} of {wanted:,} kernel runs" if wanted else "no kernel run yet"}


def wanted_runs(job: SuiteJob, enabled: int) -> int:
    """Kernel runs that a job is to measure; `enabled`: kernels of its suite."""
    all_of_them = enabled if job.kernels is None else len(job.kernels)

    def of_build(each: Mapping[str, Any]) -> int:
        return sum(job.kernels is None or key in job.kernels for key in each["configs"]) if each.get("only") else all_of_them

    return job.runs * sum(map(of_build, job.builds))


def jobs_json(suite: Suite, most: int) -> list[dict[str, Any]]:
    """Newest first."""
    found = list(jobs_of(suite)[:most])
    progress = jobs_progress(found)
    return [job_json(job, progress[job.pk]) for job in found]


def job_json(job: SuiteJob, progress: dict[str, Any] | None = None) -> dict[str, Any]:
    names = [each["build"] for each in job.builds]
    return {"id": job.pk, "suite": job.suite_id, "gate": job.gate_id, "reason": job.reason, "status": job.status, "builds": names,
            "kernels": job.kernels, "runs": job.runs, "device": job.device, "error": job.error, "environment": job.environment,
            "recorded": job.recorded, "worker": job.worker, "progress": progress or job_progress(job),
            **{name: value.isoformat() if (value := getattr(job, name)) else None for name in ("created", "started", "finished")}}


def suite_json(suite: Suite) -> dict[str, Any]:
    names = ("name", "title", "kind", "device", "build_path", "runs", "baseline_runs", "rule", "metrics", "policy", "every_hours",
             "enabled", "capture_slower")
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

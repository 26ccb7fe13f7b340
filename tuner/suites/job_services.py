"""Orders to measure a suite: made, stopped; and what the worker that holds one writes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils import timezone

from tuner.builds.series_services import series_wake
from tuner.builds.services import BuildRefused, build_seen
from tuner.jobs.devices import is_gpu
from tuner.models import Gate, KernelRun, Suite, SuiteJob, SuiteKernel
from tuner.suites import selectors
from tuner.suites.devices_selectors import device_problem
from tuner.suites.errors import SuiteError
from tuner.suites.orders import builds_read, shown, whole
from workers import jobs

MAX_ATTEMPTS = 20                   # workers that may die over one job
MAX_RUNS = 200                      # of each build
MAX_WANTED = 200_000                # kernel runs of one job
REVALIDATE = "revalidate"           # of cached winners: its builds are configurations
REASONS = ("manual", "schedule", "gate", "again", "bisect", "matrix", REVALIDATE, selectors.COUNTERS)
Status = SuiteJob.Status
LIVE = (Status.QUEUED, Status.RUNNING)


@dataclass(frozen=True)
class Turn:
    """One fresh process that is still to be run: kernels of one build, in the suite's order."""

    number: int                              # of the run within its build, from 0
    build: str
    configs: Mapping[str, Mapping[str, Any]]         # kernel key -> configuration that this build is measured with
    kernels: Sequence[SuiteKernel]


# ---- a person, a gate or the clock ----

def job_create(suite: Suite, *, builds: Sequence[str | Mapping[str, Any]], runs: int | None = None,
               kernels: Sequence[str] | None = None, gate: Gate | None = None, reason: str = "manual", device: str = "",
               owner: Any = None, about: Mapping[str, Any] | None = None) -> SuiteJob:
    """Queue so many fresh runs of each build, interleaved; a worker is woken on commit. SuiteError names each wrong field.

    builds   names, or {"build": name, "configs": {kernel key: configuration}}; of one with "only": true no other kernel
    runs     of each build; None: the suite's
    kernels  keys; None: all that are enabled
    device   "": the suite's
    """
    device, runs = device or suite.device, suite.runs if runs is None else runs
    known = {kernel.key: kernel for kernel in suite.kernels.all() if kernel.enabled}
    wanted, problems = builds_read(builds, known)
    problems |= _job_problems(suite, runs, kernels, reason, device, known)
    if not problems and len(wanted) * runs * len(known if kernels is None else kernels) > MAX_WANTED:
        problems["runs"] = f"builds × runs × kernels may be {MAX_WANTED:,} at most"
    if problems:
        raise SuiteError(problems)
    with transaction.atomic():
        _builds_seen([each["build"] for each in wanted], side=reason == REVALIDATE)
        job = SuiteJob.objects.create(
            suite=suite, gate=gate, reason=reason, builds=wanted, runs=runs, device=device, owner=owner,
            kernels=None if kernels is None else list(dict.fromkeys(kernels)), about=dict(about or {}))
        transaction.on_commit(lambda: jobs.enqueue(queue_of(job), "suite", job.pk))
        transaction.on_commit(lambda: job_published(job))
    return job


def _builds_seen(names: Sequence[str], side: bool) -> None:
    try:
        for name in names:
            build_seen(name, side=side)
    except BuildRefused as refused:
        raise SuiteError({"builds": next(iter(refused.fields.values()))}) from refused


def job_stop(job: SuiteJob) -> bool:
    """End a waiting or running job; what was measured stays. Its worker sees it within a second. False: it had ended."""
    stopped = SuiteJob.objects.filter(pk=job.pk, status__in=LIVE).update(
        status=Status.STOPPED, stop_requested=True, finished=timezone.now(), heartbeat=None)
    if stopped:
        job_published(SuiteJob.objects.select_related("suite").get(pk=job.pk))
    return bool(stopped)


def queue_of(job: SuiteJob) -> str:
    return "gpu" if is_gpu(job.device) else "replay"


def job_published(job: SuiteJob) -> None:
    told = selectors.job_json(job)
    jobs.publish(f"suite.{job.suite_id}", "status", told)
    jobs.publish("home", "suite", {"id": job.suite_id, "job": job.pk, "status": job.status})


# ---- the worker that holds it ----

def job_claim(job_id: int, worker: str) -> SuiteJob | None:
    """The job for `worker`; None when somebody else has it or it has ended."""
    free = Q(status=Status.QUEUED) | Q(status=Status.RUNNING) & jobs.dead()
    if not SuiteJob.objects.filter(free, pk=job_id).update(
            status=Status.RUNNING, worker=worker[:120], heartbeat=Now(), attempts=F("attempts") + 1):
        return None
    job = SuiteJob.objects.select_related("suite", "suite__target", "gate").get(pk=job_id)
    if job.started is None:
        job.started = timezone.now()
        job.save(update_fields=["started"])
    if job.attempts > MAX_ATTEMPTS:
        job_fail(job, worker, "worker", f"{MAX_ATTEMPTS} workers died over this job", "See the workers' logs.")
        return None
    job_published(job)
    return job


def job_held(job: SuiteJob, worker: str) -> bool:
    """False once it was stopped, ended, or taken by another worker."""
    return _held(job, worker).exists()


def _held(job: SuiteJob, worker: str) -> Any:
    return SuiteJob.objects.filter(pk=job.pk, status=Status.RUNNING, worker=worker[:120])


def job_session(job: SuiteJob, worker: str, *, environment: Mapping[str, Any], recorded: str = "") -> bool:
    """What the first child found when it opened: driver, toolkit, clocks; the label of recorded runs."""
    mine = _held(job, worker).update(environment=dict(environment), recorded=recorded[:120])
    job.refresh_from_db()
    job_published(job)
    return bool(mine)


def job_rest(job: SuiteJob) -> list[Turn]:
    """Fresh processes that are still to be run, in their order: A B, B A, A B …: drift meets both builds alike.

    What has a row is not measured again, so a killed worker's job goes on where it was.
    """
    kernels = [kernel for kernel in job.suite.kernels.all()
               if kernel.enabled and (job.kernels is None or kernel.key in job.kernels)]
    done = set(KernelRun.objects.filter(job=job).values_list("build__name", "number", "kernel_id"))
    turns = []
    for number in range(job.runs):
        for each in job.builds if number % 2 == 0 else reversed(job.builds):
            configs = each.get("configs") or {}
            left = [kernel for kernel in kernels if (each["build"], number, kernel.pk) not in done
                    and (kernel.key in configs or not each.get("only"))]
            if left or not kernels:
                turns.append(Turn(number, each["build"], configs, left))
    return turns


def run_label(job: SuiteJob, build: str, number: int) -> str:
    """Name of one fresh process: kernels that were measured in the same one share it."""
    names = [each["build"] for each in job.builds]
    which = f" of build {names.index(build) + 1}" if len(names) > 1 and build in names else ""
    again = f".{job.attempts}" if job.attempts > 1 else ""       # what a second worker measures ran in another process
    return f"job {job.pk} run {number}{again}{which}"


def job_finish(job: SuiteJob, worker: str) -> bool:
    return _end(job, worker, status=Status.DONE, error=None)


def job_fail(job: SuiteJob, worker: str, where: str, what: str, hint: str) -> bool:
    return _end(job, worker, status=Status.FAILED, error={"where": where[:80], "what": what[:500], "hint": hint[:300]})


def _end(job: SuiteJob, worker: str, **fields: Any) -> bool:
    mine = _held(job, worker).update(finished=timezone.now(), heartbeat=None, **fields)
    if mine:
        job.refresh_from_db()
        job_published(job)
        series_wake(job.suite_id)
    return bool(mine)


# ---- checks ----

def _job_problems(suite: Suite, runs: Any, kernels: Sequence[str] | None, reason: str, device: str,
                  known: Mapping[str, SuiteKernel]) -> dict[str, str]:
    problems = {}
    if suite.kind == Suite.Kind.UPLOADED:
        problems["suite"] = "its runs are measured elsewhere and uploaded: POST /api/runs/"
    elif not suite.enabled:
        problems["suite"] = "it is switched off; switch it on to measure it"
    elif suite.kind == Suite.Kind.OPERATORS and not known:
        problems["suite"] = "it has no kernel that is enabled"
    if not whole(runs) or not (0 if reason == selectors.COUNTERS else 1) <= runs <= MAX_RUNS:
        problems["runs"] = f"a whole number from 1 to {MAX_RUNS}"
    if reason not in REASONS:
        problems["reason"] = f"one of {', '.join(REASONS)}"
    if suite.kind != Suite.Kind.UPLOADED and (problem := device_problem(device)):
        problems["device"] = problem
    if kernels is not None and (wrong := [key for key in kernels if key not in known] if kernels else [""]):
        problems["kernels"] = f"no enabled kernel {shown(wrong[0])}; choose among {', '.join(list(known)[:20])}"
    return problems

"""Jobs that measure a suite: asked for, queued by the clock, stopped; and what the worker that holds one writes of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from profiles.base.refused import Refused
from tuner.devices import is_gpu
from tuner.gate.builds.selectors import MAIN
from tuner.gate.builds.services import ensure_build, queue_series
from tuner.gate.suites.definition import is_plain_value
from tuner.gate.suites.selectors import COUNTERS, LIVE, device_problem, interleaved_builds, job_json, job_kernels
from tuner.models import Build, Gate, KernelRun, Suite, SuiteJob, SuiteKernel
from tuner.tuning.trial import storable
from workers import jobs

MAX_BUILDS = 50                     # of one job
MAX_BUILD_NAME, MAX_CONFIG_CHARACTERS = 80, 2000


def read_builds(builds: Sequence[str | Mapping[str, Any]],
                known: Mapping[str, Any]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return builds as rows keep them, and what is wrong by field.

    `known`: the suite's enabled kernels by key.
    """
    if not 1 <= len(builds) <= MAX_BUILDS:
        return [], {"builds": f"name 1 to {MAX_BUILDS} builds"}
    rows_by_name: dict[str, dict[str, Any]] = {}
    for build in builds:
        name, configs = (build, {}) if isinstance(build, str) else (build.get("build"), build.get("configs") or {})
        if problem := build_problem(name):
            return [], {"builds": problem}
        if name in rows_by_name:
            return [], {"builds": f"{name} is named twice"}
        if problem := configs_problem(configs, known):
            return [], {"configs": problem}
        only = not isinstance(build, str) and bool(build.get("only")) and bool(configs)
        rows_by_name[str(name)] = {
            "build": name, **({"configs": {key: dict(config) for key, config in configs.items()}} if configs else {}),
            **({"only": True} if only else {})}
    return list(rows_by_name.values()), {}


def build_problem(name: Any) -> str | None:
    """Return why this cannot be the name of a build; None where it can."""
    if not isinstance(name, str) or not name.strip() or name != name.strip():
        return "a build's name is text: a git sha or a name, without spaces around it"
    if len(name) > MAX_BUILD_NAME or not storable(name) or not name.isprintable():
        return f"a build's name has at most {MAX_BUILD_NAME} printable characters"
    return None


def configs_problem(configs: Any, known: Mapping[str, Any]) -> str | None:
    """Return why these are no configurations by key of a kernel of the suite; None where they are."""
    if not isinstance(configs, Mapping):
        return "configurations by key of the suite's kernel"
    for key, config in configs.items():
        if key not in known:
            return f"no enabled kernel {quote(key)}; choose among {', '.join(list(known)[:20])}"
        if not is_plain_config(config):
            return f"{quote(key)}: a configuration is parameters by name, each a number or a text"
    return None


def is_plain_config(config: Any) -> bool:
    if not isinstance(config, Mapping) or not config or len(config) > 64:
        return False
    plain = all(isinstance(name, str) and storable(name) and is_plain_value(value, MAX_CONFIG_CHARACTERS)
                for name, value in config.items())
    return plain and len(json.dumps(dict(config))) <= MAX_CONFIG_CHARACTERS


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def quote(text: Any) -> str:
    """Return what somebody sent in quotes: short, and of characters that every answer can hold."""
    return '"' + str(text)[:80].encode("ascii", "backslashreplace").decode() + '"'


MAX_ATTEMPTS = 20                   # workers that may die over one job
MAX_RUNS = 200                      # of each build
MAX_WANTED = 200_000                # kernel runs of one job
REVALIDATE = "revalidate"           # of cached winners: its builds are configurations
REASONS = ("manual", "schedule", "gate", "again", "bisect", "matrix", REVALIDATE, COUNTERS)
Status = SuiteJob.Status


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
    """Queue so many fresh runs of each build, interleaved; a worker is woken on commit. Refused names each wrong field.

    builds   names, or {"build": name, "configs": {kernel key: configuration}}; of one with "only": true no other kernel
    runs     of each build; None: the suite's
    kernels  keys; None: all that are enabled
    device   "": the suite's
    """
    device, runs = device or suite.device, suite.runs if runs is None else runs
    kernels_by_key = {kernel.key: kernel for kernel in suite.kernels.all() if kernel.enabled}
    rows, problems = read_builds(builds, kernels_by_key)
    problems |= _job_problems(suite, runs, kernels, reason, device, kernels_by_key)
    if not problems and len(rows) * runs * len(kernels_by_key if kernels is None else kernels) > MAX_WANTED:
        problems["runs"] = f"builds × runs × kernels may be {MAX_WANTED:,} at most"
    if problems:
        raise Refused(problems)
    with transaction.atomic():
        for row in rows:
            _ensure_build(row["build"], side=reason == REVALIDATE)
        job = SuiteJob.objects.create(
            suite=suite, gate=gate, reason=reason, builds=rows, runs=runs, device=device, owner=owner,
            kernels=None if kernels is None else list(dict.fromkeys(kernels)), about=dict(about or {}))
        jobs.enqueue_on_commit(queue_of(job), "suite", job.pk)
        transaction.on_commit(lambda: job_publish(job), robust=True)
    return job


def _ensure_build(name: str, side: bool) -> None:
    try:
        ensure_build(name, side=side)
    except Refused as refused:
        raise refused.renamed({"build": "builds"}) from refused


def job_stop(job: SuiteJob) -> bool:
    """End a waiting or running job; what was measured stays. Its worker sees it within a second. False: it had ended."""
    stopped = SuiteJob.leases.stop(job.pk, Status.STOPPED, stop_requested=True)
    if stopped:
        job_publish(SuiteJob.objects.select_related("suite").get(pk=job.pk))
    return stopped


def queue_of(job: SuiteJob) -> str:
    return "gpu" if is_gpu(job.device) else "replay"


def job_publish(job: SuiteJob) -> None:
    payload = job_json(job)
    jobs.publish(f"suite.{job.suite_id}", "status", payload)
    jobs.publish("home", "suite", {"id": job.suite_id, "job": job.pk, "status": job.status})


# ---- the worker that holds it ----

def job_claim(job_id: int, worker: str) -> SuiteJob | None:
    """Return the job for `worker`; None when somebody else has it or it has ended."""
    if not SuiteJob.leases.claim(job_id, worker):
        return None
    job = SuiteJob.objects.select_related("suite", "suite__target", "gate").get(pk=job_id)
    if job.started is None:
        job.started = timezone.now()
        job.save(update_fields=["started"])
    if job.attempts > MAX_ATTEMPTS:
        job_fail(job, worker, "worker", f"{MAX_ATTEMPTS} workers died over this job", "See the workers' logs.")
        return None
    job_publish(job)
    return job


def job_set_session(job: SuiteJob, worker: str, *, environment: Mapping[str, Any], recorded: str = "") -> bool:
    """Store what the first child found when it opened: driver, toolkit, clocks; the label of recorded runs."""
    mine = SuiteJob.leases.write(job.pk, worker, environment=dict(environment), recorded=recorded[:120])
    job.refresh_from_db()
    job_publish(job)
    return mine


def job_set_commits(job: SuiteJob, worker: str, commits: Mapping[str, str]) -> None:
    """Store what the code of each build was resolved to: git's commit, or "sha256:" and an archive's."""
    job.builds = [{**build, **({"commit": commits[build["build"]]} if build["build"] in commits else {})} for build in job.builds]
    SuiteJob.leases.write(job.pk, worker, builds=job.builds)


def known_commit(suite: Suite, build: str) -> str:
    """Return the commit that a build's name was resolved to when it was first measured; "" where it never was."""
    rows = KernelRun.objects.filter(kernel__suite=suite, build__name=build, environment__has_key="code").order_by("id")
    commit = rows.values_list("environment__code", flat=True).first()
    return str(commit or "")


def job_turns_left(job: SuiteJob) -> list[Turn]:
    """Return the fresh processes that are still to be run, in the order of `interleaved_builds`.

    What has a row is not measured again, so a killed worker's job goes on where it was.
    """
    kernels = job_kernels(job)
    done = set(KernelRun.objects.filter(job=job).values_list("build__name", "number", "kernel_id"))
    turns = []
    for number, build in interleaved_builds(job):
        configs = build.get("configs") or {}
        left = [kernel for kernel in kernels if (build["build"], number, kernel.pk) not in done
                and (kernel.key in configs or not build.get("only"))]
        if left or not kernels:
            turns.append(Turn(number, build["build"], configs, left))
    return turns


def run_label(job: SuiteJob, build: str, number: int) -> str:
    """Return the name of one fresh process: kernels that were measured in the same one share it."""
    names = [row["build"] for row in job.builds]
    which = f" of build {names.index(build) + 1}" if len(names) > 1 and build in names else ""
    again = f".{job.attempts}" if job.attempts > 1 else ""       # what a second worker measures ran in another process
    return f"job {job.pk} run {number}{again}{which}"


def job_finish(job: SuiteJob, worker: str) -> bool:
    return _end(job, worker, Status.DONE, error=None)


def job_fail(job: SuiteJob, worker: str, where: str, what: str, hint: str) -> bool:
    return _end(job, worker, Status.FAILED, error={"where": where[:80], "what": what[:500], "hint": hint[:300]})


def _end(job: SuiteJob, worker: str, status: str, **fields: Any) -> bool:
    mine = SuiteJob.leases.end(job.pk, worker, status, **fields)
    if mine:
        job.refresh_from_db()
        job_publish(job)
        queue_series(job.suite_id)
    return mine


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
    if not is_whole(runs) or not (0 if reason == COUNTERS else 1) <= runs <= MAX_RUNS:
        problems["runs"] = f"a whole number from 1 to {MAX_RUNS}"
    if reason not in REASONS:
        problems["reason"] = f"one of {', '.join(REASONS)}"
    if suite.kind != Suite.Kind.UPLOADED and (problem := device_problem(device)):
        problems["device"] = problem
    if kernels is not None and (wrong := [key for key in kernels if key not in known] if kernels else [""]):
        problems["kernels"] = f"no enabled kernel {quote(wrong[0])}; choose among {', '.join(list(known)[:20])}"
    return problems


log = logging.getLogger(__name__)
AT_ONCE = 20


def queue_due_suites() -> list[int]:
    """Queue suites whose time has come; their ids.

    A suite that is still being measured is not queued twice, only put off.
    """
    now = timezone.now()
    woken = []
    due = Suite.objects.filter(enabled=True, every_hours__isnull=False).filter(Q(due__lte=now) | Q(due=None))
    for suite in due.exclude(kind=Suite.Kind.UPLOADED)[:AT_ONCE]:
        following = now + timedelta(hours=suite.every_hours or 24)
        # Whoever moves the date does it: two sweeps at once queue one job.
        if not Suite.objects.filter(pk=suite.pk, due=suite.due).update(due=following):
            continue
        build = newest_build()
        if build is None or suite.jobs.filter(status__in=LIVE).exists():
            continue
        try:
            job_create(suite, builds=[build.name], reason="schedule", owner=suite.owner)
        except Refused as error:
            log.warning("suite %s: not measured on schedule: %s", suite.name, error)
            continue
        woken.append(suite.pk)
    return woken


def newest_build() -> Build | None:
    """Return the newest build of the line that everything is merged into, else of all."""
    return Build.objects.filter(branch__in=MAIN).first() or Build.objects.first()

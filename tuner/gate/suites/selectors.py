"""Reads of suites, their jobs and fresh runs, and where a suite can be measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np
from django.db.models import Count, Max, Q, QuerySet
from django.utils import timezone

from profiles.base.answers import ErrorJson, Facts, Scalar, make_answer
from tuner.devices import GPU, RECORDINGS, REPLAY, is_gpu
from tuner.gate.builds.selectors import ENVIRONMENT
from tuner.gate.stats.runs import KernelRuns, Run
from tuner.gate.suites.definition import Definition, KernelDefinition, kernel_key
from tuner.models import KernelRun, Suite, SuiteCapture, SuiteJob, SuiteKernel
from tuner.texts import config_in_order, in_order
from tuner.tuning.trial import config_key
from workers import jobs

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


def job_kernels(job: SuiteJob) -> list[SuiteKernel]:
    """Return the enabled kernels that a job is for, in the suite's order."""
    return [kernel for kernel in job.suite.kernels.all()
            if kernel.enabled and (job.kernels is None or kernel.key in job.kernels)]


def interleaved_builds(job: SuiteJob) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (number of the run, build) in the order of measuring, A B, B A, A B …: drift meets all builds alike."""
    for number in range(job.runs):
        for build in job.builds if number % 2 == 0 else reversed(job.builds):
            yield number, build


class ProgressJson(TypedDict):
    """Kernel runs done of those wanted, in how many processes; `left_s` null: not known."""

    done: int
    wanted: int
    left_s: float | None
    processes: int
    says: str


def job_progress(job: SuiteJob) -> ProgressJson:
    return jobs_progress([job])[job.pk]


def jobs_progress(found: Sequence[SuiteJob]) -> dict[int, ProgressJson]:
    """Return, by job, kernel runs done of those wanted and the seconds left (None: not known)."""
    runs = KernelRun.objects.filter(job__in=[job.pk for job in found]).order_by().values("job")
    counted: dict[int, Mapping[str, Any]] = {
        row["job"]: row for row in runs.annotate(done=Count("pk"), processes=Count("run", distinct=True))}
    enabled = dict(SuiteKernel.objects.filter(suite__in={job.suite_id for job in found}, enabled=True).order_by().values("suite")
                   .annotate(kernels=Count("pk")).values_list("suite", "kernels"))
    nothing = {"done": 0, "processes": 0}
    captured = _capture_progress([job for job in found if job.reason == COUNTERS])
    return {job.pk: captured.get(job.pk) or _progress(job, counted.get(job.pk, nothing), enabled.get(job.suite_id, 0))
            for job in found}


def _capture_progress(found: Sequence[SuiteJob]) -> dict[int, ProgressJson]:
    """The same of jobs that are for counters alone: captures that have ended, of each build one or two."""
    if not found:
        return {}
    ended = ~Q(capture__status__in=["queued", "running"])
    rows = SuiteCapture.objects.filter(job__in=[job.pk for job in found]).order_by().values("job")
    done = {row["job"]: row["done"] for row in rows.annotate(done=Count("pk", filter=ended))}
    progress_by_job = dict[int, ProgressJson]()
    for job in found:
        ready = done.get(job.pk, 0)
        total = max(len(job.builds) * (1 if job.suite.kind == Suite.Kind.TARGET else 2), ready)
        progress_by_job[job.pk] = {"done": ready, "wanted": total, "left_s": None, "processes": ready,
                                   "says": f"{ready} of {total} captures"}
    return progress_by_job


def _progress(job: SuiteJob, counted: Mapping[str, int], enabled: int) -> ProgressJson:
    total = max(wanted_runs(job, enabled), counted["done"])
    left_s = None
    if job.status == Status.RUNNING and job.started and counted["done"] and total:
        spent = (timezone.now() - job.started).total_seconds()
        left_s = spent * (total - counted["done"]) / counted["done"]
    return {"done": counted["done"], "wanted": total, "left_s": left_s, "processes": counted["processes"],
            "says": f"{counted['done']:,} of {total:,} kernel runs" if total else "no kernel run yet"}


def wanted_runs(job: SuiteJob, enabled: int) -> int:
    """Return how many kernel runs a job is to measure; `enabled`: kernels of its suite."""
    all_of_them = enabled if job.kernels is None else len(job.kernels)

    def of_build(each: Mapping[str, Any]) -> int:
        return sum(job.kernels is None or key in job.kernels for key in each["configs"]) if each.get("only") else all_of_them

    return job.runs * sum(map(of_build, job.builds))


def jobs_json(jobs: Iterable[SuiteJob]) -> list[SuiteJobJson]:
    all_jobs = list(jobs)
    progress = jobs_progress(all_jobs)
    return [job_json(job, progress[job.pk]) for job in all_jobs]


class SuiteJobJson(TypedDict):
    """Fresh runs of builds, in turn; `kernels` null: all of the suite; `runs`: of each build."""

    id: int
    suite: int
    gate: int | None
    reason: str
    status: str
    builds: list[str]
    kernels: list[str] | None
    runs: int
    device: str
    error: ErrorJson | None
    environment: Facts
    recorded: str
    worker: str
    progress: ProgressJson
    created: str
    started: str | None
    finished: str | None


def job_json(job: SuiteJob, progress: ProgressJson | None = None) -> SuiteJobJson:
    return make_answer(SuiteJobJson, job, suite=job.suite_id, gate=job.gate_id, builds=[build["build"] for build in job.builds],
                       progress=progress or job_progress(job))


class SuiteJson(TypedDict):
    """A suite without its kernels; `rule`, `metrics` and `policy`: what differs from the usual; `from_file`: a file defines it."""

    id: int
    name: str
    title: str
    kind: str
    device: str
    build_path: str
    runs: int
    baseline_runs: int
    every_hours: float | None
    enabled: bool
    rule: dict[str, float]
    metrics: dict[str, dict[str, float]]
    policy: dict[str, Scalar]
    capture_slower: bool
    target: str | None
    owner: str | None
    from_file: bool
    due: str | None
    created: str
    changed: str


def suite_json(suite: Suite) -> SuiteJson:
    return make_answer(SuiteJson, suite, target=suite.target.name if suite.target else None,
                       owner=suite.owner.get_username() if suite.owner else None, from_file=bool(suite.definition))


def definition_of(suite: Suite) -> Definition:
    """Return the suite as a definition: what its file would say."""
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


MOST_ENVIRONMENTS = 50


def runs_of(rows: Iterable[KernelRun]) -> list[KernelRuns]:
    """Return runs by kernel, in the order in which kernels first come. Rows come with their kernel.

    Rejected runs are left out.
    """
    kernels: dict[int, SuiteKernel] = {}
    grouped: dict[int, list[KernelRun]] = {}
    for row in rows:
        if row.rejected or not row.us:
            continue
        kernels.setdefault(row.kernel_id, row.kernel)
        grouped.setdefault(row.kernel_id, []).append(row)
    return [kernel_runs_of(kernels[pk], mine) for pk, mine in grouped.items()]


def kernel_runs_of(kernel: SuiteKernel, rows: Iterable[KernelRun]) -> KernelRuns:
    """Return one kernel with these runs; `config` is the one that all of them had, else None."""
    mine = list(rows)
    written = {repr(row.config): row.config for row in mine if row.config}         # mostly one: keys cost more
    configs = {config_key(config): config for config in written.values()}
    config = next(iter(configs.values())) if len(configs) == 1 and all(row.config for row in mine) else None
    return KernelRuns(op=kernel.op, shape=kernel.shape, config=config, key=kernel.key, runs=tuple(run_of(row) for row in mine))


def run_of(row: KernelRun) -> Run:
    return Run(run=row.run, us=np.asarray(row.us, dtype=np.float64), sm_clock_mhz=row.sm_clock_mhz, gpu=row.gpu,
               environment=environment_text(row.toolkit, row.driver, row.recorded), facts=row.facts, id=row.pk)


def environment_text(toolkit: str, driver: str, recorded: str = "") -> str:
    """"cuda 13.0, triton 3.6.0, driver 580.159": runs of another one are never mixed in. Recorded runs are a world of their own."""
    return ", ".join(filter(None, (toolkit, f"driver {driver}" if driver else "", recorded)))


def build_totals(suite: Suite, **where: str) -> list[tuple[Any, ...]]:
    """Of each environment and build: ENVIRONMENT's values, the build's id, its runs (of each kernel), the id of the newest one.
    Rejected runs do not count. `where`: fields that must be equal."""
    rows = KernelRun.objects.filter(kernel__suite=suite, rejected="", **where).order_by()
    return list(rows.values_list(*ENVIRONMENT, "build").annotate(runs=Count("pk"), newest=Max("pk")))


def environment_totals(suite: Suite, totals: Iterable[tuple[Any, ...]] | None = None, **where: str) -> list[dict[str, Any]]:
    """Where the suite was measured, the place of the newest run first: ENVIRONMENT's names, `runs` (of each kernel), `builds`, and
    `newest`, the id of the newest run. `totals`: what build_totals says of it, where that is known already."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for *place, _, runs, newest in build_totals(suite, **where) if totals is None else totals:
        each = found.setdefault(tuple(place), {**dict(zip(ENVIRONMENT, place, strict=True)), "runs": 0, "builds": 0, "newest": 0})
        each["runs"], each["builds"], each["newest"] = each["runs"] + runs, each["builds"] + 1, max(each["newest"], newest)
    return sorted(found.values(), key=lambda each: -each["newest"])[:MOST_ENVIRONMENTS]


def newest_environment(suite: Suite, **where: str) -> tuple[str, ...] | None:
    """Return ENVIRONMENT's values of the newest run, the first of environment_totals without its counts."""
    newest = KernelRun.objects.filter(kernel__suite=suite, rejected="", **where).aggregate(newest=Max("pk"))["newest"]
    return KernelRun.objects.filter(pk=newest).values_list(*ENVIRONMENT).first()


def suite_environments(suite: Suite) -> list[dict[str, str]]:
    """Return where the suite was measured: GPU, toolkit, driver and label alone."""
    return [where_of(row) for row in environment_totals(suite)]


def where_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of KernelRun for one of `suite_environments`."""
    return {name: environment[name] for name in ENVIRONMENT if name in environment}


def runs_filter(suite: Suite, query: Mapping[str, str]) -> QuerySet[KernelRun]:
    """Return runs that a query names, newest first, rejected ones too.

    ?kernel= (key or number), ?build=, ?gpu=, ?toolkit=, ?driver=, ?recorded=
    """
    rows = KernelRun.objects.filter(kernel__suite=suite).select_related("kernel", "build").order_by("-pk")
    if kernel := query.get("kernel"):
        rows = rows.filter(kernel__pk=int(kernel)) if kernel.isdecimal() and len(kernel) < 18 else rows.filter(kernel__key=kernel)
    if query.get("build"):
        rows = rows.filter(build__name=query["build"])
    return rows.filter(**{name: query[name] for name in ENVIRONMENT if name in query})


class RunJson(TypedDict):
    """One kernel in one fresh process; `rejected`: why it has no samples; `us`: every sample, where they are asked for."""

    id: int
    kernel: str
    build: str
    job: int | None
    profile: int | None
    created: str
    run: str
    number: int
    p50_us: float | None
    p95_us: float | None
    n: int
    rejected: str
    sm_clock_mhz: float | None
    facts: Facts
    config: dict[str, Scalar] | None
    source_hash: str
    gpu: str
    toolkit: str
    driver: str
    recorded: str
    us: NotRequired[list[float]]


def run_json(row: KernelRun, with_samples: bool = False) -> RunJson:
    return make_answer(RunJson, row, kernel=row.kernel.key, build=row.build.name, job=row.job_id, profile=row.profile_id,
                       **({"us": row.us} if with_samples else {}))


SUFFIX = ".jsonl.gz"
MAX_DEVICE = 120


@dataclass(frozen=True)
class Place:
    """One choice of the form; `why_not` says why a job would wait there, and for what."""

    value: str
    title: str
    why_not: str = ""


def recorded_paths() -> dict[str, Path]:
    """Return stem -> file of the recorded fresh runs that come with the repository: "timing_runs", …"""
    return {path.name.removesuffix(SUFFIX): path for path in sorted(RECORDINGS.glob(f"*/timing_runs*{SUFFIX}"))}


def places() -> list[Place]:
    """Return where a suite can be measured, GPU first; each with the reason when no worker serves it now."""
    alive = jobs.workers()
    gpus = sorted({gpu["name"] for worker in alive if GPU in worker.get("queues", []) for gpu in worker.get("gpus") or []})
    some = [] if gpus else ["no gpu worker with an NVIDIA GPU is running: manage.py worker gpu"]
    no_replay = "" if any("replay" in worker.get("queues", []) for worker in alive) else (
        "no replay worker is running: manage.py worker replay")
    choices = [Place(GPU, f"GPU: {', '.join(gpus)}" if gpus else "GPU", *some)]
    choices += [Place(f"{GPU}:{model}", f"Only {model}") for model in gpus]
    choices += [Place(REPLAY + stem, f"Recorded runs: {stem}", no_replay) for stem in recorded_paths()]
    return choices


def why_waiting(device: str) -> str:
    """Return why a job for this device would wait now; "" when a worker serves it."""
    places_by_value = {place.value: place for place in places()}
    if device in places_by_value:
        return places_by_value[device].why_not
    return f"no worker has {device.partition(':')[2] or device}"


def device_problem(device: str) -> str | None:
    """Return why nothing could ever be measured there, and what could be chosen; None where it can."""
    if len(device) > MAX_DEVICE:
        return f"at most {MAX_DEVICE} characters"
    if is_gpu(device):
        return None
    recorded = recorded_paths()
    if device.startswith(REPLAY) and device.removeprefix(REPLAY) in recorded:
        return None
    return ('choose "gpu", one model ("gpu:NVIDIA H200") or recorded runs (' +
            ", ".join(f'"{REPLAY}{stem}"' for stem in recorded) + ")")

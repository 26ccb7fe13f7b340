"""Tasks that queue entries wake, found by RQ by dotted name (`jobs.TASKS`).

Each may run twice for one row without harm: the service claims the row by a conditional update. Whatever happens, the
row does not stay `running`: an error that nobody expected ends it as failed, and the log has the trace.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeVar

from django.db.models import Model
from rq import get_current_job

from profiles.models import FleetCapture, Profile, is_small_upload
from profiles.upload.services import profile_ingest
from tuner.models import Suite, SuiteJob, TuneJob
from tuner.tuning.trial import cleaned
from workers import disk, fair, jobs, stages
from workers.away import server_away
from workers.core.periodic import keep_heartbeat
from workers.metrics.prometheus import count_job
from workers.row_kinds import ROW_KINDS, RowKind
from workers.scope import each_project, scope_of_row, within

log = logging.getLogger(__name__)
R = TypeVar("R")


def in_project_of(model: type[Model]) -> Callable[[Callable[[int], R]], Callable[[int], R]]:
    """Let a task of one row see that row's project alone."""
    def wrap(task: Callable[[int], R]) -> Callable[[int], R]:
        @wraps(task)
        def run(row_id: int) -> R:
            with within(scope_of_row(model, row_id)):
                return task(row_id)

        return run

    return wrap


def ingest_profile(profile_id: int) -> str:
    """Read the upload whose turn it is among the small ones or the large ones, and do what follows on it; the entry only wakes the
    worker. Return why the process that read it ended early, "" where it did not."""
    small = Profile._base_manager.filter(is_small_upload(), pk=profile_id).exists()
    among = is_small_upload() if small else ~is_small_upload()
    return ingest_this(fair.next_row(ROW_KINDS["ingest"].leases, "ingest", profile_id, among))


def ingest_this(profile_id: int) -> str:
    """Read this upload, whatever waits in the queue, and do what follows on it. Return what `ingest_profile` does."""
    with within(scope_of_row(Profile, profile_id)):
        return stages.ingest(profile_id, worker_name(), lambda: _run(ROW_KINDS["ingest"], profile_id, profile_ingest))


@in_project_of(Profile)
def follow_profile(profile_id: int) -> None:
    """Do what follows on a ready profile, where the worker that read it could not."""
    stages.follow(profile_id)


@in_project_of(Profile)
def analyse_profile(profile_id: int) -> None:
    """Make the topics of a large trace that a page asked for."""
    stages.analyse(profile_id)


@in_project_of(Profile)
def compare_builds(profile_id: int) -> None:
    """Compare anew what the newest builds changed: a profile went or changed its build."""
    stages.compare_builds()


def merge_fleet(batch_id: int) -> None:
    """Merge the batches of the fleet that wait, whichever woke it, then sum days that rest."""
    from profiles.fleet.services import fleet_tend, merge_waiting  # with the store: no other task needs it

    log.info("fleet (woken by batch %s): %s merged, %s days summed", batch_id, merge_waiting(), len(fleet_tend()))


@in_project_of(FleetCapture)
def join_captures(capture_id: int) -> None:
    """Make one profile of the traces of ranks that were captured together."""
    from profiles.running.join_services import join

    profile = join(capture_id)
    log.info("captures with %s: %s", capture_id, f"profile {profile.pk}" if profile else "nothing to join")


def watch_production(day: int) -> None:
    """Look for kernels that became slower in production, after days were summed."""
    from tuner.gate.production.services import watch_production as watch  # with what it imports: 1 s that nobody else needs

    days, count = watch()
    log.info("production (woken by day %s): %s days taken up, %s regressions found", day, days, count)


def run_keeping(project_id: int) -> None:
    """Delete what a project keeps no longer."""
    from workers.retention.run import run  # with the suites: an ingest needs none

    with within(project_id):
        run(project_id)


def run_tune(job_id: int) -> None:
    """Take up the job that is first in the queue's order; the entry only wakes the worker."""
    from workers.tune.lead import run  # with the operators and strategies: an ingest worker needs neither

    first = next_job_id(job_id)
    if first is not None:
        _run(ROW_KINDS["tune"], first, run)


def next_job_id(job_id: int) -> int | None:
    """Return the job that comes first for this worker; None where none can run here."""
    from tuner.devices import is_gpu  # here, as in the tasks below: who ingests a file needs none of the tuner
    from tuner.jobs.control_services import next_job
    from workers.core import gpu

    device = TuneJob.objects.filter(pk=job_id).values_list("device", flat=True).first()
    if device is None or not is_gpu(device):
        return next_job(job_id, "replay")
    models = {card.name for card in gpu.gpus()}
    return next_job(job_id, "gpu", models) if models else job_id      # without a GPU it fails, and says what to do


@in_project_of(TuneJob)
def run_assist(job_id: int) -> None:
    """Help with a job."""
    from workers.tune.assist import run

    log.info("assist %s: taken up", job_id)
    try:
        run(job_id, worker_name())
    except Exception:
        log.exception("assist %s failed: the job goes on without this worker", job_id)


def run_compile(job_id: int) -> None:
    """Compile for GPU workers of other hosts; requests of any job stand in Redis."""
    from workers.tune import compile_queue, team

    log.info("compile (woken by tune %s): %s answered", job_id, compile_queue.serve(team.child_environment()))


def run_check(check_id: int) -> None:
    """Compile samples of a kernel file; one that was named is fetched first."""
    from workers.code.kernel import fetch
    from workers.tune.check import run

    _run(ROW_KINDS["check"], check_id, partial(run, fetch=fetch))


def run_candidate(candidate_id: int) -> None:
    """Compile a candidate; check and time it where the entry came to a worker with a GPU."""
    from workers.tune.candidate import run

    entry = get_current_job()
    on_gpu = entry is None or entry.origin == "gpu"
    _run(ROW_KINDS["candidate"], candidate_id, lambda row_id, worker: run(row_id, worker, on_gpu=on_gpu))


def run_code(fetch_id: int) -> None:
    """Try to fetch the code of a suite's build."""
    from workers.code.build import run

    _run(ROW_KINDS["code"], fetch_id, run)


def run_capture(capture_id: int) -> None:
    """Run a capture."""
    from workers.capture.run import run

    _run(ROW_KINDS["capture"], capture_id, run)


def run_engine_capture(capture_id: int) -> None:
    """Capture a serving engine."""
    from workers.capture.engine import run

    _run(ROW_KINDS["engine"], capture_id, run)


def run_schedules(schedule_id: int) -> None:
    """Run the schedules of captures that are due, whichever woke it."""
    from profiles.running.schedule_services import run_due

    log.info("schedules (woken by %s): %s ran", schedule_id, [pk for _ in each_project() for pk in run_due()])


def run_ceilings(run_id: int) -> None:
    """Measure a GPU's ceilings."""
    from workers.capture.ceilings import run

    _run(ROW_KINDS["ceilings"], run_id, run)


@in_project_of(SuiteJob)
def run_suite(job_id: int) -> None:
    """Run a suite job."""
    from workers.gate.suite import continue_followers, run

    _run(ROW_KINDS["suite"], job_id, run)
    if SuiteJob.objects.filter(pk=job_id, status=SuiteJob.Status.FAILED).exists():
        continue_followers(job_id)           # also where an error that nobody expected ended it: a gate waits for it


def describe_operators(package_id: int) -> None:
    """Describe a package's operators."""
    from workers.tune.team import describe_package

    describe_package(package_id, worker_name())


@in_project_of(Suite)
def run_series(suite_id: int) -> None:
    """Find the builds from which kernels of a suite take another time."""
    from tuner.gate.history.series_services import update_series  # with what it imports: 1 s that nobody else needs

    log.info("series of suite %s: %s worked out", suite_id, update_series(suite_id))


def worker_name() -> str:
    """Return the worker of this process, as in the rows that it holds."""
    return os.environ.get("RQ_WORKER_ID") or f"process-{os.getpid()}"


def _run(row_kind: RowKind, row_id: int, service: Callable[[int, str], Any]) -> None:
    worker, began_s = worker_name(), time.monotonic()
    if row_kind.fills_disk and (place := disk.shortage()):
        log.warning("%s %s: waits, %s free for the %s", row_kind.task, row_id, disk.size(place.free_bytes), place.title)
        return
    log.info("%s %s: taken up", row_kind.task, row_id)
    try:
        with within(scope_of_row(row_kind.leases.model, row_id)), keep_heartbeat(row_kind.leases, row_id, worker):
            service(row_id, worker)
    except MemoryError:         # of a stage whose memory is bounded: who started it ends the row
        raise
    except Exception as error:
        if away := server_away(error):      # not the row's fault: it is taken again once its heartbeat is stale, and that counts
            log.warning("%s %s: left, %s does not answer (%s)", row_kind.task, row_id, away, error)
            return
        if disk.is_full_error(error):
            log.warning("%s %s: the disk is full (%s)", row_kind.task, row_id, error)
        else:
            log.exception("%s %s failed", row_kind.task, row_id)
        _fail(row_kind, row_id, worker, error)
    status = row_kind.leases.model._default_manager.filter(pk=row_id).values_list("status", flat=True).first()
    seconds = time.monotonic() - began_s
    count_job(row_kind.task, status or "deleted", seconds)
    log.info("%s %s: %s after %.1f s", row_kind.task, row_id, status or "deleted", seconds)


def _fail(row_kind: RowKind, row_id: int, worker: str, error: Exception) -> None:
    what = cleaned(f"unexpected {type(error).__name__}: {error}")[:500]
    failure = {"where": row_kind.task, "what": what, "hint": "A fault of Ridgepoint: the worker's log has the trace. Try it again."}
    if disk.is_full_error(error):
        failure |= {"what": cleaned(f"the worker's disk is full ({error})")[:500], "hint": "Make room there, then try again."}
    if not row_kind.leases.end(row_id, worker, "failed", error=failure):
        return
    if row_kind.task == "suite":
        from tuner.gate.suites.job_services import job_publish

        job_publish(SuiteJob.objects.select_related("suite").get(pk=row_id))
        return
    jobs.publish(f"{row_kind.topic}.{row_id}", "status", {"id": row_id, "status": "failed", "error": failure})
    jobs.publish("home", row_kind.topic, {"id": row_id, "status": "failed"})

"""What a queue entry wakes: row id in, service, row ended. RQ finds these by their dotted names (`jobs.TASKS`).

Each may run twice for one row without harm: the service claims the row by a conditional update. Whatever happens, the
row does not stay `running`: an error that nobody expected ends it as failed, and the log has the trace.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any

from django.utils import timezone

from profiles.advice.services import decisions_follow
from profiles.families.build_services import pairs_refresh
from profiles.families.follow_services import families_follow
from profiles.models import Capture, CeilingRun, Profile
from profiles.services import profile_ingest
from profiles.topics.services import topics_make
from tuner.builds.services import build_of_profile
from tuner.jobs.devices import is_gpu
from tuner.jobs.queue_services import next_job
from tuner.models import SuiteJob, TuneJob
from tuner.suites.services import job_published
from tuner.trial import cleaned
from workers import gpu, jobs
from workers.heartbeat import beating
from workers.sweep import HELD, Held, sweep

log = logging.getLogger(__name__)
__all__ = ["describe_operators", "ingest_profile", "run_assist", "run_capture", "run_ceilings", "run_compile", "run_series",
           "run_tune", "sweep"]


def ingest_profile(profile_id: int) -> None:
    _run(HELD["ingest"], profile_id, profile_ingest)
    families_follow(profile_id)         # the profile is ready and shows: what its kernels are worth and what
    topics_make(profile_id)             # its analyses say follows
    decisions_follow(profile_id)        # and whether what was taken up has helped
    build_of_profile(profile_id)


def analyse_profile(profile_id: int) -> None:
    """The topics of a large trace that a page asked for and nobody made yet."""
    topics_make(profile_id)


def compare_builds(profile_id: int) -> None:
    """A profile is gone, or belongs to another build now: what the newest builds changed is compared anew."""
    pairs_refresh()


def run_tune(job_id: int) -> None:
    """The entry wakes the worker; which of the waiting jobs it takes up, the queue's order says."""
    from workers.tune import run  # with the operators and strategies: an ingest worker needs neither

    first = first_of(job_id)
    if first is not None:
        _run(HELD["tune"], first, run)


def first_of(job_id: int) -> int | None:
    """The job that comes first for this worker where `job_id` would run; None where none can run here."""
    device = TuneJob.objects.filter(pk=job_id).values_list("device", flat=True).first()
    if device is None or not is_gpu(device):
        return next_job(job_id, "replay")
    models = {card.name for card in gpu.gpus()}
    return next_job(job_id, "gpu", models) if models else job_id      # without a GPU it fails, and says what to do


def run_assist(job_id: int) -> None:
    from workers.assist import run

    log.info("assist %s: taken up", job_id)
    try:
        run(job_id, worker_name())
    except Exception:
        log.exception("assist %s failed: the job goes on without this worker", job_id)


def run_compile(job_id: int) -> None:
    """The entry wakes a worker that compiles for GPU workers of other hosts; what is asked, of any job, stands in Redis."""
    from workers import compile_queue, team

    log.info("compile (woken by tune %s): %s answered", job_id, compile_queue.serve(team.child_environment()))


def run_capture(capture_id: int) -> None:
    from workers.capture import run

    _run(HELD["capture"], capture_id, run)


def run_ceilings(run_id: int) -> None:
    from workers.ceilings import run

    _run(HELD["ceilings"], run_id, run)


def run_suite(job_id: int) -> None:
    from workers.suite import after, run

    _run(HELD["suite"], job_id, run)
    if SuiteJob.objects.filter(pk=job_id, status=SuiteJob.Status.FAILED).exists():
        after(job_id)           # also where an error that nobody expected ended it: a gate waits for it


def describe_operators(package_id: int) -> None:
    from workers.team import describe

    describe(package_id, worker_name())


def run_series(suite_id: int) -> None:
    """Runs of a suite arrived: from which build on did a kernel take another time?"""
    from tuner.builds.series_services import series_update  # with ruptures: 1 s that nobody else needs

    log.info("series of suite %s: %s worked out", suite_id, series_update(suite_id))


def worker_name() -> str:
    """The name of the worker that this process works for, as it stands in the rows it holds."""
    return os.environ.get("RQ_WORKER_ID") or f"process-{os.getpid()}"


def _run(held: Held, row_id: int, service: Callable[[int, str], Any]) -> None:
    worker, began_s = worker_name(), time.monotonic()
    log.info("%s %s: taken up", held.task, row_id)
    try:
        with beating(held.model, row_id, worker):
            service(row_id, worker)
    except Exception as error:
        log.exception("%s %s failed", held.task, row_id)
        _fail(held, row_id, worker, error)
    status = held.model._default_manager.filter(pk=row_id).values_list("status", flat=True).first()
    log.info("%s %s: %s after %.1f s", held.task, row_id, status or "deleted", time.monotonic() - began_s)


def _fail(held: Held, row_id: int, worker: str, error: Exception) -> None:
    what = cleaned(f"unexpected {type(error).__name__}: {error}")[:500]
    told = {"where": held.task, "what": what, "hint": "A fault of Ridgepoint: the worker's log has the trace. Try it again."}
    fields: dict[str, Any] = {"status": "failed", "error": told, "heartbeat": None}
    if any(field.name == "finished" for field in held.model._meta.get_fields()):
        fields["finished"] = timezone.now()
    mine = held.model._default_manager.filter(pk=row_id, status=held.running, worker=worker)
    if mine.update(**fields):
        if held.model is SuiteJob:
            job_published(SuiteJob.objects.select_related("suite").get(pk=row_id))
            return
        topic = {Profile: "profile", TuneJob: "tune", Capture: "capture", CeilingRun: "ceilings"}[held.model]
        jobs.publish(f"{topic}.{row_id}", "status", {"id": row_id, "status": "failed", "error": told})
        jobs.publish("home", topic, {"id": row_id, "status": "failed"})



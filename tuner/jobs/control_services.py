"""What a person does to a job that waits, runs, rests or has ended: stop, pause, resume, extend."""

from __future__ import annotations

import math

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from tuner.jobs.create_services import MAX_SECONDS, MAX_TRIALS, TuneError, publish_status, wake
from tuner.jobs.worker_services import lost
from tuner.models import TuneJob

Status = TuneJob.Status


def tune_stop(job: TuneJob) -> TuneJob:
    """Ask for the end. A job that no living worker holds ends here and now; a running one within a second."""
    TuneJob.objects.filter(pk=job.pk, status__in=[Status.QUEUED, Status.RUNNING, Status.PAUSED]).update(stop_requested=True)
    unheld = Q(status__in=[Status.QUEUED, Status.PAUSED]) | lost()
    TuneJob.objects.filter(unheld, pk=job.pk).update(
        status=Status.STOPPED, ended_by="stopped", finished=timezone.now(), heartbeat=None, stop_requested=False,
        pause_requested=False)
    return _told(job)


def tune_pause(job: TuneJob) -> TuneJob:
    """Free the worker for others and keep what was measured. A running job rests within a second."""
    TuneJob.objects.filter(pk=job.pk, status__in=[Status.QUEUED, Status.RUNNING]).update(pause_requested=True)
    unheld = Q(status=Status.QUEUED) | lost()
    TuneJob.objects.filter(unheld, pk=job.pk).update(
        status=Status.PAUSED, worker="", heartbeat=None, pause_requested=False)
    return _told(job)


def tune_resume(job: TuneJob) -> TuneJob:
    """Back into the queue, from its rows. A pause that no worker has followed yet is taken back."""
    with transaction.atomic():
        TuneJob.objects.filter(pk=job.pk, status=Status.RUNNING).update(pause_requested=False)
        if TuneJob.objects.filter(pk=job.pk, status=Status.PAUSED).update(status=Status.QUEUED, pause_requested=False):
            wake(job)
    return _told(job)


def tune_extend(job: TuneJob, trials: int | None = None, seconds: float | None = None) -> TuneJob:
    """Give more budget; a job that has ended goes on from its rows, in the queue.

    With trials alone the seconds grow in proportion. A plateau grows by the trials, so that the search goes on for as many.
    """
    trials, seconds = trials or 0, seconds or 0.0
    if trials < 0 or seconds < 0 or not math.isfinite(seconds) or not (trials or seconds):
        raise TuneError({"trials": "give more than 0 trials or seconds"})
    if job.purpose != "search" or job.only is not None:
        raise TuneError({"trials": "this job measures listed configurations; it has nothing to search"})
    trials, seconds = min(trials, MAX_TRIALS), min(seconds, float(MAX_SECONDS))
    with transaction.atomic():
        now = TuneJob.objects.select_for_update().get(pk=job.pk)        # two people's extensions add up
        if trials and not seconds:
            seconds = now.budget_seconds * trials / now.budget_trials
        budget = {"budget_trials": min(MAX_TRIALS, now.budget_trials + trials),
                  "budget_seconds": min(float(MAX_SECONDS), now.budget_seconds + seconds)}
        if now.plateau is not None:
            budget["plateau"] = min(MAX_TRIALS, now.plateau + trials) if trials else None
        TuneJob.objects.filter(pk=job.pk).update(**budget, effort="")
        ended = TuneJob.objects.filter(pk=job.pk, status__in=[Status.DONE, Status.STOPPED, Status.FAILED])
        if ended.update(status=Status.QUEUED, finished=None, error=None, ended_by="", stop_requested=False, attempts=0):
            wake(job)
    return _told(job)


def _told(job: TuneJob) -> TuneJob:
    job.refresh_from_db()
    publish_status(job)
    return job

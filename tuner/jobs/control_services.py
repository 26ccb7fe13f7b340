"""Stop, pause, resume and extend jobs, and order those that wait.

The queue stands as a person put it, then by what a winner is worth, then first come. `priority` is a person's word, highest
first; jobs without one stand behind those with one.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from profiles.base.refused import Refused
from tuner import devices
from tuner.devices import GPU
from tuner.jobs.create_services import MAX_SECONDS, MAX_TRIALS, enqueue_job, publish_status
from tuner.models import TuneJob
from workers import jobs

Status = TuneJob.Status
SILENT_AFTER = timedelta(seconds=5)         # a worker that missed two heartbeats is not waited for


def is_silent() -> Q:
    """Match running jobs whose worker does not follow a stop or a pause.

    Sooner than a lease is lost: should the worker live after all, it finds the row no longer its own and ends its child, and
    nothing that it still writes is taken.
    """
    return Q(status=Status.RUNNING) & (Q(heartbeat=None) | Q(heartbeat__lt=Now() - SILENT_AFTER))


def tune_stop(job: TuneJob) -> TuneJob:
    """Ask a job to end: a running one does within 1 s, one that no living worker holds at once. Asking again does no harm."""
    TuneJob.objects.filter(pk=job.pk, status__in=[Status.QUEUED, Status.RUNNING, Status.PAUSED]).update(stop_requested=True)
    unheld = Q(status__in=[Status.QUEUED, Status.PAUSED]) | is_silent()
    TuneJob.objects.filter(unheld, pk=job.pk).update(
        status=Status.STOPPED, ended_by="stopped", **TuneJob.leases.ended(), stop_requested=False,
        pause_requested=False)
    return _refresh_and_publish(job)


def tune_pause(job: TuneJob) -> TuneJob:
    """Free the job's worker and keep its trials; a running job rests within 1 s."""
    TuneJob.objects.filter(pk=job.pk, status__in=[Status.QUEUED, Status.RUNNING]).update(pause_requested=True)
    unheld = Q(status=Status.QUEUED) | is_silent()
    TuneJob.objects.filter(unheld, pk=job.pk).update(
        status=Status.PAUSED, worker="", heartbeat=None, pause_requested=False)
    return _refresh_and_publish(job)


def tune_resume(job: TuneJob) -> TuneJob:
    """Queue a paused job again; a pause that no worker followed yet is taken back."""
    with transaction.atomic():
        TuneJob.objects.filter(pk=job.pk, status=Status.RUNNING).update(pause_requested=False)
        if TuneJob.objects.filter(pk=job.pk, status=Status.PAUSED).update(status=Status.QUEUED, pause_requested=False):
            enqueue_job(job)
    return _refresh_and_publish(job)


def tune_extend(job: TuneJob, trials: int | None = None, seconds: float | None = None) -> TuneJob:
    """Give more budget; a job that has ended is queued again.

    With trials alone the seconds grow in proportion. A plateau grows by the trials, so that the search goes on for as many.
    """
    trials, seconds = trials or 0, seconds or 0.0
    if trials < 0 or seconds < 0 or not math.isfinite(seconds) or not (trials or seconds):
        raise Refused({"trials": "give more than 0 trials or seconds"})
    if job.purpose != "search" or job.only is not None:
        raise Refused({"trials": "this job measures listed configurations; it has nothing to search"})
    trials, seconds = min(trials, MAX_TRIALS), min(seconds, float(MAX_SECONDS))
    with transaction.atomic():
        now = TuneJob.objects.select_for_update().get(pk=job.pk)        # two people's extensions add up
        if trials and not seconds:
            seconds = now.budget_seconds * trials / now.budget_trials
        budget: dict[str, float | None] = {"budget_trials": min(MAX_TRIALS, now.budget_trials + trials),
                  "budget_seconds": min(float(MAX_SECONDS), now.budget_seconds + seconds)}
        if now.plateau is not None:
            budget["plateau"] = min(MAX_TRIALS, now.plateau + trials) if trials else None
        if now.ended_by == "ceiling":            # who extends it wants more than that
            budget["ceiling_pct"] = None
        TuneJob.objects.filter(pk=job.pk).update(**budget, effort="")
        ended = TuneJob.objects.filter(pk=job.pk, status__in=[Status.DONE, Status.STOPPED, Status.FAILED])
        if ended.update(status=Status.QUEUED, finished=None, error=None, ended_by="", stop_requested=False, attempts=0):
            enqueue_job(job)
    return _refresh_and_publish(job)


def _refresh_and_publish(job: TuneJob) -> TuneJob:
    job.refresh_from_db()
    publish_status(job)
    return job


# ---- the queue ----

ORDER = (F("priority").desc(nulls_last=True), F("worth_s").desc(nulls_last=True), "created", "group_place", "id")


def waiting_jobs() -> QuerySet[TuneJob]:
    """Return waiting jobs in the order in which workers take them."""
    return TuneJob.objects.filter(status=Status.QUEUED).select_related("owner", "group").order_by(*ORDER)


def next_job(woken_for: int, name: str, models: Collection[str] = ()) -> int | None:
    """Return the job that a worker of queue `name` takes up; None where none fits.

    A job whose worker died goes on before others begin. `models` are the GPUs of the worker's host: jobs for another model
    are left for its workers.
    """
    mine = TuneJob.objects.filter(can_run(name, models))
    if mine.filter(TuneJob.leases.is_lost(), pk=woken_for).exists():
        return woken_for
    return mine.filter(status=Status.QUEUED).order_by(*ORDER).values_list("pk", flat=True).first()


def can_run(name: str, models: Collection[str]) -> Q:
    """Match jobs that a worker of this queue with these GPU models can run."""
    if name != GPU:
        return Q(device__startswith="replay:")
    return Q(device=GPU) | Q(device__in=[f"{GPU}:{model}" for model in models])


@dataclass(frozen=True)
class Outlook:
    """What a job would meet that is queued now; `why_not` says why no living worker can take it, "" where one can."""

    why_not: str
    ahead: int           # waiting jobs of its workers that stand before it
    running: int         # jobs that these workers run now
    idle: int            # of these workers, those that do nothing

    @property
    def text(self) -> str:
        """Return it in a sentence."""
        if self.why_not:
            return f"No living worker can take it: {self.why_not}. It would wait until one is there."
        if self.idle and not self.ahead:
            return "Starts at once: a worker is idle."
        jobs_ahead = f"{self.ahead} job{'s' * (self.ahead != 1)}" if self.ahead else "no job"
        return f"Queue: {jobs_ahead} before it, {self.running} running."


def queue_outlook(device: str, worth_s: float | None) -> Outlook:
    """Return what a new job for `device` (as `TuneJob.device`) would meet; `worth_s` decides its place in the queue."""
    on_gpu, model = devices.is_gpu(device), devices.gpu_model(device) if devices.is_gpu(device) else ""
    serving = [worker for worker in jobs.workers() if (GPU if on_gpu else "replay") in worker.get("queues", [])]
    if on_gpu:
        serving = [worker for worker in serving if any(model in ("", gpu.get("name")) for gpu in worker.get("gpus") or [])]
    same = TuneJob.objects.filter(can_run(GPU if on_gpu else "replay", [model])) if model or not on_gpu else (
        TuneJob.objects.filter(device__startswith=GPU))
    before = Q() if worth_s is None else Q(priority__isnull=False) | Q(worth_s__gte=worth_s)        # without a worth: the last
    why_not = ""
    if not serving:
        missing = [place.why_not for place in devices.list_devices() if place.value == device and place.why_not]
        why_not = missing[0] if missing else "no worker with this GPU is running"
    return Outlook(why_not, same.filter(before, status=Status.QUEUED).count(), same.filter(status=Status.RUNNING).count(),
                   sum(worker.get("busy") is None for worker in serving))


def queue_move(job: TuneJob, before: TuneJob | None = None, after: TuneJob | None = None) -> list[int]:
    """Move a waiting job before or after another, or last; return the ids in their new order.

    Everything that then stands in front of it, and itself, keeps its place from now on; the rest stays in the order of worth.
    Beside itself, or beside a job that was taken up meanwhile, it stays where it is.
    """
    beside = before or after
    with transaction.atomic():
        rows = list(TuneJob.objects.select_for_update().filter(status=Status.QUEUED).order_by(*ORDER))
        order = [row.pk for row in rows]
        if job.pk not in order or (beside is not None and (beside.pk == job.pk or beside.pk not in order)):
            return order
        order.remove(job.pk)
        place = len(order)
        if before is not None:
            place = order.index(before.pk)
        elif after is not None:
            place = order.index(after.pk) + 1
        order.insert(place, job.pk)
        pinned = [row.pk for row in rows if row.priority is not None and row.pk != job.pk]
        last = max([place, *(order.index(pk) for pk in pinned)])
        for index, pk in enumerate(order[:last + 1]):
            TuneJob.objects.filter(pk=pk).update(priority=float(last + 1 - index))
    _refresh_and_publish(job)
    return order


def queue_reset() -> None:
    """Forget the order that people chose."""
    TuneJob.objects.filter(Q(status=Status.QUEUED) | Q(status=Status.PAUSED)).update(priority=None)
    jobs.publish("home", "tune", {"id": None, "status": "queued"})

"""The order in which waiting jobs are taken: as a person put them, then by what a winner is worth, then first come.

`priority` is a person's word, highest first. Jobs without one stand behind those with one.
"""

from __future__ import annotations

from collections.abc import Collection

from django.db import transaction
from django.db.models import F, Q, QuerySet

from tuner.jobs.create_services import publish_status
from tuner.jobs.devices import GPU
from tuner.jobs.worker_services import lost
from tuner.models import TuneJob
from workers import jobs

Status = TuneJob.Status
ORDER = (F("priority").desc(nulls_last=True), F("worth_s").desc(nulls_last=True), "created", "group_place", "id")


def queue() -> QuerySet[TuneJob]:
    """Waiting jobs in the order in which workers take them."""
    return TuneJob.objects.filter(status=Status.QUEUED).select_related("owner", "group").order_by(*ORDER)


def next_job(woken_for: int, name: str, models: Collection[str] = ()) -> int | None:
    """The job that a worker of queue `name` takes up. An entry wakes a worker; which job is first, the rows say.

    A job whose worker died goes on before others begin. `models` are the GPUs of the worker's host: jobs for another model
    are left for its workers.
    """
    mine = TuneJob.objects.filter(fits(name, models))
    if mine.filter(lost(), pk=woken_for).exists():
        return woken_for
    return mine.filter(status=Status.QUEUED).order_by(*ORDER).values_list("pk", flat=True).first()


def fits(name: str, models: Collection[str]) -> Q:
    """Jobs that a worker of this queue with these GPUs can run."""
    if name != GPU:
        return Q(device__startswith="replay:")
    return Q(device=GPU) | Q(device__in=[f"{GPU}:{model}" for model in models])


def queue_move(job: TuneJob, before: TuneJob | None = None, after: TuneJob | None = None) -> list[int]:
    """Put a waiting job before or after another, or last; returns the ids in their new order.

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
        for at, pk in enumerate(order[:last + 1]):
            TuneJob.objects.filter(pk=pk).update(priority=float(last + 1 - at))
    _tell(job)
    return order


def queue_by_worth() -> None:
    """Forget what people put first."""
    TuneJob.objects.filter(Q(status=Status.QUEUED) | Q(status=Status.PAUSED)).update(priority=None)
    jobs.publish("home", "tune", {"id": None, "status": "queued"})


def _tell(job: TuneJob) -> None:
    job.refresh_from_db()
    publish_status(job)

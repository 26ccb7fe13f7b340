"""Several workers in one job, over rows: who takes part, what the lead gave out, and what came of it.

The lead asks the strategy. It gives configurations out as tasks; a helper claims them, measures, and stores the trial in the
transaction that removes the task. A helper that dies leaves its tasks to the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import transaction
from django.db.models import Max, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from tuner.bench.runner import Incumbent
from tuner.jobs import selectors
from tuner.jobs.worker_services import measured_by_member, row_key
from tuner.models import TrialRow, TuneJob, TuneMember, TuneTask
from tuner.trial import Config, Trial
from workers import jobs

Role = TuneMember.Role


def member_join(job: TuneJob, worker: str, role: str, *, host: str = "", gpu: str = "", gpu_uuid: str = "") -> TuneMember:
    fields = {"role": role, "host": host[:120], "gpu": gpu[:120], "gpu_uuid": gpu_uuid[:64], "heartbeat": Now(), "left": None,
              "note": ""}
    return TuneMember.objects.update_or_create(job=job, worker=worker, defaults=fields)[0]


def member_beat(member: TuneMember, reading: dict[str, Any]) -> bool:
    """A sign of life, with the clocks now. False when it is no member any more."""
    here = TuneMember.objects.filter(pk=member.pk, left=None)
    return bool(here.update(heartbeat=Now(), reading=reading, trials=measured_by_member()))


def member_leave(member: TuneMember, note: str = "") -> None:
    """What it claimed and did not measure is free again."""
    with transaction.atomic():
        TuneMember.objects.filter(pk=member.pk).update(
            left=timezone.now(), heartbeat=None, note=note[:300], trials=measured_by_member())
        TuneTask.objects.filter(job=member.job_id, worker=member.worker).update(worker="")


def worker_leaves(worker: str) -> None:
    """A worker that stops leaves every job that it helps with, and what it claimed is free at once."""
    for member in TuneMember.objects.filter(worker=worker, role=Role.HELPER, left=None):
        member_leave(member, "its worker was stopped")


def helpers(job: TuneJob) -> QuerySet[TuneMember]:
    """Those that live."""
    return TuneMember.objects.filter(jobs.alive(), job=job, role=Role.HELPER, left=None)


def tasks_put(job: TuneJob, configs: Sequence[Config], incumbent: Incumbent | None) -> None:
    race = {"median_ms": incumbent.median_ms, "samples_ms": list(incumbent.samples_ms)} if incumbent else None
    rows = [TuneTask(job=job, config=dict(config), config_key=row_key(config), incumbent=race) for config in configs]
    TuneTask.objects.bulk_create(rows, ignore_conflicts=True)


def tasks_claim(job: TuneJob, worker: str, n: int) -> list[TuneTask]:
    """The oldest that nobody has, at most `n`."""
    with transaction.atomic():
        free = TuneTask.objects.select_for_update(skip_locked=True).filter(job=job, worker="").order_by("id")
        rows = list(free[:n]) if n > 0 else []
        TuneTask.objects.filter(pk__in=[row.pk for row in rows]).update(worker=worker)
    return rows


def tasks_waiting(job: TuneJob) -> int:
    return TuneTask.objects.filter(job=job, worker="").count()


def tasks_out(job: TuneJob) -> int:
    """Given out and not measured yet, by helpers that live."""
    return TuneTask.objects.filter(job=job).exclude(worker="").count()


def tasks_of_the_dead(job: TuneJob) -> None:
    """What helpers claimed that gave no sign of life for too long is free again, and they have left."""
    for member in TuneMember.objects.filter(jobs.dead(), job=job, role=Role.HELPER, left=None):
        member_leave(member, "gave no sign of life")


def tasks_take_back(job: TuneJob, everything: bool = False) -> list[Config]:
    """Remove what nobody has claimed, or everything; the configurations are the lead's again."""
    with transaction.atomic():
        rows = TuneTask.objects.select_for_update().filter(job=job)
        taken = list(rows if everything else rows.filter(worker=""))
        TuneTask.objects.filter(pk__in=[row.pk for row in taken]).delete()
    return [row.config for row in taken]


def last_row(job: TuneJob) -> int:
    """The greatest row id of the job's trials; 0 when there are none."""
    return int(TrialRow.objects.filter(job=job).aggregate(last=Max("pk"))["last"] or 0)


def trials_of_others(job: TuneJob, worker: str, after: int) -> list[tuple[int, Trial]]:
    """(row id, trial) of other workers' rows with a greater id."""
    rows = TrialRow.objects.filter(job=job, pk__gt=after).exclude(worker=worker).order_by("pk")
    return [(row.pk, selectors.trial_of(row)) for row in rows]

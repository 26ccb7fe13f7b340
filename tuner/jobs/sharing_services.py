"""Several workers in one job: members, tasks that the lead hands out, and their trials.

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

from tuner.jobs import selectors
from tuner.jobs.worker_services import row_key, stored_trials_of_member
from tuner.models import TrialRow, TuneJob, TuneMember, TuneTask
from tuner.tuning.measure.runner import Incumbent
from tuner.tuning.trial import Config, Trial
from workers.leases import is_alive, is_dead

Role = TuneMember.Role


def member_join(job: TuneJob, worker: str, role: str, *, host: str = "", gpu: str = "", gpu_uuid: str = "") -> TuneMember:
    """Add the worker to the job, or renew it."""
    fields = {"role": role, "host": host[:120], "gpu": gpu[:120], "gpu_uuid": gpu_uuid[:64], "heartbeat": Now(), "left": None,
              "note": ""}
    return TuneMember.objects.update_or_create(job=job, worker=worker, defaults=fields)[0]


def member_beat(member: TuneMember, reading: dict[str, Any]) -> bool:
    """Write a heartbeat with the GPU's clocks; False when it is no member any more."""
    here = TuneMember.objects.filter(pk=member.pk, left=None)
    return bool(here.update(heartbeat=Now(), reading=reading, trials=stored_trials_of_member()))


def member_leave(member: TuneMember, note: str = "") -> None:
    """End the membership and free what it claimed and did not measure."""
    with transaction.atomic():
        TuneMember.objects.filter(pk=member.pk).update(
            left=timezone.now(), heartbeat=None, note=note[:300], trials=stored_trials_of_member())
        TuneTask.objects.filter(job=member.job_id, worker=member.worker).update(worker="")


def worker_leave(worker: str) -> None:
    """Leave every job that the worker helps with and free its claims."""
    for member in TuneMember.objects.filter(worker=worker, role=Role.HELPER, left=None):
        member_leave(member, "its worker was stopped")


def live_helpers(job: TuneJob) -> QuerySet[TuneMember]:
    """Return helpers with a fresh heartbeat."""
    return TuneMember.objects.filter(is_alive(), job=job, role=Role.HELPER, left=None)


def tasks_put(job: TuneJob, configs: Sequence[Config], incumbent: Incumbent | None) -> None:
    """Hand out configurations, with the incumbent to race."""
    race = {"median_ms": incumbent.median_ms, "samples_ms": list(incumbent.samples_ms)} if incumbent else None
    rows = [TuneTask(job=job, config=dict(config), config_key=row_key(config), incumbent=race) for config in configs]
    TuneTask.objects.bulk_create(rows, ignore_conflicts=True)


def tasks_claim(job: TuneJob, worker: str, n: int) -> list[TuneTask]:
    """Claim the oldest free tasks, at most `n`."""
    with transaction.atomic():
        free = TuneTask.objects.select_for_update(skip_locked=True).filter(job=job, worker="").order_by("id")
        rows = list(free[:n]) if n > 0 else []
        TuneTask.objects.filter(pk__in=[row.pk for row in rows]).update(worker=worker)
    return rows


def count_free_tasks(job: TuneJob) -> int:
    """Return how many tasks nobody has claimed."""
    return TuneTask.objects.filter(job=job, worker="").count()


def count_claimed_tasks(job: TuneJob) -> int:
    """Return how many tasks living helpers claimed and have not measured."""
    return TuneTask.objects.filter(job=job).exclude(worker="").count()


def tasks_release_dead(job: TuneJob) -> None:
    """Free what dead helpers claimed and end their membership."""
    for member in TuneMember.objects.filter(is_dead(), job=job, role=Role.HELPER, left=None):
        member_leave(member, "gave no sign of life")


def tasks_take_back(job: TuneJob, everything: bool = False) -> list[Config]:
    """Remove free tasks, or all with `everything`; return their configurations."""
    with transaction.atomic():
        rows = TuneTask.objects.select_for_update().filter(job=job)
        tasks = list(rows if everything else rows.filter(worker=""))
        TuneTask.objects.filter(pk__in=[row.pk for row in tasks]).delete()
    return [row.config for row in tasks]


def last_row(job: TuneJob) -> int:
    """Return the greatest row id of the job's trials; 0 without any."""
    return int(TrialRow.objects.filter(job=job).aggregate(last=Max("pk"))["last"] or 0)


def trials_by_others(job: TuneJob, worker: str, after: int) -> list[tuple[int, Trial]]:
    """Return (row id, trial) of other workers' rows after `after`."""
    rows = TrialRow.objects.filter(job=job, pk__gt=after).exclude(worker=worker).order_by("pk")
    return [(row.pk, selectors.make_trial(row)) for row in rows]

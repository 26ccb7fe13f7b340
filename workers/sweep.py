"""Wakes rows that no living worker holds and no queue entry wakes; runs in every worker.

A worker that is killed at any point loses nothing: what it had is in rows, and its row is found here within
`leases.STALE_AFTER` plus one sweep. A worker that is stopped hands its row back at once (`release`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.db.models import Model, QuerySet

from profiles.fleet.services import wake_fleet
from profiles.running.join_services import wake_joins
from profiles.running.schedule_services import wake_schedules
from profiles.upload.files_services import uploads_sweep
from profiles.upload.services import profiles_fail_hopeless, profiles_retry_without_room
from profiles.upload.waiting_services import wake_follows
from tuner.gate.channels.sending_services import wake_due_deliveries
from tuner.gate.history.series_services import wake_stale_series
from tuner.gate.production.point_services import wake_production
from tuner.gate.suites.job_services import queue_due_suites
from tuner.gate.verdicts.decide_services import wake_gates
from tuner.jobs.sharing_services import worker_leave
from tuner.revalidation.policy_services import wake_revalidations
from tuner.revalidation.search_services import wake_searches
from tuner.team.services import packages_wake
from workers import disk, jobs
from workers.metrics import otlp
from workers.retention.run import wake_nightly
from workers.row_kinds import ROW_KINDS, RowKind
from workers.scope import each_project

log = logging.getLogger(__name__)
_TURN_KEY, _TURN_MS = "ridgepoint:sweep", 2000
_DOUBT_KEY, _DOUBT_MS = "ridgepoint:revalidations", 30_000       # environments are new a few times a year


def sweep() -> dict[str, list[int]]:
    """Wake what was left behind; return task -> ids. One worker at a time, others skip."""
    if not jobs.take_turn(_TURN_KEY, _TURN_MS):
        return {}
    profiles_fail_hopeless()
    short = disk.shortage() is not None
    if not short:
        profiles_retry_without_room()
    woken = {kind.task: _wake(kind, kind.leases.abandoned_rows(jobs.waiting(kind.task))) for kind in ROW_KINDS.values()
             if not (short and kind.fills_disk)}
    left_behind = set(woken)
    if not short:
        woken["follow"] = wake_follows(jobs.waiting("follow"))      # read, and their workers were killed before what follows
    left_behind.add("follow")
    woken["gate"] = in_each(wake_gates)                 # their jobs have ended, and nobody said so
    woken["schedule"] = in_each(queue_due_suites)            # suites that are measured by the clock
    woken["operators"] = packages_wake()         # packages that were enabled before a worker had them
    woken["notify"] = wake_due_deliveries(jobs.waiting("notify"))        # messages whose next try is due
    for task, wakes in jobs.WAKES.items():
        woken[task] = wakes(jobs.waiting(task))
    woken["fleet"] = wake_fleet(jobs.waiting("fleet"))             # sums of agents that came since
    woken["join"] = in_each(lambda: wake_joins(jobs.waiting("join")))           # traces of ranks whose others ended without one
    woken["schedules"] = in_each(lambda: wake_schedules(jobs.waiting("schedules")))
    woken["production"] = wake_production(jobs.waiting("production"))         # days of the fleet that were summed since
    woken["series"] = in_each(wake_stale_series)         # runs over which nobody looked for changes
    if jobs.take_turn(_DOUBT_KEY, _DOUBT_MS):
        uploads_sweep()
        woken["keeping"] = wake_nightly()           # projects whose retention is due
        woken["revalidate"] = in_each(wake_revalidations)                   # winners that an environment made doubtful
        woken["search"] = in_each(wake_searches)                # … and the hottest of a new toolkit
    otlp.send_when_due()
    for task, ids in woken.items():
        if ids and task in left_behind:
            log.info("%s %s: no worker held it, woken again", task, ", ".join(map(str, ids)))
        elif ids:
            log.debug("%s %s: due", task, ", ".join(map(str, ids)))
    return woken


def in_each(work: Callable[[], list[int]]) -> list[int]:
    """Do work that looks at rows of one project in every project; return all ids."""
    return [row for _ in each_project() for row in work()]


def release(worker: str) -> None:
    """Hand back what `worker` holds, without waiting for its heartbeat to grow stale."""
    worker_leave(worker)
    for kind in ROW_KINDS.values():
        _wake(kind, kind.leases.model._default_manager.filter(pk__in=kind.leases.hand_back(worker)))


def _wake(row_kind: RowKind, rows: QuerySet[Model]) -> list[int]:
    woken = list(rows)
    for row in woken:
        jobs.enqueue(row_kind.queue(row), row_kind.task, row.pk)
    return [row.pk for row in woken]

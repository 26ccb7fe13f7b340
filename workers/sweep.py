"""Rows that no living worker holds and no queue entry wakes are woken again. Every worker runs this every few seconds.

A worker that is killed at any point loses nothing: what it had is in rows, and its row is found here within
`jobs.STALE_AFTER` plus one sweep. A worker that is stopped hands its row back at once (`release`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Greatest
from django.utils import timezone

from profiles.models import Capture, CeilingRun, Profile
from profiles.services import profile_requeue_stale
from tuner.builds.series_services import series_forgotten
from tuner.environments.services import revalidations_wake
from tuner.gates.services import gates_wake
from tuner.jobs.services import queue_of
from tuner.jobs.sharing_services import worker_leaves
from tuner.models import SuiteJob, TuneJob
from tuner.notify.sending_services import deliveries_wake
from tuner.suites.schedule_services import suites_wake
from tuner.suites.services import queue_of as suite_queue_of
from tuner.team.services import packages_wake
from workers import jobs

log = logging.getLogger(__name__)
FORGOTTEN_AFTER = timedelta(seconds=5)      # a row this young may be on its way into the queue
_TURN_KEY, _TURN_MS = "ridgepoint:sweep", 2000
_DOUBT_KEY, _DOUBT_MS = "ridgepoint:revalidations", 30_000       # environments are new a few times a year


@dataclass(frozen=True)
class Held:
    """A kind of row that workers hold: `waiting` and `running` are its states, `queue` names where it is woken."""

    model: type[models.Model]
    task: str
    waiting: str
    running: str
    queue: Callable[[Any], str]


PROFILES = Held(Profile, "ingest", Profile.Status.UPLOADED, Profile.Status.INGESTING, lambda row: "ingest")
TUNE_JOBS = Held(TuneJob, "tune", TuneJob.Status.QUEUED, TuneJob.Status.RUNNING, queue_of)
CAPTURES = Held(Capture, "capture", Capture.Status.QUEUED, Capture.Status.RUNNING, lambda row: "gpu")
CEILINGS = Held(CeilingRun, "ceilings", CeilingRun.Status.QUEUED, CeilingRun.Status.RUNNING, lambda row: "gpu")
SUITE_JOBS = Held(SuiteJob, "suite", SuiteJob.Status.QUEUED, SuiteJob.Status.RUNNING, suite_queue_of)
HELD = {held.task: held for held in (PROFILES, TUNE_JOBS, CAPTURES, CEILINGS, SUITE_JOBS)}


def sweep() -> dict[str, list[int]]:
    """Wake what was left behind; task -> ids that were woken. One worker at a time does it, the others skip their turn."""
    if not jobs.connection().set(_TURN_KEY, 1, nx=True, px=_TURN_MS):
        return {}
    woken = {PROFILES.task: profile_requeue_stale(waiting=jobs.waiting(PROFILES.task))}
    for held in (TUNE_JOBS, CAPTURES, CEILINGS, SUITE_JOBS):
        woken[held.task] = _requeue(held)
    woken["gate"] = gates_wake()                 # their jobs have ended, and nobody said so
    woken["schedule"] = suites_wake()            # suites that are measured by the clock
    woken["operators"] = packages_wake()         # packages that were enabled before a worker had them
    woken["notify"] = deliveries_wake(jobs.waiting("notify"))        # messages whose next try is due
    woken["series"] = series_forgotten()         # runs over which nobody looked for changes
    if jobs.connection().set(_DOUBT_KEY, 1, nx=True, px=_DOUBT_MS):
        woken["revalidate"] = revalidations_wake()                   # winners that an environment made doubtful
    for task, ids in woken.items():
        if ids:
            log.info("%s %s: no worker held it, woken again", task, ", ".join(map(str, ids)))
    return woken


def release(worker: str) -> None:
    """Hand back what `worker` holds, so that the next one need not wait for its heartbeat to grow stale."""
    worker_leaves(worker)
    for held in HELD.values():
        mine = held.model._default_manager.filter(status=held.running, worker=worker)
        ids = list(mine.values_list("pk", flat=True))
        # A stop is nobody's fault: the attempt does not count.
        mine.update(status=held.waiting, worker="", heartbeat=None, attempts=Greatest(F("attempts") - 1, 0))
        for row in held.model._default_manager.filter(pk__in=ids):
            jobs.enqueue(held.queue(row), held.task, row.pk)


def _requeue(held: Held) -> list[int]:
    lost = Q(status=held.running) & jobs.dead()
    forgotten = Q(status=held.waiting, created__lt=timezone.now() - FORGOTTEN_AFTER)
    rows = held.model._default_manager.filter(lost | forgotten).exclude(pk__in=jobs.waiting(held.task))
    for row in rows:
        jobs.enqueue(held.queue(row), held.task, row.pk)
    return [row.pk for row in rows]

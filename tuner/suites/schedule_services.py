"""Suites that are measured by the clock: the newest build, every so many hours. Woken by the workers' sweep."""

from __future__ import annotations

import logging
from datetime import timedelta

from django.db.models import Q
from django.utils import timezone

from tuner.builds.order_selectors import MAIN
from tuner.models import Build, Suite
from tuner.suites.errors import SuiteError
from tuner.suites.job_services import job_create
from tuner.suites.selectors import LIVE

log = logging.getLogger(__name__)
AT_ONCE = 20


def suites_wake() -> list[int]:
    """Queue what is due; ids of the suites. A suite that is still being measured is not queued twice, only put off."""
    now = timezone.now()
    woken = []
    due = Suite.objects.filter(enabled=True, every_hours__isnull=False).filter(Q(due__lte=now) | Q(due=None))
    for suite in due.exclude(kind=Suite.Kind.UPLOADED)[:AT_ONCE]:
        following = now + timedelta(hours=suite.every_hours or 24)
        # Whoever moves the date does it: two sweeps at once queue one job.
        if not Suite.objects.filter(pk=suite.pk, due=suite.due).update(due=following):
            continue
        build = newest_build()
        if build is None or suite.jobs.filter(status__in=LIVE).exists():
            continue
        try:
            job_create(suite, builds=[build.name], reason="schedule", owner=suite.owner)
        except SuiteError as error:
            log.warning("suite %s: not measured on schedule: %s", suite.name, error)
            continue
        woken.append(suite.pk)
    return woken


def newest_build() -> Build | None:
    """Of the line that everything is merged into, else of all."""
    return Build.objects.filter(branch__in=MAIN).first() or Build.objects.first()

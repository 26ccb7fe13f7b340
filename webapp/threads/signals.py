"""What happens to regressions elsewhere, told in their threads and to who follows their suite or kernel."""

from __future__ import annotations

from typing import Any

from django.db.models.signals import post_save

from tuner.models import Regression
from webapp.models import Follow, Notice, Thread
from workers.scope import current, project_of, within


def connect() -> None:
    """Listen to regressions."""
    post_save.connect(regression_saved, sender=Regression, dispatch_uid="ridgepoint threads")


def regression_saved(instance: Regression, created: bool, raw: bool = False, **signal: Any) -> None:
    """Keep the state with its thread; of a new regression who follows its suite, kernel or project is told."""
    if raw:
        return
    project = project_of(instance) or current().project
    with within(project):
        thread = Thread.objects.filter(kind="regression", key=str(instance.pk)).first()
        if created:
            if thread is None and Follow.objects.exclude(kind=Follow.Kind.THREAD).filter(on=True).exists():
                _tell_found(instance)
        elif thread is not None and thread.status != instance.state:
            from webapp.threads import services  # with what pages show: an ingest needs none of it

            services.status_keep(thread, str(instance.state), instance.changed_by)


def _tell_found(row: Regression) -> None:
    from webapp.threads import notices, services, subjects

    subject = subjects.find("regression", str(row.pk))
    if subject is None:
        return
    pairs = [(Follow.Kind.PROJECT, ""), (Follow.Kind.KERNEL, subject.kernel), (Follow.Kind.SUITE, subject.suite)]
    if any(Follow.objects.filter(kind=kind, key=key, on=True).exists() for kind, key in pairs):
        thread = services.thread_ensure(subject)
        comment = services.said_by_ridgepoint(thread, f"found by {'a gate' if row.found_by == 'gate' else 'the trend'}")
        notices.write(thread, comment, why=Notice.Why.FOUND)

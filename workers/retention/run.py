"""One run over a project: what is old and nothing keeps goes, a row at a time; the report says what and why the rest stays."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.db.models import ProtectedError
from django.utils import timezone

from profiles.models import Keeping
from workers import jobs
from workers.retention.kinds import KINDS, Kind, Rows

log = logging.getLogger(__name__)
BATCH = 100
NIGHT_HOUR_UTC = 2          # a run of its own once a night, from this hour on
LOST_AFTER = timedelta(minutes=10)      # of a run that says nothing more
Report = dict[str, dict[str, Any]]


def settings_of(project: int) -> Keeping:
    """Return what a project decided, made at first use."""
    return Keeping._base_manager.get_or_create(project_id=project)[0]


def project_key(keeping: Keeping) -> int:
    return int(keeping.project_id or 0)


def look(days: Mapping[str, int]) -> Report:
    """Return what would go in the current project and what stays, by kind; nothing is deleted."""
    return {name: _look(KINDS[name], days[name])[0] for name in KINDS if name in days}


def clean(keeping: Keeping) -> Report:
    """Delete what is old and not kept in the current project; the row's report is written as it goes."""
    report = look(keeping.days)
    for name, said in report.items():
        kind, said["gone"] = KINDS[name], 0
        while rows := list(_look(kind, keeping.days[name])[1][:BATCH]):
            gone = sum(_delete(kind, row) for row in rows)
            said["gone"] += gone
            Keeping._base_manager.filter(pk=keeping.pk).update(report=report, touched=timezone.now())
            jobs.publish("home", "retention", {"project": keeping.project_id})
            if not gone:                # others keep them: what protects them is not in the table
                said["kept"]["something else needs it"] = said["go"] - said["gone"]
                break
    Keeping._base_manager.filter(pk=keeping.pk).update(report=report, ran=timezone.now())
    return report


def run(project: int) -> Report | None:
    """Clean a project whose run waits; None where another worker does it already."""
    rows = Keeping._base_manager.filter(project=project)
    if not rows.filter(state=Keeping.State.WAITING).update(
            state=Keeping.State.RUNNING, report={}, touched=timezone.now()):
        return None
    keeping = rows.get()
    try:
        report = clean(keeping)
        log.info("retention of project %s: %s", project, {name: said["gone"] for name, said in report.items()})
        return report
    finally:
        rows.update(state=Keeping.State.REST)
        jobs.publish("home", "retention", {"project": project})


def ask(keeping: Keeping) -> bool:
    """Let a worker clean the project; False where a run waits or runs."""
    asked = Keeping._base_manager.filter(pk=keeping.pk, state=Keeping.State.REST).update(
        state=Keeping.State.WAITING, touched=timezone.now())
    if asked:
        jobs.enqueue_on_commit(jobs.SMALL, "keeping", project_key(keeping))
    return bool(asked)


def wake_nightly() -> list[int]:
    """Ask for the run of this night where projects have limits; return their projects. Also wakes what a lost worker left."""
    now = timezone.now()
    night = now.replace(hour=NIGHT_HOUR_UTC, minute=0, second=0, microsecond=0)
    night = night if now >= night else night - timedelta(days=1)
    due = [row for row in Keeping._base_manager.exclude(days={}).filter(state=Keeping.State.REST)
           if (row.ran or row.created) < night and ask(row)]
    lost = list(Keeping._base_manager.exclude(state=Keeping.State.REST).filter(touched__lt=now - LOST_AFTER))
    for row in lost:
        Keeping._base_manager.filter(pk=row.pk).update(state=Keeping.State.WAITING, touched=now)
        jobs.enqueue(jobs.SMALL, "keeping", project_key(row))
    return [project_key(row) for row in (*due, *lost)]


def _look(kind: Kind, days: int) -> tuple[dict[str, Any], Rows]:
    """Return what a kind's report says, and the rows that go."""
    old = kind.rows().filter(**{f"{kind.when}__lt": timezone.now() - timedelta(days=days)})
    left, kept, count = old, {}, old.count()
    for reason, condition in kind.keeps():
        ids = left.order_by().filter(condition).values("pk")
        held = ids.distinct().count()
        if held:
            kept[reason] = held
            left = left.exclude(pk__in=ids)
    said = {"days": days, "old": count, "go": count - sum(kept.values()), "kept": kept,
            "bytes": kind.freed(left) if kind.freed else None}
    return said, left


def _delete(kind: Kind, row: Any) -> int:
    try:
        kind.delete(row)
    except (ProtectedError, ValueError) as error:       # a row that came to need it meanwhile
        log.info("retention: %s %s stays: %s", kind.name, row.pk, error)
        return 0
    return 1

"""One run over a project: what is old and nothing keeps goes, a row at a time; the report says what and why the rest stays.

A kind of rows that may go after some days says which rows, what keeps one, how it is deleted. Extending it is a line in `KINDS`.

A row that is kept is kept for the first reason that holds, in this order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.apps import apps
from django.db.models import Model, ProtectedError, Q, QuerySet
from django.utils import timezone

from profiles.capture.services import capture_delete
from profiles.models import AdviceDecision, Capture, Keeping, Profile
from profiles.retention.services import freed_bytes, profiles_bytes
from profiles.upload.services import profile_delete
from tuner.cache.compiled import services as compiled
from tuner.models import BaselineChange, Build, Candidate, CompiledFile, Gate, KernelRun, Regression, TuneJob
from workers import jobs

KEEP_TAG = "keep"
NEWEST_BUILDS = 20          # of the project, whose runs a gate may still compare with
Rows = QuerySet[Any]


@dataclass(frozen=True)
class Kind:
    """`rows`: those of the current project that have ended; `when`: their date; `keeps`: (reason, condition) by need."""

    name: str
    title: str
    rows: Callable[[], Rows]
    keeps: Callable[[], Sequence[tuple[str, Q]]]
    delete: Callable[[Model], None]
    when: str = "created"
    size: Callable[[Rows], int] | None = None       # bytes in the object store; None: rows of the database alone
    freed: Callable[[Rows], int] | None = None      # those that go with the rows: bytes that others share stay


def _profiles(**of: Any) -> Callable[[], Rows]:
    return lambda: Profile.objects.filter(**of).order_by("created", "pk")


def _keeps_profile() -> Sequence[tuple[str, Q]]:
    pinned = BaselineChange.objects.exclude(build=None).values("build__name")
    decided = AdviceDecision.objects
    return (
        (f"has the tag “{KEEP_TAG}”", Q(tags__contains=[KEEP_TAG])),
        ("is shared by a link", Q(share_links__expires__gt=timezone.now())),
        ("has notes on its timeline", Q(timeline_notes__isnull=False)),
        ("runs of a suite were made of it", Q(kernel_runs__isnull=False)),
        ("a capture is compared with it", Q(pk__in=Capture.objects.exclude(baseline=None).values("baseline"))),
        ("advice was decided on it", Q(pk__in=decided.exclude(base_profile=None).values("base_profile"))
         | Q(pk__in=decided.exclude(later_profile=None).values("later_profile"))),
        ("its build is a baseline", Q(build__in=pinned)),
        ("its build has an open regression",
         Q(build__in=_open().values("build__name")) | Q(build__in=_open().exclude(good=None).values("good__name"))),
    )


def _open() -> QuerySet[Regression]:
    return Regression.objects.filter(state__in=Regression.WATCHED)


def _keeps_run() -> Sequence[tuple[str, Q]]:
    newest = Build.objects.order_by("-created", "-pk").values_list("pk", flat=True)[:NEWEST_BUILDS]
    return (
        ("its build is a baseline", Q(build__in=BaselineChange.objects.exclude(build=None).values("build"))),
        ("its build has an open regression",
         Q(build__in=_open().values("build")) | Q(build__in=_open().exclude(good=None).values("good"))),
        ("a gate is under way", Q(build__in=Gate.objects.filter(status__in=Gate.UNDER_WAY).values("build"))
         | Q(build__in=Gate.objects.filter(status__in=Gate.UNDER_WAY).exclude(against=None).values("against"))),
        (f"its build is among the newest {NEWEST_BUILDS}", Q(build__in=list(newest))),
    )


def _delete_profile(row: Model) -> None:
    profile_delete(row)         # type: ignore[arg-type]


def _delete_capture(row: Model) -> None:
    capture_delete(row)         # type: ignore[arg-type]


def _delete_compiled(row: Model) -> None:
    compiled.delete_file(row)         # type: ignore[arg-type]


def _delete_row(row: Model) -> None:
    row.delete()


ENDED_CAPTURES = (Capture.Status.DONE, Capture.Status.FAILED, Capture.Status.CANCELLED)
ENDED_CANDIDATES = (Candidate.Status.DONE, Candidate.Status.FAILED, Candidate.Status.CANCELLED)
ENDED_JOBS = ("done", "failed", "stopped")
KINDS = {kind.name: kind for kind in (
    Kind("failed", "failed uploads", _profiles(status="failed"), lambda: _keeps_profile()[:1], _delete_profile,
         size=profiles_bytes, freed=freed_bytes),
    Kind("traces", "traces", _profiles(status="ready", kind="trace"), _keeps_profile, _delete_profile,
         size=profiles_bytes, freed=freed_bytes),
    Kind("counters", "counter reports", _profiles(status="ready", kind="counters"), _keeps_profile, _delete_profile,
         size=profiles_bytes, freed=freed_bytes),
    Kind("summaries", "summaries", _profiles(status="ready", kind="summary"), _keeps_profile, _delete_profile,
         size=profiles_bytes, freed=freed_bytes),
    Kind("captures", "captures with their logs and files", lambda: Capture.objects.filter(status__in=ENDED_CAPTURES).order_by("pk"),
         lambda: (("runs of a suite were made of it", Q(suite_capture__isnull=False)),
                  ("its profile is there", Q(profile__isnull=False))),
         _delete_capture),
    Kind("jobs", "tune jobs with their trials", lambda: TuneJob.objects.filter(status__in=ENDED_JOBS).order_by("pk"),
         lambda: (("a configuration of it is served", Q(cached__isnull=False)),), _delete_row),
    Kind("candidates", "candidates", lambda: Candidate.objects.filter(status__in=ENDED_CANDIDATES).order_by("pk"),
         lambda: (("was accepted", Q(review=Candidate.Review.ACCEPTED)), ("a later attempt follows it", Q(children__isnull=False))),
         _delete_row),
    Kind("compiled", "compiled files that hosts share, by when they were used", lambda: CompiledFile.objects.order_by("used", "pk"),
         lambda: (), _delete_compiled, when="used", size=compiled.files_bytes, freed=compiled.freed_bytes),
    Kind("calls", "calls of agents", lambda: apps.get_model("webapp", "AgentCall").objects.order_by("pk"), lambda: (), _delete_row),
    Kind("runs", "runs of suites", lambda: KernelRun.objects.order_by("pk"), _keeps_run, _delete_row),
)}


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
    for name, entry in report.items():
        kind, entry["gone"] = KINDS[name], 0
        while rows := list(_look(kind, keeping.days[name])[1][:BATCH]):
            gone = sum(_delete(kind, row) for row in rows)
            entry["gone"] += gone
            Keeping._base_manager.filter(pk=keeping.pk).update(report=report, touched=timezone.now())
            jobs.publish("home", "retention", {"project": keeping.project_id})
            if not gone:                # others keep them: what protects them is not in the table
                entry["kept"]["something else needs it"] = entry["go"] - entry["gone"]
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
        log.info("retention of project %s: %s", project, {name: entry["gone"] for name, entry in report.items()})
        return report
    finally:
        rows.update(state=Keeping.State.REST)
        jobs.publish("home", "retention", {"project": project})


def ask(keeping: Keeping) -> bool:
    """Let a worker clean the project; False where a run waits or runs."""
    count = Keeping._base_manager.filter(pk=keeping.pk, state=Keeping.State.REST).update(
        state=Keeping.State.WAITING, touched=timezone.now())
    if count:
        jobs.enqueue_on_commit(jobs.SMALL, "keeping", project_key(keeping))
    return bool(count)


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
    left, counts_by_reason, count = old, {}, old.count()
    for reason, condition in kind.keeps():
        ids = left.order_by().filter(condition).values("pk")
        number = ids.distinct().count()
        if number:
            counts_by_reason[reason] = number
            left = left.exclude(pk__in=ids)
    report = {"days": days, "old": count, "go": count - sum(counts_by_reason.values()), "kept": counts_by_reason,
              "bytes": kind.freed(left) if kind.freed else None}
    return report, left


def _delete(kind: Kind, row: Any) -> int:
    try:
        kind.delete(row)
    except (ProtectedError, ValueError) as error:       # a row that came to need it meanwhile
        log.info("retention: %s %s stays: %s", kind.name, row.pk, error)
        return 0
    return 1

"""Kinds of rows that may go after some days: which rows, what keeps one, how it is deleted. Extending it is a line in `KINDS`.

A row that is kept is kept for the first reason that holds, in this order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.db.models import Model, Q, QuerySet
from django.utils import timezone

from profiles.capture.services import capture_delete
from profiles.models import AdviceDecision, Capture, Profile
from profiles.retention.services import freed_bytes, profiles_bytes
from profiles.upload.services import profile_delete
from tuner.cache.compiled import services as compiled
from tuner.models import BaselineChange, Build, Candidate, CompiledFile, Gate, KernelRun, Regression, TuneJob

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

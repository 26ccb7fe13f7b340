"""Content of the home and workers pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Q
from django.urls import reverse
from rq import Queue

from profiles.families import home_selectors
from profiles.families import selectors as family_selectors
from profiles.families.home_selectors import Fix, Pair
from profiles.families.selectors import SCOPES
from profiles.library import selectors as lists
from profiles.models import Capture, CeilingRun, Finding, Profile
from tuner.gate.verdicts import page_selectors
from tuner.models import Candidate, Suite, TuneJob
from workers import jobs

WORTH_FIXING, JOBS_TO_FIX, GOT_SLOWER, UNDER_WAY = 8, 3, 5, 20
_SERVES = {
    "ingest": "reads uploaded files",
    "small": "reads small files and does short tasks while others take long",
    "compile": "compiles Triton variants ahead of the GPU",
    "gpu": "captures and tunes on its own GPU",
    "replay": "tunes over recorded landscapes",
    "messages": "sends webhooks and mails",
}


@dataclass(frozen=True)
class JobFix:
    """Time that a profile loses outside its kernels; unknown is None."""

    profile: Profile
    title: str
    of_ns: float | None
    worth_ns: float
    severity: str


def jobs_to_fix(filters: Mapping[str, str] | None = None) -> list[JobFix]:
    """Return findings about no single kernel by winnable time, one per profile; bytes uploaded twice count once."""
    traces = lists.fleet(filters or {}).order_by().values("pk")
    ranked = Finding.objects.filter(worth_ns__gt=0, kernel=None, profile__in=traces)
    fixes: dict[int, JobFix] = {}
    for each in ranked.select_related("profile").order_by("-worth_ns", "id")[:200]:
        fixes.setdefault(
            each.profile_id, JobFix(each.profile, each.title, each.profile.wall_ns, each.worth_ns or 0.0, each.severity)
        )
    return list(fixes.values())[:JOBS_TO_FIX]


def worth_fixing(limit: int = WORTH_FIXING, filters: Mapping[str, str] | None = None) -> list[Fix]:
    """Return kernel families by what could be won back."""
    return home_selectors.worth_fixing(limit, filters)


def got_slower(limit: int = GOT_SLOWER, filters: Mapping[str, str] | None = None) -> list[Pair]:
    """Return kernels that the newest build of each model and GPU slowed; empty without two builds."""
    return home_selectors.got_slower(limit, filters)


def scope_of(query: Mapping[str, str]) -> dict[str, str]:
    """Return what of an address narrows the lists of the home page."""
    return {name: query.get(name, "").strip() for name in SCOPES if query.get(name, "").strip()}


def guard_summary() -> dict[str, Any]:
    """Return what gates and series found slower and is open, and whether anything is watched."""
    regressions, total = page_selectors.watched_regressions(GOT_SLOWER)
    return {"regressions": regressions, "regressions_total": total, "suites": Suite.objects.count()}


@dataclass(frozen=True)
class ActiveJob:
    """A job that waits or runs."""

    kind: str  # "profile" | "tune" | "capture" | "candidate" | "ceilings" | "gate" | "suite": topic and page
    row: Any
    waiting: bool
    progress: dict[str, Any]

    @property
    def topic(self) -> str:
        return f"suite.{self.row.suite_id}" if self.kind == "suite" else f"{self.kind}.{self.row.pk}"

    @property
    def title(self) -> str:
        return str(self.row)

    @property
    def url(self) -> str:
        if self.kind == "suite" and self.row.reason == "revalidate":
            return reverse("cache-revalidation", args=[self.row.pk])
        if self.kind == "suite":
            return reverse("suite", args=[self.row.suite_id])
        return reverse("ceiling-run" if self.kind == "ceilings" else self.kind, args=[self.row.pk])


def in_progress() -> list[ActiveJob]:
    """Return ingests, tune jobs, captures, candidates, gates and suites under way, running first."""
    uploads = Profile.objects.filter(status__in=[Profile.Status.UPLOADED, Profile.Status.INGESTING])
    tunes = TuneJob.objects.filter(status__in=[TuneJob.Status.QUEUED, TuneJob.Status.RUNNING]).annotate(
        measured=Count("trials", filter=Q(trials__outcome="measured")), asked=Count("trials")
    )
    captures = Capture.objects.filter(status__in=[Capture.Status.QUEUED, Capture.Status.RUNNING]).select_related(
        "target"
    )
    busy = [
        ActiveJob("profile", row, row.status == Profile.Status.UPLOADED, row.summary.get("progress", {}))
        for row in uploads[:UNDER_WAY]
    ]
    busy += [ActiveJob("tune", row, row.status == TuneJob.Status.QUEUED, {}) for row in tunes[:UNDER_WAY]]
    busy += [ActiveJob("capture", row, row.status == Capture.Status.QUEUED, {}) for row in captures[:UNDER_WAY]]
    candidates = Candidate.objects.defer("text", "diff", "answer").filter(
        status__in=[Candidate.Status.WAITING, Candidate.Status.RUNNING])
    busy += [ActiveJob("candidate", row, row.status == Candidate.Status.WAITING, {}) for row in candidates[:UNDER_WAY]]
    ceilings = CeilingRun.objects.filter(status__in=[CeilingRun.Status.QUEUED, CeilingRun.Status.RUNNING])
    busy += [ActiveJob("ceilings", row, row.status == CeilingRun.Status.QUEUED, {}) for row in ceilings[:UNDER_WAY]]
    busy += [ActiveJob("gate", each.row, not each.done, {"job": each.job, "done": each.done, "wanted": each.wanted})
             for each in page_selectors.gates_under_way(UNDER_WAY)]
    busy += [ActiveJob("suite", each.row, not each.done, {"job": each.job, "done": each.done, "wanted": each.wanted})
             for each in page_selectors.jobs_under_way(UNDER_WAY)]
    return sorted(busy, key=lambda each: each.waiting)[:UNDER_WAY]


def totals(filters: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return counts of all profiles, and of the traces that `filters` choose: how many, of how many builds, their kernel time.

    Kernel time is that of the page of all kernels: of traces, not of profilers' replays, and of the same bytes once.
    """
    counts = Profile.objects.aggregate(
        profiles=Count("pk"),
        ready=Count("pk", filter=Q(status=Profile.Status.READY)),
        failed=Count("pk", filter=Q(status=Profile.Status.FAILED)),
    )
    scope = lists.fleet_scope(filters or {})
    return {**counts, "traces": scope["profiles"], "builds": scope["builds"],
            "gpu_time_ns": family_selectors.kernel_time_ns(filters or {})}


def queues() -> list[dict[str, Any]]:
    """Return every queue: waiting entries and what serves it."""
    alive = jobs.workers()
    return [
        {
            "name": name,
            "waiting": Queue(name, connection=jobs.connection()).count,
            "does": _SERVES.get(name, ""),
            "workers": sum(name in worker.get("queues", ()) for worker in alive),
        }
        for name in jobs.QUEUES
    ]


def missing_workers(alive: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return needs that no worker serves and how to change that; compile is optional."""
    served = {queue for worker in alive for queue in worker.get("queues", ())}
    wants = {
        "ingest": "Uploaded files wait to be read.",
        "replay": "Tune jobs on recorded landscapes wait.",
        "messages": "Nobody is told of verdicts by webhook or mail.",
        "gpu": "Captures and tuning on a real GPU need one, on a machine with an NVIDIA GPU that reaches this database "
        "and Redis.",
    }
    return [
        {"queue": queue, "what": what, "start": f"manage.py worker {queue}"}
        for queue, what in wants.items()
        if queue not in served
    ]

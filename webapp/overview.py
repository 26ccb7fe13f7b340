"""What the home page and the workers page say: what is worth fixing, what is under way, who can measure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.core.cache import cache
from django.db.models import Count, Q, Sum
from django.urls import reverse
from rq import Queue

from profiles.analysis.names import operator_of
from profiles.models import Capture, Finding, KernelStat, Profile
from profiles.selectors.compare import comparison
from profiles.selectors.lists import build_list, kernel_families
from profiles.trace import TraceError
from tuner.models import TuneJob
from workers import jobs

WORTH_FIXING = 8
KEEP_S = 24 * 3600
_SERVES = {
    "ingest": "reads uploaded files",
    "compile": "compiles Triton variants ahead of the GPU",
    "gpu": "captures and tunes on its own GPU",
    "replay": "tunes over recorded landscapes",
}


@dataclass(frozen=True)
class Fix:
    """One line of "worth fixing". Unknown is None."""

    title: str
    why: str
    of_ns: float | None  # what worth_ns is a part of: the kernel's time, else the wall time of the profile
    worth_ns: float | None
    kernel: KernelStat | None
    profile: Profile
    operator: str  # "" where no operator of the tuner stands for it
    severity: str = ""
    is_kernel: bool = True


def worth_fixing(limit: int = WORTH_FIXING) -> list[Fix]:
    """Findings by the time that could be won back, each rule once per kernel family; then families by GPU time."""
    fixes, seen = [], set()
    ranked = Finding.objects.filter(worth_ns__gt=0, profile__status=Profile.Status.READY).select_related(
        "profile", "kernel"
    )
    for found in ranked.order_by("-worth_ns", "id")[:200]:
        key = found.kernel.short_name if found.kernel else (found.profile_id, found.rule)
        if key in seen or len(fixes) == limit:
            continue
        seen.add(key)
        fixes.append(
            Fix(
                title=found.kernel.short_name if found.kernel else found.profile.name,
                why=found.title.removeprefix(f"{found.kernel.short_name}: ") if found.kernel else found.title,
                of_ns=found.kernel.total_ns if found.kernel else found.profile.wall_ns,
                worth_ns=found.worth_ns,
                kernel=found.kernel,
                profile=found.profile,
                operator=operator_of(found.kernel.name) if found.kernel else "",
                severity=found.severity,
                is_kernel=found.kernel is not None,
            )
        )
    families = kernel_families({}) if len(fixes) < limit else []
    for family in [each for each in families if each.name not in seen][: limit - len(fixes)]:
        kernel = KernelStat.objects.select_related("profile").get(pk=family.kernel_id)
        fixes.append(
            Fix(
                title=family.name,
                of_ns=family.total_ns,
                worth_ns=None,
                kernel=kernel,
                profile=kernel.profile,
                why=f"{family.share_pct:.0f} % of the kernel time of all traces in {family.launches:,} launches",
                operator=operator_of(kernel.name),
            )
        )
    return fixes


def got_slower(limit: int = 5) -> dict[str, Any] | None:
    """Kernels that the newest build made slower than the build before it; None where no two builds can be compared.

    Reading the launches of two builds takes longer than a page may, and a profile never changes: the answer is kept.
    """
    builds = [build for build in build_list() if build["ready"]]
    if len(builds) < 2:
        return None
    new = builds[0]
    old = next((each for each in builds[1:] if any(each[kind] and new[kind] for kind in ("traces", "counters"))), None)
    if old is None:
        return None
    query = {"build_a": old["build"], "build_b": new["build"]}
    key = f"got-slower:{json.dumps(query)}:{old['ready']}:{old['last']}:{new['ready']}:{new['last']}".encode()
    return cache.get_or_set(hashlib.sha256(key).hexdigest(), lambda: _slower(query, limit), KEEP_S)


def _slower(query: dict[str, str], limit: int) -> dict[str, Any]:
    found = {"old": query["build_a"], "new": query["build_b"], "url": f"{reverse('compare')}?{urlencode(query)}"}
    try:
        compared = comparison(query)
    except TraceError as error:
        return {**found, "rows": [], "error": str(error)}
    rows = [row for row in compared.result.rows if row.verdict == "slower"]
    return {**found, "rows": rows[:limit], "more": len(rows) - limit, "verdicts": compared.result.verdicts()}


@dataclass(frozen=True)
class Busy:
    """One job that waits or runs."""

    kind: str  # "profile" | "tune" | "capture": topic and page
    row: Any
    waiting: bool
    progress: dict[str, Any]

    @property
    def topic(self) -> str:
        return f"{self.kind}.{self.row.pk}"


def in_progress(limit: int = 20) -> list[Busy]:
    """Profiles being read, tune jobs and captures, running before waiting."""
    uploads = Profile.objects.filter(status__in=[Profile.Status.UPLOADED, Profile.Status.INGESTING])
    tunes = TuneJob.objects.filter(status__in=[TuneJob.Status.QUEUED, TuneJob.Status.RUNNING]).annotate(
        measured=Count("trials", filter=Q(trials__outcome="measured")), asked=Count("trials")
    )
    captures = Capture.objects.filter(status__in=[Capture.Status.QUEUED, Capture.Status.RUNNING]).select_related(
        "target"
    )
    busy = [
        Busy("profile", row, row.status == Profile.Status.UPLOADED, row.summary.get("progress", {}))
        for row in uploads[:limit]
    ]
    busy += [Busy("tune", row, row.status == TuneJob.Status.QUEUED, {}) for row in tunes[:limit]]
    busy += [Busy("capture", row, row.status == Capture.Status.QUEUED, {}) for row in captures[:limit]]
    return sorted(busy, key=lambda each: each.waiting)[:limit]


def totals() -> dict[str, Any]:
    """How much there is. Kernel time is of traces: what jobs ran, not what a profiler replayed."""
    return Profile.objects.aggregate(
        profiles=Count("pk"),
        ready=Count("pk", filter=Q(status=Profile.Status.READY)),
        failed=Count("pk", filter=Q(status=Profile.Status.FAILED)),
        builds=Count("build", distinct=True, filter=~Q(build="")),
        gpu_time_ns=Sum("gpu_time_ns", filter=Q(status=Profile.Status.READY, kind=Profile.Kind.TRACE)),
        idle_wall_ns=Sum("wall_ns", filter=Q(busy_ns__isnull=False)),
        idle_busy_ns=Sum("busy_ns"),
    )


def queues() -> list[dict[str, Any]]:
    """Every queue: entries that wait, what serves it."""
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
    """What nobody can do at the moment, and how to change that. One worker per need is enough; compile is optional."""
    served = {queue for worker in alive for queue in worker.get("queues", ())}
    wants = {
        "ingest": "Uploaded files wait to be read.",
        "replay": "Tune jobs on recorded landscapes wait.",
        "gpu": "Captures and tuning on a real GPU need one, on a machine with an NVIDIA GPU that reaches this database "
        "and Redis.",
    }
    return [
        {"queue": queue, "what": what, "start": f"manage.py worker {queue}"}
        for queue, what in wants.items()
        if queue not in served
    ]

"""Environments that GPUs were seen with, what each made doubtful in the cache, and what measuring that again would take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Max, Sum
from django.utils import timezone

from tuner import cache
from tuner.configs import revalidation_services
from tuner.configs.services import shape_key
from tuner.jobs import devices
from tuner.models import CachedConfig, GpuEnvironment, RevalidationPolicy, TuneJob

MOST_ENVIRONMENTS = 200
MOST_SHOWN = 8
PURPOSE = "revalidate"


@dataclass(frozen=True)
class Seen:
    environment: GpuEnvironment
    verified: int                       # cached winners that were measured under it and stand
    doubtful: int                       # unverified now
    newest: bool                        # of its GPU model


def policy() -> RevalidationPolicy:
    """The row, or what holds without one."""
    return RevalidationPolicy.objects.select_related("by").first() or RevalidationPolicy()


def seen() -> list[Seen]:
    """Newest first."""
    rows = list(GpuEnvironment.objects.order_by("-last_seen", "-id")[:MOST_ENVIRONMENTS])
    counts = {(row["gpu"], row["toolkit"], row["driver"], row["state"]): row["n"] for row in CachedConfig.objects.filter(
        recorded="").order_by().values("gpu", "toolkit", "driver", "state").annotate(n=Count("id"))}
    newest = {row["gpu"]: row["at"] for row in GpuEnvironment.objects.order_by().values("gpu").annotate(at=Max("first_seen"))}
    return [Seen(row, counts.get((row.gpu, row.toolkit, row.driver, cache.State.VERIFIED), 0),
                 counts.get((row.gpu, row.toolkit, row.driver, cache.State.UNVERIFIED), 0), newest[row.gpu] == row.first_seen)
            for row in rows]


def doubtful() -> list[CachedConfig]:
    """Winners of tune jobs that something newer made unverified and that a job can measure again, the hottest first."""
    return sorted((row for row in revalidation_services.unverified() if row.origin == cache.Origin.TUNE),
                  key=revalidation_services.worth, reverse=True)


def within(rows: Sequence[CachedConfig], most_entries: int, most_seconds: float) -> list[CachedConfig]:
    """The hottest that fit both bounds."""
    chosen: list[CachedConfig] = []
    seconds = 0.0
    for row in rows[:most_entries]:
        seconds += revalidation_services.expected_seconds([row])
        if seconds > most_seconds:
            break
        chosen.append(row)
    return chosen


def not_asked(rows: Sequence[CachedConfig]) -> list[CachedConfig]:
    """Those that no job measured, or was to measure, since they became doubtful: a failed job is not repeated by itself."""
    jobs = TuneJob.objects.filter(purpose=PURPOSE, created__gte=min((row.updated for row in rows), default=timezone.now()))
    asked: dict[tuple[str, ...], datetime] = {}
    for operator, dtype, shape, device, created in jobs.order_by("created").values_list("operator", "dtype", "shape", "device",
                                                                                       "created"):
        asked[operator, dtype, shape_key(shape), device] = created
    return [row for row in rows if not (at := asked.get((row.operator, row.dtype, shape_key(row.shape), device_of(row))))
            or at < row.updated]


def device_of(row: CachedConfig) -> str:
    return f"{devices.GPU}:{row.gpu}" if row.gpu else devices.GPU


def spent(gpu: str) -> tuple[int, float]:
    """(jobs, GPU-seconds expected of them) of re-validation since this GPU model was last seen with something new."""
    since = GpuEnvironment.objects.filter(gpu=gpu).aggregate(at=Max("first_seen"))["at"]
    made = TuneJob.objects.filter(purpose=PURPOSE, device=f"{devices.GPU}:{gpu}" if gpu else devices.GPU)
    told = (made.filter(created__gte=since) if since else made).aggregate(n=Count("id"), trials=Sum("budget_trials"))
    return told["n"], revalidation_services.SECONDS_PER_CONFIG * (told["trials"] or 0)


def overview() -> dict[str, Any]:
    """For the page, the API and the command."""
    now, rows = policy(), doubtful()
    chosen = within(rows, now.most_entries, now.most_seconds)
    return {
        "policy": now, "seen": seen(), "doubtful": rows, "chosen": chosen, "shown": [
            {"row": row, "ns": worth[0], "gain_pct": 100 * worth[1]} for row in rows[:MOST_SHOWN]
            for worth in [revalidation_services.worth(row)]],
        "seconds": revalidation_services.expected_seconds(chosen),
        "waiting": TuneJob.objects.filter(purpose=PURPOSE, status__in=revalidation_services.WAITING).count()}


def overview_json(found: dict[str, Any]) -> dict[str, Any]:
    now: RevalidationPolicy = found["policy"]
    return {
        "seen": [{"gpu": one.environment.gpu, "toolkit": one.environment.toolkit, "driver": one.environment.driver,
                  "first_seen": one.environment.first_seen, "last_seen": one.environment.last_seen, "newest": one.newest,
                  "verified": one.verified, "unverified": one.doubtful} for one in found["seen"]],
        "revalidation": {"by_itself": now.by_itself, "most_entries": now.most_entries, "most_seconds": now.most_seconds,
                         "unverified": len(found["doubtful"]), "next": [row.pk for row in found["chosen"]],
                         "expected_gpu_seconds": found["seconds"], "jobs_waiting": found["waiting"]}}

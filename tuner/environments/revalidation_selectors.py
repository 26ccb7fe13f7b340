"""Environments that GPUs were seen with, what each made doubtful in the cache, and what measuring that again would take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Max
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from tuner import cache
from tuner.configs import revalidation_job_selectors as job_selectors
from tuner.configs import revalidation_selectors as winners
from tuner.configs.selectors import quarantined
from tuner.jobs import devices
from tuner.models import CachedConfig, GpuEnvironment, RevalidationPolicy

MOST_ENVIRONMENTS = 200
MOST_SHOWN, MOST_JOBS = 8, 5
LONGEST_JOB = timedelta(days=7)         # from being asked for to being decided


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
    """Winners that something newer made unverified and that can be measured again, the hottest first."""
    return winners.hottest([row for row in winners.unverified() if row.origin == cache.Origin.TUNE])


def within(rows: Sequence[CachedConfig], most_entries: int, most_seconds: float) -> list[CachedConfig]:
    """The hottest that fit both bounds. One more costs what the whole job then takes longer."""
    chosen: list[CachedConfig] = []
    counts: dict[tuple[str, str], list[int]] = {}
    banned = quarantined()
    for row in rows[:most_entries]:
        mine = counts.setdefault((row.gpu, row.policy), [])
        mine.append(len(winners.sides(row, banned)))
        if sum(winners.expected_of(each) for each in counts.values()) > most_seconds:
            break
        chosen.append(row)
    return chosen


def not_asked(rows: Sequence[CachedConfig]) -> list[CachedConfig]:
    """Those that no job measured, or was to measure, since they became doubtful: what failed is not repeated by itself.

    What a re-validation wrote on a host that is behind is doubtful at once, and was measured there a moment before.
    """
    since = min((row.updated for row in rows), default=timezone.now()) - LONGEST_JOB
    asked: dict[int, datetime] = {}
    for job in winners.jobs().filter(created__gte=since).order_by("created"):
        written = {each.get("written") for each in (job.about.get("found") or {}).values()}
        ended = parse_datetime(job.about.get("decided", "")) or job.created
        asked |= dict.fromkeys(winners.asked(job).values(), job.created) | dict.fromkeys(written - {None}, ended)
    return [row for row in rows if not (at := asked.get(row.pk)) or at < row.updated]


def spent(gpu: str) -> tuple[int, float]:
    """(entries, GPU-seconds expected of them) that were measured again since this GPU model was last seen with something new."""
    since = GpuEnvironment.objects.filter(gpu=gpu).aggregate(at=Max("first_seen"))["at"]
    made = winners.jobs().filter(device=f"{devices.GPU}:{gpu}" if gpu else devices.GPU)
    found = list((made.filter(created__gte=since) if since else made).values_list("about", flat=True))
    first = [about for about in found if not about.get("first")]                 # the others measure the same entries once more
    return sum(len(about.get("entries", {})) for about in first), sum(about.get("expected_s", 0.0) for about in found)


def overview() -> dict[str, Any]:
    """For the page, the API and the command."""
    now, rows, busy = policy(), doubtful(), winners.being_measured()
    chosen = within([row for row in rows if row.pk not in busy], now.most_entries, now.most_seconds)
    shown = rows[:MOST_SHOWN]
    worth = winners.worths(shown)
    return {
        "winners": winners.any_winner(), "policy": now, "seen": seen(), "doubtful": rows, "chosen": chosen, "shown": [
            {"row": row, "ns": worth[row.pk][0], "gain_pct": 100 * worth[row.pk][1], "job": busy.get(row.pk)} for row in shown],
        "seconds": winners.expected_seconds(chosen), "waiting": winners.under_way().count(),
        "busy": sum(row.pk in busy for row in rows),
        "jobs": job_selectors.lines(winners.recent(MOST_JOBS))}


def overview_json(found: dict[str, Any]) -> dict[str, Any]:
    now: RevalidationPolicy = found["policy"]
    return {
        "seen": [{"gpu": one.environment.gpu, "toolkit": one.environment.toolkit, "driver": one.environment.driver,
                  "first_seen": one.environment.first_seen, "last_seen": one.environment.last_seen, "newest": one.newest,
                  "verified": one.verified, "unverified": one.doubtful} for one in found["seen"]],
        "revalidation": {"by_itself": now.by_itself, "most_entries": now.most_entries, "most_seconds": now.most_seconds,
                         "unverified": len(found["doubtful"]), "next": [row.pk for row in found["chosen"]],
                         "expected_gpu_seconds": found["seconds"], "jobs_waiting": found["waiting"]}}

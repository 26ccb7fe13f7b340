"""Environments that GPUs were seen with, the entries each made doubtful, and measuring the hottest of these again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypedDict

from django.db import transaction
from django.db.models import Count, Max
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from profiles.base.numbers import finite_number
from profiles.base.refused import Refused
from tuner import devices
from tuner.cache import rules
from tuner.cache.entries.bans import Bans, read_bans
from tuner.cache.entries.services import initial_state, state_set, why_older
from tuner.cache.rules import State
from tuner.models import CachedConfig, GpuEnvironment, RevalidationPolicy, SuiteJob
from tuner.revalidation import selectors, services
from workers.scope import EVERYTHING, within

# Forget an environment that should never have been taken for one of a GPU model's: a trial of a toolkit, a host that is gone.


@transaction.atomic
def environment_forget(environment: GpuEnvironment, by: Any) -> int:
    """Delete it; entries of all projects that it alone made unverified are verified again. Returns how many.

    An entry stays unverified, and says so, where another environment is newer too or its kernel has another source by now. A job
    that runs with this toolkit and driver makes the environment known again.
    """
    who = by.get_username() if by else "the command line"
    gone, back = str(environment), 0
    environment.delete()
    with within(EVERYTHING):
        doubtful = CachedConfig.objects.filter(gpu=environment.gpu, recorded="", state=State.UNVERIFIED)
        for row in doubtful.select_for_update(of=("self",)):
            why = why_older(row.toolkit, row.driver, environment.toolkit, environment.driver)
            if not why or row.state_why != why[:300]:
                continue
            state, left = initial_state(row.gpu, row.toolkit, row.driver)
            if state == State.VERIFIED and (left := _why_other_source(row)):
                state = State.UNVERIFIED
            state_set(row, state, left or f"{gone} was forgotten by {who}")
            back += state == State.VERIFIED
    return back


def _why_other_source(row: CachedConfig) -> str:
    """Return why an entry's kernel is another by now; "" where it is not, or its source is unknown."""
    newest = CachedConfig.objects.filter(project=row.project_id, operator=row.operator, recorded="", origin=row.origin).exclude(
        source_hash="").order_by("-pk").values_list("source_hash", flat=True).first()
    if not row.source_hash or not newest or newest == row.source_hash:
        return ""
    return f"the kernel's source changed: {row.source_hash[:12]} then, {newest[:12]} now"


MOST_ENVIRONMENTS = 200
MOST_SHOWN, MOST_JOBS = 8, 5
LONGEST_JOB = timedelta(days=7)         # from being asked for to being decided


@dataclass(frozen=True)
class SeenEnvironment:
    environment: GpuEnvironment
    verified: int                       # cached winners that were measured under it and stand
    doubtful: int                       # unverified now
    newest: bool                        # of its GPU model


def current_policy() -> RevalidationPolicy:
    """Return the policy row, or what holds without one."""
    return RevalidationPolicy.objects.select_related("by").first() or RevalidationPolicy()


def seen_environments() -> list[SeenEnvironment]:
    """Return environments that GPUs were seen with, newest first."""
    rows = list(GpuEnvironment.objects.order_by("-last_seen", "-id")[:MOST_ENVIRONMENTS])
    counts = {(row["gpu"], row["toolkit"], row["driver"], row["state"]): row["n"] for row in CachedConfig.objects.filter(
        recorded="").order_by().values("gpu", "toolkit", "driver", "state").annotate(n=Count("id"))}
    newest = {row["gpu"]: row["at"] for row in GpuEnvironment.objects.order_by().values("gpu").annotate(at=Max("first_seen"))}
    return [SeenEnvironment(row, counts.get((row.gpu, row.toolkit, row.driver, rules.State.VERIFIED), 0),
                 counts.get((row.gpu, row.toolkit, row.driver, rules.State.UNVERIFIED), 0), newest[row.gpu] == row.first_seen)
            for row in rows]


def doubtful_entries() -> list[CachedConfig]:
    """Return winners that something newer made unverified and that can be measured again, the hottest first."""
    return selectors.hottest_first([row for row in selectors.unverified_entries() if row.origin == rules.Origin.TUNE])


def within_bounds(rows: Sequence[CachedConfig], most_entries: int, most_seconds: float, bans: Bans | None = None,
                  ) -> list[CachedConfig]:
    """Return the hottest entries that fit both bounds. One more costs what the whole job then takes longer."""
    chosen: list[CachedConfig] = []
    counts: dict[tuple[str, str], list[int]] = {}
    bans = read_bans() if bans is None else bans
    for row in rows[:most_entries]:
        mine = counts.setdefault((row.gpu, row.policy), [])
        mine.append(len(selectors.entry_sides(row, bans)))
        if sum(selectors.expected_job_seconds(numbers) for numbers in counts.values()) > most_seconds:
            break
        chosen.append(row)
    return chosen


def never_asked(rows: Sequence[CachedConfig]) -> list[CachedConfig]:
    """Return those that no job measured, or was to measure, since they became doubtful: failures are not repeated.

    What a re-validation wrote on a host that is behind is doubtful at once, and was measured there a moment before.
    """
    since = min((row.updated for row in rows), default=timezone.now()) - LONGEST_JOB
    times_by_pk: dict[int, datetime] = {}
    for job in selectors.revalidation_jobs().filter(created__gte=since).order_by("created"):
        written = {finding.get("written") for finding in (job.about.get("found") or {}).values()}
        ended = parse_datetime(job.about.get("decided", "")) or job.created
        times_by_pk |= dict.fromkeys(selectors.entry_ids(job).values(), job.created) | dict.fromkeys(written - {None}, ended)
    return [row for row in rows if not (time := times_by_pk.get(row.pk)) or time < row.updated]


def spent_budget(gpu: str) -> tuple[int, float]:
    """Return (entries, expected GPU-seconds) measured again since this GPU model was last seen with something new."""
    since = GpuEnvironment.objects.filter(gpu=gpu).aggregate(at=Max("first_seen"))["at"]
    jobs = selectors.revalidation_jobs().filter(device=f"{devices.GPU}:{gpu}" if gpu else devices.GPU)
    job_facts = list((jobs.filter(created__gte=since) if since else jobs).values_list("about", flat=True))
    first = [about for about in job_facts if not about.get("first")]                 # the others measure the same entries once more
    return sum(len(about.get("entries", {})) for about in first), sum(about.get("expected_s", 0.0) for about in job_facts)


def overview() -> dict[str, Any]:
    """Return what page, API and command show."""
    now, rows, busy, bans = current_policy(), doubtful_entries(), selectors.being_measured(), read_bans()
    chosen = within_bounds([row for row in rows if row.pk not in busy], now.most_entries, now.most_seconds, bans)
    shown = rows[:MOST_SHOWN]
    worth = selectors.entry_stakes(shown)
    return {
        "winners": selectors.has_winner(), "policy": now, "seen": seen_environments(), "doubtful": rows, "chosen": chosen,
        "shown": [
            {"row": row, "ns": worth[row.pk][0], "gain_pct": 100 * worth[row.pk][1], "job": busy.get(row.pk)} for row in shown],
        "seconds": selectors.expected_seconds(chosen, bans), "waiting": selectors.jobs_under_way().count(),
        "busy": sum(row.pk in busy for row in rows),
        "jobs": selectors.job_lines(selectors.recent_jobs(MOST_JOBS))}


class SeenJson(TypedDict):
    """A GPU model with a toolkit and driver, and entries of the cache that are verified or in doubt there."""

    id: int
    gpu: str
    toolkit: str
    driver: str
    first_seen: datetime
    last_seen: datetime
    newest: bool
    verified: int
    unverified: int


class PolicyJson(TypedDict):
    """Whether doubtful winners are measured again by themselves, and which are next."""

    by_itself: bool
    most_entries: int
    most_seconds: float
    unverified: int
    next: list[int]
    expected_gpu_seconds: float
    jobs_waiting: int


class OverviewJson(TypedDict):
    seen: list[SeenJson]
    revalidation: PolicyJson


def overview_json(found: dict[str, Any]) -> OverviewJson:
    """Return the JSON of `overview`."""
    now: RevalidationPolicy = found["policy"]
    return {
        "seen": [{"id": row.environment.pk, "gpu": row.environment.gpu, "toolkit": row.environment.toolkit,
                  "driver": row.environment.driver, "first_seen": row.environment.first_seen,
                  "last_seen": row.environment.last_seen, "newest": row.newest,
                  "verified": row.verified, "unverified": row.doubtful} for row in found["seen"]],
        "revalidation": {"by_itself": now.by_itself, "most_entries": now.most_entries, "most_seconds": now.most_seconds,
                         "unverified": len(found["doubtful"]), "next": [row.pk for row in found["chosen"]],
                         "expected_gpu_seconds": found["seconds"], "jobs_waiting": found["waiting"]}}


log = logging.getLogger(__name__)
MOST_ENTRIES, MOST_SECONDS = 200, 86_400.0


def set_policy(*, by: Any, by_itself: bool, most_entries: Any = None, most_seconds: Any = None) -> RevalidationPolicy:
    """Change the policy. Raises Refused. What is switched on takes hold at once."""
    now = current_policy()
    entries = now.most_entries if most_entries is None else most_entries
    seconds = now.most_seconds if most_seconds is None else most_seconds
    problems = {}
    if not isinstance(by_itself, bool):
        problems["by_itself"] = "true or false"
    if isinstance(entries, bool) or not isinstance(entries, int) or not 1 <= entries <= MOST_ENTRIES:
        problems["most_entries"] = f"a whole number from 1 to {MOST_ENTRIES}"
    if not 1 <= (finite_number(seconds) or 0) <= MOST_SECONDS:
        problems["most_seconds"] = f"GPU-seconds, from 1 to {MOST_SECONDS:,.0f}"
    if problems:
        raise Refused(problems)
    with transaction.atomic():
        now.by_itself, now.most_entries, now.most_seconds, now.by = by_itself, entries, float(seconds), by
        now.save()
        transaction.on_commit(wake_revalidations, robust=True)
    return now


def wake_revalidations() -> list[int]:
    """Queue the hottest doubtful winners that no job was to measure, where the switch is on; return job ids.

    What was measured and not decided on, because a worker died in between, is decided first, whatever the switch says.
    """
    services.decide_measured_jobs()
    policy = current_policy()
    if not policy.by_itself:
        return []
    by_gpu: dict[str, list[CachedConfig]] = {}
    rows = never_asked(doubtful_entries())
    for row in rows:
        by_gpu.setdefault(row.gpu, []).append(row)
    chosen: list[CachedConfig] = []
    for gpu, mine in by_gpu.items():
        entries, seconds = spent_budget(gpu)
        chosen += within_bounds(mine, max(0, policy.most_entries - entries), policy.most_seconds - seconds)
    jobs = services.revalidate(chosen, policy.by)
    if jobs:
        log.info("a new environment: %d of %d doubtful winners are measured again", sum(
            len(job.about["entries"]) for job in jobs), len(rows))
    return [job.pk for job in jobs]


def revalidate_now(owner: Any) -> list[SuiteJob]:
    """Queue the hottest doubtful winners within the bounds; return the jobs."""
    policy = current_policy()
    return services.revalidate(within_bounds(doubtful_entries(), policy.most_entries, policy.most_seconds), owner)

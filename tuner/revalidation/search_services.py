"""Searching the hottest configurations again under a new toolkit: one tune job at a time for each GPU model, within bounds.

Measuring a winner again says whether it still wins among what was near it; a new compiler may make another one the best. The jobs
of one GPU model and environment are a group, whose source names the environment: {"environment": id, "gpu": …, "toolkit": …}.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypedDict

from django.db import transaction
from django.utils import timezone

from profiles.base.numbers import finite_number
from profiles.base.refused import Refused
from tuner import devices
from tuner.cache import rules
from tuner.jobs.create_services import tune_create
from tuner.models import CachedConfig, GpuEnvironment, RevalidationPolicy, TuneGroup, TuneJob
from tuner.revalidation import selectors
from tuner.revalidation.policy_services import current_policy
from tuner.tuning.search.strategies import DEFAULT
from tuner.tuning.trial import config_key

log = logging.getLogger(__name__)
MOST_SEARCHES, MOST_SECONDS = 50, 7200.0
MOST_SHOWN = 8
LIVE = (TuneJob.Status.QUEUED, TuneJob.Status.RUNNING, TuneJob.Status.PAUSED)


@dataclass(frozen=True)
class DueSearch:
    """A configuration that was found under another toolkit than the newest of its GPU model."""

    entry: CachedConfig
    environment: GpuEnvironment
    ns: float                           # of the fleet's time, at stake
    gain_pct: float                     # over the default, as it was measured


def newest_environments() -> dict[str, GpuEnvironment]:
    """Return by GPU model the environment that was seen first most lately."""
    return {row.gpu: row for row in GpuEnvironment.objects.order_by("first_seen", "id")}


def due_searches(newest: Mapping[str, GpuEnvironment] | None = None) -> list[DueSearch]:
    """Return what a search under the newest toolkit has not looked at, most at stake first.

    A key whose whole space was searched since, by whomever, whatever became of it, is not due: what fails is not tried over
    and over.
    """
    newest = newest_environments() if newest is None else newest
    if not newest:
        return []
    rows_by_key: dict[tuple[str, ...], CachedConfig] = {}
    rows = CachedConfig.objects.filter(origin=rules.Origin.TUNE, recorded="", job__isnull=False, gpu__in=newest)
    for row in selectors.hottest_first([row for row in rows.select_related("job") if not selectors.why_not(row)]):
        rows_by_key.setdefault(_key(row), row)
    since = min((row.first_seen for row in newest.values()), default=timezone.now())
    searched: dict[tuple[str, ...], datetime] = {}
    for job in TuneJob.objects.filter(created__gte=since, recorded="", only__isnull=True, space__isnull=True).only(
            "operator", "dtype", "shape", "device", "gpu", "timing", "created"):
        for gpu in {job.gpu, devices.gpu_model(job.device)} - {""}:
            key = (job.operator, job.dtype, config_key(job.shape), gpu, job.timing)
            searched[key] = max(job.created, searched.get(key, job.created))
    due = [row for key, row in rows_by_key.items()
           if row.job and rules.is_newer(newest[row.gpu].toolkit, row.job.toolkit or rules.toolkit_text(row.job.environment))
           and not (key in searched and searched[key] >= newest[row.gpu].first_seen)]
    worth = selectors.entry_stakes(due)
    return [DueSearch(row, newest[row.gpu], worth[row.pk][0], 100 * worth[row.pk][1]) for row in due]


def _key(row: CachedConfig) -> tuple[str, ...]:
    return row.operator, row.dtype, config_key(row.shape), row.gpu, row.policy or "cold"


def is_in_hours(policy: RevalidationPolicy, now: datetime) -> bool:
    """Return whether searches may begin at this time. 22 to 6 goes over midnight; 0 to 24 is always. Hours are UTC."""
    hour = now.astimezone(UTC).hour
    if policy.from_hour < policy.until_hour:
        return policy.from_hour <= hour < policy.until_hour
    return hour >= policy.from_hour or hour < policy.until_hour


def groups_of(environments: Sequence[GpuEnvironment]) -> list[TuneGroup]:
    """Return the groups of searches that were begun by themselves under these environments."""
    ids = [row.pk for row in environments]
    return [] if not ids else list(TuneGroup.objects.filter(source__environment__in=ids).order_by("id"))


@transaction.atomic
def wake_searches(now: datetime | None = None) -> list[int]:
    """Queue the hottest due search of each GPU model that has none under way, within hours and bounds; return job ids."""
    policy = current_policy()
    if not policy.searches or not is_in_hours(policy, now or timezone.now()):
        return []
    RevalidationPolicy.objects.select_for_update().get(pk=policy.pk)                  # two sweeps make one job
    by_gpu: dict[str, list[DueSearch]] = {}
    for due in due_searches():
        by_gpu.setdefault(due.entry.gpu, []).append(due)
    job_pks = []
    for waiting in by_gpu.values():
        group = next(iter(groups_of([waiting[0].environment])), None)
        begun = group.jobs.count() if group else 0
        if begun >= policy.most_searches or (group and group.jobs.filter(status__in=LIVE).exists()):
            continue
        job_pks += _queue_first(policy, waiting, group, begun)
    return job_pks


def _queue_first(policy: RevalidationPolicy, waiting: list[DueSearch], group: TuneGroup | None, begun: int) -> list[int]:
    """Queue the first search that can be made; what cannot is said in the log."""
    environment, job_pks = waiting[0].environment, list[int]()
    of = group or TuneGroup.objects.create(
        name=f"{environment.gpu}: {environment.toolkit}"[:120], owner=policy.by,
        source={"environment": environment.pk, "gpu": environment.gpu, "toolkit": environment.toolkit})
    for due in waiting:
        entry = due.entry
        try:
            job = tune_create(
                owner=policy.by, operator=entry.operator, shape=entry.shape, dtype=entry.dtype,
                device=f"{devices.GPU}:{entry.gpu}", strategy=DEFAULT, effort="thorough", budget_seconds=policy.search_seconds,
                timing=entry.policy or "cold", first=[entry.config], group=of, group_place=begun)
        except Refused as error:                                       # of an operator whose package was disabled, say
            log.warning("%s on %s is not searched again: %s", entry, entry.gpu, error)
            continue
        log.info("a new toolkit: %s is searched again as job %d", entry, job.pk)
        job_pks = [job.pk]
        break
    if not group and not job_pks:
        of.delete()
    return job_pks


def set_searches(*, by: Any, searches: bool, most_searches: Any = None, search_seconds: Any = None, from_hour: Any = None,
                 until_hour: Any = None) -> RevalidationPolicy:
    """Change whether winners are searched again under a new toolkit. Raises Refused. What is switched on takes hold at once."""
    now = current_policy()
    fields = {"most_searches": most_searches, "search_seconds": search_seconds, "from_hour": from_hour, "until_hour": until_hour}
    values = {name: getattr(now, name) if value is None else value for name, value in fields.items()}
    problems = {} if isinstance(searches, bool) else {"searches": "true or false"}
    for name, low, high in (("most_searches", 1, MOST_SEARCHES), ("from_hour", 0, 23), ("until_hour", 1, 24)):
        value = values[name]
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            problems[name] = f"a whole number from {low} to {high}"
    seconds = values["search_seconds"]
    if not 10 <= (finite_number(seconds) or 0) <= MOST_SECONDS:
        problems["search_seconds"] = f"GPU-seconds, from 10 to {MOST_SECONDS:,.0f}"
    if not problems and values["from_hour"] == values["until_hour"]:
        problems["until_hour"] = "another hour than the one they begin at; 0 to 24 is always"
    if problems:
        raise Refused(problems)
    with transaction.atomic():
        now.searches, now.by = searches, by
        for name, value in values.items():
            setattr(now, name, float(value) if name == "search_seconds" else value)
        now.save()
        transaction.on_commit(wake_searches, robust=True)
    return now


def overview(policy: RevalidationPolicy | None = None, newest: Mapping[str, GpuEnvironment] | None = None) -> dict[str, Any]:
    """Return what page, API and command show; `policy` and `newest` where the caller has read them."""
    policy = policy or current_policy()
    newest = newest_environments() if newest is None else newest
    due = due_searches(newest)
    groups = groups_of(list(newest.values()))
    return {"policy": policy, "due": due, "shown": due[:MOST_SHOWN], "in_hours": is_in_hours(policy, timezone.now()),
            "always": policy.from_hour == 0 and policy.until_hour == 24,
            "groups": [{"group": group, "jobs": group.jobs.count(), "live": group.jobs.filter(status__in=LIVE).count()}
                       for group in groups]}


class DueJson(TypedDict):
    entry: int
    gpu: str
    toolkit: str


class SearchGroupJson(TypedDict):
    id: int
    name: str
    jobs: int
    live: int


class SearchesJson(TypedDict):
    """Whether the hottest configurations are searched again under a new toolkit, at what hours (UTC), and which are due."""

    by_itself: bool
    most_searches: int
    search_seconds: float
    from_hour: int
    until_hour: int
    due: int
    next: list[DueJson]
    groups: list[SearchGroupJson]


def overview_json(found: dict[str, Any]) -> SearchesJson:
    """Return the JSON of `overview`."""
    policy: RevalidationPolicy = found["policy"]
    return {"by_itself": policy.searches, "most_searches": policy.most_searches, "search_seconds": policy.search_seconds,
            "from_hour": policy.from_hour, "until_hour": policy.until_hour, "due": len(found["due"]),
            "next": [{"entry": due.entry.pk, "gpu": due.entry.gpu, "toolkit": due.environment.toolkit} for due in found["shown"]],
            "groups": [{"id": row["group"].pk, "name": row["group"].name, "jobs": row["jobs"], "live": row["live"]}
                       for row in found["groups"]]}

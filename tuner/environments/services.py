"""What happens when an environment is seen for the first time: winners become doubtful, and the hottest are measured again."""

from __future__ import annotations

import logging
import math
from typing import Any

from django.db import transaction

from tuner.configs import revalidation_services
from tuner.configs.services import environment_seen
from tuner.environments import revalidation_selectors
from tuner.models import CachedConfig, RevalidationPolicy, SuiteJob

log = logging.getLogger(__name__)
MOST_ENTRIES, MOST_SECONDS = 200, 86_400.0


class PolicyRefused(ValueError):
    """`fields`: what is wrong with each."""

    def __init__(self, fields: dict[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {problem}" for name, problem in fields.items()))
        self.fields = fields


def environment_noticed(gpu: str, toolkit: str, driver: str = "") -> bool:
    """Something ran on this GPU model with this toolkit and driver. True when that is new: older winners are unverified then,
    and where the switch is on the hottest are queued."""
    new = environment_seen(gpu, toolkit, driver)
    if new:
        transaction.on_commit(revalidations_wake)
    return new


def policy_set(*, by: Any, by_itself: bool, most_entries: Any = None, most_seconds: Any = None) -> RevalidationPolicy:
    """Raises PolicyRefused. What is switched on takes hold at once."""
    now = revalidation_selectors.policy()
    entries = now.most_entries if most_entries is None else most_entries
    seconds = now.most_seconds if most_seconds is None else most_seconds
    problems = {}
    if not isinstance(by_itself, bool):
        problems["by_itself"] = "true or false"
    if isinstance(entries, bool) or not isinstance(entries, int) or not 1 <= entries <= MOST_ENTRIES:
        problems["most_entries"] = f"a whole number from 1 to {MOST_ENTRIES}"
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds) \
            or not 1 <= seconds <= MOST_SECONDS:
        problems["most_seconds"] = f"GPU-seconds, from 1 to {MOST_SECONDS:,.0f}"
    if problems:
        raise PolicyRefused(problems)
    with transaction.atomic():
        now.by_itself, now.most_entries, now.most_seconds, now.by = by_itself, entries, float(seconds), by
        now.save()
        transaction.on_commit(revalidations_wake)
    return now


def revalidations_wake() -> list[int]:
    """Where the switch is on: the hottest doubtful winners that no job was to measure since are measured again. Ids of the jobs.

    What was measured and not decided on, because a worker died in between, is decided first, whatever the switch says.
    """
    revalidation_services.decisions_wake()
    policy = revalidation_selectors.policy()
    if not policy.by_itself:
        return []
    by_gpu: dict[str, list[CachedConfig]] = {}
    rows = revalidation_selectors.not_asked(revalidation_selectors.doubtful())
    for row in rows:
        by_gpu.setdefault(row.gpu, []).append(row)
    chosen: list[CachedConfig] = []
    for gpu, mine in by_gpu.items():
        entries, seconds = revalidation_selectors.spent(gpu)
        chosen += revalidation_selectors.within(mine, max(0, policy.most_entries - entries), policy.most_seconds - seconds)
    made = revalidation_services.revalidate(chosen, policy.by)
    if made:
        log.info("a new environment: %d of %d doubtful winners are measured again", sum(
            len(job.about["entries"]) for job in made), len(rows))
    return [job.pk for job in made]


def revalidate_now(owner: Any, rows: list[CachedConfig] | None = None) -> list[SuiteJob]:
    """A person asks: the hottest doubtful winners within the bounds."""
    policy = revalidation_selectors.policy()
    chosen = rows if rows is not None else revalidation_selectors.within(
        revalidation_selectors.doubtful(), policy.most_entries, policy.most_seconds)
    return revalidation_services.revalidate(chosen, owner)

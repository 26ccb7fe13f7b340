"""What is known of an entry now: verified, unverified, stale or quarantined, and every change of it in the entry's history."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone

from tuner import cache
from tuner.models import CachedConfig, GpuEnvironment

HISTORY = 50                               # events kept of one entry
State = cache.State


@transaction.atomic             # once the environment is known, nobody looks for what it makes doubtful again
def environment_seen(gpu: str, toolkit: str, driver: str = "") -> bool:
    """A job ran with this toolkit and driver on this GPU model. True when it is new: older entries are unverified then."""
    gpu, toolkit, driver = gpu[:120], toolkit[:80], driver[:40]
    if not gpu or toolkit in ("", "unknown"):
        return False
    seen, new = GpuEnvironment.objects.get_or_create(gpu=gpu, toolkit=toolkit, driver=driver)
    if not new:
        seen.save(update_fields=["last_seen"])
        return False
    for row in CachedConfig.objects.filter(gpu=gpu, recorded="", state=State.VERIFIED):
        why = _behind(row.toolkit, row.driver, toolkit, driver)
        if why:
            state_set(row, State.UNVERIFIED, why)
    return True


def _behind(toolkit: str, driver: str, now_toolkit: str, now_driver: str) -> str:
    """Why something measured under (toolkit, driver) is older than what runs now; "" when it is not."""
    if cache.newer(now_toolkit, toolkit):
        return f"measured under {toolkit}; {now_toolkit} was seen since"
    if driver and now_driver and cache.newer(now_driver, driver):
        return f"measured under driver {driver}; driver {now_driver} was seen since"
    return ""


def state_now(gpu: str, toolkit: str, driver: str) -> tuple[State, str]:
    """Of an entry that is being written: verified, unless this GPU model was seen with something newer."""
    for seen in GpuEnvironment.objects.filter(gpu=gpu):
        why = _behind(toolkit, driver, seen.toolkit, seen.driver)
        if why:
            return State.UNVERIFIED, why
    return State.VERIFIED, ""


def older_are_stale(entry: CachedConfig, by: str) -> None:
    """The same shape measured under something older was replaced here. `by`: "tune job 7"."""
    same = CachedConfig.objects.filter(operator=entry.operator, dtype=entry.dtype, shape_key=entry.shape_key, gpu=entry.gpu,
                                       policy=entry.policy, recorded="", origin=entry.origin).exclude(pk=entry.pk)
    for row in same.exclude(state=State.STALE):
        older = _behind(row.toolkit, row.driver, entry.toolkit, entry.driver)
        if older or (row.toolkit, row.driver) == (entry.toolkit, entry.driver):       # the latter: another kernel source
            again = "the same configuration" if row.config == entry.config else "another configuration"
            state_set(row, State.STALE, f"measured again by {by} under {entry.toolkit}: {again} serves there")


def other_source_unverified(entry: CachedConfig) -> None:
    """The operator's kernel has another source now: what was measured with the old one may not hold."""
    if not entry.source_hash:
        return
    rows = CachedConfig.objects.filter(operator=entry.operator, recorded="", origin=entry.origin, state=State.VERIFIED)
    for row in rows.exclude(source_hash__in=[entry.source_hash, ""]):
        state_set(row, State.UNVERIFIED, f"the kernel's source changed: {row.source_hash[:12]} then, {entry.source_hash[:12]} now")


def state_set(row: CachedConfig, state: State, why: str) -> None:
    """Change a state and keep the change in the entry's history."""
    event = {"at": timezone.now().isoformat(), "state": str(state), "why": why[:300]}
    row.evidence["history"] = [*row.evidence.get("history", []), event][-HISTORY:]
    row.state, row.state_why = state, why[:300]
    row.save(update_fields=["evidence", "state", "state_why", "updated"])


def config_state(row: CachedConfig, state: str, by: Any, why: str = "") -> CachedConfig:
    """A person says that an entry must not serve, or may again."""
    told = f"by {by.get_username() if by else 'nobody known'}" + (f": {why}" if why else "")
    state_set(row, cache.State(state), told)
    return row

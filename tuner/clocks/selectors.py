"""Reads of what is allowed with the clocks of GPUs, beside what workers say of them now."""

from __future__ import annotations

from typing import Any, TypedDict

from profiles.base.answers import Facts
from tuner.clocks.wish import ClockWish, told_text
from tuner.models import GpuClockRule
from workers import jobs


def wish_of(uuid: str) -> ClockWish | None:
    """Return what owners ask for on a GPU; None where its clocks are left alone."""
    rule = GpuClockRule.objects.filter(uuid=uuid).first()
    return _wish(rule) if rule else None


def _wish(rule: GpuClockRule) -> ClockWish:
    return ClockWish(rule.graphics, rule.memory_mhz, rule.persistence, rule.required)


def cards() -> dict[str, dict[str, Any]]:
    """Return uuid -> what living workers say of a GPU, and its host."""
    return {card["uuid"]: {**card, "host": worker.get("host") or ""}
            for worker in jobs.workers() for card in worker.get("gpus") or () if card.get("uuid")}


def card_of(uuid: str) -> dict[str, Any] | None:
    """Return what living workers say of one GPU; None where none has it."""
    return cards().get(uuid)


def clock_list() -> list[dict[str, Any]]:
    """Return every GPU that a worker has or a rule names, as JSON: what is allowed, what is held, how it last went."""
    rules = {rule.uuid: rule for rule in GpuClockRule.objects.select_related("by")}
    there = cards()
    names = sorted({*rules, *there}, key=lambda uuid: (_host(rules.get(uuid), there.get(uuid)), uuid))
    return [clock_json(uuid, rules.get(uuid), there.get(uuid)) for uuid in names]


def _host(rule: GpuClockRule | None, card: dict[str, Any] | None) -> str:
    return str(card["host"]) if card else rule.host if rule else ""


class HeldJson(TypedDict):
    """Who holds a GPU's clocks, since when, and what was changed."""

    by: str
    since: str
    changes: list[str]


class ClockJson(TypedDict):
    """What workers may do with a GPU's clocks; `alive`: a worker has it now; what only a worker can say is null without one."""

    uuid: str
    gpu: str
    host: str
    alive: bool
    allowed: bool
    graphics: str
    memory_mhz: int | None
    persistence: bool
    required: bool
    by: str | None
    changed: str | None
    max_sm_clock_mhz: float | None
    max_memory_clock_mhz: float | None
    sm_clock_mhz: float | None
    memory_clock_mhz: float | None
    persistence_now: bool | None
    held: HeldJson | None
    last: Facts | None                  # how it went the last time
    last_says: str


def clock_json(uuid: str, rule: GpuClockRule | None, card: dict[str, Any] | None) -> Any:
    """Return one GPU. `alive`: a worker has it now; what only a worker can say is null without one."""
    gpu = card or {}
    clocks = gpu.get("clocks") or {}
    last = clocks.get("last")
    return {
        "uuid": uuid, "gpu": gpu.get("name") or (rule.gpu if rule else ""), "host": _host(rule, card), "alive": card is not None,
        "allowed": rule is not None, **(_wish(rule) if rule else ClockWish()).as_json(),
        "by": rule.by.get_username() if rule and rule.by else None, "changed": rule.changed.isoformat() if rule else None,
        "max_sm_clock_mhz": gpu.get("max_sm_clock_mhz"), "max_memory_clock_mhz": gpu.get("max_memory_clock_mhz"),
        "sm_clock_mhz": gpu.get("sm_clock_mhz"), "memory_clock_mhz": gpu.get("memory_clock_mhz"),
        "persistence_now": gpu.get("persistence_now"),
        "held": clocks.get("held"), "last": last, "last_says": told_text(last) if last else ""}

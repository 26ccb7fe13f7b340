"""Let workers hold the clocks of a GPU, or no longer."""

from __future__ import annotations

from typing import Any

from profiles.base.refused import Refused
from tuner.clocks import selectors
from tuner.clocks.wish import ClockWish
from tuner.models import GpuClockRule
from tuner.tuning.trial import storable


def rule_set(uuid: str, wish: ClockWish, *, by: Any) -> GpuClockRule:
    """Let workers hold the clocks of a GPU from the next job on. Raises Refused for a GPU that nobody knows, and for a clock
    that its driver does not offer."""
    card = selectors.card_of(uuid)
    rule = _rule(uuid)
    if card is None and rule is None:
        raise Refused({"uuid": "no worker that runs now has this GPU: start one on its host, then allow it"})
    highest = (card or {}).get("max_sm_clock_mhz")
    if highest and not wish.graphics.endswith("%") and int(wish.graphics) > highest:
        raise Refused({"graphics": f"this GPU's highest graphics clock is {highest} MHz, not {wish.graphics}"})
    where = {"gpu": str(card["name"])[:120], "host": str(card["host"])[:255]} if card else {}
    return GpuClockRule.objects.update_or_create(uuid=uuid, defaults={**wish.as_json(), **where, "by": by})[0]


def rule_remove(uuid: str) -> bool:
    """Let workers leave the clocks of a GPU alone; False where they did. What a job holds now is put back when it ends."""
    rule = _rule(uuid)
    if rule is not None:
        rule.delete()
    return rule is not None


def _rule(uuid: str) -> GpuClockRule | None:
    return GpuClockRule.objects.filter(uuid=uuid).first() if storable(uuid) else None

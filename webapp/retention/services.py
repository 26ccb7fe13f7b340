"""What an owner decides about keeping, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profiles.base.refused import Refused
from profiles.models import Keeping
from webapp.audit import services as audit
from workers.retention.run import KINDS

MOST_DAYS = 36_500
MOST_BYTES = 1 << 60


def decide(keeping: Keeping, days: Mapping[str, Any], quota_bytes: Any) -> None:
    """Set the days of each kind (None or "": kept for ever) and the quota (None or "": without). Raises Refused."""
    limits = {}
    for name, limit in days.items():
        if name not in KINDS:
            raise Refused({name: f"kinds are {', '.join(KINDS)}"})
        if limit not in (None, ""):
            limits[name] = _whole(name, limit, MOST_DAYS)
    before = {"days": keeping.days, "quota_bytes": keeping.quota_bytes}
    keeping.days = limits
    keeping.quota_bytes = None if quota_bytes in (None, "") else _whole("quota", quota_bytes, MOST_BYTES)
    keeping.save(update_fields=["days", "quota_bytes"])
    changes = {name: [value, getattr(keeping, name)] for name, value in before.items() if value != getattr(keeping, name)}
    if changes:
        audit.record("changed", "retention", str(keeping), keeping.pk, changes, keeping.project_id)


def _whole(field: str, given: Any, most: int) -> int:
    text = str(given)
    if isinstance(given, bool) or not text.isascii() or not text.isdecimal() or len(text) > 19 or not 1 <= int(text) <= most:
        raise Refused({field: f"a whole number from 1 to {most:,}"})
    return int(text)

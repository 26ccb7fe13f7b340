"""What RIDGEPOINT_LIMITS says (webapp.operate.limits counts by it). Each process reads it as it starts, so it imports nothing."""

from __future__ import annotations

import re

DEFAULTS = {"upload": (120, 60), "sql": (120, 60), "search": (600, 60), "agents": (600, 60)}        # times, in seconds
PERIODS_S = {"s": 1, "min": 60, "h": 3600}
_PART = re.compile(r"(\w+)=(?:(\d{1,9})/(s|min|h)|0)")


def limits_parse(text: str) -> dict[str, tuple[int, int]]:
    """Return (times, seconds) by kind, 0 times: no limit. Raises ValueError with what would be right."""
    limits = dict(DEFAULTS)
    for part in filter(None, re.split(r"[\s,]+", text)):
        match = _PART.fullmatch(part)
        if match is None or match[1] not in DEFAULTS:
            raise ValueError(f"RIDGEPOINT_LIMITS: {part!r} is none; like “upload=120/min”, “sql=0”, of {', '.join(DEFAULTS)}")
        limits[match[1]] = (int(match[2] or 0), PERIODS_S[match[3]] if match[3] else 60)
    return limits
